/* Attention of a few new tokens over cached keys and values, on processors with AVX-512 BF16.
 *
 * All queries that share a key-value head are answered together, so that keys and values are read once for all of them. They lie in
 * the cache as the products read them: keys as (capacity / 16, dim / 2, 16, 2), so that a lane belongs to one key, and values as
 * (capacity / 2, dim, 2), two tokens side by side. Keys are taken in chunks of fixed places with a softmax of their own, joined at
 * the end, so that chunks can run on different cores and a token's bits depend neither on the width of its pass nor on the number
 * of cores. */

#include <math.h>

#include "bf16.h"

#ifdef HSD_VECTORS

#define CHUNK 128    /* keys with one softmax */
#define TOKENS 16    /* new tokens at a time */
#define TILE 48      /* queries whose scores are kept */
#define QUERIES 4    /* queries at a time in registers */
#define LARGEST_DIM 256
INLINE __m512 exp16(__m512 x) { /* e^x for x <= 0, relative error below 3e-7 */
    __m512 scaled = _mm512_max_ps(_mm512_set1_ps(-126.0f), _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f))); /* keeps a NaN */
    __m512 whole = _mm512_floor_ps(scaled), part = _mm512_sub_ps(scaled, whole);
    __m512 power = _mm512_set1_ps(1.53533e-4f);
    power = _mm512_fmadd_ps(power, part, _mm512_set1_ps(1.33988e-3f));
    power = _mm512_fmadd_ps(power, part, _mm512_set1_ps(9.61844e-3f));
    power = _mm512_fmadd_ps(power, part, _mm512_set1_ps(5.55034e-2f));
    power = _mm512_fmadd_ps(power, part, _mm512_set1_ps(2.40226e-1f));
    power = _mm512_fmadd_ps(power, part, _mm512_set1_ps(6.93147e-1f));
    power = _mm512_fmadd_ps(power, part, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(power, whole);
}

/* One head (dim) divided by its root mean square, times weight. */
INLINE void normalize(const bf16 *head, const bf16 *weight, int64_t dim, float eps, bf16 *out) {
    __m512 squares = _mm512_setzero_ps();
    for (int64_t i = 0; i < dim; i += 16) squares = _mm512_fmadd_ps(widen16(head + i), widen16(head + i), squares);
    __m512 factor = _mm512_set1_ps(1.0f / sqrtf(_mm512_reduce_add_ps(squares) / (float)dim + eps));
    for (int64_t i = 0; i < dim; i += 16) narrow16(out + i, _mm512_mul_ps(_mm512_mul_ps(widen16(head + i), factor), widen16(weight + i)));
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
        __m512 turned = _mm512_fmadd_ps(widen16(head + i), widen16(cosines + i), _mm512_mul_ps(widen16(other), widen16(sines + i)));
        narrow16(out + i, turned);
    }
}

/* Put a key (dim) into its place among 16, and a value (dim) beside its neighbour. The neighbour of the `last` token becomes zero:
 * what a pass that was rolled back left there may be no number, and a weight of zero would not silence it. */
INLINE void store(const bf16 *key, const bf16 *value, bf16 *keys, bf16 *values, int64_t place, int last, int64_t dim) {
    bf16 *among = keys + place / 16 * 16 * dim + place % 16 * 2, *pair = values + place / 2 * 2 * dim;
    __mmask32 lanes = place % 2 ? 0xaaaaaaaa : last ? 0xffffffff : 0x55555555; /* the neighbour may be another core's */
    for (int64_t i = 0; i < dim / 2; i++) memcpy(among + i * 32, key + i * 2, 4);
    for (int64_t i = 0; i < dim; i += 16) {
        __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(value + i)));
        _mm512_mask_storeu_epi16(pair + i * 2, lanes, place % 2 ? _mm512_slli_epi32(low, 16) : low);
    }
}

/* Scores (some, 32 keys) of some queries (count, dim) against two blocks of 16 keys. */
INLINE void score(const bf16 *queries, const bf16 *keys, const bf16 *next, int64_t dim, float scale, float *scores, const int some) {
    __m512 low[QUERIES], high[QUERIES];
    UNROLL for (int q = 0; q < some; q++) low[q] = high[q] = _mm512_setzero_ps();
    for (int64_t i = 0; i < dim; i += 2) {
        __m512bh first = (__m512bh)_mm512_loadu_si512(keys + i * 16), second = (__m512bh)_mm512_loadu_si512(keys + (dim + i) * 16);
        _mm_prefetch((const char *)(next + i * 16), _MM_HINT_T0);
        _mm_prefetch((const char *)(next + (dim + i) * 16), _MM_HINT_T0);
        UNROLL for (int q = 0; q < some; q++) {
            __m512bh word = (__m512bh)broadcast(queries + q * dim + i);
            low[q] = _mm512_dpbf16_ps(low[q], first, word);
            high[q] = _mm512_dpbf16_ps(high[q], second, word);
        }
    }
    UNROLL for (int q = 0; q < some; q++) {
        _mm512_storeu_ps(scores + q * CHUNK, _mm512_mul_ps(low[q], _mm512_set1_ps(scale)));
        _mm512_storeu_ps(scores + q * CHUNK + 16, _mm512_mul_ps(high[q], _mm512_set1_ps(scale)));
    }
}

/* Sums (some, dim) of `count` values, rounded up to pairs, by the weights (some, CHUNK). */
INLINE void weigh(const bf16 *weights, const bf16 *values, const bf16 *next, int64_t count, int64_t dim, float *sums, const int some) {
    for (int64_t i = 0; i < dim; i += 32) {
        __m512 low[QUERIES], high[QUERIES];
        UNROLL for (int q = 0; q < some; q++) low[q] = high[q] = _mm512_setzero_ps();
        for (int64_t t = 0; t < count; t += 2) {
            __m512bh first = (__m512bh)_mm512_loadu_si512(values + t * dim + i * 2), second = (__m512bh)_mm512_loadu_si512(values + t * dim + i * 2 + 32);
            _mm_prefetch((const char *)(next + t * dim + i * 2), _MM_HINT_T0);
            _mm_prefetch((const char *)(next + t * dim + i * 2 + 32), _MM_HINT_T0);
            UNROLL for (int q = 0; q < some; q++) {
                __m512bh two = (__m512bh)broadcast(weights + q * CHUNK + t);
                low[q] = _mm512_dpbf16_ps(low[q], first, two);
                high[q] = _mm512_dpbf16_ps(high[q], second, two);
            }
        }
        UNROLL for (int q = 0; q < some; q++) _mm512_storeu_ps(sums + q * dim + i, low[q]), _mm512_storeu_ps(sums + q * dim + i + 16, high[q]);
    }
}

/* Call `f` for `count` queries from `first` on, whose number the compiler then knows. */
#define IN_FOURS(count, f, ...)                                 \
    for (int64_t first = 0; first < (count); first += QUERIES)  \
        switch ((count) - first) {                              \
            case 1: f(__VA_ARGS__, 1); break;                   \
            case 2: f(__VA_ARGS__, 2); break;                   \
            case 3: f(__VA_ARGS__, 3); break;                   \
            default: f(__VA_ARGS__, QUERIES);                   \
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
    __m512 largest = _mm512_set1_ps(-INFINITY), total = _mm512_setzero_ps();
    for (int64_t t = 0; t < visible; t += 16) {
        __mmask16 lanes = visible - t >= 16 ? 0xffff : (__mmask16)((1u << (visible - t)) - 1);
        largest = _mm512_mask_max_ps(largest, lanes, largest, _mm512_loadu_ps(scores + t));
    }
    __m512 maximum = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
    for (int64_t t = 0; t < seen; t += 16) {
        __mmask16 lanes = visible - t >= 16 ? 0xffff : visible <= t ? 0 : (__mmask16)((1u << (visible - t)) - 1);
        narrow16(weights + t, _mm512_maskz_mov_ps(lanes, exp16(_mm512_sub_ps(_mm512_loadu_ps(scores + t), maximum))));
        total = _mm512_add_ps(total, widen16(weights + t));
    }
    return (softmax){_mm512_cvtss_f32(maximum), _mm512_reduce_add_ps(total)};
}

/* The keys and values of one chunk against `count` queries (count, dim). The first query's token sees `visible` keys of the chunk,
 * and every `group` queries are one token. Fills parts (count) and sums (count, dim). */
static void attend_chunk(const bf16 *queries, const bf16 *keys, const bf16 *values, int64_t count, int64_t group, int64_t visible,
                         int64_t dim, float scale, softmax *parts, float *sums) {
    float scores[TILE * CHUNK];
    bf16 weights[TILE * CHUNK];
    for (int64_t tile = 0; tile < count; tile += TILE) {
        int64_t some = least(TILE, count - tile), seen = least(CHUNK, visible + (tile + some - 1) / group);
        if (seen < 0) seen = 0; /* a tile of tokens before this chunk */
        for (int64_t t = 0; t < seen; t += 32)
            IN_FOURS(some, score, queries + (tile + first) * dim, keys + t * dim, values + t * dim, dim, scale, scores + first * CHUNK + t)
        for (int64_t q = 0; q < some; q++)
            parts[tile + q] = soften(scores + q * CHUNK, weights + q * CHUNK, least(CHUNK, visible + (tile + q) / group), seen);
        IN_FOURS(some, weigh, weights + first * CHUNK, values, keys + CHUNK * dim, seen, dim, sums + (tile + first) * dim)
    }
}

/* Join the chunks of one query, `stride` queries apart, into out (dim). */
INLINE void join(const softmax *parts, const float *sums, int64_t chunks, int64_t stride, int64_t dim, bf16 *out) {
    float maximum = parts[0].maximum, total = 0;
    for (int64_t c = 1; c < chunks; c++) maximum = parts[c * stride].maximum > maximum ? parts[c * stride].maximum : maximum;
    for (int64_t c = 0; c < chunks; c++)
        total += parts[c * stride].total * _mm512_cvtss_f32(exp16(_mm512_set1_ps(parts[c * stride].maximum - maximum)));
    for (int64_t i = 0; i < dim; i += 16) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t c = 0; c < chunks; c++)
            sum = _mm512_fmadd_ps(exp16(_mm512_set1_ps(parts[c * stride].maximum - maximum)), _mm512_loadu_ps(sums + c * stride * dim + i), sum);
        narrow16(out + i, _mm512_div_ps(sum, _mm512_set1_ps(total)));
    }
}

/* Rotary positions, keys and values into the cache, and causal attention of the new tokens over it, for a team of threads.
 * qkv (width, heads + 2 kv_heads, dim); keys, values (kv_heads, ...) as above; q_norm, k_norm (dim) may be absent; cosines, sines
 * (width, dim) of the new positions; out (width, heads, dim). dim and the capacity are multiples of 32. scratch holds
 * hsd_attention_bytes. */
void hsd_attend_together(const bf16 *qkv, bf16 *keys, bf16 *values, const bf16 *q_norm, const bf16 *k_norm, const bf16 *cosines,
                         const bf16 *sines, bf16 *out, char *scratch, const shape *s) {
    int64_t heads = s->heads, kv_heads = s->kv_heads, dim = s->dim, row_size = (heads + 2 * kv_heads) * dim, group = heads / kv_heads;
    int64_t start = s->start;
    for (int64_t done = 0, tokens; done < s->width; done += tokens, start += tokens) {
        tokens = least(TOKENS, s->width - done);
        const bf16 *new = qkv + done * row_size;
        int64_t rows = tokens * group, chunks = (start + tokens + CHUNK - 1) / CHUNK; /* queries of one key-value head */
        float *sums = (float *)scratch;
        softmax *parts = (softmax *)(sums + kv_heads * chunks * rows * dim);
        bf16 *queries = (bf16 *)(parts + kv_heads * chunks * rows); /* (kv_heads, tokens, group, dim) */
#pragma omp for schedule(static)
        for (int64_t task = 0; task < tokens * (heads + kv_heads); task++) {
            int64_t token = task / (heads + kv_heads), head = task % (heads + kv_heads);
            const bf16 *from = new + token * row_size + head * dim;
            const bf16 *cos = cosines + (done + token) * dim, *sin = sines + (done + token) * dim;
            if (head < heads) {
                rotate(from, q_norm, cos, sin, dim, s->eps, queries + ((head / group * tokens + token) * group + head % group) * dim);
            } else {
                int64_t offset = (head - heads) * s->capacity * dim;
                bf16 key[LARGEST_DIM];
                rotate(from, k_norm, cos, sin, dim, s->eps, key);
                store(key, from + kv_heads * dim, keys + offset, values + offset, start + token, token + 1 == tokens, dim);
            }
        }
#pragma omp for schedule(static)
        for (int64_t task = 0; task < kv_heads * chunks; task++) {
            int64_t head = task / chunks, chunk = task % chunks, first = (head * s->capacity + chunk * CHUNK) * dim;
            attend_chunk(queries + head * rows * dim, keys + first, values + first, rows, group, start + 1 - chunk * CHUNK, dim, s->scale,
                         parts + task * rows, sums + task * rows * dim);
        }
#pragma omp for schedule(static)
        for (int64_t query = 0; query < kv_heads * rows; query++) {
            int64_t head = query / rows, row = query % rows, token = row / group;
            int64_t seen = (start + token + CHUNK) / CHUNK; /* chunks */
            join(parts + head * chunks * rows + row, sums + (head * chunks * rows + row) * dim, seen, rows, dim,
                 out + ((done + token) * heads + head * group + row % group) * dim);
        }
    }
}

/* For each query of TOKENS tokens: the query, and for every CHUNK keys their weighted sum and its softmax. */
int64_t hsd_attention_bytes(const shape *s) {
    int64_t chunks = (s->capacity + CHUNK - 1) / CHUNK, part = s->dim * (int64_t)sizeof(float) + (int64_t)sizeof(softmax);
    return least(TOKENS, s->width) * s->heads * (s->dim * (int64_t)sizeof(bf16) + chunks * part);
}

void hsd_attention(const bf16 *qkv, bf16 *keys, bf16 *values, const bf16 *q_norm, const bf16 *k_norm, const bf16 *cosines,
                   const bf16 *sines, bf16 *out, char *scratch, const shape *s) {
#pragma omp parallel
    hsd_attend_together(qkv, keys, values, q_norm, k_norm, cosines, sines, out, scratch, s);
}
#endif
