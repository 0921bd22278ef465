/* bfloat16 as the kernels see it, and what the vector ones share. A whole pass runs in one team of threads (layers.c), a single
 * operation brings a team of its own; each thread takes its share of the rows, outputs or heads. */

#ifndef HSD_BF16_H
#define HSD_BF16_H

#include <stdint.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

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

typedef struct {
    int64_t first, last;
} part;

static inline int64_t team_size(void) {
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

static inline int64_t largest_team(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static inline int64_t place_in_team(void) {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* This thread's share of `count` things. */
static inline part share(int64_t count) {
    int64_t threads = team_size(), me = place_in_team();
    return (part){count * me / threads, count * (me + 1) / threads};
}

/* Where it takes less time than to wait for others, each thread computes all of something `alone`, for itself. */
static inline part share_or_all(int64_t count, int alone) { return alone ? (part){0, count} : share(count); }

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

/* Call `f` for `count` rows in equal parts of at most `most` (12 or fewer), whose number the compiler then knows: `first` is a part's
 * first row. */
#define OF_PART(n, most, f, ...) \
    case n: f(__VA_ARGS__, (n) <= (most) ? (n) : 1); break;
#define IN_PARTS(count, most, f, ...)                                                                                           \
    for (int64_t first = 0, parts_left = ((count) + (most) - 1) / (most), some; first < (count); first += some, parts_left--) { \
        some = ((count) - first + parts_left - 1) / parts_left;                                                                 \
        switch (some) {                                                                                                         \
            OF_PART(1, most, f, __VA_ARGS__) OF_PART(2, most, f, __VA_ARGS__) OF_PART(3, most, f, __VA_ARGS__)                  \
            OF_PART(4, most, f, __VA_ARGS__) OF_PART(5, most, f, __VA_ARGS__) OF_PART(6, most, f, __VA_ARGS__)                  \
            OF_PART(7, most, f, __VA_ARGS__) OF_PART(8, most, f, __VA_ARGS__) OF_PART(9, most, f, __VA_ARGS__)                  \
            OF_PART(10, most, f, __VA_ARGS__) OF_PART(11, most, f, __VA_ARGS__) OF_PART(12, most, f, __VA_ARGS__)               \
        }                                                                                                                       \
    }

typedef struct {
    int64_t width, start, capacity, heads, kv_heads, dim, hidden, inner, num_layers;
    float eps, scale;
} shape;

/* What a product reads: x (rows, inputs) as it is, or rounded to int8 in groups of inputs that share a scale. */
typedef struct {
    const bf16 *x;
    int8_t *codes;
    float *scales, *sums; /* (rows, groups); sums are those of what the codes of a group stand for */
} operand;

INLINE int64_t blocks_of(const product *p) { return (p->outputs + BLOCK - 1) / BLOCK; }

int64_t hsd_product_bytes(int64_t rows, int64_t inputs, int64_t group);
int64_t hsd_attention_bytes(const shape *s);
/* For every thread of a team to call; `alone` as in share_or_all. */
operand hsd_operand(const product *p, const bf16 *x, char *scratch, int64_t rows, int alone);
void hsd_multiply(const product *p, const operand *x, bf16 *out, int64_t rows, part blocks);
void hsd_attend_together(const bf16 *qkv, bf16 *keys, bf16 *values, const bf16 *q_norm, const bf16 *k_norm, const bf16 *cosines,
                         const bf16 *sines, bf16 *out, char *scratch, const shape *s, int alone);
#endif
void hsd_norm_rows(bf16 *x, const bf16 *delta, const bf16 *weight, bf16 *out, part rows, int64_t hidden, float eps);
void hsd_silu_rows(const bf16 *gate_up, bf16 *out, int64_t width, int64_t inner, part columns);
#endif
