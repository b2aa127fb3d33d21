/* Shared by the files of a frame connection; private to them. */
#ifndef BASE_FRAME_CONN_INTERNAL_H
#define BASE_FRAME_CONN_INTERNAL_H

#include "base/frame_conn.h"
#include "base/loop/loop.h"

struct bufferevent;

struct frame_conn {
    struct loop *loop;
    struct bufferevent *bev;    /* connects and writes; reads within TLS */
    struct loop_watch readable; /* unused within TLS */
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

/* Begins to read on a connected socket. Returns 0 or -ENOMEM. */
[[nodiscard]] int frame_conn_start(struct frame_conn *c);

/* Frees it, outside of callbacks. */
void frame_conn_destroy(struct frame_conn *c);

/* Callbacks of the bufferevent and of `deferred`; arg is the connection. */
void frame_conn_on_deferred(void *arg);
void frame_conn_on_tls_read(struct bufferevent *bev, void *arg);
void frame_conn_on_write(struct bufferevent *bev, void *arg);
void frame_conn_on_event(struct bufferevent *bev, short what, void *arg);

#endif
