/* See front.h. Output of the model stays there while a stream has much unsent,
 * so that the model's bound of it holds. */
#include "tests/world/redis/front.h"

#include <stdlib.h>
#include <sys/queue.h>

#include "base/listener.h"
#include "base/loop/loop.h"
#include "base/stream/stream.h"
#include "tests/world/redis/mr.h"

#define INPUT_BYTES (1u << 20)
#define UNSENT_BYTES (256u << 10)

struct client {
    LIST_ENTRY(client) entry;
    struct mr_front *front;
    struct stream *stream;
    struct mr_conn *conn;
};

struct mr_front {
    struct loop *loop;
    struct mr *m;
    struct stream_loop *streams;
    struct listener *listener;
    struct loop_timer due;   /* the model's */
    struct loop_timer flush; /* deferred: some connection has output */
    LIST_HEAD(, client) clients;
};

static void client_free(struct client *c)
{
    LIST_REMOVE(c, entry);
    mr_close(c->conn);
    stream_free(c->stream);
    free(c);
}

static void on_ready(void *arg)
{
    struct client *c = arg;

    loop_defer(&c->front->flush);
}

/* Sends what there is; a connection that is over ends behind that. */
static void client_flush(struct client *c)
{
    size_t n;
    const char *bytes = mr_output(c->conn, &n);

    if (n > 0 && stream_unsent(c->stream) < UNSENT_BYTES) {
        if (stream_write(c->stream, bytes, n)) {
            client_free(c);
            return;
        }
        mr_sent(c->conn, n);
        n = 0;
    }
    if (n == 0 && mr_is_over(c->conn) && stream_unsent(c->stream) == 0)
        client_free(c);
}

static void on_flush(void *arg)
{
    struct mr_front *f = arg;
    struct client *c, *next;

    for (c = LIST_FIRST(&f->clients); c; c = next) {
        next = LIST_NEXT(c, entry);
        client_flush(c);
    }
    mr_front_poke(f);
}

static void on_due(void *arg)
{
    struct mr_front *f = arg;

    mr_tick(f->m, loop_now_us(f->loop));
    loop_defer(&f->flush);
}

void mr_front_poke(struct mr_front *f)
{
    int64_t due_us = mr_due_us(f->m);
    int64_t left_us = due_us - loop_now_us(f->loop);

    loop_timer_stop(&f->due);
    if (due_us != MR_NEVER &&
        loop_timer_start(&f->due, left_us > 0 ? left_us : 0))
        abort();
}

static void on_readable(void *arg)
{
    struct client *c = arg;
    struct mr_front *f = c->front;
    size_t n;
    const char *bytes = stream_input(c->stream, &n);

    mr_tick(f->m, loop_now_us(f->loop));
    mr_feed(c->conn, bytes, n);
    stream_use(c->stream, n);
    loop_defer(&f->flush);
}

static void on_sent(void *arg)
{
    on_ready(arg);
}

/* Redis ends a connection whose client sends no more. */
static void on_ended(void *arg, int)
{
    client_free(arg);
}

static void on_accepted(void *arg, int fd)
{
    static const struct stream_ops ops = {
        .readable = on_readable, .sent = on_sent, .ended = on_ended};
    const struct stream_options options = {.max_input = INPUT_BYTES};
    struct mr_front *f = arg;
    struct client *c = calloc(1, sizeof(*c));

    if (!c)
        abort();
    c->front = f;
    c->stream = stream_new(f->streams, fd, &options, &ops, c);
    if (!c->stream) {
        free(c);
        return;
    }
    mr_tick(f->m, loop_now_us(f->loop));
    c->conn = mr_open(f->m, on_ready, c);
    LIST_INSERT_HEAD(&f->clients, c, entry);
}

int mr_front_new(struct loop *loop, struct mr *m, const char *host,
                 uint16_t port, struct mr_front **out, char *err,
                 size_t err_bytes)
{
    struct mr_front *f = calloc(1, sizeof(*f));
    int rc;

    if (!f || !(f->streams = stream_loop_new(loop)))
        abort();
    f->loop = loop;
    f->m = m;
    loop_timer_init(loop, &f->due, on_due, f);
    loop_timer_init(loop, &f->flush, on_flush, f);
    rc = listener_new(loop, host, port, on_accepted, f, &f->listener, err,
                      err_bytes);
    if (rc) {
        mr_front_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

void mr_front_free(struct mr_front *f)
{
    if (!f)
        return;
    while (!LIST_EMPTY(&f->clients))
        client_free(LIST_FIRST(&f->clients));
    listener_free(f->listener);
    loop_timer_stop(&f->due);
    loop_timer_stop(&f->flush);
    stream_loop_free(f->streams);
    free(f);
}

uint16_t mr_front_port(const struct mr_front *f)
{
    return listener_port(f->listener);
}
