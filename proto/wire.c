/* See wire.h. */
#include "proto/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

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

uint8_t *wire_buf_extend(struct wire_buf *buf, size_t n)
{
    if (buf->failed || n > buf->limit_bytes - buf->len ||
        array_reserve(buf->data, buf->cap, buf->len + n)) {
        buf->failed = true;
        return NULL;
    }
    uint8_t *at = buf->data + buf->len;
    buf->len += n;
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
