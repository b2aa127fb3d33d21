/* A connection that speaks frames over a libevent bufferevent. */
#include "base/frame_conn.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/frame_conn_internal.h"
#include "base/loop/loop.h"
#include "base/socket.h"
#include "base/tls.h"

#define PATIENCE_US 2000000

static void stop_reading(struct frame_conn *c)
{
    loop_watch_stop(&c->readable);
    if (c->tls)
        bufferevent_disable(c->bev, EV_READ);
}

/* Sends TLS's close, so that the other side sees no broken connection. */
static void end_tls(struct frame_conn *c)
{
    ERR_clear_error();
    (void)SSL_shutdown(bufferevent_openssl_get_ssl(c->bev));
    ERR_clear_error();
}

void frame_conn_destroy(struct frame_conn *c)
{
    loop_watch_stop(&c->readable);
    frame_reader_fini(&c->reader);
    if (c->tls && c->bev && c->opened && frame_conn_sent(c))
        end_tls(c);
    if (c->bev)
        bufferevent_free(c->bev);
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

    stop_reading(c);
    bufferevent_disable(c->bev, EV_WRITE);
    c->in_callback++;
    c->ops->closed(c->arg, c->reason);
    conn_leave(c);
}

void frame_conn_fail(struct frame_conn *c, const char *reason)
{
    if (c->ending)
        return;
    c->ending = true;
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
    bufferevent_setwatermark(c->bev, EV_WRITE, 0, 0);
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

static void on_readable(void *arg, unsigned)
{
    struct frame_conn *c = arg;

    if (c->ending || c->flushing)
        return;
    ssize_t n = frame_reader_fill(&c->reader, c->readable.fd);
    if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR))
        frame_conn_fail(c, n == 0 ? FRAME_CONN_ENDED : strerror((int)-n));
    while (n > 0 && take_next(c))
        ;
}

/* As frame_reader_fill(), from TLS's decrypted input. */
static ssize_t fill_tls(struct frame_conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    size_t room;
    char *to;

    if (evbuffer_get_length(in) == 0)
        return -EAGAIN;
    to = frame_reader_room(&c->reader, &room);
    if (!to)
        return -ENOMEM;
    int n = evbuffer_remove(in, to, room);
    frame_reader_came(&c->reader, (size_t)n);
    return n;
}

void frame_conn_on_tls_read(struct bufferevent *, void *arg)
{
    struct frame_conn *c = arg;
    ssize_t n = 0;

    c->in_callback++;
    while (!c->ending && !c->flushing && !c->resting && n >= 0) {
        n = fill_tls(c);
        if (n == -ENOMEM)
            frame_conn_fail(c, "out of memory");
        while (n > 0 && take_next(c))
            ;
    }
    conn_leave(c);
}

/* Resumes reading; TLS input already decrypted is read in the loop's next
 * turn. */
static int read_on(struct frame_conn *c)
{
    if (!c->tls)
        return loop_watch_start(&c->readable, 0);
    bufferevent_trigger(c->bev, EV_READ,
                        BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
    return bufferevent_enable(c->bev, EV_READ);
}

void frame_conn_resume(struct frame_conn *c)
{
    if (!c->resting || c->ending || c->flushing)
        return;
    c->resting = false;
    if (read_on(c))
        frame_conn_fail(c, "out of memory");
    else
        while (take_next(c))
            ;
}

int frame_conn_start(struct frame_conn *c)
{
    if (c->tls)
        return bufferevent_enable(c->bev, EV_READ) ? -ENOMEM : 0;
    loop_watch_init(c->loop, &c->readable, bufferevent_getfd(c->bev), LOOP_READ,
                    on_readable, c);
    return loop_watch_start(&c->readable, 0);
}

void frame_conn_on_write(struct bufferevent *bev, void *arg)
{
    struct frame_conn *c = arg;

    if (c->flushing && evbuffer_get_length(bufferevent_get_output(bev)) == 0)
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
    int fd = bufferevent_getfd(c->bev);
    struct wire_buf buf;
    char rest[4096];

    wire_buf_init(&buf, 4096);
    msg_error_like_pack(&buf, FRAME_ERROR, 0, PROTO_E_REFUSED,
                        "this port speaks TLS: give --tls-ca FILE with the "
                        "authorities to trust");
    if (!buf.failed) /* if it cannot be sent, the end of the connection tells */
        (void)!send(fd, buf.data, buf.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    /* Reads the rest: closing with unread input resets the connection, which
     * may discard the ERROR. */
    for (int i = 0; i < 64 && recv(fd, rest, sizeof(rest), MSG_DONTWAIT) ==
                                  (ssize_t)sizeof(rest);
         i++)
        ;
    wire_buf_fini(&buf);
}

/* Writes why TLS failed, if it did. */
static void explain_tls(struct frame_conn *c, char text[MSG_TEXT_MAX])
{
    const SSL *ssl = bufferevent_openssl_get_ssl(c->bev);
    unsigned long fault = bufferevent_get_openssl_error(c->bev);

    tls_explain(ssl, fault, text, MSG_TEXT_MAX);
    if (!c->opened && SSL_is_server(ssl) &&
        ERR_GET_REASON(fault) == SSL_R_WRONG_VERSION_NUMBER)
        refuse_plain(c);
}

void frame_conn_on_event(struct bufferevent *bev, short what, void *arg)
{
    struct frame_conn *c = arg;
    int lookup = bufferevent_socket_get_dns_error(bev);
    int error = evutil_socket_geterror(bufferevent_getfd(bev));
    char text[MSG_TEXT_MAX];

    if (what & BEV_EVENT_CONNECTED) {
        c->opened = true;
        socket_tune(bufferevent_getfd(c->bev));
        if (frame_conn_start(c) < 0)
            frame_conn_fail(c, "out of memory");
        return;
    }
    /* A failed look-up sets no socket error. */
    snprintf(text, sizeof(text), "%s%s",
             lookup ? "cannot look up the host: " : "",
             lookup ? evutil_gai_strerror(lookup)
                    : evutil_socket_error_to_string(error));
    /* OpenSSL reports a connection that was never established as ended. */
    bool ended = (what & BEV_EVENT_EOF) && (c->opened || error == 0);

    if (c->tls && !(what & BEV_EVENT_EOF) && !lookup)
        explain_tls(c, text);
    frame_conn_fail(c, ended ? FRAME_CONN_ENDED : text);
}

void frame_conn_free(struct frame_conn *c)
{
    if (!c)
        return;
    if (c->in_callback) {
        c->freed = c->ending = true;
        stop_reading(c);
        bufferevent_disable(c->bev, EV_WRITE);
        loop_timer_stop(&c->deferred);
        return;
    }
    frame_conn_destroy(c);
}

void frame_conn_take(struct frame_conn *c, uint32_t payload_bytes)
{
    c->limits.payload_bytes = payload_bytes;
}

void frame_conn_send(struct frame_conn *c, const struct wire_buf *buf)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);

    if (c->ending || c->flushing)
        return;
    if (buf->failed)
        frame_conn_fail(c, "a message could not be encoded");
    else if (evbuffer_get_length(out) + buf->len > c->limits.output_limit_bytes)
        frame_conn_fail(
            c, "output limit reached: the other side reads too slowly");
    else if (evbuffer_add(out, buf->data, buf->len))
        frame_conn_fail(c, "out of memory for output");
}

int frame_conn_detach(struct frame_conn *c)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    int fd = bufferevent_getfd(c->bev);

    if (c->tls)
        return -ENOTSUP;
    if (c->ending || c->flushing)
        return -ENOTCONN;
    bufferevent_disable(c->bev, EV_WRITE);
    evbuffer_unfreeze(out, 1);
    if (evbuffer_get_length(out) > 0 && evbuffer_write(out, fd) < 0)
        return -EAGAIN;
    if (evbuffer_get_length(out) > 0)
        return -EAGAIN;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return own >= 0 ? own : -errno;
}

int frame_conn_full(const struct frame_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev)) >=
           c->limits.output_watermark_bytes;
}

bool frame_conn_sent(const struct frame_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev)) == 0;
}

const char *frame_conn_peer(const struct frame_conn *c)
{
    return c->peer;
}
