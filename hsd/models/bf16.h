/* bfloat16 as the kernels see it, and what the vector ones share. Loops over rows, outputs or heads are worksharing loops of
 * OpenMP without a team of their own: a whole pass brings one team for all of them (layers.c), a single call brings one each. */

#ifndef HSD_BF16_H
#define HSD_BF16_H

#include <stdint.h>
#include <string.h>

typedef uint16_t bf16;

static inline float widen(bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline bf16 narrow(float value) { /* round to nearest, ties to even; a NaN stays one */
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return (bf16)(((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : rounded) >> 16);
}

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define HSD_VECTORS
#include <immintrin.h>

#define BLOCK 32 /* outputs whose weights lie together: two registers */
#define UNROLL _Pragma("GCC unroll 16") /* so that arrays of vectors stay in registers */
#define INLINE static inline __attribute__((always_inline))

INLINE __m512 widen16(const bf16 *x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x)), 16));
}

INLINE void narrow16(bf16 *out, __m512 x) { _mm256_storeu_si256((void *)out, (__m256i)_mm512_cvtneps_pbh(x)); }

/* Four bytes in every lane. */
INLINE __m512i broadcast(const void *x) {
    int32_t word;
    memcpy(&word, x, 4);
    return _mm512_set1_epi32(word);
}

typedef struct {
    const void *weight;  /* laid out as products.c says, in `bits` bits */
    const float *scales; /* (outputs, rounded up), only with 8 bits */
    const bf16 *bias;    /* (outputs), or absent */
    int64_t inputs, outputs, bits, group; /* group: inputs with one scale of x, with 8 and 4 bits */
} product;

typedef struct {
    int64_t width, start, capacity, heads, kv_heads, dim, hidden, inner, num_layers;
    float eps, scale;
} shape;

int64_t hsd_product_bytes(int64_t rows, int64_t inputs, int64_t group);
int64_t hsd_attention_bytes(const shape *s);
/* For a team of threads that all make the same call. */
void hsd_multiply(const product *p, const bf16 *x, bf16 *out, char *scratch, int64_t rows);
void hsd_attend_together(const bf16 *qkv, bf16 *keys, bf16 *values, const bf16 *q_norm, const bf16 *k_norm, const bf16 *cosines,
                         const bf16 *sines, bf16 *out, char *scratch, const shape *s);
#endif
void hsd_norm_rows(bf16 *x, const bf16 *delta, const bf16 *weight, bf16 *out, int64_t width, int64_t hidden, float eps);
void hsd_silu_rows(const bf16 *gate_up, bf16 *out, int64_t width, int64_t inner);
#endif
