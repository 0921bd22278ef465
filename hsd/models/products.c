/* Matrix products of a few rows with weights that stream from memory once, on processors with AVX-512 BF16 and VNNI.
 *
 * Libraries tune their products for many rows. In decoding there are few, and the memory is the limit: with the weights
 * in large pages and read in one stream, a few rows of x cost little more than one. Every output is summed in an order of
 * its own, whatever the number of rows. */

#include <stdint.h>
#include <string.h>

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include <immintrin.h>

typedef uint16_t bf16;

#define ROWS 5 /* most rows of x at a time */
/* Rows to take when some are left. 4, 6, 7 and 8 at once take up to twice as long as in two parts on the processor this was
 * measured on (Zen 4, gcc 12). */
#define TAKE(left) ((left) <= 3 ? (left) : (left) == 4 ? 2 : (left) == 6 ? 3 : ROWS)
#define UNROLL _Pragma("GCC unroll 16") /* so that the sums stay in registers */

int hsd_has_products(void) { return 1; }

static inline float widen(bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline bf16 narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return (bf16)(((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : rounded) >> 16);
}

/* One row of weight times `rows` (at most ROWS) of x. One at a time: memory is read in one stream, which is what it is
 * fastest at. */
static inline __attribute__((always_inline)) void row_bf16(const bf16 *w, const bf16 *x, int64_t inputs, float *sums, const int rows) {
    __m512 sum[ROWS];
    UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
    int64_t whole = inputs & ~(int64_t)31;
    for (int64_t k = 0; k < whole; k += 32) {
        __m512bh ws = (__m512bh)_mm512_loadu_si512(w + k);
        UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_dpbf16_ps(sum[r], ws, (__m512bh)_mm512_loadu_si512(x + r * inputs + k));
    }
    if (whole < inputs) {
        __mmask32 rest = (1u << (inputs - whole)) - 1;
        __m512bh ws = (__m512bh)_mm512_maskz_loadu_epi16(rest, w + whole);
        UNROLL for (int r = 0; r < rows; r++)
            sum[r] = _mm512_dpbf16_ps(sum[r], ws, (__m512bh)_mm512_maskz_loadu_epi16(rest, x + r * inputs + whole));
    }
    UNROLL for (int r = 0; r < rows; r++) sums[r] = _mm512_reduce_add_ps(sum[r]);
}

/* out (rows, outputs) = x (rows, inputs) @ weight (outputs, inputs).T + bias (outputs); bias may be absent. */
void hsd_linear_bf16(const bf16 *x, const bf16 *weight, const bf16 *bias, bf16 *out, int64_t rows, int64_t inputs, int64_t outputs) {
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < outputs; n++) {
        const bf16 *w = weight + n * inputs;
        for (int64_t row = 0, some; row < rows; row += some) {
            float sums[ROWS];
            const bf16 *xs = x + row * inputs;
            some = TAKE(rows - row);
            switch (some) {
                case 1: row_bf16(w, xs, inputs, sums, 1); break;
                case 2: row_bf16(w, xs, inputs, sums, 2); break;
                case 3: row_bf16(w, xs, inputs, sums, 3); break;
                default: row_bf16(w, xs, inputs, sums, 5);
            }
            for (int64_t r = 0; r < some; r++) out[(row + r) * outputs + n] = narrow(sums[r] + (bias ? widen(bias[n]) : 0.0f));
        }
    }
}

/* Rows of x to int8 in groups that share a scale; offsets (rows) is what the weights' shift of 128 adds. */
static void quantize(const bf16 *x, int8_t *codes, float *scales, float *offsets, int64_t rows, int64_t inputs, int64_t group) {
    for (int64_t row = 0; row < rows; row++) {
        float offset = 0;
        for (int64_t first = 0; first < inputs; first += group) {
            const bf16 *xs = x + row * inputs + first;
            float largest = 0;
            for (int64_t i = 0; i < group; i++) {
                float value = widen(xs[i]);
                value = value < 0 ? -value : value;
                largest = value > largest || value != value ? value : largest; /* a NaN must come through */
            }
            float scale = largest / 127.0f, inverse = largest > 0 ? 127.0f / largest : 0.0f;
            int32_t total = 0;
            for (int64_t i = 0; i < group; i++) {
                float value = widen(xs[i]) * inverse;
                int32_t code = (int32_t)(value + (value < 0 ? -0.5f : 0.5f));
                codes[row * inputs + first + i] = (int8_t)code;
                total += code;
            }
            scales[row * (inputs / group) + first / group] = scale;
            offset += scale * 128.0f * (float)total;
        }
        offsets[row] = offset;
    }
}

static inline __attribute__((always_inline)) void row_int8(const uint8_t *w, const int8_t *x, const float *scales, int64_t inputs, int64_t group,
                                                          float *sums, const int rows) {
    __m512 sum[ROWS];
    UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
    int64_t groups = inputs / group;
    for (int64_t g = 0; g < groups; g++) {
        __m512i dots[ROWS];
        UNROLL for (int r = 0; r < rows; r++) dots[r] = _mm512_setzero_si512();
        for (int64_t k = g * group; k < (g + 1) * group; k += 64) {
            __m512i ws = _mm512_loadu_si512(w + k);
            UNROLL for (int r = 0; r < rows; r++) dots[r] = _mm512_dpbusd_epi32(dots[r], ws, _mm512_loadu_si512(x + r * inputs + k));
        }
        UNROLL for (int r = 0; r < rows; r++)
            sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r]), _mm512_set1_ps(scales[r * groups + g]), sum[r]);
    }
    UNROLL for (int r = 0; r < rows; r++) sums[r] = _mm512_reduce_add_ps(sum[r]);
}

/* As hsd_linear_bf16, with weight codes shifted by 128 into unsigned bytes and one scale per output; x is rounded to int8
 * in groups of `group` inputs, a multiple of 64 that divides them. scratch holds rows * (inputs + 4 * (inputs / group + 1))
 * bytes. */
void hsd_linear_int8(const bf16 *x, const uint8_t *weight, const float *weight_scales, const bf16 *bias, bf16 *out, int8_t *scratch,
                     int64_t rows, int64_t inputs, int64_t outputs, int64_t group) {
    int64_t groups = inputs / group;
    float *scales = (float *)(scratch + rows * inputs), *offsets = scales + rows * groups;
    quantize(x, scratch, scales, offsets, rows, inputs, group);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < outputs; n++) {
        const uint8_t *w = weight + n * inputs;
        for (int64_t row = 0, some; row < rows; row += some) {
            float sums[ROWS];
            const int8_t *xs = scratch + row * inputs;
            const float *ss = scales + row * groups;
            some = TAKE(rows - row);
            switch (some) {
                case 1: row_int8(w, xs, ss, inputs, group, sums, 1); break;
                case 2: row_int8(w, xs, ss, inputs, group, sums, 2); break;
                case 3: row_int8(w, xs, ss, inputs, group, sums, 3); break;
                default: row_int8(w, xs, ss, inputs, group, sums, 5);
            }
            for (int64_t r = 0; r < some; r++)
                out[(row + r) * outputs + n] = narrow((sums[r] - offsets[row + r]) * weight_scales[n] + (bias ? widen(bias[n]) : 0.0f));
        }
    }
}
#else
int hsd_has_products(void) { return 0; }
#endif
