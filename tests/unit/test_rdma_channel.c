/* A channel of the transport rdma: a holder accepts, an asker connects by
 * name. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/dns.h"
#include "base/listener.h"
#include "base/loop/loop.h"
#include "base/stream/stream.h"
#include "tests/unit/suite.h"
#include "workers/transfer/engine/rdma/internal.h"

#define MESSAGES 1000u

struct side {
    struct channel channel, *moved; /* to; NULL = not to be moved */
    unsigned opened, messages, gone;
    int rc;
    uint64_t last;
};

struct world {
    struct loop *loop;
    struct stream_loop *streams;
    struct dns *dns;
    struct listener *listener;
    uint16_t port;
    struct side asker, holder, heir;
};

static void on_opened(void *arg)
{
    ((struct side *)arg)->opened++;
}

static bool on_message(void *arg, const struct wire_message *m)
{
    struct side *s = arg;

    s->messages++;
    CU_ASSERT_EQUAL(m->id, s->last + 1);
    s->last = m->id;
    if (!s->moved)
        return true;
    channel_move(s->moved, &s->channel);
    channel_fini(&s->channel);
    return false;
}

static void on_gone(void *arg, int rc, const char *why)
{
    struct side *s = arg;

    s->gone++;
    s->rc = rc;
    CU_ASSERT_PTR_NOT_NULL(why);
    channel_fini(&s->channel);
}

static void side_init(struct side *s)
{
    *s = (struct side){.channel = {.message = on_message,
                                   .gone = on_gone,
                                   .opened = on_opened,
                                   .arg = s}};
}

static void on_accept(void *arg, int fd)
{
    struct world *w = arg;

    CU_ASSERT_EQUAL(channel_take(&w->holder.channel, w->streams, fd), 0);
}

static void world_init(struct world *w)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    *w = (struct world){.loop = loop_new()};
    w->streams = stream_loop_new(w->loop);
    w->dns = dns_new(w->loop, "");
    side_init(&w->asker);
    side_init(&w->holder);
    side_init(&w->heir);
    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&at, n), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    w->port = ntohs(at.sin_port);
    CU_ASSERT_EQUAL_FATAL(listen(fd, 1), 0);
    CU_ASSERT_EQUAL_FATAL(
        listener_take(w->loop, fd, on_accept, w, &w->listener), 0);
}

static void world_fini(struct world *w)
{
    channel_fini(&w->asker.channel);
    channel_fini(&w->holder.channel);
    channel_fini(&w->heir.channel);
    listener_free(w->listener);
    stream_loop_free(w->streams);
    dns_free(w->dns);
    loop_free(w->loop);
}

static void connect_asker(struct world *w)
{
    CU_ASSERT_EQUAL(channel_connect(&w->asker.channel, w->streams, w->dns,
                                    "localhost", w->port),
                    0);
    CU_ASSERT_EQUAL(w->asker.opened, 0);
    while (!w->asker.opened || !w->holder.channel.stream)
        CU_ASSERT_EQUAL_FATAL(loop_turn(w->loop, -1), 0);
}

static void send_some(struct channel *c, uint64_t first, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        channel_send(
            c, &(struct wire_message){.type = WIRE_REVOKED, .id = first + i});
}

/* The first message moves the holder's channel; the messages that came in the
 * same read go to the heir. */
static void test_messages(void)
{
    struct world w;

    world_init(&w);
    send_some(&w.asker.channel, 1, 1); /* not connected: a no-op */
    connect_asker(&w);
    w.holder.moved = &w.heir.channel;
    w.heir.last = 1;
    send_some(&w.asker.channel, 1, MESSAGES);
    send_some(&w.holder.channel, 1, MESSAGES);
    while (w.heir.messages < MESSAGES - 1 || w.asker.messages < MESSAGES)
        CU_ASSERT_EQUAL_FATAL(loop_turn(w.loop, -1), 0);
    CU_ASSERT_EQUAL(w.holder.messages, 1);
    channel_fini(&w.asker.channel);
    while (!w.heir.gone)
        CU_ASSERT_EQUAL_FATAL(loop_turn(w.loop, -1), 0);
    CU_ASSERT_EQUAL(w.heir.rc, -ECONNRESET);
    CU_ASSERT_EQUAL(w.asker.gone + w.holder.gone, 0);
    world_fini(&w);
}

static void test_malformed(void)
{
    uint8_t bytes[WIRE_MESSAGE_BYTES];
    struct world w;

    memset(bytes, 0xff, sizeof(bytes));
    world_init(&w);
    connect_asker(&w);
    CU_ASSERT_EQUAL(stream_write(w.asker.channel.stream, bytes, sizeof(bytes)),
                    0);
    while (!w.holder.gone)
        CU_ASSERT_EQUAL_FATAL(loop_turn(w.loop, -1), 0);
    CU_ASSERT_EQUAL(w.holder.rc, -EBADMSG);
    world_fini(&w);
}

static void test_refused(void)
{
    struct world w;

    world_init(&w);
    listener_free(w.listener);
    w.listener = NULL;
    CU_ASSERT_EQUAL(channel_connect(&w.asker.channel, w.streams, w.dns,
                                    "127.0.0.1", w.port),
                    0);
    CU_ASSERT_EQUAL(w.asker.gone, 0); /* from the loop alone */
    while (!w.asker.gone)
        CU_ASSERT_EQUAL_FATAL(loop_turn(w.loop, -1), 0);
    CU_ASSERT_EQUAL(w.asker.rc, -ECONNABORTED);
    world_fini(&w);
}

/* The other side does not read: it is cut off. */
static void test_unread(void)
{
    struct world w;

    world_init(&w);
    connect_asker(&w);
    for (uint64_t n = 0; !w.asker.gone; n++) {
        send_some(&w.asker.channel, 1, MESSAGES);
        if (w.holder.channel.stream)
            stream_pause(w.holder.channel.stream, true);
        CU_ASSERT_FATAL(n < MESSAGES);
        loop_turn(w.loop, 0);
    }
    CU_ASSERT_EQUAL(w.asker.gone, 1);
    world_fini(&w);
}

static const struct suite_test tests[] = {
    {"messages, and a channel that moves", test_messages},
    {"a malformed message", test_malformed},
    {"nobody listens", test_refused},
    {"a peer that does not read", test_unread},
};
SUITE("rdma_channel", tests)
