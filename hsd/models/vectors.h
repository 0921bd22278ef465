/* Sixteen lanes of float32, or sixty-four bytes, at a time: a register of AVX-512, or two of AVX2. */

#ifndef HSD_VECTORS_H
#define HSD_VECTORS_H

#include "bf16.h"

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define HSD_VECTORS
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

#define VECTOR_BITS 512

/* What stays in 32 registers of 16 lanes. */
#define ROWS_BF16 12
#define ROWS_CODES 6
#define QUERIES 6 /* at a time, */
#define WIDE 4    /* and as many registers of keys, or of parts of a value */
#define HALVES 2 /* of a block of weights at once */
#define STEPS _Pragma("GCC unroll 16") /* of a group of codes */

typedef __m512 floats;
typedef __m512i words;
typedef __mmask16 lanes;

/* The lanes of the places from `first` that lie before `end`. */
#define LANES(first, end) ((end) - (first) >= 16 ? 0xffff : (end) <= (first) ? 0 : (__mmask16)((1u << ((end) - (first))) - 1))

#define zeros _mm512_setzero_ps
#define all_of _mm512_set1_ps
#define load_floats _mm512_loadu_ps
#define store_floats _mm512_storeu_ps
#define add _mm512_add_ps
#define subtract _mm512_sub_ps
#define multiply_lanes _mm512_mul_ps
#define divide _mm512_div_ps
#define multiply_add _mm512_fmadd_ps
#define larger _mm512_max_ps /* the second where one is no number */
#define magnitude _mm512_abs_ps
#define round_down _mm512_floor_ps
#define times_power_of_two _mm512_scalef_ps
#define sum_of _mm512_reduce_add_ps
#define largest_of _mm512_reduce_max_ps
#define first_of _mm512_cvtss_f32
#define larger_in(which, x, y) _mm512_mask_max_ps(x, which, x, y)
#define only(which, x) _mm512_maskz_mov_ps(which, x)
#define not_finite(x) (_mm512_cmp_ps_mask(_mm512_sub_ps(x, x), x, _CMP_UNORD_Q) != 0)
#define halves_at(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))

#define no_words _mm512_setzero_si512
#define load_words(p) _mm512_loadu_si512(p)
#define nearest_words _mm512_cvtps_epi32
#define add_words _mm512_add_epi32
#define sum_of_words _mm512_reduce_add_epi32
#define as_floats _mm512_cvtepi32_ps
#define store_codes(p, x) _mm_storeu_si128((void *)(p), _mm512_cvtsepi32_epi8(x))
#define low_nibbles(x) _mm512_and_si512(x, _mm512_set1_epi8(15))
#define high_nibbles(x) _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15))

#define dot_bf16(sums, a, b) _mm512_dpbf16_ps(sums, (__m512bh)(a), (__m512bh)(b))

/* Sums of products of codes: of 4 bits, no more than a group of 32, and of 8, shifted by 128. */
typedef __m512i code_sums;
#define SHIFT 128.0f /* that dot_codes leaves in */
#define no_codes _mm512_setzero_si512
#define dot_nibbles _mm512_dpbusd_epi32
#define dot_codes _mm512_dpbusd_epi32
#define total_of_nibbles _mm512_cvtepi32_ps
#define total_of_codes _mm512_cvtepi32_ps

INLINE floats widen16(const bf16 *x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x)), 16));
}

INLINE void narrow16(bf16 *out, floats x) { _mm256_storeu_si256((void *)out, (__m256i)_mm512_cvtneps_pbh(x)); }

INLINE floats widen_some(lanes which, const bf16 *x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(which, x)), 16));
}

INLINE void narrow_some(lanes which, bf16 *out, floats x) { _mm256_mask_storeu_epi16(out, which, (__m256i)_mm512_cvtneps_pbh(x)); }

/* Four bytes in every lane. */
INLINE words broadcast(const void *x) {
    int32_t word;
    memcpy(&word, x, 4);
    return _mm512_set1_epi32(word);
}

INLINE words load_some(lanes which, const void *x) { return _mm512_maskz_loadu_epi32(which, x); }

/* Words that lie `stride` words apart. */
INLINE words gather_some(lanes which, const void *x, int stride) {
    const __m512i lanes_of = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i places = _mm512_mullo_epi32(lanes_of, _mm512_set1_epi32(stride));
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), which, places, x, 4);
}

/* 16 values into every second place of 32, the first or, when `odd`, the second; the others become zero, or stay when `beside`. */
INLINE void store_every_second(bf16 *out, const bf16 *values, int odd, int beside) {
    __mmask32 which = odd ? 0xaaaaaaaa : beside ? 0x55555555 : 0xffffffff;
    __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)values));
    _mm512_mask_storeu_epi16(out, which, odd ? _mm512_slli_epi32(low, 16) : low);
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HSD_VECTORS
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

#define VECTOR_BITS 256

/* What stays in 16 registers of 8 lanes. */
#define ROWS_BF16 4
#define ROWS_CODES 4
#define QUERIES 3
#define WIDE 2
#define HALVES 1
#define STEPS _Pragma("GCC unroll 1") /* else the compiler makes all products first, in memory, and then adds them up */

typedef struct {
    __m256 low, high;
} floats;
typedef struct {
    __m256i low, high;
} words;
typedef int64_t lanes; /* the first so many */

#define LANES(first, end) ((end) - (first) >= 16 ? 16 : (end) <= (first) ? 0 : (end) - (first))

INLINE floats zeros(void) { return (floats){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE floats all_of(float x) { return (floats){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE floats load_floats(const float *p) { return (floats){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store_floats(float *p, floats x) { _mm256_storeu_ps(p, x.low), _mm256_storeu_ps(p + 8, x.high); }
INLINE floats add(floats x, floats y) { return (floats){_mm256_add_ps(x.low, y.low), _mm256_add_ps(x.high, y.high)}; }
INLINE floats subtract(floats x, floats y) { return (floats){_mm256_sub_ps(x.low, y.low), _mm256_sub_ps(x.high, y.high)}; }
INLINE floats multiply_lanes(floats x, floats y) { return (floats){_mm256_mul_ps(x.low, y.low), _mm256_mul_ps(x.high, y.high)}; }
INLINE floats divide(floats x, floats y) { return (floats){_mm256_div_ps(x.low, y.low), _mm256_div_ps(x.high, y.high)}; }
INLINE floats larger(floats x, floats y) { return (floats){_mm256_max_ps(x.low, y.low), _mm256_max_ps(x.high, y.high)}; }
INLINE floats round_down(floats x) { return (floats){_mm256_floor_ps(x.low), _mm256_floor_ps(x.high)}; }
INLINE floats multiply_add(floats x, floats y, floats z) {
    return (floats){_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high)};
}
INLINE floats magnitude(floats x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (floats){_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
INLINE float first_of(floats x) { return _mm256_cvtss_f32(x.low); }

INLINE float sum_of(floats x) {
    __m256 eight = _mm256_add_ps(x.low, x.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

INLINE float largest_of(floats x) {
    __m256 eight = _mm256_max_ps(x.low, x.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* All bits of the first lanes. */
INLINE floats mask_of(lanes which) {
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), count = _mm256_set1_epi32((int)which);
    return (floats){_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, places)),
                    _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, _mm256_add_epi32(places, _mm256_set1_epi32(8))))};
}
INLINE floats only(lanes which, floats x) {
    floats mask = mask_of(which);
    return (floats){_mm256_and_ps(mask.low, x.low), _mm256_and_ps(mask.high, x.high)};
}
INLINE floats larger_in(lanes which, floats x, floats y) {
    floats mask = mask_of(which), both = larger(x, y);
    return (floats){_mm256_blendv_ps(x.low, both.low, mask.low), _mm256_blendv_ps(x.high, both.high, mask.high)};
}
INLINE int not_finite(floats x) {
    floats nothing = subtract(x, x);
    __m256 low = _mm256_cmp_ps(nothing.low, nothing.low, _CMP_UNORD_Q), high = _mm256_cmp_ps(nothing.high, nothing.high, _CMP_UNORD_Q);
    return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
}
INLINE floats halves_at(const void *p) {
    const __m128i *eights = p;
    return (floats){_mm256_cvtph_ps(_mm_loadu_si128(eights)), _mm256_cvtph_ps(_mm_loadu_si128(eights + 1))};
}

INLINE words no_words(void) { return (words){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE words load_words(const void *p) { return (words){_mm256_loadu_si256(p), _mm256_loadu_si256((const __m256i *)p + 1)}; }
INLINE words nearest_words(floats x) { return (words){_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
INLINE words add_words(words x, words y) { return (words){_mm256_add_epi32(x.low, y.low), _mm256_add_epi32(x.high, y.high)}; }
INLINE floats as_floats(words x) { return (floats){_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

INLINE int sum_of_words(words x) {
    __m256i eight = _mm256_add_epi32(x.low, x.high);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

/* x * 2^power for whole powers from -126 to 0. */
INLINE floats times_power_of_two(floats x, floats power) {
    words bits = nearest_words(power);
    const __m256i bias = _mm256_set1_epi32(127);
    floats factor = {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(bits.low, bias), 23)),
                     _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(bits.high, bias), 23))};
    return multiply_lanes(x, factor);
}

/* Words to bytes with a sign, the nearest there are. */
INLINE void store_codes(int8_t *p, words x) {
    __m256i halves = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xd8);
    _mm_storeu_si128((void *)p, _mm_packs_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
}
INLINE words low_nibbles(words x) {
    const __m256i nibble = _mm256_set1_epi8(15);
    return (words){_mm256_and_si256(x.low, nibble), _mm256_and_si256(x.high, nibble)};
}
INLINE words high_nibbles(words x) {
    return low_nibbles((words){_mm256_srli_epi16(x.low, 4), _mm256_srli_epi16(x.high, 4)});
}

/* Of each pair of bfloat16, the first and the second as float32. */
INLINE __m256 first_of_pairs(__m256i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
INLINE __m256 second_of_pairs(__m256i x) { return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(0xffff0000))); }

INLINE floats dot_bf16(floats sums, words a, words b) {
    sums.low = _mm256_fmadd_ps(first_of_pairs(a.low), first_of_pairs(b.low), sums.low);
    sums.high = _mm256_fmadd_ps(first_of_pairs(a.high), first_of_pairs(b.high), sums.high);
    sums.low = _mm256_fmadd_ps(second_of_pairs(a.low), second_of_pairs(b.low), sums.low);
    sums.high = _mm256_fmadd_ps(second_of_pairs(a.high), second_of_pairs(b.high), sums.high);
    return sums;
}

/* Sums of products of codes: of 4 bits in halves of a lane, which a group of 32 inputs does not overflow (8 · 2 · 15 · 128 < 2^15),
 * and of 8, shifted by 128, in whole lanes: there the sign goes over to the weight, as pairs of full bytes would overflow. */
typedef words code_sums;
#define SHIFT 0.0f
#define no_codes no_words
#define total_of_codes as_floats

INLINE code_sums dot_nibbles(code_sums sums, words codes, words x) {
    return (words){_mm256_add_epi16(sums.low, _mm256_maddubs_epi16(codes.low, x.low)),
                   _mm256_add_epi16(sums.high, _mm256_maddubs_epi16(codes.high, x.high))};
}
INLINE floats total_of_nibbles(code_sums sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    return as_floats((words){_mm256_madd_epi16(sums.low, ones), _mm256_madd_epi16(sums.high, ones)});
}
INLINE __m256i dot_signed(__m256i codes, __m256i x) {
    __m256i weights = _mm256_xor_si256(codes, _mm256_set1_epi8(-128)); /* from -127 */
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(weights, x)), _mm256_set1_epi16(1));
}
INLINE code_sums dot_codes(code_sums sums, words codes, words x) {
    return add_words(sums, (words){dot_signed(codes.low, x.low), dot_signed(codes.high, x.high)});
}

INLINE floats widen16(const bf16 *x) {
    const __m128i *eights = (const void *)x;
    return (floats){first_of_pairs(_mm256_cvtepu16_epi32(_mm_loadu_si128(eights))),
                    first_of_pairs(_mm256_cvtepu16_epi32(_mm_loadu_si128(eights + 1)))};
}

/* As `narrow`. */
INLINE __m256i narrowed(__m256 x) {
    __m256i bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256 quiet = _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(0x400000)));
    __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), quiet, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
}
INLINE void narrow16(bf16 *out, floats x) {
    __m256i packed = _mm256_packus_epi32(narrowed(x.low), narrowed(x.high));
    _mm256_storeu_si256((void *)out, _mm256_permute4x64_epi64(packed, 0xd8));
}

INLINE floats widen_some(lanes which, const bf16 *x) {
    bf16 some[16] = {0};
    memcpy(some, x, which * sizeof(bf16));
    return widen16(some);
}
INLINE void narrow_some(lanes which, bf16 *out, floats x) {
    if (which == 16) {
        narrow16(out, x);
        return;
    }
    bf16 some[16];
    narrow16(some, x);
    memcpy(out, some, which * sizeof(bf16));
}

/* Four bytes in every lane. */
INLINE words broadcast(const void *x) {
    int32_t word;
    memcpy(&word, x, 4);
    return (words){_mm256_set1_epi32(word), _mm256_set1_epi32(word)};
}
INLINE words load_some(lanes which, const void *x) {
    int32_t some[16] = {0};
    memcpy(some, x, which * sizeof(int32_t));
    return load_words(some);
}

/* Words that lie `stride` words apart. */
INLINE words gather_some(lanes which, const void *x, int stride) {
    int32_t some[16] = {0};
    for (int64_t lane = 0; lane < which; lane++) memcpy(some + lane, (const int32_t *)x + lane * stride, 4);
    return load_words(some);
}

/* 16 values into every second place of 32, the first or, when `odd`, the second; the others become zero, or stay when `beside`. */
INLINE void store_every_second(bf16 *out, const bf16 *values, int odd, int beside) {
    for (int64_t i = 0; i < 16; i++) {
        out[2 * i + odd] = values[i];
        if (!odd && !beside) out[2 * i + 1] = 0;
    }
}
#endif

#ifdef HSD_VECTORS
#define BLOCK 32 /* outputs whose weights lie together: two registers */
#define UNROLL _Pragma("GCC unroll 16") /* so that arrays of vectors stay in registers */
#endif
#endif
