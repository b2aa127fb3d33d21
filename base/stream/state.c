/* A stream's state: events it waits for, its queues, and its end. */
#include <errno.h>
#include <openssl/ssl.h>
#include <stdlib.h>

#include "base/bug.h"
#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "base/stream/internal.h"

size_t stream_unused(const struct stream *s)
{
    return s->run ? s->n_run : byte_queue_length(&s->in);
}

const char *stream_input(const struct stream *s, size_t *n)
{
    *n = stream_unused(s);
    return s->run ? s->run : *n ? s->in.data + s->in.begin : "";
}

/* Without loop_defer(), which would run it in this same turn, again and again:
 * a fast sender would block the loop. */
void stream_again(struct stream *s)
{
    struct stream_queue *queue = &s->loop->again;

    if (s->again || s->failed ||
        (stream_unused(s) == 0 && !stream_tls_pending(s)))
        return;
    s->again = &queue->lists[queue->filled];
    if (TAILQ_EMPTY(s->again))
        loop_timer_start(&queue->timer, 0);
    TAILQ_INSERT_TAIL(s->again, s, to_read);
}

void stream_watch(struct stream *s)
{
    bool reads = (!s->paused || s->opening) && !s->ended && !s->freed &&
                 byte_queue_length(&s->in) < s->max_input;

    if (reads == s->reads)
        return;
    s->reads = reads;
    if (!reads)
        loop_watch_stop(&s->reading);
    else if (loop_watch_start(&s->reading, 0))
        s->reads = false;
    else
        stream_again(s); /* no socket event comes for input inside TLS */
}

void stream_flush(struct stream *s)
{
    struct stream_queue *queue = &s->loop->send;

    if (s->sends || s->failed)
        return;
    s->sends = &queue->lists[queue->filled];
    if (TAILQ_EMPTY(s->sends))
        loop_defer(&queue->timer);
    TAILQ_INSERT_TAIL(s->sends, s, to_send);
}

size_t stream_unsent(const struct stream *s)
{
    return byte_queue_length(&s->out) + s->n_lent;
}

void stream_await_room(struct stream *s)
{
    if (s->full || s->failed)
        return;
    s->wants_room = false;
    s->full = loop_watch_start(&s->writing, s->write_us) == 0;
}

void stream_has_room(struct stream *s)
{
    if (s->full)
        loop_watch_stop(&s->writing);
    s->full = false;
}

void stream_stop(struct stream *s)
{
    loop_watch_stop(&s->reading);
    loop_watch_stop(&s->writing);
    s->reads = s->full = false;
    if (s->sends)
        TAILQ_REMOVE(s->sends, s, to_send);
    if (s->again)
        TAILQ_REMOVE(s->again, s, to_read);
    s->sends = s->again = NULL;
}

void stream_destroy(struct stream *s)
{
    SSL_free(s->ssl);
    if (s->fd >= 0)
        net_close(s->loop->base, s->fd);
    byte_queue_fini(&s->in);
    if (s->held > s->loop->held)
        bug("a stream holds %zu bytes, and all hold %zu", s->held,
            s->loop->held);
    s->loop->held -= s->held;
    byte_queue_fini(&s->out);
    free(s);
}

bool stream_leave(struct stream *s)
{
    s->depth--;
    if (!s->freed)
        return true;
    if (!s->depth)
        stream_destroy(s);
    return false;
}

void stream_end(struct stream *s, int error)
{
    if (s->failed)
        return;
    s->ended = true;
    s->failed = error != 0;
    if (s->failed)
        stream_stop(s);
    else
        stream_watch(s);
    s->depth++;
    s->ops->ended(s->arg, error);
    stream_leave(s);
}

int stream_open(struct stream *s)
{
    int rc = stream_tls_open(s);

    if (s->wants_room)
        stream_await_room(s);
    if (rc == 0 && stream_unsent(s))
        stream_flush(s);
    if (rc || !s->ops->opened)
        return rc;
    s->depth++;
    s->ops->opened(s->arg);
    return stream_leave(s) ? 0 : -ECANCELED;
}
