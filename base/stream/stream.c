/* A stream's life. */
#include "base/stream/stream.h"

#include <openssl/ssl.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "base/stream/internal.h"

static void queue_init(struct stream_queue *queue, struct loop *base,
                       void (*on_time)(void *arg))
{
    queue->filled = 0;
    TAILQ_INIT(&queue->lists[0]);
    TAILQ_INIT(&queue->lists[1]);
    loop_timer_init(base, &queue->timer, on_time, queue);
}

struct stream_loop *stream_loop_new(struct loop *base)
{
    struct stream_loop *loop = malloc(sizeof(*loop));

    if (!loop)
        return NULL;
    loop->base = base;
    loop->held = 0;
    queue_init(&loop->send, base, stream_on_send);
    queue_init(&loop->again, base, stream_on_again);
    return loop;
}

void stream_loop_free(struct stream_loop *loop)
{
    if (!loop)
        return;
    loop_timer_stop(&loop->send.timer);
    loop_timer_stop(&loop->again.timer);
    free(loop);
}

struct loop *stream_loop_base(const struct stream_loop *loop)
{
    return loop->base;
}

struct stream *stream_new(struct stream_loop *loop, int fd,
                          const struct stream_options *options,
                          const struct stream_ops *ops, void *arg)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s || (options->ssl && SSL_set_fd(options->ssl, fd) != 1)) {
        SSL_free(options->ssl);
        net_close(loop->base, fd);
        free(s);
        return NULL;
    }
    s->loop = loop;
    s->fd = fd;
    s->ops = ops;
    s->arg = arg;
    s->ssl = options->ssl;
    s->opening = s->ssl;
    s->max_input = options->max_input;
    s->write_us = options->write_us;
    loop_watch_init(loop->base, &s->reading, fd, LOOP_READ, stream_on_readable,
                    s);
    loop_watch_init(loop->base, &s->writing, fd, LOOP_WRITE, stream_on_writable,
                    s);
    stream_watch(s);
    if (s->ssl && !SSL_is_server(s->ssl)) /* the client begins the handshake */
        loop_watch_report(&s->reading, LOOP_READ);
    if (s->reads)
        return s;
    stream_free(s);
    return NULL;
}

void stream_free(struct stream *s)
{
    if (!s)
        return;
    s->freed = s->ended = s->failed = true;
    stream_stop(s);
    if (!s->depth)
        stream_destroy(s);
}

int stream_release(struct stream *s)
{
    int fd = s->fd;

    s->ended = s->failed = true;
    stream_stop(s);
    s->fd = -1;
    return fd;
}

void stream_hand_over(struct stream *s, void *arg)
{
    s->arg = arg;
}

int stream_fd(const struct stream *s)
{
    return s->fd;
}

struct ssl_st *stream_ssl(const struct stream *s)
{
    return s->ssl;
}

unsigned long stream_tls_fault(const struct stream *s)
{
    return s->fault;
}

bool stream_is_plain_http(struct stream *s)
{
    if (!stream_tls_met_http(s))
        return false;
    SSL_free(s->ssl);
    s->ssl = NULL;
    s->opening = s->ended = s->failed = false;
    stream_watch(s);
    return true;
}

void stream_shut(struct stream *s)
{
    if (s->ssl && !s->opening && !s->failed)
        stream_tls_shut(s);
    net_shut(s->loop->base, s->fd);
}
