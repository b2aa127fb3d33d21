/*
 * A connection that speaks frames (proto/frame.h) over a stream.
 * Used by the conductor for its workers, and by workers for their conductor
 * and for each other.
 *
 * Invariants:
 *   - a frame longer than the limit, or one with a bad header, closes this
 *     connection with a reason, and nothing else;
 *   - `closed` is called exactly once, and never from inside a call of the
 *     owner: it is always deferred to the loop;
 *   - after `closed` no other callback comes.
 */
#ifndef BASE_FRAME_CONN_H
#define BASE_FRAME_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/frame_reader.h"
#include "proto/message.h"

/* The reason given when the other side closed without an error. */
#define FRAME_CONN_ENDED "closed by the other side"

struct frame_conn;
struct loop;
struct dns;
struct stream_loop;

/* A result of `frame`, so that one connection does not hold up the loop:
 * pauses the connection; frame_conn_resume() delivers this frame again. */
#define FRAME_AGAIN 1

struct frame_conn_ops {
    /* Takes a whole frame; payload (h->length bytes) is valid until it returns.
     * Returns 0 or FRAME_AGAIN; or -EBADMSG: malformed, or another negative
     * errno: out of place; the connection is then refused. */
    int (*frame)(void *arg, const struct frame_header *h,
                 const uint8_t *payload);
    /* Called when the kernel has taken all output. May be NULL. */
    void (*writable)(void *arg);
    /* Called when the connection ended; reason is for logs. The owner calls
     * frame_conn_free(). */
    void (*closed)(void *arg, const char *reason);
};

struct frame_conn_limits {
    uint32_t payload_bytes;        /* longest accepted; see frame_conn_take() */
    size_t output_watermark_bytes; /* frame_conn_full() from here on */
    size_t output_limit_bytes;     /* more waiting output fails the connection,
                                      whose peer does not read */
    struct ssl_st *ssl; /* TLS in accept or connect state, taken even on
                           failure; NULL = no TLS */
};

/* frame_conn_new(streams, fd, limits, ops, arg): wraps a connected socket;
 * takes fd, borrows streams and ops. Returns owned, or NULL (fd is then
 * closed). */
struct frame_conn *frame_conn_new(struct stream_loop *streams, int fd,
                                  const struct frame_conn_limits *limits,
                                  const struct frame_conn_ops *ops, void *arg);

/* frame_conn_connect(streams, dns, host, port, limits, ops, arg): begins to
 * connect; dns (borrowed; NULL = addresses only) looks a host name up without
 * blocking. Frames may be sent right away. Failure comes through `closed`.
 * Returns owned or NULL. */
struct frame_conn *frame_conn_connect(struct stream_loop *streams,
                                      struct dns *dns, const char *host,
                                      uint16_t port,
                                      const struct frame_conn_limits *limits,
                                      const struct frame_conn_ops *ops,
                                      void *arg);

/* frame_conn_loop(c): returns its loop, borrowed. */
struct loop *frame_conn_loop(const struct frame_conn *c);

/* frame_conn_free(c): closes at once without a callback. Allowed inside
 * callbacks. NULL is a no-op. */
void frame_conn_free(struct frame_conn *c);

/* frame_conn_take(c, payload_bytes): accepts payloads up to this length from
 * the next frame on. */
void frame_conn_take(struct frame_conn *c, uint32_t payload_bytes);

/* frame_conn_resume(c): continues after FRAME_AGAIN, beginning with that
 * frame; no-op otherwise. Not inside a callback of c. */
void frame_conn_resume(struct frame_conn *c);

/* frame_conn_send(c, buf): copies the whole frames in buf to the output, in
 * order; drops them if the connection is failing. A failed buf fails the
 * connection. */
void frame_conn_send(struct frame_conn *c, const struct wire_buf *buf);

/* frame_conn_detach(c): sends the waiting output and returns the socket,
 * owned, for use without frames; the caller then frees c. Input behind the last
 * delivered frame is lost, so the other side must be waiting for an answer. Or
 * returns a negative errno: -EAGAIN: the socket does not take the output;
 * -ENOTSUP: it has TLS. */
[[nodiscard]] int frame_conn_detach(struct frame_conn *c);

/* frame_conn_full(c): returns true when the output is over the watermark; wait
 * for `writable` before producing more. */
int frame_conn_full(const struct frame_conn *c);

/* frame_conn_sent(c): returns whether the kernel has taken all output. */
bool frame_conn_sent(const struct frame_conn *c);

/* frame_conn_refuse(c, code, text): sends ERROR{code, text}, stops reading and
 * closes when it is written (or after 2 s); `closed` gets text as reason. */
void frame_conn_refuse(struct frame_conn *c, uint16_t code, const char *text);

/* frame_conn_fail(c, reason): ends the connection at the next turn of the
 * loop, `closed` included. */
void frame_conn_fail(struct frame_conn *c, const char *reason);

/* frame_conn_peer(c): returns "address:port" of the other side, or the
 * "host:port" given to frame_conn_connect(). Lives as long as c. */
const char *frame_conn_peer(const struct frame_conn *c);

/* frame_conn_peer_host(c, out, cap): writes the other side's numeric address.
 * Returns 0 or -ENOTCONN. */
[[nodiscard]] int frame_conn_peer_host(const struct frame_conn *c, char *out,
                                       size_t cap);

#endif
