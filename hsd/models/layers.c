/* A whole pass in one call and one team of threads: for a few tokens, calling each operation from Python costs as much as the
 * operation, and so does waking the threads for it. */

#include "bf16.h"

#ifdef HSD_VECTORS
typedef struct {
    const bf16 *input_norm, *post_norm, *q_norm, *k_norm; /* the last two may be absent */
    product qkv, out, gate_up, down;
} layer;

#define LEAST_GROUP 16 /* inputs with one scale of x */

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Bytes that stay from one operation to the next. */
static int64_t between(const shape *s) {
    int64_t row = 2 * s->hidden + (2 * s->heads + 2 * s->kv_heads) * s->dim + 3 * s->inner;
    return s->width * row * (int64_t)sizeof(bf16);
}

/* Bytes of scratch that hsd_layers wants: what stays, and the most that a product or attention takes. */
int64_t hsd_layers_bytes(const shape *s) {
    int64_t inputs = most(most(s->hidden, s->heads * s->dim), s->inner);
    return between(s) + most(hsd_product_bytes(s->width, inputs, LEAST_GROUP), hsd_attention_bytes(s));
}

/* x (width, hidden) is the embedded tokens and is overwritten; out (width, hidden) is what the final norm makes of it. keys
 * and values (num_layers_of_cache, kv_heads, capacity, dim). */
void hsd_layers(bf16 *x, const layer *layers, const bf16 *final_norm, bf16 *keys, bf16 *values, const bf16 *cosines,
                const bf16 *sines, bf16 *out, bf16 *scratch, const shape *s) {
    int64_t width = s->width, row = (s->heads + 2 * s->kv_heads) * s->dim;
    bf16 *normed = scratch, *delta = normed + width * s->hidden, *qkv = delta + width * s->hidden, *attended = qkv + width * row;
    bf16 *gate_up = attended + width * s->heads * s->dim, *active = gate_up + width * 2 * s->inner;
    char *rest = (char *)scratch + between(s);
    int64_t cached = s->kv_heads * s->capacity * s->dim;
#pragma omp parallel
    {
        for (int64_t i = 0; i < s->num_layers; i++) {
            const layer *l = layers + i;
            hsd_norm_rows(x, i ? delta : 0, l->input_norm, normed, width, s->hidden, s->eps);
            hsd_multiply(&l->qkv, normed, qkv, rest, width);
            hsd_attend_together(qkv, keys + i * cached, values + i * cached, l->q_norm, l->k_norm, cosines, sines, attended, rest, s);
            hsd_multiply(&l->out, attended, delta, rest, width);
            hsd_norm_rows(x, delta, l->post_norm, normed, width, s->hidden, s->eps);
            hsd_multiply(&l->gate_up, normed, gate_up, rest, width);
            hsd_silu_rows(gate_up, active, width, s->inner);
            hsd_multiply(&l->down, active, delta, rest, width);
        }
        hsd_norm_rows(x, delta, final_norm, out, width, s->hidden, s->eps);
    }
}
#endif
