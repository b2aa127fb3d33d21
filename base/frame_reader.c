/* Splits a connection's bytes into frames. */
#include "base/frame_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Initial size of a connection's buffer, */
#define BUFFER_BYTES ((size_t)64 << 10)
/* and the most that is kept of a grown one. */
#define KEPT_BYTES ((size_t)2 << 20)

void frame_reader_init(struct frame_reader *r)
{
    *r = (struct frame_reader){0};
}

void frame_reader_fini(struct frame_reader *r)
{
    free(r->bytes);
    *r = (struct frame_reader){0};
}

/* Makes room behind `to`: moves the bytes to the front, or grows the
 * buffer. */
static int make_room(struct frame_reader *r)
{
    size_t cap = r->cap ? 2 * r->cap : BUFFER_BYTES;

    if (r->from == r->to) {
        r->from = r->to = 0;
        if (r->cap > KEPT_BYTES) {
            free(r->bytes);
            r->bytes = NULL;
            r->cap = 0;
            cap = BUFFER_BYTES;
        }
    }
    if (r->from > 0 && r->cap - r->to < r->cap / 2) {
        memmove(r->bytes, r->bytes + r->from, r->to - r->from);
        r->to -= r->from;
        r->from = 0;
    }
    if (r->to < r->cap)
        return 0;
    uint8_t *bytes = realloc(r->bytes, cap);
    if (!bytes)
        return -ENOMEM;
    r->bytes = bytes;
    r->cap = cap;
    return 0;
}

char *frame_reader_room(struct frame_reader *r, size_t *n)
{
    if (make_room(r) < 0)
        return NULL;
    *n = r->cap - r->to;
    return (char *)r->bytes + r->to;
}

void frame_reader_came(struct frame_reader *r, size_t n)
{
    r->to += n;
}

int frame_reader_put(struct frame_reader *r, const void *bytes, size_t n)
{
    const char *from = bytes;

    while (n > 0) {
        size_t room;
        char *to = frame_reader_room(r, &room);

        if (!to)
            return -ENOMEM;
        room = room < n ? room : n;
        memcpy(to, from, room);
        frame_reader_came(r, room);
        from += room;
        n -= room;
    }
    return 0;
}

void frame_reader_again(struct frame_reader *r)
{
    r->taken_bytes = 0;
}

int frame_reader_next(struct frame_reader *r, uint32_t payload_limit_bytes,
                      struct frame_header *h, const uint8_t **payload)
{
    r->from += r->taken_bytes;
    r->taken_bytes = 0;
    size_t have = r->to - r->from;
    if (have < FRAME_HEADER_BYTES)
        return FRAME_READ_MORE;
    int rc = frame_header_decode(r->bytes + r->from, payload_limit_bytes, h);
    if (rc < 0)
        return rc;
    if (have - FRAME_HEADER_BYTES < h->length)
        return FRAME_READ_MORE;
    *payload = r->bytes + r->from + FRAME_HEADER_BYTES;
    r->taken_bytes = FRAME_HEADER_BYTES + h->length;
    return FRAME_READ_WHOLE;
}
