/* bfloat16 as the kernels see it, and what each thread of a team does. A whole pass runs in one team of threads (layers.c), a single
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

void hsd_norm_rows(bf16 *x, const bf16 *delta, const bf16 *weight, bf16 *out, part rows, int64_t hidden, float eps);
void hsd_silu_rows(const bf16 *gate_up, bf16 *out, int64_t width, int64_t inner, part columns);
#endif
