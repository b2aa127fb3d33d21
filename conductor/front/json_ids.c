/*
 * A number of up to seven digits is found and converted in one 8-byte word
 * (SWAR). The distance to the next number is one (",") or two bytes (", ");
 * keeping the last distance in a variable keeps the test for the space out of
 * the chain of dependent loads. All else takes the slow path, a byte at a
 * time.
 */
#include "conductor/front/json_ids.h"

#include <errno.h>
#include <string.h>

/* Eight ASCII digits in little-endian order, minus '0' each: their value. */
static uint32_t eight_digits(uint64_t x)
{
    x = x * 10 + (x >> 8);
    x = (x & 0x000000ff000000ffu) * 0x000f424000000064u +
        (x >> 16 & 0x000000ff000000ffu) * 0x0000271000000001u;
    return (uint32_t)(x >> 32);
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* One number, a byte at a time. The byte after it, or NULL with *why. */
static const char *slow_id(const char *p, const char *end, uint32_t *id,
                           const char **why)
{
    const char *start = p;
    uint64_t value = 0;

    *why = "a token id must be a whole number from 0 to 4294967295";
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

/* Numbers that are each followed by a comma, while eight bytes can be read;
 * returns the first byte that needs the slow path. */
static const char *fast_ids(const char *p, const char *end, size_t stride,
                            uint32_t **out)
{
    uint32_t *o = *out;

    while (end - p >= 10) {
        uint64_t x, stop;
        unsigned n;

        memcpy(&x, p, 8);
        x ^= 0x3030303030303030u;
        stop = (((x & 0x7f7f7f7f7f7f7f7fu) + 0x7676767676767676u) | x) &
               0x8080808080808080u;
        if (stop == 0)
            break;
        n = (unsigned)__builtin_ctzll(stop) / 8;
        if (n == 0 || p[n] != ',' || (*p == '0' && n > 1))
            break;
        if (stride == 2 && p[n + 1] != ' ')
            break;
        *o++ = eight_digits(x << (64 - 8 * n));
        p += n + stride;
    }
    *out = o;
    return p;
}

int json_ids_read(const char **at, const char *end, uint32_t *out,
                  size_t *n_out, const char **why)
{
    const char *p = skip_space(*at, end);
    uint32_t *o = out;
    size_t stride = 1;

    if (p < end && *p == ']')
        goto closed;
    for (;;) {
        const char *after;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        p = fast_ids(p, end, stride, &o);
#endif
        p = skip_space(p, end);
        after = slow_id(p, end, o, why);
        if (!after)
            goto bad;
        o++;
        p = skip_space(after, end);
        if (p < end && *p == ']')
            break;
        if (p == end || *p != ',') {
            *why = "expected ',' or ']' after a token id";
            goto bad;
        }
        p++;
        stride = p < end && *p == ' ' ? 2 : 1;
        p = skip_space(p, end);
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
