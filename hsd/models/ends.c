/* The two ends of a pass: rows of the embedding, and what is read off the scores of the whole vocabulary. */

#include <math.h>

#include "layers.h"

#define PART 1024 /* scores whose largest is found at once */

/* Whole numbers in the order of the values; all that is no number counts as largest. */
static inline int32_t order(bf16 x) {
    int32_t bits = (int16_t)x;
    return (bits & 0x7fff) > 0x7f80 ? 0x7fff : bits ^ ((bits >> 15) & 0x7fff);
}

static inline int64_t end_of(int64_t first, int64_t count) { return first + PART < count ? first + PART : count; }

static int32_t largest(const bf16 *x, int64_t first, int64_t last) {
    int32_t most = -0x8000;
    for (int64_t i = first; i < last; i++) {
        int32_t value = order(x[i]);
        most = value > most ? value : most;
    }
    return most;
}

/* The largest value of each row of x (rows, count), `stride` apart, and its first place. */
void hsd_maxima(const bf16 *x, float *values, int64_t *places, int64_t rows, int64_t count, int64_t stride) {
    for (int64_t row = 0; row < rows; row++, x += stride) {
        int32_t most = -0x8000;
        int64_t best = 0;
        for (int64_t first = 0; first < count; first += PART) {
            int32_t value = largest(x, first, end_of(first, count));
            if (value > most) most = value, best = first;
        }
        while (best < count && order(x[best]) != most) best++;
        values[row] = widen(x[best]), places[row] = best;
    }
}

#ifdef HSD_VECTORS
#define MOST_RESCORED 256 /* of a row: were all scores the same, all would be near the largest */

/* Output n of a 16 bit weight: where its pairs of inputs begin, BLOCK pairs apart. */
static inline const bf16 *row_of(const product *p, int64_t n) {
    return (const bf16 *)p->weight + n / BLOCK * BLOCK * p->inputs + n % BLOCK * 2;
}

/* out (rows, inputs): rows of a 16 bit weight, an embedding tied to the head. */
void hsd_rows(const product *p, const int64_t *indices, bf16 *out, int64_t rows) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < p->inputs; i += 2) memcpy(out + row * p->inputs + i, row_of(p, indices[row]) + i * BLOCK, 4);
}

static float dot(const product *p, const bf16 *x, int64_t n) {
    floats sum = zeros();
    for (int64_t i = 0; i < p->inputs; i += 32) {
        lanes which = LANES(i / 2, p->inputs / 2);
        sum = dot_bf16(sum, gather_some(which, row_of(p, n) + i * BLOCK, BLOCK), load_some(which, x + i));
    }
    return sum_of(sum) + (p->bias ? widen(p->bias[n]) : 0.0f);
}

/* Compute anew those of the scores (outputs) that may be the largest but for the rounding of weights they were computed with. */
static void rescore(const product *exact, const bf16 *x, bf16 *scores, float deviation) {
    int64_t count = exact->outputs, left = MOST_RESCORED;
    int32_t maxima[(count + PART - 1) / PART], most = -0x8000;
    for (int64_t first = 0; first < count; first += PART) {
        maxima[first / PART] = largest(scores, first, end_of(first, count));
        if (maxima[first / PART] > most) most = maxima[first / PART];
    }
    float squares = 0;
    for (int64_t i = 0; i < exact->inputs; i++) squares += widen(x[i]) * widen(x[i]);
    bf16 top = (bf16)(most < 0 ? most ^ 0x7fff : most); /* from the order back to the value */
    int32_t limit = order(narrow(widen(top) - deviation * sqrtf(squares)));
    for (int64_t first = 0; first < count; first += PART)
        if (maxima[first / PART] >= limit)
            for (int64_t i = first; i < end_of(first, count) && left; i++)
                if (order(scores[i]) >= limit) scores[i] = narrow(dot(exact, x, i)), left--;
}

/* out (rows, outputs) = x (rows, inputs) @ rough.T, and with the exact weight where that may be the row's largest: closer to it
 * than `deviation` times the length of x. scratch holds hsd_product_bytes of the rough weight. */
void hsd_shortlist(const product *rough, const product *exact, const bf16 *x, bf16 *out, char *scratch, float deviation, int64_t rows) {
#pragma omp parallel
    {
        operand o = hsd_operand(rough, x, scratch, rows, 0);
        hsd_multiply(rough, &o, out, rows, share(blocks_of(rough)));
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) rescore(exact, x + row * exact->inputs, out + row * exact->outputs, deviation);
    }
}
#endif
