/* The front door's HTTP server and its clients, each with its own loop, over
 * the virtual net: the same code as over the kernel's sockets, in virtual time,
 * with torn bytes, cuts and resets from a seed. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "base/loop/virtual.h"
#include "base/loop/virtual_net.h"
#include "base/socket.h"
#include "base/stream/stream.h"
#include "conductor/front/server/http.h"
#include "tests/unit/seeds.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

#define SEEDS 60u
#define CLIENTS 4u
#define REQUESTS 12u /* of each client */
#define BODY_MAX 6000u
#define SERVER 0x0a000001u
#define CLIENT 0x0a000002u
#define PORT 80
#define SECOND INT64_C(1000000)

struct world;

struct client {
    struct world *world;
    struct loop *loop;
    struct stream_loop *streams;
    struct stream *stream; /* NULL = not connected */
    int fd;                /* being connected; -1 = none */
    struct loop_watch connecting;
    struct loop_timer again;
    char body[BODY_MAX]; /* (n) of the request that is not answered yet */
    uint32_t n;
    unsigned asked, answered, broken;
};

struct world {
    struct random_state random, seed;
    struct virtual_time *time;
    struct virtual_net *net;
    struct loop *loop; /* the server's */
    struct http_server *server;
    struct client clients[CLIENTS];
    bool faults;
    unsigned handled;
    uint64_t hash; /* of all answers and their times */
};

static uint32_t drawn(void *arg)
{
    return (uint32_t)random_u64(arg);
}

/* --- the server: answers with the body ------------------------------------ */

static bool on_head(void *, struct http_conn *, const struct http_head *)
{
    return true;
}

static void on_early(void *, struct http_conn *, const struct http_head *)
{
}

static bool is_urgent(void *, const struct http_head *)
{
    return false;
}

/* The server itself refuses only what was too late, or is not whole. */
static void on_refused(void *arg, struct http_conn *, const struct http_head *,
                       const struct openai_error *error)
{
    const struct world *w = arg;

    CU_ASSERT(w->faults && error->http_status == 408);
}

static void on_request(void *arg, struct http_conn *conn,
                       const struct http_head *, const char *body, size_t n)
{
    struct world *w = arg;

    w->handled++;
    http_reply(conn, 200, "text/plain", body, n);
}

/* --- the clients ---------------------------------------------------------- */

static void go_on(void *arg);

static void disconnect(struct client *c)
{
    stream_free(c->stream);
    c->stream = NULL;
    loop_watch_stop(&c->connecting);
    if (c->fd >= 0)
        net_close(c->loop, c->fd);
    c->fd = -1;
}

static void try_again(struct client *c)
{
    c->broken++;
    disconnect(c);
    CU_ASSERT_EQUAL(loop_timer_start(&c->again, SECOND / 10), 0);
}

/* Takes a whole answer: the length is the last header's. */
static void on_input(void *arg)
{
    struct client *c = arg;
    size_t n;
    const char *in = stream_input(c->stream, &n);
    const char *end = memmem(in, n, "\r\n\r\n", 4);
    const char *length = memmem(in, n, "Content-Length: ", 16);

    if (!end)
        return;
    CU_ASSERT_FATAL(n > 12 && length && length < end);
    size_t head = (size_t)(end - in) + 4;
    size_t body = strtoul(length + 16, NULL, 10);
    if (n < head + body)
        return;
    if (memcmp(in, "HTTP/1.1 200", 12) != 0) { /* the request was too late */
        CU_ASSERT(c->world->faults && memcmp(in, "HTTP/1.1 408", 12) == 0);
        try_again(c);
        return;
    }
    CU_ASSERT(n == head + body && body == c->n &&
              memcmp(end + 4, c->body, c->n) == 0);
    c->answered++;
    c->n = 0;
    c->world->hash = random_mix(
        c->world->hash ^ (uint64_t)virtual_time_us(c->world->time) ^ body);
    stream_use(c->stream, n);
    CU_ASSERT_EQUAL(loop_timer_start(
                        &c->again, random_below(&c->world->random, SECOND / 2)),
                    0);
}

static void on_sent(void *)
{
}

static void on_ended(void *arg, int)
{
    try_again(arg);
}

static const struct stream_ops stream_ops = {
    .readable = on_input, .sent = on_sent, .ended = on_ended};

static void ask(struct client *c)
{
    char head[100];
    int n = snprintf(head, sizeof(head),
                     "POST /echo HTTP/1.1\r\nHost: x\r\n"
                     "Content-Length: %u\r\n\r\n",
                     c->n);

    CU_ASSERT_EQUAL(stream_write(c->stream, head, (size_t)n), 0);
    CU_ASSERT_EQUAL(stream_write(c->stream, c->body, c->n), 0);
}

static void on_connected(void *arg, unsigned)
{
    static const struct stream_options options = {.max_input = 65536};
    struct client *c = arg;
    int fd = c->fd;

    if (net_error(c->loop, fd)) {
        try_again(c);
        return;
    }
    c->fd = -1;
    socket_tune(c->loop, fd);
    c->stream = stream_new(c->streams, fd, &options, &stream_ops, c);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c->stream);
    ask(c);
}

static void dial(struct client *c)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};

    to.sin_addr.s_addr = htonl(SERVER);
    c->fd = net_connect(c->loop, (struct sockaddr *)&to, sizeof(to));
    CU_ASSERT_FATAL(c->fd >= 0);
    loop_watch_init(c->loop, &c->connecting, c->fd, LOOP_WRITE | LOOP_ONCE,
                    on_connected, c);
    CU_ASSERT_EQUAL(loop_watch_start(&c->connecting, 0), 0);
}

/* Asks the next request, or the last one again. */
static void go_on(void *arg)
{
    struct client *c = arg;
    struct random_state *r = &c->world->random;

    if (!c->n && c->asked == REQUESTS) {
        disconnect(c);
        return;
    }
    if (!c->n) {
        c->asked++;
        c->n = 1 + random_below(r, BODY_MAX);
        for (uint32_t i = 0; i < c->n; i++)
            c->body[i] = (char)('a' + random_below(r, 26));
    }
    if (c->stream)
        ask(c);
    else
        dial(c);
}

/* --- the world ------------------------------------------------------------ */

static void open_server(struct world *w)
{
    static const struct http_handlers handlers = {.head = on_head,
                                                  .early = on_early,
                                                  .request = on_request,
                                                  .urgent = is_urgent,
                                                  .refused = on_refused};
    static const struct http_options options = {.host = "10.0.0.1",
                                                .port = PORT,
                                                .max_connections = 16,
                                                .max_head_bytes = 4096,
                                                .max_body_bytes = 65536,
                                                .max_body_total_bytes = 1 << 20,
                                                .max_output_bytes = 1 << 20,
                                                .max_output_total_bytes = 1
                                                                          << 20,
                                                .idle_us = 60 * SECOND,
                                                .receive_us = 30 * SECOND,
                                                .write_us = 30 * SECOND};

    w->loop = virtual_loop_new(w->time);
    CU_ASSERT_EQUAL_FATAL(virtual_net_join(w->net, w->loop, SERVER), 0);
    CU_ASSERT_EQUAL_FATAL(
        http_server_new(w->loop, &options, &handlers, w, &w->server), 0);
    CU_ASSERT_EQUAL(http_server_port(w->server), PORT);
}

static void open_client(struct world *w, uint32_t i)
{
    struct client *c = &w->clients[i];

    c->world = w;
    c->fd = -1;
    c->loop = virtual_loop_new(w->time);
    CU_ASSERT_EQUAL_FATAL(virtual_net_join(w->net, c->loop, CLIENT + i), 0);
    c->streams = stream_loop_new(c->loop);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c->streams);
    loop_timer_init(c->loop, &c->again, go_on, c);
    CU_ASSERT_EQUAL(loop_timer_start(&c->again, 0), 0);
}

static struct world *world_open(uint64_t seed, bool faults)
{
    struct world *w = calloc(1, sizeof(*w));

    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    w->faults = faults;
    random_init(&w->random, seed);
    random_init(&w->seed, seed + 1000000);
    const struct virtual_net_options options = {
        .link = {.latency_us = 1 + random_below(&w->random, 2000),
                 .jitter_us = random_below(&w->random, 500),
                 .bytes_per_s = 1000000},
        .buffer_bytes = 1u << (7 + random_below(&w->random, 8)),
        .accept_max = 2,
        .sockets_max = 64,
        .torn_of_256 = random_below(&w->random, 257)};
    w->time = virtual_time_new(0, drawn, &w->seed);
    w->net = virtual_net_new(w->time, &options, CLIENTS + 1);
    CU_ASSERT_FATAL(w->time && w->net);
    open_server(w);
    for (uint32_t i = 0; i < CLIENTS; i++)
        open_client(w, i);
    return w;
}

static void world_close(struct world *w)
{
    http_server_free(w->server);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        stream_loop_free(w->clients[i].streams);
        loop_free(w->clients[i].loop);
    }
    loop_free(w->loop);
    CU_ASSERT_EQUAL(virtual_net_check(w->net), 0);
    virtual_net_free(w->net);
    virtual_time_free(w->time);
    free(w);
}

/* Cuts or mends a link, or resets a connection. */
static void fault(struct world *w)
{
    uint32_t client = CLIENT + random_below(&w->random, CLIENTS);
    bool there = random_below(&w->random, 2);

    if (random_below(&w->random, 40) == 0)
        virtual_net_reset(w->net, random_below(&w->random, 100));
    virtual_net_cut(w->net, there ? client : SERVER, there ? SERVER : client,
                    random_below(&w->random, 100) == 0);
}

/* Runs until all clients have their answers and are gone, and the server has
 * noticed. */
static void world_run(struct world *w)
{
    for (unsigned i = 0; i < 1000000; i++) {
        if (!virtual_time_step(w->time,
                               virtual_time_us(w->time) + 100 * SECOND))
            return;
        if (w->faults && i % 50 == 0)
            fault(w);
    }
    CU_FAIL("the world does not come to rest");
}

static uint64_t play(uint64_t seed, bool faults, unsigned *broken)
{
    struct world *w = world_open(seed, faults);
    const struct http_stats *stats = http_server_stats(w->server);

    world_run(w);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct client *c = &w->clients[i];

        CU_ASSERT_EQUAL(c->answered, REQUESTS);
        *broken += c->broken;
    }
    CU_ASSERT(w->handled >= CLIENTS * REQUESTS);
    CU_ASSERT(faults || w->handled == CLIENTS * REQUESTS);
    CU_ASSERT_EQUAL(stats->connections, 0);
    CU_ASSERT_EQUAL(http_server_held(w->server), 0);
    uint64_t hash = w->hash;
    world_close(w);
    return hash;
}

static void test_whole(void)
{
    seeds_play(SEEDS, false, play);
}

static void test_faults(void)
{
    seeds_play(SEEDS, true, play);
}

static const struct suite_test tests[] = {
    {"each request is answered once", test_whole},
    {"and in the end, whatever breaks", test_faults},
};

SUITE("world_http", tests)
