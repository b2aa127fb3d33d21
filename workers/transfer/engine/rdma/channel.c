/* Messages between asker and holder, on a TCP connection of their own. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/loop/libevent.h"
#include "base/socket.h"
#include "workers/transfer/engine/rdma/internal.h"

/* Most output that the other side has not read. */
#define OUTPUT_MAX_BYTES (4u << 20)
/* Most buffered input. */
#define INPUT_MAX_BYTES 16384u

static void on_read(struct bufferevent *bev, void *arg)
{
    struct evbuffer *in = bufferevent_get_input(bev);
    struct channel *c = arg;

    while (evbuffer_get_length(in) >= WIRE_MESSAGE_BYTES) {
        uint8_t bytes[WIRE_MESSAGE_BYTES];
        struct wire_message m;

        evbuffer_remove(in, bytes, sizeof(bytes));
        if (wire_message_decode(bytes, &m) < 0) {
            c->gone(c->arg, -EBADMSG, "a malformed message");
            return;
        }
        if (!c->message(c->arg, &m))
            return;
    }
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct channel *c = arg;

    if (what & BEV_EVENT_CONNECTED) {
        socket_tune(c->loop, bufferevent_getfd(bev));
        c->opened(c->arg);
    } else if (what & BEV_EVENT_EOF) {
        c->gone(c->arg, -ECONNRESET, "the peer closed its connection");
    } else {
        c->gone(c->arg, -ECONNABORTED,
                evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    }
}

static int make(struct channel *c, struct rdma *r, int fd)
{
    c->loop = r->config.loop;
    c->bev = bufferevent_socket_new(loop_event_base(c->loop), fd,
                                    BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev)
        return -ENOMEM;
    bufferevent_setcb(c->bev, on_read, NULL, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, INPUT_MAX_BYTES);
    return bufferevent_enable(c->bev, EV_READ | EV_WRITE) == 0 ? 0 : -ENOMEM;
}

int channel_connect(struct channel *c, struct rdma *r, const char *host,
                    uint16_t port)
{
    int rc = make(c, r, -1);

    if (rc == 0 &&
        bufferevent_socket_connect_hostname(
            c->bev, loop_dns_base(r->config.dns), AF_UNSPEC, host, port) < 0)
        rc = -EHOSTUNREACH;
    if (rc < 0)
        channel_fini(c);
    return rc;
}

int channel_take(struct channel *c, struct rdma *r, int fd)
{
    int rc = make(c, r, fd);

    if (rc < 0) {
        if (!c->bev)
            close(fd);
        channel_fini(c);
        return rc;
    }
    socket_tune(c->loop, fd);
    return 0;
}

void channel_send(struct channel *c, const struct wire_message *m)
{
    uint8_t bytes[WIRE_MESSAGE_BYTES];

    if (!c->bev)
        return;
    wire_message_encode(m, bytes);
    /* Cuts off a peer that reads nothing: on_event() follows. */
    if (bufferevent_write(c->bev, bytes, sizeof(bytes)) < 0 ||
        evbuffer_get_length(bufferevent_get_output(c->bev)) > OUTPUT_MAX_BYTES)
        shutdown(bufferevent_getfd(c->bev), SHUT_RDWR);
}

void channel_move(struct channel *c, struct channel *from)
{
    c->loop = from->loop;
    c->bev = from->bev;
    from->bev = NULL;
    bufferevent_setcb(c->bev, on_read, NULL, on_event, c);
}

void channel_fini(struct channel *c)
{
    if (c->bev)
        bufferevent_free(c->bev);
    c->bev = NULL;
}
