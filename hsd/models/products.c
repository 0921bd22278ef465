/* Matrix products of a few rows with weights that stream from memory once, on processors with AVX-512 BF16 and VNNI.
 *
 * Libraries tune their products for many rows. In decoding there are few, and memory is the limit. Weights lie in blocks of
 * 32 outputs, all of a block's inputs in the order in which they are read, so that each lane of a register sums one output:
 * nothing is added across lanes, and a few rows cost little more than one. Every output is summed in one order, whatever the
 * number of rows, so that a token's bits do not depend on the width of its pass. */

#include "bf16.h"

#ifdef HSD_VECTORS

#define INT4_GROUP 32 /* inputs that share a scale of an int4 weight, and of x beside it */
#define INT4_BYTES 640 /* of one block and group: 512 of codes, 64 of scales, 64 of minima */
/* Bytes to ask memory for in advance. The first level of cache takes them soonest, the second has room for more requests under way,
 * which pays as soon as a block takes longer than its bytes (measured pass by pass at 1 to 8 rows). */
#define ASK_SOON(w) _mm_prefetch((const char *)(w) + 4096, _MM_HINT_T0)
#define ASK_EARLY(w, bytes) _mm_prefetch((const char *)(w) + (bytes), _MM_HINT_T1)
typedef struct {
    const bf16 *bias; /* (outputs), or absent */
    bf16 *out;        /* (rows, outputs) */
    int64_t outputs, block; /* first output of this block */
} target;

int hsd_has_products(void) { return 1; }

/* Write the sums of one row and one half of a block. */
INLINE void put(__m512 sums, const target *t, int64_t row, int half) {
    int64_t output = t->block + 16 * half, left = t->outputs - output;
    if (left <= 0) return;
    __mmask16 lanes = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
    if (t->bias)
        sums = _mm512_add_ps(sums, _mm512_castsi512_ps(_mm512_slli_epi32(
                                       _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, t->bias + output)), 16)));
    _mm256_mask_storeu_epi16(t->out + row * t->outputs + output, lanes, (__m256i)_mm512_cvtneps_pbh(sums));
}

INLINE void block_bf16(const bf16 *w, const bf16 *x, int64_t inputs, const target *t, int64_t row, const int rows) {
    __m512 low[12], high[12]; /* of 32 registers */
    UNROLL for (int r = 0; r < rows; r++) low[r] = high[r] = _mm512_setzero_ps();
    x += row * inputs;
    for (int64_t k = 0; k < inputs; k += 2) {
        const bf16 *ws = w + k * BLOCK;
        if (rows > 5)
            ASK_EARLY(ws, 8192), ASK_EARLY(ws + BLOCK, 8192);
        else
            ASK_SOON(ws), ASK_SOON(ws + BLOCK);
        __m512bh a = (__m512bh)_mm512_loadu_si512(ws), b = (__m512bh)_mm512_loadu_si512(ws + 32);
        UNROLL for (int r = 0; r < rows; r++) {
            __m512bh xs = (__m512bh)broadcast(x + r * inputs + k);
            low[r] = _mm512_dpbf16_ps(low[r], a, xs);
            high[r] = _mm512_dpbf16_ps(high[r], b, xs);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) put(low[r], t, row + r, 0), put(high[r], t, row + r, 1);
}

/* Some rows of x to int8 in groups of `group` inputs that share a scale. */
static void quantize(const operand *o, part rows, int64_t inputs, int64_t group) {
    int64_t groups = inputs / group;
    for (int64_t place = rows.first * groups; place < rows.last * groups; place++) {
        const bf16 *xs = o->x + place * group;
        __m512 largest = _mm512_setzero_ps();
        for (int64_t i = 0; i < group; i += 16) largest = _mm512_max_ps(largest, _mm512_abs_ps(widen16(xs + i)));
        float most = _mm512_reduce_max_ps(largest), inverse = most > 0 ? 127.0f / most : 0.0f;
        __m512i total = _mm512_setzero_si512();
        __mmask16 broken = 0;
        for (int64_t i = 0; i < group; i += 16) {
            __m512 value = widen16(xs + i);
            broken |= _mm512_cmp_ps_mask(_mm512_sub_ps(value, value), value, _CMP_UNORD_Q); /* NaN or infinite */
            __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(value, _mm512_set1_ps(inverse)));
            total = _mm512_add_epi32(total, code);
            _mm_storeu_si128((void *)(o->codes + place * group + i), _mm512_cvtsepi32_epi8(code));
        }
        float scale = broken ? __builtin_nanf("") : most / 127.0f; /* must come through */
        o->scales[place] = scale;
        o->sums[place] = scale * (float)_mm512_reduce_add_epi32(total);
    }
}

INLINE void block_int8(const uint8_t *w, const operand *x, const product *p, const target *t, int64_t row, const int rows) {
    __m512 low[6], high[6];
    UNROLL for (int r = 0; r < rows; r++) low[r] = high[r] = _mm512_setzero_ps();
    int64_t groups = p->inputs / p->group;
    for (int64_t g = 0; g < groups; g++) {
        __m512i a[6], b[6];
        UNROLL for (int r = 0; r < rows; r++) a[r] = b[r] = _mm512_setzero_si512();
        const int8_t *xs = x->codes + row * p->inputs;
        for (int64_t k = g * p->group; k < (g + 1) * p->group; k += 4) {
            const uint8_t *ws = w + k * BLOCK;
            ASK_EARLY(ws, 6144), ASK_EARLY(ws + 64, 6144);
            __m512i first = _mm512_loadu_si512(ws), second = _mm512_loadu_si512(ws + 64);
            UNROLL for (int r = 0; r < rows; r++) {
                __m512i four = broadcast(xs + r * p->inputs + k);
                a[r] = _mm512_dpbusd_epi32(a[r], first, four);
                b[r] = _mm512_dpbusd_epi32(b[r], second, four);
            }
        }
        UNROLL for (int r = 0; r < rows; r++) {
            float shift = -128.0f * x->sums[(row + r) * groups + g];
            __m512 scale = _mm512_set1_ps(x->scales[(row + r) * groups + g]);
            low[r] = _mm512_add_ps(low[r], _mm512_fmadd_ps(_mm512_cvtepi32_ps(a[r]), scale, _mm512_set1_ps(shift)));
            high[r] = _mm512_add_ps(high[r], _mm512_fmadd_ps(_mm512_cvtepi32_ps(b[r]), scale, _mm512_set1_ps(shift)));
        }
    }
    __m512 first = _mm512_loadu_ps(p->scales + t->block), second = _mm512_loadu_ps(p->scales + t->block + 16);
    UNROLL for (int r = 0; r < rows; r++) {
        put(_mm512_mul_ps(low[r], first), t, row + r, 0);
        put(_mm512_mul_ps(high[r], second), t, row + r, 1);
    }
}

INLINE void block_int4(const uint8_t *w, const operand *x, const product *p, const target *t, int64_t row, const int rows) {
    __m512 low[6], high[6];
    UNROLL for (int r = 0; r < rows; r++) low[r] = high[r] = _mm512_setzero_ps();
    const __m512i nibble = _mm512_set1_epi8(15);
    int64_t groups = p->inputs / INT4_GROUP;
    for (int64_t g = 0; g < groups; g++, w += INT4_BYTES) {
        __m512i a[6], b[6];
        UNROLL for (int r = 0; r < rows; r++) a[r] = b[r] = _mm512_setzero_si512();
        const int8_t *xs = x->codes + row * p->inputs + g * INT4_GROUP;
        UNROLL for (int byte = 0; byte < INT4_BYTES; byte += 64) ASK_EARLY(w + byte, 6144);
        UNROLL for (int k = 0; k < INT4_GROUP; k += 8) {
            __m512i first = _mm512_loadu_si512(w + k * 16), second = _mm512_loadu_si512(w + k * 16 + 64);
            __m512i first_low = _mm512_and_si512(first, nibble), first_high = _mm512_and_si512(_mm512_srli_epi16(first, 4), nibble);
            __m512i second_low = _mm512_and_si512(second, nibble), second_high = _mm512_and_si512(_mm512_srli_epi16(second, 4), nibble);
            UNROLL for (int r = 0; r < rows; r++) {
                __m512i four = broadcast(xs + r * p->inputs + k), next = broadcast(xs + r * p->inputs + k + 4);
                a[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(a[r], first_low, four), first_high, next);
                b[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(b[r], second_low, four), second_high, next);
            }
        }
        const __m256i *halves = (const __m256i *)(w + 512);
        __m512 scale_low = _mm512_cvtph_ps(_mm256_loadu_si256(halves)), least_low = _mm512_cvtph_ps(_mm256_loadu_si256(halves + 2));
        __m512 scale_high = _mm512_cvtph_ps(_mm256_loadu_si256(halves + 1)), least_high = _mm512_cvtph_ps(_mm256_loadu_si256(halves + 3));
        UNROLL for (int r = 0; r < rows; r++) {
            __m512 scale = _mm512_set1_ps(x->scales[(row + r) * groups + g]), sum = _mm512_set1_ps(x->sums[(row + r) * groups + g]);
            low[r] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(a[r]), scale), scale_low, _mm512_fmadd_ps(least_low, sum, low[r]));
            high[r] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(b[r]), scale), scale_high, _mm512_fmadd_ps(least_high, sum, high[r]));
        }
    }
    UNROLL for (int r = 0; r < rows; r++) put(low[r], t, row + r, 0), put(high[r], t, row + r, 1);
}

/* x (rows, inputs) as the product reads it; scratch holds hsd_product_bytes. */
operand hsd_operand(const product *p, const bf16 *x, char *scratch, int64_t rows, int alone) {
    operand o = {.x = x};
    if (p->bits == 16) return o;
    o.codes = (int8_t *)scratch, o.scales = (float *)(scratch + rows * p->inputs), o.sums = o.scales + rows * (p->inputs / p->group);
    quantize(&o, share_or_all(rows, alone), p->inputs, p->group);
    if (!alone) {
#pragma omp barrier
    }
    return o;
}

/* Some blocks of out (rows, outputs) = x (rows, inputs) @ weight.T + bias. Outputs are rounded up to whole blocks in the weight's
 * layout:
 * 16 bits: bf16 (blocks, inputs / 2, 32, 2).
 * 8 bits: codes (blocks, inputs / 4, 32, 4), shifted by 128 into unsigned bytes, and a scale for each output.
 * 4 bits: bytes (blocks, inputs / 32, 640), for each group of 32 inputs codes (4, 32, 4), the low half of a byte for inputs 8 i
 * to 8 i + 3 and the high half for the four after them, then 32 scales and 32 minima in float16; scale * code + minimum.
 * With 8 and 4 bits x is rounded to int8 in groups, 16 dividing the group and the group the inputs. */
void hsd_multiply(const product *p, const operand *x, bf16 *out, int64_t rows, part blocks) {
    for (int64_t n = blocks.first; n < blocks.last; n++) {
        target t = {p->bias, out, p->outputs, n * BLOCK};
        if (p->bits == 16) {
            IN_PARTS(rows, 12, block_bf16, (const bf16 *)p->weight + n * BLOCK * p->inputs, x->x, p->inputs, &t, first)
        } else if (p->bits == 8) {
            IN_PARTS(rows, 6, block_int8, (const uint8_t *)p->weight + n * BLOCK * p->inputs, x, p, &t, first)
        } else {
            IN_PARTS(rows, 6, block_int4, (const uint8_t *)p->weight + n * (p->inputs / INT4_GROUP) * INT4_BYTES, x, p, &t, first)
        }
    }
}

/* Codes, and a scale and a sum for each group; group 0 is none. */
int64_t hsd_product_bytes(int64_t rows, int64_t inputs, int64_t group) {
    return group ? rows * (inputs + inputs / group * 2 * (int64_t)sizeof(float)) : 0;
}

void hsd_linear(const product *p, const bf16 *x, bf16 *out, char *scratch, int64_t rows) {
#pragma omp parallel
    {
        operand o = hsd_operand(p, x, scratch, rows, 0);
        hsd_multiply(p, &o, out, rows, share(blocks_of(p)));
    }
}
#else
int hsd_has_products(void) { return 0; }
#endif
