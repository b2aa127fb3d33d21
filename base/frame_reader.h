/* Splits a connection's bytes into frames. The buffer grows to at most twice
 * the bytes received of a frame; 2 MiB are kept for later frames. */
#ifndef BASE_FRAME_READER_H
#define BASE_FRAME_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

struct frame_reader {
    uint8_t *bytes; /* (cap), owned */
    size_t cap;
    size_t from; /* bytes [from, to) are read but not taken */
    size_t to;
    size_t taken_bytes; /* size of the frame returned last */
};

enum frame_read {
    FRAME_READ_MORE,  /* no complete frame */
    FRAME_READ_WHOLE, /* a frame */
};

/* frame_reader_init(r): allocates nothing yet. */
void frame_reader_init(struct frame_reader *r);

/* frame_reader_fini(r): frees the buffer. */
void frame_reader_fini(struct frame_reader *r);

/* frame_reader_put(r, bytes, n): appends n bytes, copied. Returns 0 or -ENOMEM.
 * Call it, like the next two, only after frame_reader_next() returned
 * FRAME_READ_MORE. */
[[nodiscard]] int frame_reader_put(struct frame_reader *r, const void *bytes,
                                   size_t n);

/* frame_reader_put() without a copy.
 * frame_reader_room(r, n): returns memory for *n bytes; NULL = out of memory.
 * frame_reader_came(r, n): n bytes were written there. */
char *frame_reader_room(struct frame_reader *r, size_t *n);
void frame_reader_came(struct frame_reader *r, size_t n);

/* frame_reader_next(r, payload_limit_bytes, h, payload): takes the next frame.
 * Returns an enum frame_read; FRAME_READ_WHOLE sets *h and *payload, valid
 * until the next call. Or returns -EMSGSIZE or -EPROTO for a bad header, as
 * frame_header_decode(). */
[[nodiscard]] int frame_reader_next(struct frame_reader *r,
                                    uint32_t payload_limit_bytes,
                                    struct frame_header *h,
                                    const uint8_t **payload);

/* frame_reader_again(r): makes the next call return the last frame again. */
void frame_reader_again(struct frame_reader *r);

#endif
