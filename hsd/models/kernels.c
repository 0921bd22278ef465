/* What stands between the matrix products of a Llama-like layer, for bfloat16 on a CPU: a few small loops instead of some
 * twenty-five tensor operations. Every token is computed by itself and in the same order, so that its bits do not
 * depend on the width of the pass. Values are widened to float32, summed there, and rounded once. */

#include <math.h>

#include "bf16.h"

#define MAX_HEAD_DIM 256
#define MAX_CONTEXT_BLOCK 512
#define PARALLEL_ABOVE 40000 /* products; less is not worth waking a second thread */
#define SERIAL_BELOW 4000    /* values; as above */

static inline float exp_of(float x) { /* e^x for x <= 0, relative error below 3e-7; vectorizes */
    float scaled = x * 1.44269504f;
    scaled = scaled < -126.0f ? -126.0f : scaled;
    float whole = floorf(scaled), part = scaled - whole;
    float power = 1.53533e-4f;
    power = power * part + 1.33988e-3f;
    power = power * part + 9.61844e-3f;
    power = power * part + 5.55034e-2f;
    power = power * part + 2.40226e-1f;
    power = power * part + 6.93147e-1f;
    power = power * part + 1.0f;
    uint32_t bits;
    memcpy(&bits, &power, 4);
    bits += (uint32_t)(int32_t)whole << 23;
    memcpy(&power, &bits, 4);
    return power;
}

/* x += delta (when given), out = x / rms(x) * weight, of some rows; all (width, hidden). */
void hsd_norm_rows(bf16 *x, const bf16 *delta, const bf16 *weight, bf16 *out, part rows, int64_t hidden, float eps) {
    for (int64_t row = rows.first; row < rows.last; row++) {
        bf16 *xs = x + row * hidden;
        if (delta)
            for (int64_t i = 0; i < hidden; i++) xs[i] = narrow(widen(xs[i]) + widen(delta[row * hidden + i]));
        float sum = 0;
        for (int64_t i = 0; i < hidden; i++) sum += widen(xs[i]) * widen(xs[i]);
        float scale = 1.0f / sqrtf(sum / (float)hidden + eps);
        for (int64_t i = 0; i < hidden; i++) out[row * hidden + i] = narrow(widen(xs[i]) * scale * widen(weight[i]));
    }
}

/* out (width, inner) = silu(gate) * up, from gate_up (width, 2 * inner), of some columns. */
void hsd_silu_rows(const bf16 *gate_up, bf16 *out, int64_t width, int64_t inner, part columns) {
    for (int64_t row = 0; row < width; row++) {
        const bf16 *gate = gate_up + row * 2 * inner, *up = gate + inner;
        for (int64_t i = columns.first; i < columns.last; i++) {
            float g = widen(gate[i]), e = exp_of(-fabsf(g));
            float sigmoid = (g >= 0 ? 1.0f : e) / (1.0f + e);
            out[row * inner + i] = narrow(g * sigmoid * widen(up[i]));
        }
    }
}

void hsd_add_norm(bf16 *x, const bf16 *delta, const bf16 *weight, bf16 *out, int64_t width, int64_t hidden, float eps) {
#pragma omp parallel if (width * hidden > SERIAL_BELOW)
    hsd_norm_rows(x, delta, weight, out, share(width), hidden, eps);
}

void hsd_silu_mul(const bf16 *gate_up, bf16 *out, int64_t width, int64_t inner) {
#pragma omp parallel if (width * inner > SERIAL_BELOW)
    hsd_silu_rows(gate_up, out, width, inner, share(inner));
}

/* Rotate one head (dim) by its position; sin is negated in its first half. */
static inline void rotate(const bf16 *head, const bf16 *cosines, const bf16 *sines, int64_t dim, float *out) {
    int64_t half = dim / 2;
    for (int64_t i = 0; i < half; i++) out[i] = widen(head[i]) * widen(cosines[i]) + widen(head[i + half]) * widen(sines[i]);
    for (int64_t i = half; i < dim; i++) out[i] = widen(head[i]) * widen(cosines[i]) + widen(head[i - half]) * widen(sines[i]);
}

/* One query over keys and values (count, dim): softmax(query . keys) @ values, in blocks with a running maximum. */
static void attend_one(const float *query, const bf16 *keys, const bf16 *values, int64_t count, int64_t dim, bf16 *out) {
    float weights[MAX_CONTEXT_BLOCK], sum[MAX_HEAD_DIM] = {0};
    float maximum = -INFINITY, total = 0;
    for (int64_t first = 0; first < count; first += MAX_CONTEXT_BLOCK) {
        int64_t block = count - first < MAX_CONTEXT_BLOCK ? count - first : MAX_CONTEXT_BLOCK;
        float highest = maximum;
        for (int64_t t = 0; t < block; t++) {
            const bf16 *key = keys + (first + t) * dim;
            float score = 0;
            for (int64_t i = 0; i < dim; i++) score += query[i] * widen(key[i]);
            weights[t] = score;
        }
        for (int64_t t = 0; t < block; t++) highest = weights[t] > highest || weights[t] != weights[t] ? weights[t] : highest;
        float fade = first ? exp_of(maximum - highest) : 0.0f, added = 0;
        for (int64_t t = 0; t < block; t++) weights[t] = exp_of(weights[t] - highest);
        for (int64_t t = 0; t < block; t++) added += weights[t];
        for (int64_t i = 0; i < dim; i++) sum[i] *= fade;
        for (int64_t t = 0; t < block; t++) {
            const bf16 *value = values + (first + t) * dim;
            for (int64_t i = 0; i < dim; i++) sum[i] += weights[t] * widen(value[i]);
        }
        total = total * fade + added;
        maximum = highest;
    }
    for (int64_t i = 0; i < dim; i++) out[i] = narrow(sum[i] / total);
}

/* Rotary positions, keys and values into the cache, and causal attention of the new tokens over it.
 * qkv (width, heads + 2 kv_heads, dim); keys, values (kv_heads, capacity, dim); cosines, sines (width, dim) of the new
 * positions; out (width, heads, dim). Returns 1 for a head too wide to serve. */
int hsd_attend(const bf16 *qkv, bf16 *keys, bf16 *values, const bf16 *cosines, const bf16 *sines, bf16 *out, int64_t width,
               int64_t start, int64_t capacity, int64_t heads, int64_t kv_heads, int64_t dim, float scale) {
    if (dim > MAX_HEAD_DIM) return 1;
    int64_t row_size = (heads + 2 * kv_heads) * dim, group = heads / kv_heads;
    for (int64_t token = 0; token < width; token++)
        for (int64_t head = 0; head < kv_heads; head++) {
            const bf16 *row = qkv + token * row_size;
            float rotated[MAX_HEAD_DIM];
            rotate(row + (heads + head) * dim, cosines + token * dim, sines + token * dim, dim, rotated);
            bf16 *key = keys + (head * capacity + start + token) * dim;
            for (int64_t i = 0; i < dim; i++) key[i] = narrow(rotated[i]);
            memcpy(values + (head * capacity + start + token) * dim, row + (heads + kv_heads + head) * dim, dim * sizeof(bf16));
        }
    int64_t tasks = width * heads;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (tasks * (start + width) * dim > PARALLEL_ABOVE)
#endif
    for (int64_t task = 0; task < tasks; task++) {
        int64_t token = task % width, head = task / width;
        float query[MAX_HEAD_DIM];
        rotate(qkv + token * row_size + head * dim, cosines + token * dim, sines + token * dim, dim, query);
        for (int64_t i = 0; i < dim; i++) query[i] = widen(narrow(query[i])) * scale;
        int64_t cached = (head / group) * capacity * dim;
        attend_one(query, keys + cached, values + cached, start + token + 1, dim, out + (token * heads + head) * dim);
    }
    return 0;
}
