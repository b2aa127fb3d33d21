/* Values as JSON or msgpack. */
#include "conductor/front/gateway/packed.h"

#include <inttypes.h>
#include <string.h>

static void put(struct packed *p, const void *bytes, size_t n)
{
    text_buf_add(p->out, bytes, n);
}

/* Writes a byte and a big-endian number of `width` bytes. */
static void put_head(struct packed *p, unsigned tag, uint64_t n, int width)
{
    uint8_t bytes[9] = {(uint8_t)tag};

    for (int i = 0; i < width; i++)
        bytes[1 + i] = (uint8_t)(n >> (8 * (width - 1 - i)));
    put(p, bytes, 1 + (size_t)width);
}

static void begin_value(struct packed *p)
{
    if (p->comma && !p->msgpack)
        put(p, ",", 1);
    p->comma = true;
}

static void begin(struct packed *p, uint32_t n, unsigned tag, char bracket)
{
    begin_value(p);
    p->comma = false;
    if (!p->msgpack)
        put(p, &bracket, 1);
    else if (n < 16)
        put_head(p, (tag == 0xde ? 0x80 : 0x90) | n, 0, 0);
    else if (n <= UINT16_MAX)
        put_head(p, tag, n, 2);
    else
        put_head(p, tag + 1, n, 4);
}

static void end(struct packed *p, char bracket)
{
    if (!p->msgpack)
        put(p, &bracket, 1);
    p->comma = true;
}

void packed_map(struct packed *p, uint32_t n)
{
    begin(p, n, 0xde, '{');
}

void packed_map_end(struct packed *p)
{
    end(p, '}');
}

void packed_array(struct packed *p, uint32_t n)
{
    begin(p, n, 0xdc, '[');
}

void packed_array_end(struct packed *p)
{
    end(p, ']');
}

void packed_key(struct packed *p, const char *name)
{
    packed_text(p, name);
    if (!p->msgpack)
        put(p, ":", 1);
    p->comma = false;
}

void packed_text(struct packed *p, const char *text)
{
    size_t n = strlen(text);

    begin_value(p);
    if (!p->msgpack) {
        text_buf_json(p->out, text, n);
        return;
    }
    if (n < 32)
        put_head(p, 0xa0 | (unsigned)n, 0, 0);
    else if (n <= UINT8_MAX)
        put_head(p, 0xd9, n, 1);
    else
        put_head(p, 0xdb, n, 4);
    put(p, text, n);
}

void packed_number(struct packed *p, uint64_t n)
{
    begin_value(p);
    if (!p->msgpack)
        text_buf_printf(p->out, "%" PRIu64, n);
    else if (n < 128)
        put_head(p, (unsigned)n, 0, 0);
    else if (n <= UINT16_MAX)
        put_head(p, 0xcd, n, 2);
    else if (n <= UINT32_MAX)
        put_head(p, 0xce, n, 4);
    else
        put_head(p, 0xcf, n, 8);
}

void packed_text_of(struct packed *p, const char *name, const char *text)
{
    packed_key(p, name);
    packed_text(p, text);
}

void packed_number_of(struct packed *p, const char *name, uint64_t n)
{
    packed_key(p, name);
    packed_number(p, n);
}
