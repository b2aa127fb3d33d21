/*
 * Bytes of a socket become frames. A frame comes whole in the reader's buffer;
 * of one type, named by the owner, only the head does: the body is read
 * straight into memory that the owner names when it has seen the head.
 *
 *    socket --readv--> body of the frame under way (if it has a place)
 *               \----> buffer: [header|payload][header|head]...
 *
 * Invariants: at most one body is under way; the buffer holds what comes behind
 * it; the buffer is no longer than the longest allowed frame, and no longer
 * than twice the bytes that came of it.
 */
#ifndef BASE_FRAME_READER_H
#define BASE_FRAME_READER_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/frame.h"

#define FRAME_HEAD_MAX_BYTES 32u

/* Frames whose payload is a head of so many bytes, and a body. */
struct frame_split {
    uint16_t type;       /* 0: no frame is split */
    uint32_t head_bytes; /* at most FRAME_HEAD_MAX_BYTES */
};

struct frame_reader {
    uint8_t *bytes; /* (cap), owned */
    size_t cap;
    size_t from; /* [from, to) was read and is not taken */
    size_t to;
    size_t taken_bytes; /* of the frame that was handed out last */
    struct frame_split split;
    struct frame_header header; /* of the body under way */
    uint8_t head[FRAME_HEAD_MAX_BYTES];
    uint8_t *body; /* where it goes on; NULL: it is thrown away */
    size_t body_left_bytes;
    bool in_body; /* also when it is complete and was not handed out */
};

enum frame_read {
    FRAME_READ_MORE,  /* nothing is complete */
    FRAME_READ_WHOLE, /* a frame */
    FRAME_READ_HEAD,  /* the head of a frame: frame_reader_place() is next */
    FRAME_READ_SPLIT, /* a frame whose body is in its place */
};

/* frame_reader_init(r, split): no memory yet. */
void frame_reader_init(struct frame_reader *r, const struct frame_split *split);

/* frame_reader_fini(r): frees the buffer. */
void frame_reader_fini(struct frame_reader *r);

/* frame_reader_fill(r, fd): reads once. Returns bytes read, 0 at the end, or a
 * negative errno (-EAGAIN: none are there). Everything that
 * frame_reader_next() has must have been taken. */
[[nodiscard]] ssize_t frame_reader_fill(struct frame_reader *r, int fd);

/* frame_reader_next(r, payload_limit_bytes, h, payload): what came next, an
 * enum frame_read; *h and *payload are set but for FRAME_READ_MORE, and valid
 * until the next call. *payload is the head of a split frame. -EMSGSIZE or
 * -EPROTO for a bad header, as frame_header_decode(). */
[[nodiscard]] int frame_reader_next(struct frame_reader *r,
                                    uint32_t payload_limit_bytes,
                                    struct frame_header *h,
                                    const uint8_t **payload);

/* frame_reader_again(r): the whole frame that was handed out last comes next
 * once more. */
void frame_reader_again(struct frame_reader *r);

/* frame_reader_place(r, body): the body of the frame whose head was handed out
 * goes to `body` (h->length - head_bytes), borrowed until the frame is handed
 * out; NULL: nowhere. At any time until then a call with NULL takes the memory
 * back. A no-op if no body is under way. */
void frame_reader_place(struct frame_reader *r, void *body);

#endif
