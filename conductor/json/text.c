/*
 * Bytes are copied many at a time up to the next quote, backslash or control
 * character. UTF-8 is checked afterwards on the written bytes, which are still
 * in cache: an escape always writes a whole sequence, so what is valid there
 * was valid in the source, and the reverse.
 */
#include "conductor/json/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include "conductor/json/utf8.h"

static bool is_special(char c)
{
    return c == '"' || c == '\\' || (unsigned char)c < 0x20;
}

#ifdef __x86_64__
/* Bit i is set if byte i of 16 is special. */
static unsigned special_of(__m128i v)
{
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
    const __m128i control = _mm_set1_epi8(0x1f);

    return (unsigned)_mm_movemask_epi8(_mm_or_si128(
        _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)),
        _mm_cmpeq_epi8(_mm_min_epu8(v, control), v)));
}

/* Copies whole 32-byte blocks until one holds a special byte. Returns the plain
 * bytes before it; up to 32 bytes after them are overwritten. */
static size_t copy_sse2(const char *p, size_t n, char *out, bool *high)
{
    __m128i seen = _mm_setzero_si128();
    size_t at = 0;

    for (; n - at >= 32; at += 32) {
        unsigned special = 0;

        for (unsigned i = 0; i < 2; i++) {
            __m128i v = _mm_loadu_si128(
                (const __m128i *)(const void *)(p + at + 16 * i));

            _mm_storeu_si128((__m128i *)(void *)(out + at + 16 * i), v);
            seen = _mm_or_si128(seen, v);
            special |= special_of(v) << (16 * i);
        }
        if (special) {
            at += (unsigned)__builtin_ctz(special);
            break;
        }
    }
    *high |= _mm_movemask_epi8(seen) != 0;
    return at;
}
#endif

/* Copies plain bytes up to a special byte or the end. */
static size_t copy_plain(const char *p, size_t n, char *out, bool *high)
{
    size_t at = 0;

#ifdef __x86_64__
    at = copy_sse2(p, n, out, high);
#endif
    while (at < n && !is_special(p[at])) {
        *high |= (p[at] & 0x80) != 0;
        out[at] = p[at];
        at++;
    }
    return at;
}

/* Reads four hexadecimal digits at p; -1: others. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t value = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Reads \uXXXX, or two of them for a surrogate pair; p is behind the 'u'. */
static const char *read_unicode(const char *p, const char *end, char **out,
                                const char **why)
{
    int32_t c = hex4(p, end), second;

    *why = "\\u needs four hexadecimal digits";
    if (c < 0)
        return NULL;
    p += 4;
    if (c >= 0xd800 && c <= 0xdfff) {
        *why = "a \\u surrogate without its other half";
        if (c > 0xdbff || end - p < 6 || p[0] != '\\' || p[1] != 'u')
            return NULL;
        second = hex4(p + 2, end);
        if (second < 0xdc00 || second > 0xdfff)
            return NULL;
        c = 0x10000 + ((c - 0xd800) << 10) + (second - 0xdc00);
        p += 6;
    }
    *out += utf8_put(*out, (uint32_t)c);
    return p;
}

/* Reads an escape; p is behind the backslash. Writes no more than it reads. */
static const char *read_escape(const char *p, const char *end, char **out,
                               const char **why)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found;

    *why = "unknown escape in a string";
    if (p == end)
        return NULL;
    if (*p == 'u')
        return read_unicode(p + 1, end, out, why);
    found = *p ? strchr(from, *p) : NULL;
    if (!found)
        return NULL;
    *(*out)++ = to[found - from];
    return p + 1;
}

int json_text_read(const char **at, const char *end, char *out, size_t *n_out,
                   const char **why)
{
    const char *p = *at, *after;
    char *o = out;
    bool high = false;
    size_t n;

    for (;;) {
        n = copy_plain(p, (size_t)(end - p), o, &high);
        p += n;
        o += n;
        *at = p;
        if (p == end) {
            *why = "a string without its closing quote";
            return -EINVAL;
        }
        if (*p == '"')
            break;
        if (*p != '\\') {
            *why = "a raw control character in a string";
            return -EINVAL;
        }
        after = read_escape(p + 1, end, &o, why);
        if (!after)
            return -EINVAL;
        p = after;
    }
    n = (size_t)(o - out);
    if (high && utf8_valid_prefix(out, n) != n) {
        *why = "a string that isn't valid UTF-8";
        return -EINVAL;
    }
    *at = p + 1;
    *n_out = n;
    return 0;
}

/* Returns the first byte that is not plain: a quote, a backslash or a control
 * character. */
static const char *pass_plain(const char *p, const char *end, bool *high)
{
#ifdef __x86_64__
    __m128i seen = _mm_setzero_si128();
    unsigned special = 0;

    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);

        seen = _mm_or_si128(seen, v);
        special = special_of(v);
        if (special)
            break;
    }
    *high |= _mm_movemask_epi8(seen) != 0;
    if (special)
        return p + __builtin_ctz(special);
#endif
    for (; p < end && !is_special(*p); p++)
        *high |= (*p & 0x80) != 0;
    return p;
}

int json_text_check(const char **at, const char *end, const char **why)
{
    const char *from = *at, *p = from;
    bool high = false;

    for (;;) {
        p = pass_plain(p, end, &high);
        *at = p;
        *why = "a string without its closing quote";
        if (p == end)
            return -EINVAL;
        if (*p == '"')
            break;
        *why = "a raw control character in a string";
        if (*p != '\\')
            return -EINVAL;
        *why = "unknown escape in a string";
        if (end - p < 2 || (p[1] == 'u' && end - p < 6)) {
            *at = end;
            return -EINVAL;
        }
        if (p[1] == 'u' ? hex4(p + 2, end) < 0
                        : !p[1] || !strchr("\"\\/bfnrt", p[1]))
            return -EINVAL;
        p += p[1] == 'u' ? 6 : 2;
    }
    if (high) {
        size_t valid = utf8_valid_prefix(from, (size_t)(p - from));

        *at = from + valid;
        *why = "a string that isn't valid UTF-8";
        if (*at < p)
            return -EINVAL;
    }
    *at = p + 1;
    return 0;
}

const char *json_text_skip(const char *at, const char *end)
{
    for (const char *p = at; (p = memchr(p, '"', (size_t)(end - p))); p++) {
        const char *run = p; /* start of the backslashes before it */

        while (run > at && run[-1] == '\\')
            run--;
        if ((p - run) % 2 == 0)
            return p + 1;
    }
    return NULL;
}
