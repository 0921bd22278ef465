/* A whole pass in one call: for a few tokens, calling each operation from Python costs as much as the operation. */

#include <stdint.h>

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__) && defined(__AVX512BW__)

typedef uint16_t bf16;

typedef struct {
    const void *weight;  /* laid out as products.c says, in `bits` bits */
    const float *scales; /* (outputs, rounded up), only with 8 bits */
    const bf16 *bias;    /* (outputs), or absent */
    int64_t inputs, outputs, bits, group; /* group: inputs with one scale of x, with 8 bits */
} product;

typedef struct {
    const bf16 *input_norm, *post_norm, *q_norm, *k_norm; /* the last two may be absent */
    product qkv, out, gate_up, down;
} layer;

typedef struct {
    int64_t width, start, capacity, heads, kv_heads, dim, hidden, inner, num_layers;
    float eps, scale;
} shape;

void hsd_add_norm(bf16 *x, const bf16 *delta, const bf16 *weight, bf16 *out, int64_t width, int64_t hidden, float eps);
void hsd_silu_mul(const bf16 *gate_up, bf16 *out, int64_t width, int64_t inner);
void hsd_attend_together(const bf16 *qkv, bf16 *keys, bf16 *values, const bf16 *q_norm, const bf16 *k_norm, const bf16 *cosines,
                         const bf16 *sines, bf16 *out, char *scratch, int64_t width, int64_t start, int64_t capacity, int64_t heads,
                         int64_t kv_heads, int64_t dim, float scale, float eps);
void hsd_linear_bf16(const bf16 *x, const bf16 *weight, const bf16 *bias, bf16 *out, int64_t rows, int64_t inputs, int64_t outputs);
void hsd_linear_int8(const bf16 *x, const uint8_t *weight, const float *weight_scales, const bf16 *bias, bf16 *out, int8_t *scratch,
                     int64_t rows, int64_t inputs, int64_t outputs, int64_t group);
void hsd_linear_int4(const bf16 *x, const uint8_t *weight, const bf16 *bias, bf16 *out, int8_t *scratch, int64_t rows, int64_t inputs,
                     int64_t outputs);

static void multiply(const product *p, const bf16 *x, bf16 *out, char *scratch, int64_t rows) {
    if (p->bits == 8)
        hsd_linear_int8(x, p->weight, p->scales, p->bias, out, (int8_t *)scratch, rows, p->inputs, p->outputs, p->group);
    else if (p->bits == 4)
        hsd_linear_int4(x, p->weight, p->bias, out, (int8_t *)scratch, rows, p->inputs, p->outputs);
    else
        hsd_linear_bf16(x, p->weight, p->bias, out, rows, p->inputs, p->outputs);
}

/* x (width, hidden) is the embedded tokens and is overwritten; out (width, hidden) is what the final norm makes of it. keys
 * and values (num_layers_of_cache, kv_heads, capacity, dim). scratch holds width * (2 * hidden + (2 * heads + 2 * kv_heads)
 * * dim + 3 * inner) bf16 values and, behind them, the most that a product or attention wants. */
void hsd_layers(bf16 *x, const layer *layers, const bf16 *final_norm, bf16 *keys, bf16 *values, const bf16 *cosines,
                const bf16 *sines, bf16 *out, bf16 *scratch, const shape *s) {
    int64_t width = s->width, row = (s->heads + 2 * s->kv_heads) * s->dim;
    bf16 *normed = scratch, *delta = normed + width * s->hidden, *qkv = delta + width * s->hidden, *attended = qkv + width * row;
    bf16 *gate_up = attended + width * s->heads * s->dim, *active = gate_up + width * 2 * s->inner;
    char *rest = (char *)(active + width * s->inner);
    int64_t cached = s->kv_heads * s->capacity * s->dim;
    for (int64_t i = 0; i < s->num_layers; i++) {
        const layer *l = layers + i;
        hsd_add_norm(x, i ? delta : 0, l->input_norm, normed, width, s->hidden, s->eps);
        multiply(&l->qkv, normed, qkv, rest, width);
        hsd_attend_together(qkv, keys + i * cached, values + i * cached, l->q_norm, l->k_norm, cosines, sines, attended, rest, width,
                            s->start, s->capacity, s->heads, s->kv_heads, s->dim, s->scale, s->eps);
        multiply(&l->out, attended, delta, rest, width);
        hsd_add_norm(x, delta, l->post_norm, normed, width, s->hidden, s->eps);
        multiply(&l->gate_up, normed, gate_up, rest, width);
        hsd_silu_mul(gate_up, active, width, s->inner);
        multiply(&l->down, active, delta, rest, width);
    }
    hsd_add_norm(x, delta, final_norm, out, width, s->hidden, s->eps);
}
#endif
