/* UTF-8 checks, one sequence at a time and many bytes at a time. */
#include "conductor/front/json/utf8.h"

#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

size_t utf8_sequence(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xbf;
    size_t need;

    if (n == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    need = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n < need)
        return 0;
    /* The second byte's range keeps overlong forms and surrogates out. */
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return need;
}

size_t utf8_valid_prefix_plain(const char *text, size_t n)
{
    size_t at = 0;

    while (at < n) {
        uint64_t word;
        size_t sequence;

        if (n - at >= 8) {
            memcpy(&word, text + at, 8);
            if (!(word & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        sequence = utf8_sequence(text + at, n - at);
        if (sequence == 0)
            return at;
        at += sequence;
    }
    return n;
}

size_t utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))

/* What can be wrong with two bytes in a row; each nibble table says which of
 * these its nibble allows, and the AND of the three is what is wrong. */
enum {
    TOO_SHORT = 1 << 0,
    TOO_LONG = 1 << 1,
    OVERLONG_3 = 1 << 2,
    TOO_LARGE = 1 << 3,
    SURROGATE = 1 << 4,
    OVERLONG_2 = 1 << 5,
    TOO_LARGE_1000 = 1 << 6,
    OVERLONG_4 = 1 << 6,
    TWO_CONTS = 1 << 7,
    CARRY = TOO_SHORT | TOO_LONG | TWO_CONTS,
    LARGE = CARRY | TOO_LARGE | TOO_LARGE_1000,
};

static const unsigned char first_high[16] = {
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TOO_LONG,
    TWO_CONTS,
    TWO_CONTS,
    TWO_CONTS,
    TWO_CONTS,
    TOO_SHORT | OVERLONG_2,
    TOO_SHORT,
    TOO_SHORT | OVERLONG_3 | SURROGATE,
    TOO_SHORT | TOO_LARGE | TOO_LARGE_1000 | OVERLONG_4,
};

static const unsigned char first_low[16] = {
    CARRY | OVERLONG_3 | OVERLONG_2 | OVERLONG_4,
    CARRY | OVERLONG_2,
    CARRY,
    CARRY,
    CARRY | TOO_LARGE,
    LARGE,
    LARGE,
    LARGE,
    LARGE,
    LARGE,
    LARGE,
    LARGE,
    LARGE,
    LARGE | SURROGATE,
    LARGE,
    LARGE,
};

static const unsigned char second_high[16] = {
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_LONG | OVERLONG_2 | TWO_CONTS | OVERLONG_3 | TOO_LARGE_1000 |
        OVERLONG_4,
    TOO_LONG | OVERLONG_2 | TWO_CONTS | OVERLONG_3 | TOO_LARGE,
    TOO_LONG | OVERLONG_2 | TWO_CONTS | SURROGATE | TOO_LARGE,
    TOO_LONG | OVERLONG_2 | TWO_CONTS | SURROGATE | TOO_LARGE,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
    TOO_SHORT,
};

AVX2 static __m256i table(const unsigned char *bytes)
{
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128((const __m128i *)(const void *)bytes));
}

/* The errors among 32 bytes, given the 32 before them. */
AVX2 static __m256i block_errors(__m256i in, __m256i before,
                                 const __m256i tables[3])
{
    const __m256i low4 = _mm256_set1_epi8(0x0f);
    __m256i joint = _mm256_permute2x128_si256(before, in, 0x21);
    __m256i prev1 = _mm256_alignr_epi8(in, joint, 15);
    __m256i prev2 = _mm256_alignr_epi8(in, joint, 14);
    __m256i prev3 = _mm256_alignr_epi8(in, joint, 13);
    __m256i a = _mm256_shuffle_epi8(
        tables[0], _mm256_and_si256(_mm256_srli_epi16(prev1, 4), low4));
    __m256i b = _mm256_shuffle_epi8(tables[1], _mm256_and_si256(prev1, low4));
    __m256i c = _mm256_shuffle_epi8(
        tables[2], _mm256_and_si256(_mm256_srli_epi16(in, 4), low4));
    __m256i special = _mm256_and_si256(_mm256_and_si256(a, b), c);
    /* Where a third or fourth byte must stand, two continuations in a row
     * are right and anything else is wrong. */
    __m256i third =
        _mm256_subs_epu8(prev2, _mm256_set1_epi8((char)(0xe0 - 0x80)));
    __m256i fourth =
        _mm256_subs_epu8(prev3, _mm256_set1_epi8((char)(0xf0 - 0x80)));
    __m256i must = _mm256_and_si256(_mm256_or_si256(third, fourth),
                                    _mm256_set1_epi8((char)0x80));

    return _mm256_xor_si256(must, special);
}

/* Bytes at the front known to be valid: a multiple of 64, less the up to
 * three bytes of a sequence that the next block would have to end. */
AVX2 static size_t valid_blocks(const char *text, size_t n)
{
    const __m256i tables[3] = {table(first_high), table(first_low),
                               table(second_high)};
    __m256i before = _mm256_setzero_si256();
    size_t at = 0;

    for (; n - at >= 64; at += 64) {
        __m256i a =
            _mm256_loadu_si256((const __m256i *)(const void *)(text + at));
        __m256i b =
            _mm256_loadu_si256((const __m256i *)(const void *)(text + at + 32));
        __m256i errors = _mm256_or_si256(block_errors(a, before, tables),
                                         block_errors(b, a, tables));

        if (!_mm256_testz_si256(errors, errors))
            break;
        before = b;
    }
    /* Step back to the start of a sequence that may be cut at `at`. */
    for (size_t back = 1; back <= 3 && back <= at; back++)
        if ((unsigned char)text[at - back] >= 0xc0)
            return at - back;
    return at;
}
#endif

size_t utf8_valid_prefix(const char *text, size_t n)
{
    size_t at = 0;

#ifdef __x86_64__
    if (n >= 64 && __builtin_cpu_supports("avx2"))
        at = valid_blocks(text, n);
#endif
    return at + utf8_valid_prefix_plain(text + at, n - at);
}
