/* Little-endian reading and writing of bounded byte buffers. */
#include "proto/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void wire_buf_init(struct wire_buf *buf, size_t limit_bytes)
{
    memset(buf, 0, sizeof(*buf));
    buf->limit_bytes = limit_bytes;
}

void wire_buf_fini(struct wire_buf *buf)
{
    free(buf->data);
    wire_buf_init(buf, buf->limit_bytes);
}

void wire_buf_reset(struct wire_buf *buf)
{
    buf->len = 0;
    buf->failed = false;
}

static uint8_t *buf_extend(struct wire_buf *buf, size_t n)
{
    if (buf->failed || n > buf->limit_bytes - buf->len) {
        buf->failed = true;
        return NULL;
    }
    if (n > buf->cap - buf->len) {
        size_t cap = buf->cap ? buf->cap : 256;

        while (cap - buf->len < n)
            cap *= 2;
        uint8_t *data = realloc(buf->data, cap);
        if (!data) {
            buf->failed = true;
            return NULL;
        }
        buf->data = data;
        buf->cap = cap;
    }
    uint8_t *at = buf->data + buf->len;
    buf->len += n;
    return at;
}

static void put_le(struct wire_buf *buf, uint64_t v, size_t n)
{
    uint8_t *at = buf_extend(buf, n);

    for (size_t i = 0; at && i < n; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

/* wire_put_u8() and so on. */
#define PUT(bits)                                                 \
    void wire_put_u##bits(struct wire_buf *buf, uint##bits##_t v) \
    {                                                             \
        put_le(buf, v, bits / 8);                                 \
    }
PUT(8)
PUT(16)
PUT(32)
PUT(64)

void wire_put_bytes(struct wire_buf *buf, const void *p, size_t n)
{
    uint8_t *at = buf_extend(buf, n);

    if (at && n)
        memcpy(at, p, n);
}

void wire_put_str(struct wire_buf *buf, const char *s)
{
    size_t n = strlen(s);

    if (n > UINT16_MAX) {
        buf->failed = true;
        return;
    }
    wire_put_u16(buf, (uint16_t)n);
    wire_put_bytes(buf, s, n);
}

void wire_put_array(struct wire_buf *buf, size_t elem_bytes, const void *p,
                    uint32_t n)
{
    const uint8_t *at = p;

    wire_put_u32(buf, n);
    if (elem_bytes == 1 || __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        wire_put_bytes(buf, at, n * elem_bytes);
        return;
    }
    for (uint32_t i = 0; i < n; i++, at += elem_bytes)
        if (elem_bytes == 4)
            wire_put_u32(buf, *(const uint32_t *)(const void *)at);
        else
            wire_put_u64(buf, *(const uint64_t *)(const void *)at);
}

void wire_reader_init(struct wire_reader *r, const void *data, size_t len)
{
    r->data = data;
    r->len = len;
    r->pos = 0;
    r->failed = false;
}

const uint8_t *wire_get_bytes(struct wire_reader *r, size_t n)
{
    if (r->failed || n > r->len - r->pos) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *at = r->data + r->pos;
    r->pos += n;
    return at;
}

static uint64_t get_le(struct wire_reader *r, size_t n)
{
    const uint8_t *at = wire_get_bytes(r, n);
    uint64_t v = 0;

    for (size_t i = 0; at && i < n; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

/* wire_get_u8() and so on. */
#define GET(bits)                                          \
    uint##bits##_t wire_get_u##bits(struct wire_reader *r) \
    {                                                      \
        return (uint##bits##_t)get_le(r, bits / 8);        \
    }
GET(8)
GET(16)
GET(32)
GET(64)

void wire_get_str(struct wire_reader *r, char *out, size_t cap)
{
    out[0] = '\0';
    size_t n = wire_get_u16(r);
    const uint8_t *at = wire_get_bytes(r, n);
    if (!at || n >= cap || memchr(at, 0, n)) {
        r->failed = true;
        return;
    }
    memcpy(out, at, n);
    out[n] = '\0';
}

const uint8_t *wire_get_array(struct wire_reader *r, size_t elem_bytes,
                              uint32_t *n)
{
    uint32_t count = wire_get_u32(r);
    const uint8_t *at = NULL;

    if (count > (r->len - r->pos) / elem_bytes)
        r->failed = true;
    else if (count)
        at = wire_get_bytes(r, count * elem_bytes);
    *n = at ? count : 0;
    return at;
}

uint32_t wire_u32_at(const uint8_t *p, size_t i)
{
    p += 4 * i;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

uint64_t wire_u64_at(const uint8_t *p, size_t i)
{
    return (uint64_t)wire_u32_at(p, 2 * i) | (uint64_t)wire_u32_at(p, 2 * i + 1)
                                                 << 32;
}

int wire_end(const struct wire_reader *r, bool in_range)
{
    return !r->failed && r->pos == r->len && in_range ? 0 : -EBADMSG;
}
