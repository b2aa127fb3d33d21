/* Bytes of a socket become frames. The buffer is no longer than the longest
 * allowed frame, and no longer than twice the bytes that came of it. */
#ifndef BASE_FRAME_READER_H
#define BASE_FRAME_READER_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/frame.h"

struct frame_reader {
    uint8_t *bytes; /* (cap), owned */
    size_t cap;
    size_t from; /* [from, to) was read and is not taken */
    size_t to;
    size_t taken_bytes; /* of the frame that was handed out last */
};

enum frame_read {
    FRAME_READ_MORE,  /* nothing is complete */
    FRAME_READ_WHOLE, /* a frame */
};

/* frame_reader_init(r): no memory yet. */
void frame_reader_init(struct frame_reader *r);

/* frame_reader_fini(r): frees the buffer. */
void frame_reader_fini(struct frame_reader *r);

/* frame_reader_fill(r, fd): reads once. Returns bytes read, 0 at the end, or a
 * negative errno (-EAGAIN: none are there). Everything that
 * frame_reader_next() has must have been taken. */
[[nodiscard]] ssize_t frame_reader_fill(struct frame_reader *r, int fd);

/* The same in two steps, for bytes that come otherwise. frame_reader_room(r,
 * n): memory for *n more; NULL: out of memory. frame_reader_came(r, n): n bytes
 * were put there. */
char *frame_reader_room(struct frame_reader *r, size_t *n);
void frame_reader_came(struct frame_reader *r, size_t n);

/* frame_reader_next(r, payload_limit_bytes, h, payload): what came next, an
 * enum frame_read; *h and *payload are set but for FRAME_READ_MORE, and valid
 * until the next call. -EMSGSIZE or -EPROTO for a bad header, as
 * frame_header_decode(). */
[[nodiscard]] int frame_reader_next(struct frame_reader *r,
                                    uint32_t payload_limit_bytes,
                                    struct frame_header *h,
                                    const uint8_t **payload);

/* frame_reader_again(r): the whole frame that was handed out last comes next
 * once more. */
void frame_reader_again(struct frame_reader *r);

#endif
