/*
 * Sixty-four bytes at a time, bit masks say where the digits, commas and
 * spaces are; each comma's place then gives one number's end, and up to eight
 * digits are converted in one word (SWAR). So the only chain of dependent
 * steps from number to number is clearing a bit. A block that holds anything
 * but numbers of up to eight digits, parted by "," or all by ", ", is left to
 * the slow path, a byte at a time, which also says what is wrong.
 */
#include "conductor/json/ids.h"

#include <errno.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "conductor/json/walk.h"

/* Returns the number that eight digits spell; x holds them as bytes from 0 to
 * 9, the first digit in the lowest byte. */
static uint32_t eight_digits(uint64_t x)
{
    x = x * 10 + (x >> 8);
    x = (x & 0x000000ff000000ffu) * 0x000f424000000064u +
        (x >> 16 & 0x000000ff000000ffu) * 0x0000271000000001u;
    return (uint32_t)(x >> 32);
}

/* Reads one number, a byte at a time. Returns the byte after it, or NULL with
 * the reason in *why. */
static const char *slow_id(const char *p, const char *end, uint32_t *id,
                           const char **why)
{
    const char *start = p;
    uint64_t value = 0;

    *why = "must be a token id, a whole number from 0 to 4294967295";
    while (p < end && *p >= '0' && *p <= '9') {
        value = value * 10 + (uint64_t)(*p++ - '0');
        if (value > UINT32_MAX)
            return NULL;
    }
    if (p == start || (*start == '0' && p > start + 1))
        return NULL;
    if (p < end && (*p == '.' || *p == 'e' || *p == 'E'))
        return NULL;
    *id = (uint32_t)value;
    return p;
}

#ifdef __SSE2__
struct masks {
    uint64_t digit, comma, space;
};

static struct masks find(const char *p)
{
    struct masks m = {0, 0, 0};

    for (int i = 0; i < 4; i++) {
        __m128i v =
            _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
        __m128i value = _mm_sub_epi8(v, _mm_set1_epi8('0'));
        __m128i digit =
            _mm_cmpeq_epi8(_mm_min_epu8(value, _mm_set1_epi8(9)), value);
        __m128i comma = _mm_cmpeq_epi8(v, _mm_set1_epi8(','));
        __m128i space = _mm_cmpeq_epi8(v, _mm_set1_epi8(' '));

        m.digit |= (uint64_t)(unsigned)_mm_movemask_epi8(digit) << (16 * i);
        m.comma |= (uint64_t)(unsigned)_mm_movemask_epi8(comma) << (16 * i);
        m.space |= (uint64_t)(unsigned)_mm_movemask_epi8(space) << (16 * i);
    }
    return m;
}

/*
 * Reads numbers that each end at a comma, from the first byte of a number at p.
 *   stride  bytes from a comma to the next number: 1 or 2
 * Returns where the slow path goes on: p, or after a comma.
 */
static const char *fast_ids(const char *p, const char *end, size_t stride,
                            uint32_t **out)
{
    const char *block = p, *start = p;
    uint32_t *o = *out;
    uint64_t digit_before = 0, comma_before = 0;

    for (; end - block >= 64 + 8; block += 64) {
        struct masks m = find(block);
        uint64_t after_digit = m.digit << 1 | digit_before;
        uint64_t after_comma = m.comma << 1 | comma_before;
        uint32_t *first = o;
        bool odd = (m.digit | m.comma | m.space) != UINT64_MAX ||
                   (m.comma & ~after_digit) != 0 ||
                   m.space != (stride == 2 ? after_comma : 0);

        if (odd)
            break;
        for (uint64_t left = m.comma; left; left &= left - 1) {
            const char *comma = block + __builtin_ctzll(left);
            size_t n = (size_t)(comma - start);
            uint64_t x;

            memcpy(&x, start, 8);
            odd |= n > 8 || (*start == '0' && n > 1);
            *o++ = eight_digits((x ^ 0x3030303030303030u) << (64 - 8 * n) % 64);
            start = comma + stride;
        }
        if (odd) {
            o = first;
            break;
        }
        /* Not `start`: the space before it may lie in the next block. */
        if (m.comma)
            p = block + 64 - __builtin_clzll(m.comma);
        digit_before = m.digit >> 63;
        comma_before = m.comma >> 63;
    }
    *out = o;
    return p;
}
#endif

int json_ids_read(const char **at, const char *end, uint32_t *out,
                  size_t *n_out, const char **why)
{
    const char *p = json_skip_space(*at, end);
    uint32_t *o = out;
    size_t stride = 1;

    if (p < end && *p == ']')
        goto closed;
    for (;;) {
        const char *after;

#ifdef __SSE2__
        p = fast_ids(p, end, stride, &o);
#endif
        p = json_skip_space(p, end);
        after = slow_id(p, end, o, why);
        if (!after)
            goto bad;
        o++;
        p = json_skip_space(after, end);
        if (p < end && *p == ']')
            break;
        if (p == end || *p != ',') {
            *why = "expected ',' or ']' after a token id";
            goto bad;
        }
        p++;
        stride = p < end && *p == ' ' ? 2 : 1;
        p = json_skip_space(p, end);
    }
closed:
    *at = p + 1;
    *n_out = (size_t)(o - out);
    return 0;
bad:
    *at = p;
    *n_out = (size_t)(o - out);
    return -EINVAL;
}
