/* A connection that speaks frames over a stream. */
#include "base/frame_conn.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/frame_conn_internal.h"
#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "base/socket.h"
#include "base/stream/stream.h"
#include "base/tls.h"

#define PATIENCE_US 2000000
/* Most input that a stream keeps. None is kept: frame_reader takes all. */
#define STREAM_INPUT_BYTES 65536
/* Less input means that the socket has no more. */
#define MORE_INPUT_BYTES 16384

static void stop_reading(struct frame_conn *c)
{
    if (c->stream)
        stream_pause(c->stream, true);
}

void frame_conn_destroy(struct frame_conn *c)
{
    dial_stop(&c->dial);
    frame_reader_fini(&c->reader);
    /* TLS's close, so that the other side sees no broken connection. */
    if (c->tls && c->opened && frame_conn_sent(c))
        stream_shut(c->stream);
    stream_free(c->stream);
    SSL_free(c->ssl);
    byte_queue_fini(&c->early);
    loop_timer_stop(&c->deferred);
    free(c);
}

/* Brackets a call into the owner: returns false if c is gone. */
static bool conn_leave(struct frame_conn *c)
{
    c->in_callback--;
    if (c->freed && c->in_callback == 0) {
        frame_conn_destroy(c);
        return false;
    }
    return !c->freed;
}

void frame_conn_on_deferred(void *arg)
{
    struct frame_conn *c = arg;

    c->ending = true;
    dial_stop(&c->dial);
    stop_reading(c);
    c->in_callback++;
    c->ops->closed(c->arg, c->reason);
    conn_leave(c);
}

void frame_conn_fail(struct frame_conn *c, const char *reason)
{
    if (c->ending)
        return;
    c->ending = true;
    stop_reading(c);
    if (!c->flushing)
        snprintf(c->reason, sizeof(c->reason), "%s", reason);
    loop_timer_start(&c->deferred, 0);
}

void frame_conn_refuse(struct frame_conn *c, uint16_t code, const char *text)
{
    if (c->ending || c->flushing)
        return;
    struct wire_buf buf;
    wire_buf_init(&buf, 4096);
    msg_error_like_pack(&buf, FRAME_ERROR, 0, code, text);
    frame_conn_send(c, &buf);
    wire_buf_fini(&buf);
    if (c->ending)
        return;
    snprintf(c->reason, sizeof(c->reason), "%s", text);
    c->flushing = true;
    stop_reading(c);
    loop_timer_start(&c->deferred, PATIENCE_US);
}

static void refuse_frame(struct frame_conn *c, const struct frame_header *h,
                         int rc)
{
    char text[MSG_TEXT_MAX];

    frame_fault(h, rc, text, sizeof(text));
    frame_conn_refuse(c, PROTO_E_BAD_FRAME, text);
}

static void refuse_header(struct frame_conn *c, const struct frame_header *h,
                          int rc)
{
    char text[MSG_TEXT_MAX];

    if (rc == -EMSGSIZE)
        snprintf(text, sizeof(text),
                 "frame %s (type %u): length %u is over the limit of %u",
                 frame_type_name(h->type), h->type, h->length,
                 c->limits.payload_bytes);
    else
        snprintf(text, sizeof(text),
                 "frame type %u: reserved header field is not zero", h->type);
    frame_conn_refuse(c, PROTO_E_BAD_FRAME, text);
}

static void rest(struct frame_conn *c)
{
    frame_reader_again(&c->reader);
    c->resting = true;
    stop_reading(c);
}

/* Hands the next frame to the owner. Returns whether there may be more. */
static bool take_next(struct frame_conn *c)
{
    struct frame_header h;
    const uint8_t *payload;
    int rc =
        frame_reader_next(&c->reader, c->limits.payload_bytes, &h, &payload);

    if (rc < 0)
        refuse_header(c, &h, rc);
    if (rc <= FRAME_READ_MORE)
        return false;
    c->in_callback++;
    rc = c->ops->frame(c->arg, &h, payload);
    if (rc < 0 && !c->freed)
        refuse_frame(c, &h, rc);
    else if (rc > 0 && !c->freed)
        rest(c);
    return conn_leave(c) && !c->ending && !c->flushing && !c->resting;
}

/* Moves the stream's input to the reader, and reads more right into its memory
 * if more may have come. */
static int fill(struct frame_conn *c)
{
    size_t n, room;
    const char *from = stream_input(c->stream, &n);

    if (frame_reader_put(&c->reader, from, n))
        return -ENOMEM;
    stream_use(c->stream, n);
    if (n < MORE_INPUT_BYTES)
        return 0;
    char *to = frame_reader_room(&c->reader, &room);
    if (!to)
        return -ENOMEM;
    frame_reader_came(&c->reader, stream_read(c->stream, to, room));
    return 0;
}

static void on_readable(void *arg)
{
    struct frame_conn *c = arg;

    if (c->ending || c->flushing || c->resting)
        return;
    if (fill(c) < 0)
        frame_conn_fail(c, "out of memory");
    else
        while (take_next(c))
            ;
}

void frame_conn_resume(struct frame_conn *c)
{
    if (!c->resting || c->ending || c->flushing)
        return;
    c->resting = false;
    stream_pause(c->stream, false);
    while (take_next(c))
        ;
}

static void on_opened(void *arg)
{
    struct frame_conn *c = arg;

    c->opened = true;
}

static void on_sent(void *arg)
{
    struct frame_conn *c = arg;

    if (c->flushing)
        frame_conn_fail(c, c->reason);
    if (c->flushing || c->ending || !c->ops->writable)
        return;
    c->in_callback++;
    c->ops->writable(c->arg);
    conn_leave(c);
}

/* Answers plain frames that came where TLS was expected with a plain ERROR. */
static void refuse_plain(struct frame_conn *c)
{
    struct loop *loop = stream_loop_base(c->streams);
    int fd = stream_fd(c->stream);
    struct wire_buf buf;
    char rest[4096];

    wire_buf_init(&buf, 4096);
    msg_error_like_pack(&buf, FRAME_ERROR, 0, PROTO_E_REFUSED,
                        "this port speaks TLS: give --tls-ca FILE with the "
                        "authorities to trust");
    if (!buf.failed) /* if it cannot be sent, the end of the connection tells */
        (void)!net_write(loop, fd, &(struct iovec){buf.data, buf.len}, 1);
    /* Reads the rest: closing with unread input resets the connection, which
     * may discard the ERROR. */
    for (int i = 0; i < 64 && net_read(loop, fd, rest, sizeof(rest)) ==
                                  (ssize_t)sizeof(rest);
         i++)
        ;
    wire_buf_fini(&buf);
}

/* Writes why TLS failed, if it did. */
static void explain_tls(struct frame_conn *c, char text[MSG_TEXT_MAX])
{
    const SSL *ssl = stream_ssl(c->stream);
    unsigned long fault = stream_tls_fault(c->stream);

    tls_explain(ssl, fault, text, MSG_TEXT_MAX);
    if (!c->opened && SSL_is_server(ssl) &&
        ERR_GET_REASON(fault) == SSL_R_WRONG_VERSION_NUMBER)
        refuse_plain(c);
}

static void on_ended(void *arg, int error)
{
    struct frame_conn *c = arg;
    char text[MSG_TEXT_MAX];

    /* The end of the socket without TLS's own end loses no frame unnoticed. */
    if (error == 0 || ERR_GET_REASON(stream_tls_fault(c->stream)) ==
                          SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        frame_conn_fail(c, FRAME_CONN_ENDED);
        return;
    }
    snprintf(text, sizeof(text), "%s", strerror(-error));
    if (c->tls)
        explain_tls(c, text);
    frame_conn_fail(c, text);
}

int frame_conn_start(struct frame_conn *c, int fd)
{
    static const struct stream_ops ops = {.opened = on_opened,
                                          .readable = on_readable,
                                          .sent = on_sent,
                                          .ended = on_ended};
    const struct stream_options options = {.ssl = c->ssl,
                                           .max_input = STREAM_INPUT_BYTES};
    size_t n = byte_queue_length(&c->early);

    socket_tune(stream_loop_base(c->streams), fd);
    c->ssl = NULL;
    c->stream = stream_new(c->streams, fd, &options, &ops, c);
    if (!c->stream ||
        (n && stream_write(c->stream, c->early.data + c->early.begin, n)))
        return -ENOMEM;
    byte_queue_fini(&c->early);
    c->opened = !c->tls;
    if (c->ending || c->flushing)
        stop_reading(c);
    return 0;
}

void frame_conn_free(struct frame_conn *c)
{
    if (!c)
        return;
    if (c->in_callback) {
        c->freed = c->ending = true;
        stop_reading(c);
        loop_timer_stop(&c->deferred);
        return;
    }
    frame_conn_destroy(c);
}

struct loop *frame_conn_loop(const struct frame_conn *c)
{
    return stream_loop_base(c->streams);
}

void frame_conn_take(struct frame_conn *c, uint32_t payload_bytes)
{
    c->limits.payload_bytes = payload_bytes;
}

static size_t unsent(const struct frame_conn *c)
{
    return c->stream ? stream_unsent(c->stream) : byte_queue_length(&c->early);
}

static int put(struct frame_conn *c, const struct wire_buf *buf)
{
    if (c->stream)
        return stream_write(c->stream, buf->data, buf->len);
    char *to = byte_queue_room(&c->early, buf->len);
    if (!to)
        return -ENOMEM;
    memcpy(to, buf->data, buf->len);
    byte_queue_add(&c->early, buf->len);
    return 0;
}

void frame_conn_send(struct frame_conn *c, const struct wire_buf *buf)
{
    if (c->ending || c->flushing)
        return;
    if (buf->failed)
        frame_conn_fail(c, "a message could not be encoded");
    else if (unsent(c) + buf->len > c->limits.output_limit_bytes)
        frame_conn_fail(
            c, "output limit reached: the other side reads too slowly");
    else if (buf->len && put(c, buf))
        frame_conn_fail(c, "out of memory for output");
}

int frame_conn_detach(struct frame_conn *c)
{
    if (c->tls)
        return -ENOTSUP;
    if (c->ending || c->flushing || !c->stream)
        return -ENOTCONN;
    stream_push(c->stream);
    return stream_unsent(c->stream) > 0 ? -EAGAIN : stream_release(c->stream);
}

int frame_conn_full(const struct frame_conn *c)
{
    return unsent(c) >= c->limits.output_watermark_bytes;
}

bool frame_conn_sent(const struct frame_conn *c)
{
    return unsent(c) == 0;
}

const char *frame_conn_peer(const struct frame_conn *c)
{
    return c->peer;
}
