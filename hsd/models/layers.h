/* What the vector kernels share: products, what they read, and the shape of a pass. */

#ifndef HSD_LAYERS_H
#define HSD_LAYERS_H

#include "vectors.h"

#ifdef HSD_VECTORS
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
#endif
