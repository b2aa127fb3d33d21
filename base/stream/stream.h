/*
 * The bytes of a connection on a libevent loop, as they are or within TLS.
 * Bufferevents ask the kernel how many bytes have come before they read, and
 * epoll whether a socket takes more before they write; here a read is one call,
 * and so is what a turn of the loop wrote. epoll is asked only for a socket
 * that was full.
 *
 *   - callbacks come from the loop, never from inside a call of the owner;
 *   - after `ended` with an error, and after stream_free(), none comes;
 *   - memory: what is read and not used is at most max_input; what is written
 *     and not taken, the owner bounds by stream_unsent() and stream_held().
 */
#ifndef BASE_STREAM_STREAM_H
#define BASE_STREAM_STREAM_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ssl_st;
struct stream;
struct stream_loop;

/* What a stream tells its owner; each may free the stream. */
struct stream_ops {
    /* TLS is open. May be NULL. */
    void (*opened)(void *arg);
    /* Bytes have come: see stream_input(). What is left there comes once more
     * when there is more. */
    void (*readable)(void *arg);
    /* The system has taken all that was written. Comes after each
     * stream_write() and stream_flush(), but once for several. */
    void (*sent)(void *arg);
    /* 0: the other side sends no more. A negative errno: it is over;
     * -ETIMEDOUT: nothing was taken for write_us; -EPROTO: TLS, see
     * stream_tls_fault(). */
    void (*ended)(void *arg, int error);
};

struct stream_options {
    struct ssl_st *ssl; /* taken, in any case: the stream is TLS, as its state
                           says (accept or connect); NULL: it is not */
    size_t max_input;   /* read and not used; more waits in the kernel */
    int64_t write_us;   /* the longest without the other side taking a byte; 0:
                           any */
};

/* What the streams of a loop share: memory to read into, and which of them have
 * something to send at the end of the turn. Borrows base, which outlives it, as
 * it outlives its streams. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct stream_loop *stream_loop_new(struct event_base *base);
void stream_loop_free(struct stream_loop *loop);

/*
 * Wraps a connected socket, and begins to read.
 *   fd       taken in any case; non-blocking
 *   options  copied
 *   ops      borrowed; arg is handed to each
 * Returns it owned, or NULL: out of memory.
 */
[[nodiscard]] struct stream *stream_new(struct stream_loop *loop, int fd,
                                        const struct stream_options *options,
                                        const struct stream_ops *ops,
                                        void *arg);

/* Closes the connection, with what was not sent. TLS's own end is not sent: who
 * reads a stream that breaks off must see that. NULL is a no-op. */
void stream_free(struct stream *s);

int stream_fd(const struct stream *s);

/* Its TLS, borrowed; NULL: it has none. */
struct ssl_st *stream_ssl(const struct stream *s);

/* Whether TLS is open, or not spoken at all. */
bool stream_is_open(const struct stream *s);

/* Why TLS failed, as OpenSSL numbers it; 0: it did not. */
unsigned long stream_tls_fault(const struct stream *s);

/* Whether the other side began with HTTP where TLS was expected. Then the
 * stream goes on without TLS, as if it had never been meant to speak it; what
 * had come is lost. To be asked in `ended`, with -EPROTO. */
bool stream_is_plain_http(struct stream *s);

/* The bytes that were read and not used: n of them, in one piece, borrowed
 * until the owner returns to the loop or calls another function that reads. */
const char *stream_input(const struct stream *s, size_t *n);

/* The first n bytes of the input were used. */
void stream_use(struct stream *s, size_t n);

/* Has `readable` called at the next turn of the loop, if there is input. */
void stream_again(struct stream *s);

/* Reads on from the socket into the owner's memory, when the input is empty, at
 * most n bytes. Returns how many; 0: none are there now, or the end or an
 * error, which the loop will tell. */
size_t stream_read(struct stream *s, void *to, size_t n);

/* Reads nothing more, or reads on. */
void stream_pause(struct stream *s, bool pause);

/* n bytes, copied, to be sent when the loop has run all that is due now.
 * Returns 0 or -ENOMEM. */
[[nodiscard]] int stream_write(struct stream *s, const void *bytes, size_t n);

/* Memory for n bytes to be written, or NULL: out of memory; and how many of
 * them were. */
char *stream_room(struct stream *s, size_t n);
void stream_wrote(struct stream *s, size_t n);

/* Sends n bytes, if any, behind what was written, without a copy: they are
 * borrowed until `sent`, or the end. Nothing is written before that. */
void stream_lend(struct stream *s, const void *bytes, size_t n);

/* Has what was written sent, and `sent` called, also where nothing is left. */
void stream_flush(struct stream *s);

/* Sends what was written now; `sent` comes all the same. */
void stream_push(struct stream *s);

/* Bytes written, or lent, that the system has not taken. */
size_t stream_unsent(const struct stream *s);

/* The memory that they take, but for what is lent; and once n more are
 * written. */
size_t stream_held(const struct stream *s);
size_t stream_would_hold(const struct stream *s, size_t n);

/* stream_loop_held(loop): the memory of all its streams, like stream_held(). */
size_t stream_loop_held(const struct stream_loop *loop);

/* Sends nothing more, and says so to the other side. All is sent. */
void stream_shut(struct stream *s);

#endif
