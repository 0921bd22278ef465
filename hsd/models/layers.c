/* A whole pass in one call and one team of threads: for a few tokens, calling each operation from Python costs as much as the
 * operation, and so does waking the threads for it. */

#include "layers.h"

#ifdef HSD_VECTORS
typedef struct {
    const bf16 *input_norm, *post_norm, *q_norm, *k_norm; /* the last two may be absent */
    product qkv, out, gate_up, down;
} layer;

#define LEAST_GROUP 16 /* inputs with one scale of x */
#define FEW 8          /* rows, by the number of threads: what stands between the products, each thread then computes for itself */

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Bytes, in whole cache lines. */
static int64_t lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t row_bytes(const shape *s, int64_t count) { return lines(s->width * count * (int64_t)sizeof(bf16)); }

/* What all threads write a part of: the update of x, the projections, attention's sums. */
static int64_t shared_bytes(const shape *s) {
    int64_t projected = row_bytes(s, (s->heads + 2 * s->kv_heads) * s->dim);
    return row_bytes(s, s->hidden) + projected + row_bytes(s, 2 * s->inner) + row_bytes(s, s->inner) + lines(hsd_attention_bytes(s));
}

/* x rounded for the product that reads most of it. */
static int64_t codes_bytes(const shape *s) {
    return lines(hsd_product_bytes(s->width, most(most(s->hidden, s->heads * s->dim), s->inner), LEAST_GROUP));
}

/* What is each thread's own where it computes alone. */
static int64_t own_bytes(const shape *s) {
    return 2 * row_bytes(s, s->hidden) + row_bytes(s, s->heads * s->dim) + codes_bytes(s);
}

/* Bytes of scratch that hsd_layers wants: at most FEW / width threads compute alone. */
int64_t hsd_layers_bytes(const shape *s) {
    int64_t alone = FEW / s->width < largest_team() ? FEW / s->width : largest_team();
    return shared_bytes(s) + most(1, alone) * own_bytes(s);
}

/* A piece of scratch, which moves on by its length. */
static void *take(char **scratch, int64_t bytes) {
    char *piece = *scratch;
    *scratch += bytes;
    return piece;
}

/* out (width, outputs) = x @ weight.T + bias, complete on return. */
static void multiply(const product *p, const bf16 *x, bf16 *out, char *codes, int64_t width, int alone) {
    operand o = hsd_operand(p, x, codes, width, alone);
    hsd_multiply(p, &o, out, width, share(blocks_of(p)));
#pragma omp barrier
}

/* active (width, inner) = silu(gate) * up, complete on return; gate_up (width, 2 inner) is the product. */
static void gate(const product *p, const bf16 *x, bf16 *gate_up, bf16 *active, char *codes, int64_t width, int alone) {
    operand o = hsd_operand(p, x, codes, width, alone);
    int64_t inner = p->outputs / 2, half = blocks_of(p) / 2;
    if (inner % BLOCK) { /* one block has gates and ups */
        hsd_multiply(p, &o, gate_up, width, share(blocks_of(p)));
#pragma omp barrier
        hsd_silu_rows(gate_up, active, width, inner, share(inner));
#pragma omp barrier
        return;
    }
    part gates = share(half), ups = {half + gates.first, half + gates.last};
    hsd_multiply(p, &o, gate_up, width, gates);
    hsd_multiply(p, &o, gate_up, width, ups);
    hsd_silu_rows(gate_up, active, width, inner, (part){gates.first * BLOCK, gates.last * BLOCK});
#pragma omp barrier
}

/* out = norm(x + delta), x += delta; each thread's own, or complete on return. */
static void add_norm(bf16 *x, const bf16 *delta, const bf16 *weight, bf16 *out, const shape *s, int alone) {
    hsd_norm_rows(x, delta, weight, out, share_or_all(s->width, alone), s->hidden, s->eps);
    if (!alone) {
#pragma omp barrier
    }
}

/* x (width, hidden) is the embedded tokens; out (width, hidden) is what the final norm makes of it. keys
 * and values (num_layers_of_cache, kv_heads, capacity, dim). */
void hsd_layers(const bf16 *x, const layer *layers, const bf16 *final_norm, bf16 *keys, bf16 *values, const bf16 *cosines,
                const bf16 *sines, bf16 *out, char *scratch, const shape *s) {
    int64_t width = s->width, hidden = s->hidden, inner = s->inner, cached = s->kv_heads * s->capacity * s->dim;
    bf16 *delta = take(&scratch, row_bytes(s, hidden)), *qkv = take(&scratch, row_bytes(s, (s->heads + 2 * s->kv_heads) * s->dim));
    bf16 *gate_up = take(&scratch, row_bytes(s, 2 * inner)), *active = take(&scratch, row_bytes(s, inner));
    char *sums = take(&scratch, lines(hsd_attention_bytes(s)));
#pragma omp parallel
    {
        int alone = width * team_size() <= FEW;
        part rows = share_or_all(width, alone);
        char *own = scratch + (alone ? place_in_team() * own_bytes(s) : 0), *codes = take(&own, codes_bytes(s));
        bf16 *mine = take(&own, row_bytes(s, hidden)), *normed = take(&own, row_bytes(s, hidden));
        bf16 *attended = take(&own, row_bytes(s, s->heads * s->dim));
        memcpy(mine + rows.first * hidden, x + rows.first * hidden, (rows.last - rows.first) * hidden * sizeof(bf16));
        for (int64_t i = 0; i < s->num_layers; i++) {
            const layer *l = layers + i;
            bf16 *cached_keys = keys + i * cached, *cached_values = values + i * cached;
            add_norm(mine, i ? delta : 0, l->input_norm, normed, s, alone);
            multiply(&l->qkv, normed, qkv, codes, width, alone);
            hsd_attend_together(qkv, cached_keys, cached_values, l->q_norm, l->k_norm, cosines, sines, attended, sums, s, alone);
            multiply(&l->out, attended, delta, codes, width, alone);
            add_norm(mine, delta, l->post_norm, normed, s, alone);
            gate(&l->gate_up, normed, gate_up, active, codes, width, alone);
            multiply(&l->down, active, delta, codes, width, alone);
        }
        hsd_norm_rows(mine, delta, final_norm, out, share(width), hidden, s->eps);
    }
}
#endif
