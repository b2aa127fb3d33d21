/* See codec.h. */
#include "proto/codec.h"

#include <errno.h>
#include <string.h>

struct codec codec_writer(struct wire_buf *out)
{
    return (struct codec){.out = out};
}

struct codec codec_reader(const void *payload, size_t len)
{
    return (struct codec){.in = payload, .in_bytes = len};
}

/* Returns the next n bytes to read; NULL past the end. */
static const uint8_t *next(struct codec *c, size_t n)
{
    if (c->failed || n > c->in_bytes) {
        c->failed = true;
        return NULL;
    }
    const uint8_t *at = c->in;
    c->in += n;
    c->in_bytes -= n;
    return at;
}

static void put(struct codec *c, uint64_t v, size_t n)
{
    uint8_t *at = wire_buf_extend(c->out, n);

    for (size_t i = 0; at && i < n; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(struct codec *c, size_t n)
{
    const uint8_t *at = next(c, n);
    uint64_t v = 0;

    for (size_t i = 0; at && i < n; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

/* Defines codec_u8() and so on. */
#define INTEGER(bits)                                      \
    void codec_u##bits(struct codec *c, uint##bits##_t *v) \
    {                                                      \
        if (c->out)                                        \
            put(c, *v, bits / 8);                          \
        else                                               \
            *v = (uint##bits##_t)get(c, bits / 8);         \
    }
INTEGER(8)
INTEGER(16)
INTEGER(32)
INTEGER(64)

void codec_bytes(struct codec *c, uint8_t *p, size_t n)
{
    uint8_t *to = c->out ? wire_buf_extend(c->out, n) : p;
    const uint8_t *from = c->out ? p : next(c, n);

    if (to && from && n)
        memcpy(to, from, n);
}

void codec_str(struct codec *c, char *s, size_t cap)
{
    size_t n = c->out ? strlen(s) : 0;
    uint16_t length = (uint16_t)n;

    if (n > UINT16_MAX) {
        c->out->failed = true;
        return;
    }
    codec_u16(c, &length);
    if (c->out) {
        codec_bytes(c, (uint8_t *)s, n);
        return;
    }
    const uint8_t *at = next(c, length);
    s[0] = '\0';
    if (!at || length >= cap || memchr(at, 0, length)) {
        c->failed = true;
        return;
    }
    memcpy(s, at, length);
    s[length] = '\0';
}

/* Appends n native elements. */
static void put_array(struct codec *c, size_t elem_bytes, const void *p,
                      uint32_t n)
{
    if (elem_bytes > 1 && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) {
        for (uint32_t i = 0; i < n; i++)
            put(c,
                elem_bytes == 4 ? ((const uint32_t *)p)[i]
                                : ((const uint64_t *)p)[i],
                elem_bytes);
        return;
    }
    uint8_t *at = wire_buf_extend(c->out, n * elem_bytes);
    if (at && n)
        memcpy(at, p, n * elem_bytes);
}

void codec_array(struct codec *c, size_t elem_bytes, const uint8_t **p,
                 uint32_t *n)
{
    codec_u32(c, n);
    if (!c->out) {
        if (*n > c->in_bytes / elem_bytes)
            c->failed = true;
        *p = *n && !c->failed ? next(c, *n * elem_bytes) : NULL;
        *n = *p ? *n : 0;
    } else {
        put_array(c, elem_bytes, *p, *n);
    }
}

void codec_require(struct codec *c, bool ok)
{
    if (!c->out && !ok)
        c->failed = true;
}

void codec_skip(struct codec *c)
{
    c->in_bytes = 0;
}

int codec_end(const struct codec *c)
{
    return !c->failed && c->in_bytes == 0 ? 0 : -EBADMSG;
}
