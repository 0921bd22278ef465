/* Attention of a few new tokens over cached keys and values, on processors with the vectors that products.c wants.
 *
 * All queries that share a key-value head are answered together, so that keys and values are read once for all of them. They lie in
 * the cache as the products read them: keys as (capacity / 16, dim / 2, 16, 2), so that a lane belongs to one key, and values as
 * (capacity / 2, dim, 2), two tokens side by side. Keys are taken in chunks of fixed places with a softmax of their own, joined at
 * the end, so that chunks can run on different cores and a token's bits depend neither on the width of its pass nor on the number
 * of cores. */

#include <math.h>

#include "layers.h"

#ifdef HSD_VECTORS

#define CHUNK 128    /* keys with one softmax */
#define TOKENS 16    /* new tokens at a time */
#define TILE 48      /* queries whose scores are kept */
#define LARGEST_DIM 256

INLINE floats exp16(floats x) { /* e^x for x <= 0, relative error below 3e-7 */
    floats scaled = larger(all_of(-126.0f), multiply_lanes(x, all_of(1.44269504f))); /* keeps a NaN */
    floats whole = round_down(scaled), part = subtract(scaled, whole);
    floats power = all_of(1.53533e-4f);
    power = multiply_add(power, part, all_of(1.33988e-3f));
    power = multiply_add(power, part, all_of(9.61844e-3f));
    power = multiply_add(power, part, all_of(5.55034e-2f));
    power = multiply_add(power, part, all_of(2.40226e-1f));
    power = multiply_add(power, part, all_of(6.93147e-1f));
    power = multiply_add(power, part, all_of(1.0f));
    return times_power_of_two(power, whole);
}

/* One head (dim) divided by its root mean square, times weight. */
INLINE void normalize(const bf16 *head, const bf16 *weight, int64_t dim, float eps, bf16 *out) {
    floats squares = zeros();
    for (int64_t i = 0; i < dim; i += 16) squares = multiply_add(widen16(head + i), widen16(head + i), squares);
    floats factor = all_of(1.0f / sqrtf(sum_of(squares) / (float)dim + eps));
    for (int64_t i = 0; i < dim; i += 16) narrow16(out + i, multiply_lanes(multiply_lanes(widen16(head + i), factor), widen16(weight + i)));
}

/* Rotate one head (dim, a multiple of 32) by its position, after its norm if it has one; sin is negated in its first half. */
INLINE void rotate(const bf16 *head, const bf16 *norm, const bf16 *cosines, const bf16 *sines, int64_t dim, float eps, bf16 *out) {
    bf16 normed[LARGEST_DIM];
    if (norm) {
        normalize(head, norm, dim, eps, normed);
        head = normed;
    }
    for (int64_t i = 0; i < dim; i += 16) {
        const bf16 *other = i < dim / 2 ? head + i + dim / 2 : head + i - dim / 2;
        floats turned = multiply_add(widen16(head + i), widen16(cosines + i), multiply_lanes(widen16(other), widen16(sines + i)));
        narrow16(out + i, turned);
    }
}

/* Put a key (dim) into its place among 16, and a value (dim) beside its neighbour. The neighbour of the `last` token becomes zero:
 * what a pass that was rolled back left there may be no number, and a weight of zero would not silence it. */
INLINE void store(const bf16 *key, const bf16 *value, bf16 *keys, bf16 *values, int64_t place, int last, int64_t dim) {
    bf16 *among = keys + place / 16 * 16 * dim + place % 16 * 2, *pair = values + place / 2 * 2 * dim;
    for (int64_t i = 0; i < dim / 2; i++) memcpy(among + i * 32, key + i * 2, 4);
    for (int64_t i = 0; i < dim; i += 16) store_every_second(pair + i * 2, value + i, place % 2, !last); /* another core's, perhaps */
}

/* Scores (some, CHUNK) of some queries (count, dim) against blocks of 16 keys. `next` is what will be read after them: the second
 * level of cache asks memory for many lines at a time, the first for few. */
INLINE void score(const bf16 *queries, const bf16 *keys, const bf16 *next, int64_t dim, float scale, float *scores, const int blocks,
                  const int some) {
    floats sums[WIDE * QUERIES];
    UNROLL for (int i = 0; i < blocks * some; i++) sums[i] = zeros();
    for (int64_t i = 0; i < dim; i += 2) {
        words some_words[WIDE];
        UNROLL for (int b = 0; b < blocks; b++) {
            some_words[b] = load_words(keys + (b * dim + i) * 16);
            _mm_prefetch((const char *)(next + (b * dim + i) * 16), _MM_HINT_T1);
        }
        UNROLL for (int q = 0; q < some; q++) {
            words word = broadcast(queries + q * dim + i);
            UNROLL for (int b = 0; b < blocks; b++) sums[q * blocks + b] = dot_bf16(sums[q * blocks + b], some_words[b], word);
        }
    }
    UNROLL for (int q = 0; q < some; q++)
        UNROLL for (int b = 0; b < blocks; b++)
            store_floats(scores + q * CHUNK + 16 * b, multiply_lanes(sums[q * blocks + b], all_of(scale)));
}

/* Sums (some, dim) of parts of 16 of `count` values, rounded up to pairs, by the weights (some, CHUNK). */
INLINE void weigh(const bf16 *weights, const bf16 *values, const bf16 *next, int64_t count, int64_t dim, float *sums, const int parts,
                  const int some) {
    floats totals[WIDE * QUERIES];
    UNROLL for (int i = 0; i < parts * some; i++) totals[i] = zeros();
    for (int64_t t = 0; t < count; t += 2) {
        words some_words[WIDE];
        UNROLL for (int p = 0; p < parts; p++) {
            some_words[p] = load_words(values + t * dim + p * 32);
            _mm_prefetch((const char *)(next + t * dim + p * 32), _MM_HINT_T1);
        }
        UNROLL for (int q = 0; q < some; q++) {
            words two = broadcast(weights + q * CHUNK + t);
            UNROLL for (int p = 0; p < parts; p++) totals[q * parts + p] = dot_bf16(totals[q * parts + p], some_words[p], two);
        }
    }
    UNROLL for (int q = 0; q < some; q++)
        UNROLL for (int p = 0; p < parts; p++) store_floats(sums + q * dim + p * 16, totals[q * parts + p]);
}

typedef struct {
    float maximum, total;
} softmax;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Scores (CHUNK) of `visible` keys to weights relative to the largest; 0 beyond, up to `seen`. The total is that of the weights as
 * they were rounded. */
INLINE softmax soften(const float *scores, bf16 *weights, int64_t visible, int64_t seen) {
    if (visible <= 0) {
        memset(weights, 0, (seen + seen % 2) * sizeof(bf16));
        return (softmax){-INFINITY, 0};
    }
    floats largest = all_of(-INFINITY), total = zeros();
    for (int64_t t = 0; t < visible; t += 16) {
        lanes which = LANES(t, visible);
        largest = larger_in(which, largest, load_floats(scores + t));
    }
    floats maximum = all_of(largest_of(largest));
    for (int64_t t = 0; t < seen; t += 16) {
        lanes which = LANES(t, visible);
        narrow16(weights + t, only(which, exp16(subtract(load_floats(scores + t), maximum))));
        total = add(total, widen16(weights + t));
    }
    return (softmax){first_of(maximum), sum_of(total)};
}

/* The keys and values of one chunk against `count` queries (count, dim). The first query's token sees `visible` keys of the chunk,
 * and every `group` queries are one token. Fills parts (count) and sums (count, dim). */
static void attend_chunk(const bf16 *queries, const bf16 *keys, const bf16 *values, int64_t count, int64_t group, int64_t visible,
                         int64_t dim, float scale, softmax *parts, float *sums) {
    float scores[TILE * CHUNK];
    bf16 weights[TILE * CHUNK];
    for (int64_t tile = 0; tile < count; tile += TILE) {
        int64_t these = least(TILE, count - tile), seen = least(CHUNK, visible + (tile + these - 1) / group);
        if (seen < 0) seen = 0; /* a tile of tokens before this chunk */
        for (int64_t t = 0; t < seen; t += 16 * WIDE) {
            const bf16 *those = keys + t * dim, *next = values + t * dim;
            if (seen - t > 32) {
                IN_PARTS(these, QUERIES, score, queries + (tile + first) * dim, those, next, dim, scale, scores + first * CHUNK + t, WIDE)
            } else {
                IN_PARTS(these, QUERIES, score, queries + (tile + first) * dim, those, next, dim, scale, scores + first * CHUNK + t, 2)
            }
        }
        for (int64_t q = 0; q < these; q++)
            parts[tile + q] = soften(scores + q * CHUNK, weights + q * CHUNK, least(CHUNK, visible + (tile + q) / group), seen);
        for (int64_t d = 0; d < dim; d += 16 * WIDE) {
            const bf16 *those = values + d * 2, *next = keys + CHUNK * dim;
            float *totals = sums + tile * dim + d;
            if (dim - d > 32) {
                IN_PARTS(these, QUERIES, weigh, weights + first * CHUNK, those, next, seen, dim, totals + first * dim, WIDE)
            } else {
                IN_PARTS(these, QUERIES, weigh, weights + first * CHUNK, those, next, seen, dim, totals + first * dim, 2)
            }
        }
    }
}

/* Join the chunks of one query, `stride` queries apart, into out (dim). */
INLINE void join(const softmax *parts, const float *sums, int64_t chunks, int64_t stride, int64_t dim, bf16 *out) {
    float maximum = parts[0].maximum, total = 0;
    for (int64_t c = 1; c < chunks; c++) maximum = parts[c * stride].maximum > maximum ? parts[c * stride].maximum : maximum;
    floats joined[LARGEST_DIM / 16];
    for (int64_t i = 0; i < dim / 16; i++) joined[i] = zeros();
    for (int64_t c = 0; c < chunks; c++) {
        floats factor = exp16(all_of(parts[c * stride].maximum - maximum));
        total += parts[c * stride].total * first_of(factor);
        for (int64_t i = 0; i < dim / 16; i++)
            joined[i] = multiply_add(factor, load_floats(sums + c * stride * dim + i * 16), joined[i]);
    }
    for (int64_t i = 0; i < dim / 16; i++) narrow16(out + i * 16, divide(joined[i], all_of(total)));
}

/* For each query of TOKENS tokens, for every CHUNK keys: their weighted sum and its softmax. */
static int64_t sums_bytes(const shape *s) {
    int64_t chunks = (s->capacity + CHUNK - 1) / CHUNK, one = s->dim * (int64_t)sizeof(float) + (int64_t)sizeof(softmax);
    return least(TOKENS, s->width) * s->heads * chunks * one;
}

/* The queries of TOKENS tokens that share a key-value head. */
static int64_t queries_bytes(const shape *s) {
    return least(TOKENS, s->width) * (s->heads / s->kv_heads) * s->dim * (int64_t)sizeof(bf16);
}

int64_t hsd_attention_bytes(const shape *s) { return sums_bytes(s) + largest_team() * queries_bytes(s); }

/* Rotary positions, keys and values into the cache, and causal attention of the new tokens over it.
 * qkv (width, heads + 2 kv_heads, dim); keys, values (kv_heads, ...) as above; q_norm, k_norm (dim) may be absent; cosines, sines
 * (width, dim) of the new positions; out (width, heads, dim), each thread's own if it takes all rows for itself. dim and the
 * capacity are multiples of 32. scratch holds hsd_attention_bytes. */
void hsd_attend_together(const bf16 *qkv, bf16 *keys, bf16 *values, const bf16 *q_norm, const bf16 *k_norm, const bf16 *cosines,
                         const bf16 *sines, bf16 *out, char *scratch, const shape *s, int alone) {
    int64_t heads = s->heads, kv_heads = s->kv_heads, dim = s->dim, row_size = (heads + 2 * kv_heads) * dim, group = heads / kv_heads;
    int64_t start = s->start;
    bf16 *queries = (bf16 *)(scratch + sums_bytes(s) + place_in_team() * queries_bytes(s)); /* (tokens, group, dim) of one key-value head */
    for (int64_t done = 0, tokens; done < s->width; done += tokens, start += tokens) {
        tokens = least(TOKENS, s->width - done);
        const bf16 *new = qkv + done * row_size, *cos = cosines + done * dim, *sin = sines + done * dim;
        int64_t rows = tokens * group, chunks = (start + tokens + CHUNK - 1) / CHUNK; /* queries of one key-value head */
        float *sums = (float *)scratch;
        softmax *parts = (softmax *)(sums + kv_heads * chunks * rows * dim);
        part tasks = share(kv_heads * chunks);
        for (int64_t task = tasks.first; task < tasks.last; task++) {
            int64_t head = task / chunks, chunk = task % chunks;
            int64_t offset = head * s->capacity * dim, chunk_offset = offset + chunk * CHUNK * dim;
            for (int64_t row = 0; row < rows && (chunk == 0 || task == tasks.first); row++) { /* a head that is new to this thread */
                int64_t token = row / group;
                const bf16 *from = new + token * row_size + (head * group + row % group) * dim;
                rotate(from, q_norm, cos + token * dim, sin + token * dim, dim, s->eps, queries + row * dim);
            }
            for (int64_t token = 0; token < tokens; token++) {
                if ((start + token) / CHUNK != chunk) continue; /* whoever has a chunk puts the new keys and values into it */
                const bf16 *from = new + token * row_size + (heads + head) * dim;
                bf16 key[LARGEST_DIM];
                rotate(from, k_norm, cos + token * dim, sin + token * dim, dim, s->eps, key);
                store(key, from + kv_heads * dim, keys + offset, values + offset, start + token, token + 1 == tokens, dim);
            }
            attend_chunk(queries, keys + chunk_offset, values + chunk_offset, rows, group, start + 1 - chunk * CHUNK, dim, s->scale,
                         parts + task * rows, sums + task * rows * dim);
        }
#pragma omp barrier
        part joined = share_or_all(kv_heads * rows, alone);
        for (int64_t query = joined.first; query < joined.last; query++) {
            int64_t head = query / rows, row = query % rows, token = row / group;
            int64_t seen = (start + token + CHUNK) / CHUNK; /* chunks */
            join(parts + head * chunks * rows + row, sums + (head * chunks * rows + row) * dim, seen, rows, dim,
                 out + ((done + token) * heads + head * group + row % group) * dim);
        }
        if (!alone) {
#pragma omp barrier
        }
    }
}

void hsd_attention(const bf16 *qkv, bf16 *keys, bf16 *values, const bf16 *q_norm, const bf16 *k_norm, const bf16 *cosines,
                   const bf16 *sines, bf16 *out, char *scratch, const shape *s) {
#pragma omp parallel
    hsd_attend_together(qkv, keys, values, q_norm, k_norm, cosines, sines, out, scratch, s, 0);
}
#endif
