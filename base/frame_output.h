/* What a frame connection has yet to send: bytes that were copied, and memory
 * that was lent. */
#ifndef BASE_FRAME_OUTPUT_H
#define BASE_FRAME_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

struct evbuffer;
struct frame_loan;

struct frame_output {
    struct evbuffer *to;    /* borrowed: the connection's output */
    struct evbuffer *small; /* owned; empty between calls */
    bool lent_last;         /* the output ends with memory that was lent */
};

/* Sets up *o for the output `to`. Returns 0, or -ENOMEM. */
[[nodiscard]] int frame_output_init(struct frame_output *o,
                                    struct evbuffer *to);

/* Gives back what is lent, and frees what init() made; also of one that is
 * zeroed. */
void frame_output_fini(struct frame_output *o);

/* Copies n bytes to the output. Returns 0, or -ENOMEM. */
[[nodiscard]] int frame_output_add(struct frame_output *o, const void *data,
                                   size_t n);

/* Puts n bytes of lent memory behind the output; loan->over() says when they
 * are read no longer. Returns 0, or -ENOMEM: nothing is lent then. */
[[nodiscard]] int frame_output_lend(struct frame_output *o, const void *data,
                                    size_t n, struct frame_loan *loan);

#endif
