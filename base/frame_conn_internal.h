/* Shared by the files of a frame connection; private to them. */
#ifndef BASE_FRAME_CONN_INTERNAL_H
#define BASE_FRAME_CONN_INTERNAL_H

#include "base/dial.h"
#include "base/frame_conn.h"
#include "base/loop/loop.h"
#include "base/stream/queue.h"

struct frame_conn {
    struct stream_loop *streams;
    struct stream *stream; /* NULL = not connected yet */
    /* Until it is connected: */
    struct dial dial;
    struct ssl_st *ssl;      /* owned; NULL = no TLS, or the stream has it */
    struct byte_queue early; /* output that waits for the stream */

    bool tls;
    struct frame_reader reader;
    struct loop_timer deferred; /* fires to end the connection */
    const struct frame_conn_ops *ops;
    void *arg;
    struct frame_conn_limits limits;
    char peer[MSG_HOST_MAX + 8];
    char reason[MSG_TEXT_MAX];
    int in_callback; /* depth of calls into the owner */
    bool ending;     /* `deferred` is pending: no more frames */
    bool flushing;   /* closes when the output is written */
    bool freed;      /* frame_conn_free() inside a callback */
    bool resting;    /* paused until frame_conn_resume() */
    bool opened;     /* connected, and the TLS handshake, if any, is done */
};

/* Begins to read and write on a connected socket, and sends the early output.
 * Takes fd and c->ssl. Returns 0 or -ENOMEM. */
[[nodiscard]] int frame_conn_start(struct frame_conn *c, int fd);

/* Frees it, outside of callbacks. */
void frame_conn_destroy(struct frame_conn *c);

/* Callback of `deferred`; arg is the connection. */
void frame_conn_on_deferred(void *arg);

#endif
