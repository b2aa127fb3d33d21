/* msgpack, value by value. A value begins with a byte for its kind and, if
 * small, the value; a length or a number follows, big-endian. */
#include "conductor/link/events/unpack.h"

#include <endian.h>
#include <string.h>

void unpack_init(struct unpack *u, const void *bytes, size_t n)
{
    *u = (struct unpack){.start = bytes, .at = bytes};
    u->end = u->start + n;
}

bool unpack_fail(struct unpack *u, const char *expected)
{
    if (!u->expected)
        u->expected = expected;
    return false;
}

static size_t left(const struct unpack *u)
{
    return (size_t)(u->end - u->at);
}

const uint8_t unpack_kinds[256] = {
    [0x00 ... 0x7f] = UNPACK_INTEGER,
    [0x80 ... 0x8f] = UNPACK_MAP,
    [0x90 ... 0x9f] = UNPACK_ARRAY,
    [0xa0 ... 0xbf] = UNPACK_TEXT,
    [0xc0] = UNPACK_NIL,
    [0xc1 ... 0xc3] = UNPACK_OTHER,
    [0xc4 ... 0xc6] = UNPACK_BYTES,
    [0xc7 ... 0xcb] = UNPACK_OTHER,
    [0xcc ... 0xd3] = UNPACK_INTEGER,
    [0xd4 ... 0xd8] = UNPACK_OTHER,
    [0xd9 ... 0xdb] = UNPACK_TEXT,
    [0xdc ... 0xdd] = UNPACK_ARRAY,
    [0xde ... 0xdf] = UNPACK_MAP,
    [0xe0 ... 0xff] = UNPACK_INTEGER,
};

/* Returns a big-endian number of 1, 2, 4 or 8 readable bytes. */
static uint64_t number(const uint8_t *p, uint32_t width)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < width; i++)
        value = value << 8 | p[i];
    return value;
}

/*
 * Reads a first byte and the number of `width` bytes behind it, if all are in
 * the buffer. On a failure the reader does not move.
 */
static bool head(struct unpack *u, uint32_t width, uint64_t *value)
{
    if (left(u) < 1 + (size_t)width)
        return unpack_fail(u, "the rest of the value");
    *value = number(u->at + 1, width);
    u->at += 1 + width;
    return true;
}

bool unpack_nil(struct unpack *u)
{
    if (unpack_peek(u) != UNPACK_NIL)
        return false;
    u->at++;
    return true;
}

/* Takes a count of values of at least bytes_each bytes; fails if they cannot
 * fit into the rest. */
static bool counted(struct unpack *u, const uint8_t *before, uint64_t n,
                    size_t bytes_each, uint32_t *out)
{
    if (n > left(u) / bytes_each) {
        u->at = before;
        return unpack_fail(u, "a count that fits into the message");
    }
    *out = (uint32_t)n;
    return true;
}

bool unpack_array(struct unpack *u, uint32_t *n)
{
    const uint8_t *before = u->at;
    uint64_t count;

    if (unpack_peek(u) != UNPACK_ARRAY)
        return unpack_fail(u, "an array");
    if (*before <= 0x9f)
        count = *u->at++ & 0xf;
    else if (!head(u, *before == 0xdc ? 2 : 4, &count))
        return false;
    return counted(u, before, count, 1, n);
}

bool unpack_map(struct unpack *u, uint32_t *n)
{
    const uint8_t *before = u->at;
    uint64_t count;

    if (unpack_peek(u) != UNPACK_MAP)
        return unpack_fail(u, "a map");
    if (*before <= 0x8f)
        count = *u->at++ & 0xf;
    else if (!head(u, *before == 0xde ? 2 : 4, &count))
        return false;
    return counted(u, before, count, 2, n);
}

/* Reads the length in front of a string or of bytes. */
static bool length(struct unpack *u, uint32_t *n)
{
    const uint8_t *before = u->at;
    uint8_t b = *before;
    uint64_t count;

    if (b >= 0xa0 && b <= 0xbf)
        count = *u->at++ & 0x1f;
    else if (!head(u, 1u << (b >= 0xd9 ? b - 0xd9 : b - 0xc4), &count))
        return false;
    return counted(u, before, count, 1, n);
}

bool unpack_text(struct unpack *u, struct unpack_text *out)
{
    uint32_t n;

    if (unpack_peek(u) != UNPACK_TEXT)
        return unpack_fail(u, "a string");
    if (!length(u, &n))
        return false;
    *out = (struct unpack_text){(const char *)u->at, n};
    u->at += n;
    return true;
}

bool unpack_integer(struct unpack *u, uint64_t *out)
{
    uint64_t value;
    uint8_t b;

    if (unpack_peek(u) != UNPACK_INTEGER)
        return unpack_fail(u, "an integer");
    b = *u->at;
    if (b <= 0x7f || b >= 0xe0) {
        u->at++;
        *out = (uint64_t)(int64_t)(int8_t)b;
        return true;
    }
    if (!head(u, 1u << (b & 3), &value))
        return false;
    if (b == 0xd0)
        value = (uint64_t)(int64_t)(int8_t)value;
    else if (b == 0xd1)
        value = (uint64_t)(int64_t)(int16_t)value;
    else if (b == 0xd2)
        value = (uint64_t)(int64_t)(int32_t)value;
    *out = value;
    return true;
}

bool unpack_seconds(struct unpack *u, double *out)
{
    uint64_t bits;

    if (u->expected || left(u) < 9 || *u->at != 0xcb)
        return unpack_skip(u, 1);
    bits = number(u->at + 1, 8);
    memcpy(out, &bits, sizeof(*out));
    u->at += 9;
    return true;
}

bool unpack_hash(struct unpack *u, uint64_t *out)
{
    uint32_t n, from;

    if (u->end - u->at >= 9 && (*u->at == 0xcf || *u->at == 0xd3) &&
        !u->expected) {
        memcpy(out, u->at + 1, sizeof(*out));
        *out = be64toh(*out);
        u->at += 9;
        return true;
    }
    if (unpack_peek(u) != UNPACK_BYTES) {
        if (unpack_peek(u) == UNPACK_INTEGER)
            return unpack_integer(u, out);
        return unpack_fail(u, "a block hash: an integer or bytes");
    }
    if (!length(u, &n))
        return false;
    from = n > 8 ? n - 8 : 0;
    *out = number(u->at + from, n - from);
    u->at += n;
    return true;
}

/* Reads a token at p, where 5 bytes are readable. Returns its length; 0 =
 * another form. */
static inline uint32_t token(const uint8_t *p, uint32_t *out)
{
    if (p[0] == 0xcd) {
        *out = (uint32_t)p[1] << 8 | p[2];
        return 3;
    }
    if (p[0] <= 0x7f) {
        *out = p[0];
        return 1;
    }
    if (p[0] == 0xce || p[0] == 0xd2) {
        memcpy(out, p + 1, sizeof(*out));
        *out = be32toh(*out);
        return 5;
    }
    if (p[0] == 0xcc) {
        *out = p[1];
        return 2;
    }
    return 0;
}

/*
 * Reads two tokens at p, where 16 bytes are readable. Most tokens have 2 or 4
 * bytes behind a first byte of 0xcd or 0xce. The second token begins at one of
 * two places; it is read at both, since a branch could not be predicted.
 * Returns the length of both tokens; 0 = one has another form.
 */
static inline uint32_t two_tokens(const uint8_t *p, uint32_t out[2])
{
    uint32_t first = p[0] - 0xcdu, second = p[3] - 0xcdu, other = p[5] - 0xcdu;
    uint64_t a, b;

    second ^= (second ^ other) & -(first & 1);
    if ((first | second) > 1)
        return 0;
    memcpy(&a, p, sizeof(a));
    memcpy(&b, p + 3 + 2 * first, sizeof(b));
    out[0] = (uint32_t)(be64toh(a) << 8 >> (48 - 16 * first));
    out[1] = (uint32_t)(be64toh(b) << 8 >> (48 - 16 * second));
    return 6 + 2 * first + 2 * second;
}

/* Reads a token in a form or at a place that token() does not handle. */
static bool rare_token(struct unpack *u, uint32_t *out, bool *odd)
{
    uint64_t value;

    if (unpack_peek(u) != UNPACK_INTEGER) {
        *odd = true;
        return unpack_skip(u, 1);
    }
    if (!unpack_integer(u, &value))
        return false;
    if (value > UINT32_MAX && (int64_t)value < INT32_MIN)
        *odd = true;
    if (value > UINT32_MAX && (int64_t)value > 0)
        *odd = true;
    *out = (uint32_t)value;
    return true;
}

bool unpack_tokens(struct unpack *u, uint32_t n, uint32_t *out, bool *odd)
{
    const uint8_t *p = u->at;

    if (u->expected)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size;

        while (n - i >= 2 && u->end - p >= 16 &&
               (size = two_tokens(p, &out[i]))) {
            p += size;
            i += 2;
        }
        if (i == n)
            break;
        size = u->end - p < 5 ? 0 : token(p, &out[i]);
        p += size;
        if (size)
            continue;
        u->at = p;
        if (!rare_token(u, &out[i], odd))
            return false;
        p = u->at;
    }
    u->at = p;
    return true;
}

/* Skips a first byte and the value's own bytes. *inside: number of values in
 * it, to be skipped next. */
static bool skip_one(struct unpack *u, uint64_t *inside)
{
    static const uint8_t widths[] = {/* from 0xc4 */
                                     1, 2, 4, 1, 2, 4, 4,  8, 1, 2, 4, 8, 1, 2,
                                     4, 8, 2, 3, 5, 9, 17, 1, 2, 4, 2, 4, 2, 4};
    uint8_t b = *u->at;
    uint64_t n = 0;
    uint32_t count;

    *inside = 0;
    switch (unpack_peek(u)) {
    case UNPACK_ARRAY:
    case UNPACK_MAP:
        if (unpack_peek(u) == UNPACK_ARRAY ? !unpack_array(u, &count)
                                           : !unpack_map(u, &count))
            return false;
        *inside = b >= 0x90 && b != 0xde && b != 0xdf ? count : 2ull * count;
        return true;
    case UNPACK_TEXT:
    case UNPACK_BYTES:
        if (!length(u, &count))
            return false;
        u->at += count;
        return true;
    default:
        break;
    }
    if (b >= 0xc7 && b <= 0xc9) { /* an extension: length, kind, bytes */
        const uint8_t *before = u->at;

        if (!head(u, widths[b - 0xc4], &n))
            return false;
        if (!counted(u, before, n + 1, 1, &count))
            return false;
        u->at += count;
        return true;
    }
    if (b == 0xc1)
        return unpack_fail(u, "a value");
    if (b >= 0xca && b <= 0xd8)
        n = widths[b - 0xc4];
    if (left(u) < 1 + n)
        return unpack_fail(u, "the rest of the value");
    u->at += 1 + n;
    return true;
}

bool unpack_skip(struct unpack *u, uint32_t n)
{
    uint64_t todo = n, inside;

    for (; todo > 0; todo += inside - 1) {
        inside = 0;
        if (left(u) >= todo && (*u->at == 0xc0 || *u->at <= 0x7f) &&
            !u->expected) {
            u->at++;
            continue;
        }
        if (unpack_peek(u) == UNPACK_END || todo > left(u))
            return unpack_fail(u, "another value");
        if (!skip_one(u, &inside))
            return false;
    }
    return true;
}
