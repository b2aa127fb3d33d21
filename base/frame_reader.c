/* Bytes of a socket become frames. */
#include "base/frame_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* What a connection's buffer begins with, */
#define BUFFER_BYTES ((size_t)64 << 10)
/* and how much of one that grew is kept for the next frames. */
#define KEPT_BYTES ((size_t)2 << 20)

void frame_reader_init(struct frame_reader *r, const struct frame_split *split)
{
    *r = (struct frame_reader){.split = *split};
}

void frame_reader_fini(struct frame_reader *r)
{
    free(r->bytes);
    *r = (struct frame_reader){0};
}

/* Room behind `to`: moves what is there to the front, or takes more memory. */
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

/* n bytes of the body came. */
static void body_came(struct frame_reader *r, size_t n)
{
    r->body_left_bytes -= n;
    if (r->body)
        r->body += n;
}

ssize_t frame_reader_fill(struct frame_reader *r, int fd)
{
    size_t body_bytes = r->in_body && r->body ? r->body_left_bytes : 0;

    if (make_room(r) < 0)
        return -ENOMEM;
    struct iovec to[2] = {{r->body, body_bytes},
                          {r->bytes + r->to, r->cap - r->to}};
    ssize_t n = readv(fd, to, 2);
    if (n <= 0)
        return n < 0 ? -errno : 0;
    size_t of_body = (size_t)n < body_bytes ? (size_t)n : body_bytes;
    body_came(r, of_body);
    r->to += (size_t)n - of_body;
    return n;
}

void frame_reader_place(struct frame_reader *r, void *body)
{
    if (!r->in_body)
        return;
    r->body = body;
    if (!body)
        return;
    size_t n = r->to - r->from;
    n = n < r->body_left_bytes ? n : r->body_left_bytes;
    memcpy(body, r->bytes + r->from, n);
    r->from += n;
    body_came(r, n);
}

/* A body that nobody wants and that came with its head. */
static void drop_body(struct frame_reader *r)
{
    size_t n = r->to - r->from;

    n = n < r->body_left_bytes ? n : r->body_left_bytes;
    r->from += n;
    body_came(r, n);
}

static int next_of_body(struct frame_reader *r, struct frame_header *h,
                        const uint8_t **payload)
{
    if (!r->body)
        drop_body(r);
    if (r->body_left_bytes > 0)
        return FRAME_READ_MORE;
    r->in_body = false;
    *h = r->header;
    *payload = r->head;
    return FRAME_READ_SPLIT;
}

static int begin_body(struct frame_reader *r, struct frame_header *h,
                      const uint8_t **payload)
{
    uint32_t head_bytes = r->split.head_bytes;

    memcpy(r->head, r->bytes + r->from + FRAME_HEADER_BYTES, head_bytes);
    r->from += FRAME_HEADER_BYTES + head_bytes;
    r->header = *h;
    r->in_body = true;
    r->body = NULL;
    r->body_left_bytes = h->length - head_bytes;
    *payload = r->head;
    return FRAME_READ_HEAD;
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
    if (r->in_body)
        return next_of_body(r, h, payload);
    size_t have = r->to - r->from;
    if (have < FRAME_HEADER_BYTES)
        return FRAME_READ_MORE;
    int rc = frame_header_decode(r->bytes + r->from, payload_limit_bytes, h);
    if (rc < 0)
        return rc;
    have -= FRAME_HEADER_BYTES;
    bool split = r->split.type && h->type == r->split.type &&
                 h->length >= r->split.head_bytes;
    if (have < (split ? r->split.head_bytes : h->length))
        return FRAME_READ_MORE;
    if (split)
        return begin_body(r, h, payload);
    *payload = r->bytes + r->from + FRAME_HEADER_BYTES;
    r->taken_bytes = FRAME_HEADER_BYTES + h->length;
    return FRAME_READ_WHOLE;
}
