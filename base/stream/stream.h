/*
 * A connection's bytes on the loop, plain or TLS. Bufferevents ask the
 * kernel how many bytes have come before they read, and epoll whether a socket
 * takes more before they write. Here a read is one system call, as is all
 * output of a turn of the loop; epoll watches only sockets that were full.
 *
 *   - callbacks come from the loop, never from inside a call of the owner;
 *   - after `ended` with an error, and after stream_free(), none comes;
 *   - memory: unused input is at most max_input; the owner bounds unsent
 *     output by stream_unsent() and stream_held().
 */
#ifndef BASE_STREAM_STREAM_H
#define BASE_STREAM_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct loop;
struct ssl_st;
struct stream;
struct stream_loop;

/* Callbacks to the owner; each may free the stream. */
struct stream_ops {
    /* TLS is open. May be NULL. */
    void (*opened)(void *arg);
    /* Called when input is available: see stream_input(). Called again when
     * more comes; unused input stays in front. */
    void (*readable)(void *arg);
    /* Called when the kernel has taken all output of stream_write() and
     * stream_flush(); once for several. */
    void (*sent)(void *arg);
    /* Called at the end. error 0: the other side sends no more; a negative
     * errno: the stream is over: -ETIMEDOUT: no output was taken for write_us;
     * -EPROTO: TLS failed, see stream_tls_fault(). */
    void (*ended)(void *arg, int error);
};

struct stream_options {
    struct ssl_st *ssl; /* TLS in accept or connect state, taken even on
                           failure; NULL = plain */
    size_t max_input; /* most unused input in bytes; more waits in the kernel */
    int64_t write_us; /* longest stall of output; 0 = unlimited */
};

/* Makes the state shared by the streams of a loop: read buffer, and streams
 * with output to send at the turn's end. Borrows base. Free it after its
 * streams and before base. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct stream_loop *stream_loop_new(struct loop *base);
void stream_loop_free(struct stream_loop *loop);

/* Returns the loop of these streams, borrowed. */
struct loop *stream_loop_base(const struct stream_loop *loop);

/*
 * Wraps a connected socket, and begins to read.
 *   fd       of the loop's net (base/loop/net.h), taken even on failure
 *   options  copied
 *   ops      borrowed; arg is handed to each
 * Returns it owned, or NULL: out of memory.
 */
[[nodiscard]] struct stream *stream_new(struct stream_loop *loop, int fd,
                                        const struct stream_options *options,
                                        const struct stream_ops *ops,
                                        void *arg);

/* Closes the connection and drops unsent output. Sends no TLS close, so that
 * the reader sees a stream that broke off. NULL is a no-op. */
void stream_free(struct stream *s);

/* Returns the plain stream's socket, owned by the caller; only stream_free()
 * may follow, and no callback comes. Unused input and unsent output are lost.
 */
[[nodiscard]] int stream_release(struct stream *s);

/* Hands the stream to another owner: `arg` goes to the callbacks from now on.
 */
void stream_hand_over(struct stream *s, void *arg);

int stream_fd(const struct stream *s);

/* Returns the stream's TLS, borrowed; NULL = none. */
struct ssl_st *stream_ssl(const struct stream *s);

/* Returns OpenSSL's error code of a TLS failure; 0 = none. */
unsigned long stream_tls_fault(const struct stream *s);

/* Returns whether the other side sent plain HTTP where TLS was expected. If so,
 * the stream continues without TLS; the input so far is lost. Call it in
 * `ended` with -EPROTO. */
bool stream_is_plain_http(struct stream *s);

/* Returns the unused input, *n bytes in one piece, borrowed until the owner
 * returns to the loop or calls another function that reads. */
const char *stream_input(const struct stream *s, size_t *n);

/* Returns the bytes of unused input. */
size_t stream_unused(const struct stream *s);

/* Removes the first n bytes of the input. */
void stream_use(struct stream *s, size_t n);

/* Makes the loop's next turn call `readable`, if there is input. */
void stream_again(struct stream *s);

/* Reads at most n bytes from the socket into the owner's memory; the input
 * must be empty. Returns the bytes read; 0 = none available, or the end or an
 * error, which a callback will report. */
size_t stream_read(struct stream *s, void *to, size_t n);

/* Pauses or resumes reading. */
void stream_pause(struct stream *s, bool pause);

/* Writes n bytes, copied; sent at the end of the loop's turn. Returns 0 or
 * -ENOMEM. */
[[nodiscard]] int stream_write(struct stream *s, const void *bytes, size_t n);

/* stream_write() in two steps: stream_room() returns memory for n bytes, or
 * NULL: out of memory; stream_wrote() sends the first n of them. */
char *stream_room(struct stream *s, size_t n);
void stream_wrote(struct stream *s, size_t n);

/* Sends n bytes behind the written ones without a copy: borrowed until `sent`
 * or the end. Write nothing before that. */
void stream_lend(struct stream *s, const void *bytes, size_t n);

/* Sends the output at the end of the turn, and calls `sent` even if there is
 * none. */
void stream_flush(struct stream *s);

/* Sends the output now; `sent` is still called. */
void stream_push(struct stream *s);

/* Returns the bytes written or lent that the kernel has not taken. */
size_t stream_unsent(const struct stream *s);

/* Return the memory that written bytes take, lent bytes excluded: now, and
 * after a write of n more. */
size_t stream_held(const struct stream *s);
size_t stream_would_hold(const struct stream *s, size_t n);

/* stream_loop_held(loop): returns the sum of stream_held() over its streams. */
size_t stream_loop_held(const struct stream_loop *loop);

/* Ends the output, which the other side sees. All output must have been
 * sent. */
void stream_shut(struct stream *s);

#endif
