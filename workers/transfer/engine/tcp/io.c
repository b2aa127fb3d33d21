/* The I/O threads: each has an event loop and some of the streams. In virtual
 * time there are no threads, and their streams are on the transport's loop. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "workers/transfer/engine/tcp/internal.h"

static void stream_free(struct tcp_stream *s)
{
    loop_watch_stop(&s->readable);
    loop_watch_stop(&s->writable);
    sum_run_free(s->sum);
    net_close(s->io->loop, s->fd);
    free(s);
}

/* Waits for input, with a timeout for streams that send no token. */
static int read_on(struct tcp_stream *s)
{
    return loop_watch_start(&s->readable, TCP_TOKEN_US);
}

static void stream_end(struct tcp_stream *s, int rc)
{
    TAILQ_REMOVE(&s->io->streams, s, link);
    s->role->end(s, rc);
    stream_free(s);
}

/* Waits until the socket takes output. A wait under way keeps its timeout: a
 * wake-up is no progress. */
static int write_on(struct tcp_stream *s)
{
    return loop_watch_pending(&s->writable)
               ? 0
               : loop_watch_start(&s->writable, TCP_SEND_US);
}

/* Sends ready output and waits for the next event. rc is the result of
 * role->read() or role->look(). */
static void stream_go(struct tcp_stream *s, int rc)
{
    int out = rc < 0 ? rc : s->role->send(s);

    if (out == 0 && write_on(s))
        out = -ENOMEM;
    if (out == 0 && rc == 1 && !s->resting) {
        loop_watch_stop(&s->readable);
        s->resting = true;
    } else if (out > 0 && s->resting) {
        s->resting = false;
        if (read_on(s))
            out = -ENOMEM;
    }
    if (out < 0)
        stream_end(s, out);
}

static void on_readable(void *arg, unsigned what)
{
    struct tcp_stream *s = arg;

    if (!(what & LOOP_LATE))
        stream_go(s, s->role->read(s));
    else if (!s->path && !s->offer)
        stream_end(s, -ETIMEDOUT);
}

static void on_writable(void *arg, unsigned what)
{
    stream_go(arg, what & LOOP_LATE ? -ETIMEDOUT : 0);
}

static void stream_begin(struct tcp_stream *s)
{
    struct loop *loop = s->io->loop;

    TAILQ_INSERT_TAIL(&s->io->streams, s, link);
    loop_watch_init(loop, &s->readable, s->fd, LOOP_READ, on_readable, s);
    loop_watch_init(loop, &s->writable, s->fd, LOOP_WRITE | LOOP_ONCE,
                    on_writable, s);
    if (read_on(s))
        stream_end(s, -ENOMEM);
}

static void on_wake(void *arg)
{
    struct tcp_io *io = arg;
    struct tcp_stream *s, *next;

    pthread_mutex_lock(&io->tcp->set.lock);
    bool leaving = io->leaving;
    struct tcp_streams fresh = TAILQ_HEAD_INITIALIZER(fresh);
    TAILQ_CONCAT(&fresh, &io->fresh, link);
    pthread_mutex_unlock(&io->tcp->set.lock);
    while ((s = TAILQ_FIRST(&fresh))) {
        TAILQ_REMOVE(&fresh, s, link);
        stream_begin(s);
    }
    for (s = TAILQ_FIRST(&io->streams); s; s = next) {
        next = TAILQ_NEXT(s, link);
        stream_go(s, leaving ? -ECANCELED : s->role->look(s));
    }
    if (leaving && io->threaded)
        loop_stop(io->loop);
}

static void *run(void *arg)
{
    struct tcp_io *io = arg;

    loop_run(io->loop);
    return NULL;
}

int tcp_io_start(struct tcp *t)
{
    for (uint32_t i = 0; i < t->config.streams; i++) {
        struct tcp_io *io = &t->ios[i];

        io->tcp = t;
        io->threaded = loop_has_threads(t->config.loop);
        TAILQ_INIT(&io->streams);
        TAILQ_INIT(&io->fresh);
        io->loop = io->threaded ? loop_new() : t->config.loop;
        if (!io->loop ||
            loop_bell_init(io->loop, &io->wake, false, on_wake, io) ||
            (io->threaded && pthread_create(&io->thread, NULL, run, io)))
            return -ENOMEM;
        io->started = true;
    }
    return 0;
}

void tcp_io_stop(struct tcp *t)
{
    for (uint32_t i = 0; i < t->config.streams; i++) {
        struct tcp_io *io = &t->ios[i];

        if (!io->started)
            continue;
        pthread_mutex_lock(&t->set.lock);
        io->leaving = true;
        pthread_mutex_unlock(&t->set.lock);
        if (!io->threaded) {
            on_wake(io);
            continue;
        }
        loop_ring(&io->wake);
        pthread_join(io->thread, NULL);
    }
    /* Frees the bells last: each thread may wake the others until it ends. */
    for (uint32_t i = 0; i < t->config.streams; i++) {
        loop_bell_fini(&t->ios[i].wake);
        if (t->ios[i].threaded)
            loop_free(t->ios[i].loop);
    }
}

int tcp_io_add(struct tcp *t, int fd, struct tcp_path *path)
{
    struct tcp_stream *s = calloc(1, sizeof(*s));
    struct sum_run *sum = sum_run_new();

    if (!s || !sum) {
        free(s);
        sum_run_free(sum);
        net_close(t->config.loop, fd);
        return -ENOMEM;
    }
    s->fd = fd;
    s->sum = sum;
    s->path = path;
    s->role = path ? &tcp_asks : &tcp_answers;
    TAILQ_INIT(&s->flying);
    if (path) {
        memcpy(s->out_head, path->token, TCP_TOKEN_BYTES);
        s->out_head_n = TCP_TOKEN_BYTES;
    }
    s->io = &t->ios[t->next_io++ % t->config.streams];
    s->stranger.owner = s;
    pthread_mutex_lock(&t->set.lock);
    if (!path)
        strangers_add_socket(&t->unbound, &s->stranger, t->config.loop, fd);
    TAILQ_INSERT_TAIL(&s->io->fresh, s, link);
    pthread_mutex_unlock(&t->set.lock);
    loop_ring(&s->io->wake);
    return 0;
}
