/* A stream's output: all bytes written in a turn of the loop are sent at its
 * end, in one call. */
#include <errno.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "base/stream/internal.h"

int stream_write(struct stream *s, const void *bytes, size_t n)
{
    char *to = stream_room(s, n);

    if (!to)
        return -ENOMEM;
    if (n)
        memcpy(to, bytes, n);
    stream_wrote(s, n);
    return 0;
}

/* Updates `held` after the output changed. */
static void recount(struct stream *s)
{
    size_t held = byte_queue_length(&s->out) ? s->out.cap : 0;

    s->loop->held += held - s->held;
    s->held = held;
}

char *stream_room(struct stream *s, size_t n)
{
    return byte_queue_room(&s->out, n);
}

void stream_wrote(struct stream *s, size_t n)
{
    byte_queue_add(&s->out, n);
    recount(s);
    stream_flush(s);
}

void stream_lend(struct stream *s, const void *bytes, size_t n)
{
    s->lent = bytes;
    s->n_lent = n;
    stream_flush(s);
}

size_t stream_held(const struct stream *s)
{
    return s->held;
}

size_t stream_would_hold(const struct stream *s, size_t n)
{
    return byte_queue_memory(&s->out, n);
}

size_t stream_loop_held(const struct stream_loop *loop)
{
    return loop->held;
}

static ssize_t send_plain(struct stream *s)
{
    struct iovec parts[] = {
        {s->out.data + s->out.begin, byte_queue_length(&s->out)},
        {(void *)(uintptr_t)s->lent, s->n_lent}};
    size_t first = parts[0].iov_len ? 0 : 1;

    return net_write(s->loop->base, s->fd, parts + first,
                     s->n_lent ? 2 - first : 1);
}

static ssize_t send_tls(struct stream *s)
{
    size_t own = byte_queue_length(&s->out);

    if (s->opening)
        return -EAGAIN;
    return own ? stream_tls_write(s, s->out.data + s->out.begin, own)
               : stream_tls_write(s, s->lent, s->n_lent);
}

static void took(struct stream *s, size_t n)
{
    size_t own = byte_queue_length(&s->out);

    own = own < n ? own : n;
    if (own)
        byte_queue_take(&s->out, own);
    byte_queue_trim(&s->out); /* keeps no large memory for few bytes */
    recount(s);
    n -= own;
    s->lent += n;
    s->n_lent -= n;
}

/* Sends all output. Returns 0, -EAGAIN, or another negative errno. */
static int send_all(struct stream *s)
{
    while (stream_unsent(s)) {
        ssize_t n = s->ssl ? send_tls(s) : send_plain(s);

        if (n < 0)
            return (int)n;
        took(s, (size_t)n);
    }
    return 0;
}

void stream_push(struct stream *s)
{
    if (!s->full && !s->failed)
        send_all(s);
    stream_flush(s);
}

void stream_send(struct stream *s)
{
    int rc = send_all(s);

    if (rc == -EAGAIN) {
        if (!s->opening)
            stream_await_room(s);
        return;
    }
    stream_has_room(s);
    if (rc) {
        stream_end(s, rc);
        return;
    }
    s->depth++;
    s->ops->sent(s->arg);
    if (stream_leave(s))
        stream_watch(s); /* used input has made room */
}

void stream_on_writable(void *arg, unsigned what)
{
    struct stream *s = arg;
    int rc = 0;

    if (what & LOOP_LATE) {
        stream_end(s, -ETIMEDOUT);
        return;
    }
    if (s->opening) {
        stream_has_room(s);
        rc = stream_open(s);
    }
    if (rc == -ECANCELED)
        return;
    if (rc == 0)
        stream_send(s);
    else if (rc != -EAGAIN)
        stream_end(s, rc);
}

void stream_on_send(void *arg)
{
    struct stream_queue *queue = arg;
    struct stream_list *list = &queue->lists[queue->filled];
    struct stream *s;

    queue->filled ^= 1;
    while ((s = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, s, to_send);
        s->sends = NULL;
        if (!s->full)
            stream_send(s);
    }
}
