/* Shared by the files of base/stream/; private to them. */
#ifndef BASE_STREAM_INTERNAL_H
#define BASE_STREAM_INTERNAL_H

#include <sys/queue.h>

#include "base/loop/loop.h"
#include "base/stream/queue.h"
#include "base/stream/stream.h"

#define STREAM_SCRATCH_BYTES 65536

TAILQ_HEAD(stream_list, stream);

/* Streams queued for an event: the list being processed, and the list that
 * collects streams for the next time. */
struct stream_queue {
    struct loop_timer timer; /* pending while streams are queued */
    struct stream_list lists[2];
    unsigned filled; /* index of the collecting list */
};

struct stream_loop {
    struct loop *base;
    size_t held;               /* memory of all streams */
    struct stream_queue send;  /* flushes at the end of the turn */
    struct stream_queue again; /* to read again in the next turn, last */
    char scratch[STREAM_SCRATCH_BYTES];
};

struct stream {
    TAILQ_ENTRY(stream) to_send, to_read;
    struct stream_list *sends, *again; /* the list that it is in; NULL = none */
    struct stream_loop *loop;
    struct loop_watch reading;
    struct loop_watch writing; /* only while the socket is full */
    int fd;                    /* -1 = released */
    const struct stream_ops *ops;
    void *arg;
    size_t max_input;
    int64_t write_us;
    struct byte_queue in, out;
    size_t held;      /* memory of `out` in bytes, 0 while it is empty */
    const char *run;  /* input in the scratch memory; NULL = input is in `in` */
    size_t n_run;     /* bytes at `run` */
    const char *lent; /* (n_lent), sent after `out` */
    size_t n_lent;
    unsigned depth; /* depth of running callbacks */
    bool freed;     /* stream_free() inside a callback */
    bool ended;     /* no more input */
    bool failed;    /* no more output either */
    bool paused;    /* stream_pause() */
    bool reads;     /* `reading` is pending */
    bool full;      /* `writing` is pending: the socket takes no more */
    struct ssl_st *ssl;
    bool opening;    /* the TLS handshake is running */
    bool wants_room; /* TLS must write before it continues */
    unsigned long fault;
};

/* Callbacks of the loop; arg is the stream, or the loop's queue. */
void stream_on_readable(void *arg, unsigned what);
void stream_on_writable(void *arg, unsigned what);
void stream_on_send(void *arg);
void stream_on_again(void *arg);

/* Read or write through TLS. Return the bytes (> 0), 0 at the end of input,
 * -EAGAIN, or another negative errno. */
ssize_t stream_tls_read(struct stream *s, void *to, size_t n);
ssize_t stream_tls_write(struct stream *s, const void *from, size_t n);

/* Continues the handshake. Returns 0 when it is done, or a negative errno as
 * above. */
int stream_tls_open(struct stream *s);

/* As stream_tls_open(), and calls `opened` when done. -ECANCELED: the stream
 * was freed. */
int stream_open(struct stream *s);

/* Returns whether TLS holds input for which no socket event will come. */
bool stream_tls_pending(const struct stream *s);

/* Returns whether HTTP came where a handshake was expected. */
bool stream_tls_met_http(const struct stream *s);

/* Sends TLS's close. */
void stream_tls_shut(struct stream *s);

/* Begin and end waiting until the socket takes more output. */
void stream_await_room(struct stream *s);
void stream_has_room(struct stream *s);

/* Enables or disables reading, as the stream's state requires. */
void stream_watch(struct stream *s);

/* Ends the input (error 0), or the stream, and calls `ended`. */
void stream_end(struct stream *s, int error);

/* Stops all events; frees the stream. */
void stream_stop(struct stream *s);
void stream_destroy(struct stream *s);

/* Ends a call of the owner's callback, begun by depth++. Returns false if the
 * stream was freed. */
bool stream_leave(struct stream *s);

/* Sends output as far as the socket takes it, and calls `sent` when all is
 * sent. */
void stream_send(struct stream *s);

#endif
