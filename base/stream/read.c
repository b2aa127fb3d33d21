/* A stream's input. Bytes are read into a buffer shared by all streams; only
 * bytes that the owner leaves unused get memory of their own. */
#include <errno.h>
#include <string.h>

#include "base/loop/net.h"
#include "base/stream/internal.h"

void stream_use(struct stream *s, size_t n)
{
    if (s->run) {
        s->run += n;
        s->n_run -= n;
    } else if (n) {
        byte_queue_take(&s->in, n);
        if (!s->depth)
            stream_watch(s);
    }
}

static ssize_t receive(struct stream *s, void *to, size_t n)
{
    if (!s->ssl)
        return net_read(s->loop->base, s->fd, to, n);
    ssize_t got = stream_tls_read(s, to, n);
    if (s->wants_room)
        stream_await_room(s);
    return got;
}

size_t stream_read(struct stream *s, void *to, size_t n)
{
    ssize_t got = s->ended || n == 0 ? 0 : receive(s, to, n);

    return got > 0 ? (size_t)got : 0;
}

void stream_pause(struct stream *s, bool pause)
{
    s->paused = pause;
    if (pause) /* the next input event disables reading */
        return;
    stream_watch(s);
    stream_again(s);
}

/* Reads the next bytes. Returns as receive(). */
static ssize_t fill(struct stream *s)
{
    size_t have = byte_queue_length(&s->in), room = s->max_input - have;
    ssize_t n = s->opening ? stream_open(s) : 0;

    if (n < 0)
        return n;
    if (s->paused)
        return -EAGAIN;
    if (room > STREAM_SCRATCH_BYTES)
        room = STREAM_SCRATCH_BYTES;
    n = receive(s, s->loop->scratch, room);
    if (n <= 0)
        return n;
    if (have == 0) {
        s->run = s->loop->scratch;
        s->n_run = (size_t)n;
        return n;
    }
    char *to = byte_queue_room(&s->in, (size_t)n);
    if (!to)
        return -ENOMEM;
    memcpy(to, s->loop->scratch, (size_t)n);
    byte_queue_add(&s->in, (size_t)n);
    return n;
}

/* Keeps the input that the owner did not use. */
static int keep_rest(struct stream *s)
{
    char *to = s->n_run ? byte_queue_room(&s->in, s->n_run) : NULL;

    if (to) {
        memcpy(to, s->run, s->n_run);
        byte_queue_add(&s->in, s->n_run);
    }
    int rc = s->n_run && !to ? -ENOMEM : 0;
    s->run = NULL;
    s->n_run = 0;
    return rc;
}

/* Hands the input to the owner. Returns false if the stream was freed or
 * ended. */
static bool hand_over(struct stream *s)
{
    s->depth++;
    s->ops->readable(s->arg);
    if (!stream_leave(s))
        return false;
    int rc = keep_rest(s);
    if (rc)
        stream_end(s, rc);
    return rc == 0;
}

static void go_on(struct stream *s, bool again)
{
    bool kept = again && !s->ssl && byte_queue_length(&s->in) > 0;
    /* epoll reports further input behind kept bytes. */
    ssize_t n = s->reads && !kept ? fill(s) : -EAGAIN;

    if (n == -ECANCELED)
        return;
    if ((n > 0 || (again && !s->paused && byte_queue_length(&s->in))) &&
        !hand_over(s))
        return;
    if (n == 0 || (n < 0 && n != -EAGAIN)) {
        stream_end(s, (int)n);
        return;
    }
    stream_watch(s);
    /* An incomplete TLS record yields n <= 0, so this does not spin. */
    if (n > 0 && s->reads && stream_tls_pending(s))
        stream_again(s);
}

void stream_on_readable(void *arg, unsigned)
{
    go_on(arg, false);
}

void stream_on_again(void *arg)
{
    struct stream_queue *queue = arg;
    struct stream_list *list = &queue->lists[queue->filled];
    struct stream *s;

    queue->filled ^= 1;
    while ((s = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, s, to_read);
        s->again = NULL;
        go_on(s, true);
    }
}
