/* Messages between asker and holder, on a TCP connection of their own. */
#include <errno.h>
#include <string.h>

#include "base/dial.h"
#include "base/socket.h"
#include "base/stream/stream.h"
#include "workers/transfer/engine/rdma/internal.h"

/* Most output that the other side has not read. */
#define OUTPUT_MAX_BYTES (4u << 20)
/* Most buffered input. */
#define INPUT_MAX_BYTES 16384u

static void on_readable(void *arg)
{
    struct channel *c = arg;
    const char *from;
    size_t n;

    while ((from = stream_input(c->stream, &n)) && n >= WIRE_MESSAGE_BYTES) {
        struct wire_message m;

        if (wire_message_decode((const uint8_t *)from, &m) < 0) {
            c->gone(c->arg, -EBADMSG, "a malformed message");
            return;
        }
        stream_use(c->stream, WIRE_MESSAGE_BYTES);
        if (!c->message(c->arg, &m))
            return;
    }
}

static void on_sent(void *)
{
}

static void on_ended(void *arg, int error)
{
    struct channel *c = arg;

    if (error)
        c->gone(c->arg, -ECONNABORTED, strerror(-error));
    else
        c->gone(c->arg, -ECONNRESET, "the peer closed its connection");
}

/* The peer reads nothing. */
static void on_cut(void *arg)
{
    struct channel *c = arg;

    c->gone(c->arg, -ECONNABORTED, "the peer does not read");
}

static int make(struct channel *c, struct stream_loop *streams, int fd)
{
    static const struct stream_ops ops = {
        .readable = on_readable, .sent = on_sent, .ended = on_ended};
    const struct stream_options options = {.max_input = INPUT_MAX_BYTES};
    struct loop *loop = stream_loop_base(streams);

    c->streams = streams;
    loop_timer_init(loop, &c->cut, on_cut, c);
    socket_tune(loop, fd);
    c->stream = stream_new(streams, fd, &options, &ops, c);
    return c->stream ? 0 : -ENOMEM;
}

static void on_dialled(void *arg, int fd, const char *why_not)
{
    struct channel *c = arg;

    if (fd < 0)
        c->gone(c->arg, -ECONNABORTED, why_not);
    else if (make(c, c->streams, fd) < 0)
        c->gone(c->arg, -ENOMEM, "out of memory");
    else
        c->opened(c->arg);
}

int channel_connect(struct channel *c, struct stream_loop *streams,
                    struct dns *dns, const char *host, uint16_t port)
{
    c->streams = streams;
    return dial_start(&c->dial, stream_loop_base(streams), dns, host, port,
                      on_dialled, c);
}

int channel_take(struct channel *c, struct stream_loop *streams, int fd)
{
    return make(c, streams, fd);
}

void channel_send(struct channel *c, const struct wire_message *m)
{
    uint8_t bytes[WIRE_MESSAGE_BYTES];

    if (!c->stream || loop_timer_pending(&c->cut))
        return;
    wire_message_encode(m, bytes);
    if (stream_write(c->stream, bytes, sizeof(bytes)) < 0 ||
        stream_unsent(c->stream) > OUTPUT_MAX_BYTES)
        loop_timer_start(&c->cut, 0);
}

void channel_move(struct channel *c, struct channel *from)
{
    c->streams = from->streams;
    c->stream = from->stream;
    from->stream = NULL;
    stream_hand_over(c->stream, c);
    loop_timer_init(stream_loop_base(c->streams), &c->cut, on_cut, c);
}

void channel_fini(struct channel *c)
{
    dial_stop(&c->dial);
    loop_timer_stop(&c->cut);
    stream_free(c->stream);
    c->stream = NULL;
}
