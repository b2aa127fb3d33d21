/* What the files of base/stream/ share. Nobody else includes this. */
#ifndef BASE_STREAM_INTERNAL_H
#define BASE_STREAM_INTERNAL_H

#include <event2/event_struct.h>
#include <sys/queue.h>

#include "base/stream/queue.h"
#include "base/stream/stream.h"

#define STREAM_SCRATCH_BYTES 65536

TAILQ_HEAD(stream_list, stream);

/* Streams that an event will look at: those that it looks at now, and those
 * that come meanwhile, for the next time. */
struct stream_queue {
    struct event event; /* pending or active: there are some */
    struct stream_list lists[2];
    unsigned filled; /* which of them takes those that come */
};

struct stream_loop {
    struct event_base *base;
    size_t held;               /* of all streams */
    struct stream_queue send;  /* at the end of the turn */
    struct stream_queue again; /* in the next turn: others come in between */
    char scratch[STREAM_SCRATCH_BYTES];
};

struct stream {
    TAILQ_ENTRY(stream) to_send, to_read;
    struct stream_list *sends, *again; /* that it is in; NULL: none */
    struct stream_loop *loop;
    struct event reading, writing; /* writing: only while the socket is full */
    int fd;
    const struct stream_ops *ops;
    void *arg;
    size_t max_input;
    int64_t write_us;
    struct byte_queue in, out;
    size_t held;      /* memory of `out`, while it has bytes */
    const char *run;  /* input in the scratch memory; NULL: it is in `in` */
    size_t n_run;     /* of it */
    const char *lent; /* (n_lent), behind out */
    size_t n_lent;
    unsigned depth; /* of callbacks that run */
    bool freed;     /* inside one of them */
    bool ended;     /* nothing more can be read */
    bool failed;    /* nor written */
    bool paused;    /* by the owner */
    bool reads;     /* `reading` is pending */
    bool full;      /* `writing` is pending: the socket takes no more */
    struct ssl_st *ssl;
    bool opening;    /* TLS's handshake is not over */
    bool wants_room; /* TLS has something to write, in the first place */
    unsigned long fault;
};

/* Of the events; arg is the stream, or the loop. */
void stream_on_readable(evutil_socket_t fd, short what, void *arg);
void stream_on_writable(evutil_socket_t fd, short what, void *arg);
void stream_on_send(evutil_socket_t fd, short what, void *arg);
void stream_on_again(evutil_socket_t fd, short what, void *arg);

/* Calls of the system, or of TLS: bytes read or written, > 0; 0: the end (of
 * reading); -EAGAIN; another negative errno. */
ssize_t stream_tls_read(struct stream *s, void *to, size_t n);
ssize_t stream_tls_write(struct stream *s, const void *from, size_t n);

/* Goes on with the handshake. Returns 0: it is over; or as above. */
int stream_tls_open(struct stream *s);

/* The same, and the owner is told when it is over. -ECANCELED: the stream is
 * gone. */
int stream_open(struct stream *s);

/* Whether TLS holds bytes that no event of the socket will tell. */
bool stream_tls_pending(const struct stream *s);

/* Whether HTTP came where a handshake was expected. */
bool stream_tls_met_http(const struct stream *s);

/* Tells the other side the end. */
void stream_tls_shut(struct stream *s);

/* Waits until the socket takes more; it does. */
void stream_await_room(struct stream *s);
void stream_has_room(struct stream *s);

/* Reads, or not, as its state wants it. */
void stream_watch(struct stream *s);

/* Nothing more can be read, or nothing at all be done: the owner is told. */
void stream_end(struct stream *s, int error);

/* It does nothing more; it is no more. */
void stream_stop(struct stream *s);
void stream_destroy(struct stream *s);

/* Brackets a call of the owner: false: the stream is gone. */
bool stream_leave(struct stream *s);

/* When nothing is left: the owner is told. Else it is sent as far as the socket
 * takes it. */
void stream_send(struct stream *s);

#endif
