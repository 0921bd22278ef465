/* Matrix products of a few rows with weights that stream from memory once, on processors with AVX-512 BF16 and VNNI or with AVX2.
 *
 * Libraries tune their products for many rows. In decoding there are few, and memory is the limit. Weights lie in blocks of
 * 32 outputs, all of a block's inputs in the order in which they are read, so that each lane of a register sums one output:
 * nothing is added across lanes, and a few rows cost little more than one. Every output is summed in one order, whatever the
 * number of rows, so that a token's bits do not depend on the width of its pass. */

#include "layers.h"

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

int hsd_vector_bits(void) { return VECTOR_BITS; }

/* Write the sums of one row and one half of a block. */
INLINE void put(floats sums, const target *t, int64_t row, int half) {
    int64_t output = t->block + 16 * half;
    if (output >= t->outputs) return;
    lanes which = LANES(output, t->outputs);
    if (t->bias) sums = add(sums, widen_some(which, t->bias + output));
    narrow_some(which, t->out + row * t->outputs + output, sums);
}

INLINE void block_bf16(const bf16 *w, const bf16 *x, int64_t inputs, const target *t, int64_t row, const int rows) {
    floats low[ROWS_BF16], high[ROWS_BF16];
    UNROLL for (int r = 0; r < rows; r++) low[r] = high[r] = zeros();
    x += row * inputs;
    for (int64_t k = 0; k < inputs; k += 2) {
        const bf16 *ws = w + k * BLOCK;
        if (rows > 5)
            ASK_EARLY(ws, 8192), ASK_EARLY(ws + BLOCK, 8192);
        else
            ASK_SOON(ws), ASK_SOON(ws + BLOCK);
        words a = load_words(ws), b = load_words(ws + 32);
        UNROLL for (int r = 0; r < rows; r++) {
            words xs = broadcast(x + r * inputs + k);
            low[r] = dot_bf16(low[r], a, xs);
            high[r] = dot_bf16(high[r], b, xs);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) put(low[r], t, row + r, 0), put(high[r], t, row + r, 1);
}

/* Some rows of x to int8 in groups of `group` inputs that share a scale. */
static void quantize(const operand *o, part rows, int64_t inputs, int64_t group) {
    int64_t groups = inputs / group;
    for (int64_t place = rows.first * groups; place < rows.last * groups; place++) {
        const bf16 *xs = o->x + place * group;
        floats largest = zeros();
        for (int64_t i = 0; i < group; i += 16) largest = larger(largest, magnitude(widen16(xs + i)));
        float most = largest_of(largest), inverse = most > 0 ? 127.0f / most : 0.0f;
        words total = no_words();
        int broken = 0;
        for (int64_t i = 0; i < group; i += 16) {
            floats value = widen16(xs + i);
            broken |= not_finite(value);
            words code = nearest_words(multiply_lanes(value, all_of(inverse)));
            total = add_words(total, code);
            store_codes(o->codes + place * group + i, code);
        }
        float scale = broken ? __builtin_nanf("") : most / 127.0f; /* must come through */
        o->scales[place] = scale;
        o->sums[place] = scale * (float)sum_of_words(total);
    }
}

INLINE void block_int8(const uint8_t *w, const operand *x, const product *p, const target *t, int64_t row, const int rows) {
    floats low[ROWS_CODES], high[ROWS_CODES];
    UNROLL for (int r = 0; r < rows; r++) low[r] = high[r] = zeros();
    int64_t groups = p->inputs / p->group;
    for (int64_t g = 0; g < groups; g++) {
        code_sums a[ROWS_CODES], b[ROWS_CODES];
        UNROLL for (int r = 0; r < rows; r++) a[r] = b[r] = no_codes();
        const int8_t *xs = x->codes + row * p->inputs;
        for (int64_t k = g * p->group; k < (g + 1) * p->group; k += 4) {
            const uint8_t *ws = w + k * BLOCK;
            ASK_EARLY(ws, 6144), ASK_EARLY(ws + 64, 6144);
            words first = load_words(ws), second = load_words(ws + 64);
            UNROLL for (int r = 0; r < rows; r++) {
                words four = broadcast(xs + r * p->inputs + k);
                a[r] = dot_codes(a[r], first, four);
                b[r] = dot_codes(b[r], second, four);
            }
        }
        UNROLL for (int r = 0; r < rows; r++) {
            float shift = -SHIFT * x->sums[(row + r) * groups + g];
            floats scale = all_of(x->scales[(row + r) * groups + g]);
            low[r] = add(low[r], multiply_add(total_of_codes(a[r]), scale, all_of(shift)));
            high[r] = add(high[r], multiply_add(total_of_codes(b[r]), scale, all_of(shift)));
        }
    }
    floats first = load_floats(p->scales + t->block), second = load_floats(p->scales + t->block + 16);
    UNROLL for (int r = 0; r < rows; r++) {
        put(multiply_lanes(low[r], first), t, row + r, 0);
        put(multiply_lanes(high[r], second), t, row + r, 1);
    }
}

INLINE void block_int4(const uint8_t *w, const operand *x, const product *p, const target *t, int64_t row, const int rows) {
    floats sums[ROWS_CODES][2];
    UNROLL for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = zeros();
    int64_t groups = p->inputs / INT4_GROUP;
    for (int64_t g = 0; g < groups; g++, w += INT4_BYTES) {
        const int8_t *xs = x->codes + row * p->inputs + g * INT4_GROUP;
        UNROLL for (int byte = 0; byte < INT4_BYTES; byte += 64) ASK_EARLY(w + byte, 6144);
        UNROLL for (int half = 0; half < 2; half += HALVES) {
            code_sums a[ROWS_CODES][2];
            UNROLL for (int r = 0; r < rows; r++) a[r][0] = a[r][1] = no_codes();
            STEPS for (int k = 0; k < INT4_GROUP; k += 8) {
                words low[2], high[2];
                UNROLL for (int h = 0; h < HALVES; h++) {
                    words both = load_words(w + k * 16 + 64 * (half + h));
                    low[h] = low_nibbles(both), high[h] = high_nibbles(both);
                }
                UNROLL for (int r = 0; r < rows; r++) {
                    words four = broadcast(xs + r * p->inputs + k), next = broadcast(xs + r * p->inputs + k + 4);
                    UNROLL for (int h = 0; h < HALVES; h++)
                        a[r][h] = dot_nibbles(dot_nibbles(a[r][h], low[h], four), high[h], next);
                }
            }
            floats scales[2], least[2];
            UNROLL for (int h = 0; h < HALVES; h++)
                scales[h] = halves_at(w + 512 + 32 * (half + h)), least[h] = halves_at(w + 576 + 32 * (half + h));
            UNROLL for (int r = 0; r < rows; r++) {
                floats scale = all_of(x->scales[(row + r) * groups + g]), sum = all_of(x->sums[(row + r) * groups + g]);
                UNROLL for (int h = 0; h < HALVES; h++) {
                    floats codes = multiply_lanes(total_of_nibbles(a[r][h]), scale), *to = &sums[r][half + h];
                    *to = multiply_add(codes, scales[h], multiply_add(least[h], sum, *to));
                }
            }
        }
    }
    UNROLL for (int r = 0; r < rows; r++) put(sums[r][0], t, row + r, 0), put(sums[r][1], t, row + r, 1);
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
            IN_PARTS(rows, ROWS_BF16, block_bf16, (const bf16 *)p->weight + n * BLOCK * p->inputs, x->x, p->inputs, &t, first)
        } else if (p->bits == 8) {
            IN_PARTS(rows, ROWS_CODES, block_int8, (const uint8_t *)p->weight + n * BLOCK * p->inputs, x, p, &t, first)
        } else {
            IN_PARTS(rows, ROWS_CODES, block_int4, (const uint8_t *)p->weight + n * (p->inputs / INT4_GROUP) * INT4_BYTES, x, p, &t, first)
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
int hsd_vector_bits(void) { return 0; }
#endif
