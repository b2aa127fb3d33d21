/* One function per message that both writes and reads it. */
#include "proto/codec.h"

#include <string.h>

struct codec codec_writer(struct wire_buf *out)
{
    return (struct codec){.out = out, .in_range = true};
}

struct codec codec_reader(const void *payload, size_t len)
{
    struct codec c = {.in_range = true};

    wire_reader_init(&c.in, payload, len);
    return c;
}

/* codec_u8() and so on. */
#define INTEGER(bits)                                      \
    void codec_u##bits(struct codec *c, uint##bits##_t *v) \
    {                                                      \
        if (c->out)                                        \
            wire_put_u##bits(c->out, *v);                  \
        else                                               \
            *v = wire_get_u##bits(&c->in);                 \
    }
INTEGER(8)
INTEGER(16)
INTEGER(32)
INTEGER(64)

void codec_bytes(struct codec *c, uint8_t *p, size_t n)
{
    const uint8_t *at = c->out ? NULL : wire_get_bytes(&c->in, n);

    if (c->out)
        wire_put_bytes(c->out, p, n);
    else if (at)
        memcpy(p, at, n);
}

void codec_str(struct codec *c, char *s, size_t cap)
{
    if (c->out)
        wire_put_str(c->out, s);
    else
        wire_get_str(&c->in, s, cap);
}

void codec_array(struct codec *c, size_t elem_bytes, const uint8_t **p,
                 uint32_t *n)
{
    if (!c->out) {
        *p = wire_get_array(&c->in, elem_bytes, n);
    } else if (*p || *n == 0) {
        wire_put_array(c->out, elem_bytes, *p, *n);
    } else {
        wire_put_u32(c->out, *n);
        c->later_bytes += *n * elem_bytes;
    }
}

void codec_later(struct codec *c, uint32_t n)
{
    c->later_bytes += n;
}

void codec_require(struct codec *c, bool ok)
{
    if (!c->out && !ok)
        c->in_range = false;
}

void codec_skip(struct codec *c)
{
    if (!c->out && !c->in.failed)
        c->in.pos = c->in.len;
}

int codec_end(const struct codec *c)
{
    return wire_end(&c->in, c->in_range);
}
