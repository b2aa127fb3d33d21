/* The net in virtual time, against an obvious version of it: a list of all that
 * was written and when. What is read is what was written, in order, once, and
 * not before it can have come; then comes the end, or the connection broke. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "base/loop/virtual.h"
#include "base/loop/virtual_net.h"
#include "tests/unit/seeds.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

#define PROCESSES 3u
#define PAIRS 6u
#define PORT 80
#define SEEDS 300u
#define FIRST_ADDRESS 0x0a000001u /* 10.0.0.1 */
#define PATIENCE_MS 10000
#define WRITES_MAX 4096u

/* A write of one end, and the bytes that it has written in all. */
struct written {
    int64_t at_us;
    uint64_t bytes;
};

struct world;

/* One end of a connection. */
struct end {
    struct world *world;
    struct loop *loop;
    struct end *other; /* NULL = nobody has accepted it */
    int fd;            /* -1 = closed, or never opened */
    struct loop_watch reading, writing;
    uint32_t number;
    uint64_t sent, got, left; /* bytes; left to send */
    bool connecting, shut, ended;
    int error; /* why it broke, a positive errno */
    bool was_closed;
    struct written *log; /* (n_log) */
    uint32_t n_log;
};

struct listener {
    struct world *world;
    struct loop *loop;
    int fd;
    struct loop_watch watch;
    struct loop_timer resume; /* pending while no descriptor is left */
};

struct world {
    struct random_state random, seed;
    struct virtual_time *time;
    struct virtual_net *net;
    struct virtual_net_options options;
    struct loop *loops[PROCESSES];
    struct listener listeners[PROCESSES];
    struct end ends[2 * PAIRS];
    unsigned n_ends;
    bool faults;
    uint64_t hash; /* of all that happened */
};

static uint32_t drawn(void *arg)
{
    return (uint32_t)random_u64(arg);
}

static void note(struct world *w, uint64_t what, uint64_t n)
{
    w->hash = random_mix(w->hash ^ (uint64_t)virtual_time_us(w->time));
    w->hash = random_mix(w->hash ^ what << 32 ^ n);
}

static struct sockaddr_in at(uint32_t address, uint16_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

    in.sin_addr.s_addr = htonl(address);
    return in;
}

static int dial(struct loop *loop, uint32_t address, uint16_t port)
{
    struct sockaddr_in to = at(address, port);

    return net_connect(loop, (struct sockaddr *)&to, sizeof(to));
}

static int listen_at(struct loop *loop, uint32_t address, uint16_t port)
{
    struct sockaddr_in in = at(address, port);

    return net_listen(loop, (struct sockaddr *)&in, sizeof(in));
}

/* The byte at a place of what an end writes. */
static char byte_of(const struct end *e, uint64_t place)
{
    return (char)random_mix(e->number * 1000003 + place);
}

/* --- the ends ------------------------------------------------------------- */

static void close_end(struct end *e)
{
    loop_watch_stop(&e->reading);
    loop_watch_stop(&e->writing);
    net_close(e->loop, e->fd);
    note(e->world, 1, e->number);
    e->fd = -1;
    e->was_closed = true;
}

static void fail(struct end *e, int error)
{
    e->error = error;
    note(e->world, 2, (unsigned)error);
    close_end(e);
}

/* It closes when it has sent all and heard the end, or when it likes. */
static void maybe_close(struct end *e)
{
    if (e->fd >= 0 && e->ended && e->shut)
        close_end(e);
}

static void send_some(struct end *e)
{
    struct world *w = e->world;
    char bytes[3000];
    size_t most = e->left < sizeof(bytes) ? e->left : sizeof(bytes), n;

    if (!e->left) {
        net_shut(e->loop, e->fd);
        e->shut = true;
        loop_watch_stop(&e->writing);
        maybe_close(e);
        return;
    }
    n = 1 + random_below(&w->random, (uint32_t)most);
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_of(e, e->sent + i);
    size_t half = random_below(&w->random, (uint32_t)n + 1);
    struct iovec parts[] = {{bytes, half}, {bytes + half, n - half}};
    ssize_t rc = half == n ? net_write(e->loop, e->fd, parts, 1)
                           : net_write(e->loop, e->fd, parts, 2);
    if (rc < 0) {
        if (rc != -EAGAIN)
            fail(e, (int)-rc);
        return;
    }
    CU_ASSERT(rc > 0 && (size_t)rc <= n);
    e->sent += (uint64_t)rc;
    e->left -= (uint64_t)rc;
    note(w, 3, (uint64_t)rc);
    CU_ASSERT_FATAL(e->n_log < WRITES_MAX);
    e->log[e->n_log++] = (struct written){virtual_time_us(w->time), e->sent};
}

/* When the last of the first n bytes can have come at the earliest. */
static int64_t earliest_us(const struct end *from, uint64_t n)
{
    const struct virtual_link *link = &from->world->options.link;
    int64_t us = 0;

    for (uint32_t i = 0; i < from->n_log; i++)
        if (from->log[i].bytes >= n) {
            us = from->log[i].at_us + link->latency_us;
            break;
        }
    int64_t sent_us = link->bytes_per_s
                          ? from->log[0].at_us + link->latency_us +
                                (int64_t)(n * 1000000 / link->bytes_per_s) -
                                (int64_t)from->n_log
                          : 0;
    return us > sent_us ? us : sent_us;
}

static void took(struct end *e, const char *bytes, size_t n)
{
    struct end *from = e->other;
    bool same = true;

    CU_ASSERT_PTR_NOT_NULL_FATAL(from);
    for (size_t i = 0; i < n; i++)
        same = same && bytes[i] == byte_of(from, e->got + i);
    e->got += n;
    CU_ASSERT(same);
    CU_ASSERT_FATAL(e->got <= from->sent);
    CU_ASSERT(virtual_time_us(e->world->time) >= earliest_us(from, e->got));
    note(e->world, 4, n);
}

static void on_read(void *arg, unsigned what)
{
    struct end *e = arg;
    struct world *w = e->world;
    char bytes[5000];

    CU_ASSERT_FATAL(e->fd >= 0);
    CU_ASSERT_EQUAL(what, LOOP_READ);
    if (w->faults && random_below(&w->random, 200) == 0) {
        close_end(e); /* it leaves in the middle */
        return;
    }
    int peeked = net_peek(e->loop, e->fd);
    ssize_t n = net_read(e->loop, e->fd, bytes,
                         1 + random_below(&w->random, sizeof(bytes)));
    CU_ASSERT_EQUAL(peeked, n > 0 ? 1 : n);
    CU_ASSERT(n != -EAGAIN); /* it was reported */
    if (n < 0) {
        fail(e, (int)-n);
        return;
    }
    if (n > 0) {
        took(e, bytes, (size_t)n);
        return;
    }
    e->ended = true;
    /* The end comes behind all bytes, and only if all were sent. */
    CU_ASSERT_EQUAL(e->got, e->other->sent);
    CU_ASSERT(e->other->shut || e->other->was_closed);
    note(w, 5, e->got);
    loop_watch_stop(&e->reading);
    maybe_close(e);
}

static void on_write(void *arg, unsigned what)
{
    struct end *e = arg;

    CU_ASSERT_FATAL(e->fd >= 0);
    CU_ASSERT_EQUAL(what, LOOP_WRITE);
    if (e->connecting) {
        int error = net_error(e->loop, e->fd);

        if (error) {
            fail(e, error);
            return;
        }
        e->connecting = false;
        CU_ASSERT_EQUAL(loop_watch_start(&e->reading, 0), 0);
    }
    send_some(e);
}

static struct end *end_new(struct world *w, struct loop *loop, int fd)
{
    struct end *e = &w->ends[w->n_ends];

    CU_ASSERT_FATAL(fd >= VIRTUAL_NET_FIRST_FD && w->n_ends < 2 * PAIRS);
    *e = (struct end){.world = w, .loop = loop, .fd = fd};
    e->number = w->n_ends++;
    e->left = random_below(&w->random, 20000);
    e->log = malloc(WRITES_MAX * sizeof(*e->log));
    CU_ASSERT_PTR_NOT_NULL_FATAL(e->log);
    net_set(loop, fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    net_set(loop, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, PATIENCE_MS);
    loop_watch_init(loop, &e->reading, fd, LOOP_READ, on_read, e);
    loop_watch_init(loop, &e->writing, fd, LOOP_WRITE, on_write, e);
    CU_ASSERT_EQUAL(loop_watch_start(&e->writing, 0), 0);
    return e;
}

/* The client's end of an accepted connection: by its port. */
static struct end *client_of(struct world *w, struct loop *loop, int fd)
{
    struct sockaddr_storage here, there;
    int n = net_address(loop, fd, true, &there);

    for (unsigned i = 0; n > 0 && i < w->n_ends; i++) {
        struct end *e = &w->ends[i];

        if (e->fd >= 0 && !e->other &&
            net_address(e->loop, e->fd, false, &here) == n &&
            memcmp(&here, &there, (size_t)n) == 0)
            return e;
    }
    return NULL;
}

static void on_resume(void *arg)
{
    struct listener *l = arg;

    CU_ASSERT_EQUAL(loop_watch_start(&l->watch, 0), 0);
}

static void on_accept(void *arg, unsigned)
{
    struct listener *l = arg;
    int fd = net_accept(l->loop, l->fd);
    struct end *client = fd < 0 ? NULL : client_of(l->world, l->loop, fd);

    note(l->world, 6, (uint64_t)(fd < 0 ? -fd : 0));
    if (fd == -EMFILE) {
        loop_watch_stop(&l->watch);
        CU_ASSERT_EQUAL(loop_timer_start(&l->resume, 100000), 0);
    }
    if (!client) { /* it has gone again */
        if (fd >= 0)
            net_close(l->loop, fd);
        return;
    }
    struct end *e = end_new(l->world, l->loop, fd);
    e->other = client;
    client->other = e;
    CU_ASSERT_EQUAL(loop_watch_start(&e->reading, 0), 0);
}

/* --- the world ------------------------------------------------------------ */

static void draw_options(struct world *w)
{
    struct random_state *r = &w->random;
    struct virtual_net_options *o = &w->options;

    *o = (struct virtual_net_options){
        .link = {.latency_us = 1 + random_below(r, 20000),
                 .jitter_us = random_below(r, 2) * random_below(r, 5000),
                 .bytes_per_s = random_below(r, 2) *
                                (1000 + (uint64_t)random_below(r, 1000000))},
        .buffer_bytes = 1u << (6 + random_below(r, 8)),
        .accept_max = 1 + random_below(r, 4),
        .sockets_max = 2 * PAIRS + 1,
        .torn_of_256 = random_below(r, 257)};
    /* Too few: ends wait for descriptors that others have, who give up. */
    if (w->faults && random_below(r, 4) == 0)
        o->sockets_max = 4;
}

static void world_open(struct world *w, uint64_t seed, bool faults)
{
    *w = (struct world){.faults = faults};
    random_init(&w->random, seed);
    random_init(&w->seed, seed + 1000000);
    draw_options(w);
    w->time = virtual_time_new(1000, drawn, &w->seed);
    w->net = virtual_net_new(w->time, &w->options, PROCESSES);
    CU_ASSERT_FATAL(w->time && w->net);
    for (unsigned i = 0; i < PROCESSES; i++) {
        struct listener *l = &w->listeners[i];

        w->loops[i] = virtual_loop_new(w->time);
        CU_ASSERT_EQUAL_FATAL(
            virtual_net_join(w->net, w->loops[i], FIRST_ADDRESS + i), 0);
        *l = (struct listener){.world = w,
                               .loop = w->loops[i],
                               .fd = listen_at(w->loops[i], 0, PORT)};
        CU_ASSERT_FATAL(l->fd >= 0);
        loop_watch_init(l->loop, &l->watch, l->fd, LOOP_READ, on_accept, l);
        loop_timer_init(l->loop, &l->resume, on_resume, l);
        on_resume(l);
    }
}

static void world_close(struct world *w)
{
    for (unsigned i = 0; i < w->n_ends; i++) {
        if (w->ends[i].fd >= 0)
            close_end(&w->ends[i]);
        free(w->ends[i].log);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        loop_watch_stop(&w->listeners[i].watch);
        loop_timer_stop(&w->listeners[i].resume);
        net_close(w->loops[i], w->listeners[i].fd);
        loop_free(w->loops[i]);
    }
    CU_ASSERT_EQUAL(virtual_net_check(w->net), 0);
    virtual_net_free(w->net);
    virtual_time_free(w->time);
}

static void fault(struct world *w)
{
    struct random_state *r = &w->random;
    uint32_t a = random_below(r, PROCESSES), b = random_below(r, PROCESSES);

    switch (random_below(r, 40)) {
    case 0:
    case 1:
        virtual_net_cut(w->net, FIRST_ADDRESS + a, FIRST_ADDRESS + b, true);
        break;
    case 2:
        virtual_net_reset(w->net, random_below(r, 100));
        break;
    case 3:
        virtual_loop_pause(w->loops[a],
                           virtual_time_us(w->time) + random_below(r, 3000000));
        break;
    default:
        virtual_net_cut(w->net, FIRST_ADDRESS + a, FIRST_ADDRESS + b, false);
    }
}

static void open_pairs(struct world *w)
{
    for (unsigned i = 0; i < PAIRS; i++) {
        struct loop *from = w->loops[random_below(&w->random, PROCESSES)];
        uint32_t to = random_below(&w->random, PROCESSES);
        int fd = dial(from, FIRST_ADDRESS + to, PORT);

        if (fd == -EMFILE)
            continue;
        end_new(w, from, fd)->connecting = true;
    }
}

/* Lets the world run until nothing happens any more, with faults in between,
 * which end. */
static void world_run(struct world *w)
{
    uint64_t most = 2 * PAIRS * (uint64_t)w->options.buffer_bytes;

    open_pairs(w);
    for (unsigned i = 0; i < 400000; i++) {
        if (!virtual_time_step(w->time, virtual_time_us(w->time) + 200000000))
            return;
        CU_ASSERT_FATAL(virtual_net_check(w->net) <= most);
        if (w->faults && i < 20000 && i % 8 == 0)
            fault(w);
        if (i == 20000)
            for (unsigned k = 0; k < PROCESSES * PROCESSES; k++)
                virtual_net_cut(w->net, FIRST_ADDRESS + k / PROCESSES,
                                FIRST_ADDRESS + k % PROCESSES, false);
    }
    CU_FAIL("the world does not come to rest");
}

/* Each end has heard all that the other sent, and its end; or broke. */
static void check_ends(const struct world *w)
{
    for (unsigned i = 0; i < w->n_ends; i++) {
        const struct end *e = &w->ends[i];

        if (w->faults)
            CU_ASSERT(e->fd < 0);
        if (!w->faults) {
            CU_ASSERT(!e->error && e->was_closed && e->other);
            CU_ASSERT(e->other && e->got == e->other->sent && !e->left);
        }
    }
}

static uint64_t play(uint64_t seed, bool faults, unsigned *broken)
{
    struct world *w = malloc(sizeof(*w));

    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    world_open(w, seed, faults);
    world_run(w);
    check_ends(w);
    for (unsigned i = 0; i < w->n_ends; i++)
        *broken += w->ends[i].error != 0;
    world_close(w);
    uint64_t hash = w->hash;
    free(w);
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

/* --- by hand -------------------------------------------------------------- */

#define SECOND INT64_C(1000000)
#define ACCEPT_MAX 2

struct rig {
    struct random_state seed;
    struct virtual_time *time;
    struct virtual_net *net;
    struct loop *loops[2];
    int listener, a, b; /* of the second process; the two ends */
};

static void rig_open(struct rig *r)
{
    static const struct virtual_net_options options = {
        .link = {.latency_us = 100},
        .buffer_bytes = 1000,
        .accept_max = ACCEPT_MAX,
        .sockets_max = 8};

    random_init(&r->seed, 1);
    r->time = virtual_time_new(0, drawn, &r->seed);
    r->net = virtual_net_new(r->time, &options, 2);
    CU_ASSERT_FATAL(r->time && r->net);
    for (uint32_t i = 0; i < 2; i++) {
        r->loops[i] = virtual_loop_new(r->time);
        CU_ASSERT_EQUAL_FATAL(
            virtual_net_join(r->net, r->loops[i], FIRST_ADDRESS + i), 0);
    }
    r->listener = listen_at(r->loops[1], 0, PORT);
    CU_ASSERT_FATAL(r->listener >= 0);
}

static void rig_close(struct rig *r)
{
    loop_free(r->loops[0]);
    loop_free(r->loops[1]);
    virtual_net_free(r->net);
    virtual_time_free(r->time);
}

static void pass(struct rig *r, int64_t us)
{
    int64_t until_us = virtual_time_us(r->time) + us;

    while (virtual_time_step(r->time, until_us))
        virtual_net_check(r->net);
}

static void connect_pair(struct rig *r)
{
    rig_open(r);
    r->a = dial(r->loops[0], FIRST_ADDRESS + 1, PORT);
    pass(r, SECOND);
    r->b = net_accept(r->loops[1], r->listener);
    CU_ASSERT_FATAL(r->a >= 0 && r->b >= 0);
}

static ssize_t put(struct loop *loop, int fd, const char *text)
{
    return net_write(loop, fd,
                     &(struct iovec){(void *)(uintptr_t)text, strlen(text)}, 1);
}

static ssize_t get(struct loop *loop, int fd)
{
    char bytes[100];

    return net_read(loop, fd, bytes, sizeof(bytes));
}

SUITE_TEST(test_refused, struct rig, r, rig_open(r), rig_close(r))
{
    int none = dial(r->loops[0], FIRST_ADDRESS + 1, PORT + 1);
    int nobody = dial(r->loops[0], FIRST_ADDRESS + 7, PORT);

    pass(r, 199);
    CU_ASSERT_EQUAL(net_error(r->loops[0], none), 0);
    pass(r, 1);
    CU_ASSERT_EQUAL(net_error(r->loops[0], none), ECONNREFUSED);
    pass(r, 127 * SECOND - 201);
    CU_ASSERT_EQUAL(net_error(r->loops[0], nobody), 0);
    pass(r, 1);
    CU_ASSERT_EQUAL(net_error(r->loops[0], nobody), ETIMEDOUT);
    virtual_net_kill(r->loops[1], false);
    none = dial(r->loops[0], FIRST_ADDRESS + 1, PORT);
    pass(r, 200);
    CU_ASSERT_EQUAL(net_error(r->loops[0], none), ECONNREFUSED);
    CU_ASSERT_EQUAL(dial(r->loops[1], FIRST_ADDRESS, PORT), -ENETDOWN);
    CU_ASSERT_EQUAL(listen_at(r->loops[0], FIRST_ADDRESS + 1, PORT),
                    -EADDRNOTAVAIL);
}

SUITE_TEST(test_queue, struct rig, r, rig_open(r), rig_close(r))
{
    struct sockaddr_storage peer;
    int fds[ACCEPT_MAX + 1], open = 0;

    for (int i = 0; i <= ACCEPT_MAX; i++)
        fds[i] = dial(r->loops[0], FIRST_ADDRESS + 1, PORT);
    pass(r, SECOND / 2);
    for (int i = 0; i <= ACCEPT_MAX; i++)
        open += net_address(r->loops[0], fds[i], true, &peer) > 0;
    CU_ASSERT_EQUAL(open, ACCEPT_MAX);
    CU_ASSERT(net_accept(r->loops[1], r->listener) >= 0);
    pass(r, SECOND); /* the last one has asked again */
    CU_ASSERT_EQUAL(net_address(r->loops[0], fds[ACCEPT_MAX], true, &peer),
                    sizeof(struct sockaddr_in));
    /* Connections that nobody accepted are reset with their listener. */
    net_close(r->loops[1], r->listener);
    pass(r, SECOND);
    CU_ASSERT_EQUAL(net_error(r->loops[0], fds[0]), 0);
    CU_ASSERT_EQUAL(net_error(r->loops[0], fds[1]), ECONNRESET);
    CU_ASSERT_EQUAL(net_error(r->loops[0], fds[2]), ECONNRESET);
}

SUITE_TEST(test_descriptors, struct rig, r, rig_open(r), rig_close(r))
{
    for (int i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(listen_at(r->loops[0], 0, 0), VIRTUAL_NET_FIRST_FD + i);
    CU_ASSERT_EQUAL(listen_at(r->loops[0], 0, 0), -EMFILE);
    net_close(r->loops[0], VIRTUAL_NET_FIRST_FD + 3);
    CU_ASSERT_EQUAL(listen_at(r->loops[0], 0, 0), VIRTUAL_NET_FIRST_FD + 3);
}

SUITE_TEST(test_full, struct rig, r, connect_pair(r), rig_close(r))
{
    char bytes[1500] = {0};
    struct iovec all = {bytes, sizeof(bytes)};

    CU_ASSERT_EQUAL(net_write(r->loops[0], r->a, &all, 1), 1000);
    CU_ASSERT_EQUAL(net_write(r->loops[0], r->a, &all, 1), -EAGAIN);
    pass(r, SECOND);
    CU_ASSERT_EQUAL(net_write(r->loops[0], r->a, &all, 1), -EAGAIN);
    CU_ASSERT_EQUAL(get(r->loops[1], r->b), 100);
    CU_ASSERT_EQUAL(net_write(r->loops[0], r->a, &all, 1), -EAGAIN);
    pass(r, 100);
    CU_ASSERT_EQUAL(net_write(r->loops[0], r->a, &all, 1), 100);
}

/* A process that ends: what it had not read resets, else there is an end. */
SUITE_TEST(test_killed, struct rig, r, connect_pair(r), rig_close(r))
{
    CU_ASSERT_EQUAL(put(r->loops[1], r->b, "last"), 4);
    pass(r, 100);
    virtual_net_kill(r->loops[1], false);
    CU_ASSERT_EQUAL(put(r->loops[1], r->b, "no more"), -ENETDOWN);
    pass(r, SECOND);
    CU_ASSERT_EQUAL(get(r->loops[0], r->a), 4);
    CU_ASSERT_EQUAL(get(r->loops[0], r->a), 0);
    CU_ASSERT_EQUAL(put(r->loops[0], r->a, "anybody?"), 8);
    pass(r, 199);
    CU_ASSERT_EQUAL(net_error(r->loops[0], r->a), 0);
    pass(r, 1);
    CU_ASSERT_EQUAL(put(r->loops[0], r->a, "anybody?"), -ECONNRESET);
}

SUITE_TEST(test_unread, struct rig, r, connect_pair(r), rig_close(r))
{
    CU_ASSERT_EQUAL(put(r->loops[0], r->a, "unread"), 6);
    pass(r, 100);
    net_close(r->loops[1], r->b);
    pass(r, 100);
    CU_ASSERT_EQUAL(get(r->loops[0], r->a), -ECONNRESET);
}

/* A machine that goes off: an idle end hears nothing for good; one with output
 * gives up. */
SUITE_TEST(test_off, struct rig, r, connect_pair(r), rig_close(r))
{
    virtual_net_kill(r->loops[1], true);
    pass(r, 3600 * SECOND);
    CU_ASSERT_EQUAL(get(r->loops[0], r->a), -EAGAIN);
    net_set(r->loops[0], r->a, IPPROTO_TCP, TCP_USER_TIMEOUT, PATIENCE_MS);
    CU_ASSERT_EQUAL(put(r->loops[0], r->a, "anybody?"), 8);
    pass(r, 10 * SECOND - 1);
    CU_ASSERT_EQUAL(get(r->loops[0], r->a), -EAGAIN);
    pass(r, 1);
    CU_ASSERT_EQUAL(get(r->loops[0], r->a), -ETIMEDOUT);
}

/* It is on again: it knows nothing of the connection. */
SUITE_TEST(test_on_again, struct rig, r, connect_pair(r), rig_close(r))
{
    virtual_net_kill(r->loops[1], true);
    loop_free(r->loops[1]);
    r->loops[1] = virtual_loop_new(r->time);
    CU_ASSERT_EQUAL_FATAL(
        virtual_net_join(r->net, r->loops[1], FIRST_ADDRESS + 1), 0);
    pass(r, 3600 * SECOND);
    CU_ASSERT_EQUAL(get(r->loops[0], r->a), -EAGAIN);
    CU_ASSERT_EQUAL(put(r->loops[0], r->a, "anybody?"), 8);
    pass(r, 200);
    CU_ASSERT_EQUAL(get(r->loops[0], r->a), -ECONNRESET);
}

SUITE_TEST(test_cut, struct rig, r, connect_pair(r), rig_close(r))
{
    virtual_net_cut(r->net, FIRST_ADDRESS, FIRST_ADDRESS + 1, true);
    CU_ASSERT_EQUAL(put(r->loops[0], r->a, "late"), 4);
    CU_ASSERT_EQUAL(put(r->loops[1], r->b, "other way"), 9);
    pass(r, 60 * SECOND);
    CU_ASSERT_EQUAL(get(r->loops[1], r->b), -EAGAIN);
    CU_ASSERT_EQUAL(get(r->loops[0], r->a), 9);
    virtual_net_cut(r->net, FIRST_ADDRESS, FIRST_ADDRESS + 1, false);
    pass(r, SECOND);
    CU_ASSERT_EQUAL(get(r->loops[1], r->b), 4);
    CU_ASSERT_EQUAL(put(r->loops[1], r->b, "fine"), 4);
}

/* One end gives up, and its reset is lost on the cut link: the other end learns
 * of it when it sends. */
SUITE_TEST(test_lost_end, struct rig, r, connect_pair(r), rig_close(r))
{
    net_set(r->loops[0], r->a, IPPROTO_TCP, TCP_USER_TIMEOUT, PATIENCE_MS);
    virtual_net_cut(r->net, FIRST_ADDRESS, FIRST_ADDRESS + 1, true);
    CU_ASSERT_EQUAL(put(r->loops[0], r->a, "goodbye"), 7);
    net_shut(r->loops[0], r->a);
    pass(r, 60 * SECOND);
    CU_ASSERT_EQUAL(net_error(r->loops[0], r->a), ETIMEDOUT);
    virtual_net_cut(r->net, FIRST_ADDRESS, FIRST_ADDRESS + 1, false);
    pass(r, 60 * SECOND);
    CU_ASSERT_EQUAL(get(r->loops[1], r->b), -EAGAIN);
    net_set(r->loops[1], r->b, SOL_SOCKET, SO_KEEPALIVE, 1);
    pass(r, SECOND);
    CU_ASSERT_EQUAL(get(r->loops[1], r->b), -ECONNRESET);
}

static const struct suite_test tests[] = {
    {"all arrives, once, in order, and not early", test_whole},
    {"or the connection breaks", test_faults},
    {"refused, and nobody there", test_refused},
    {"more connections than are accepted", test_queue},
    {"descriptors", test_descriptors},
    {"a full buffer", test_full},
    {"a process ends", test_killed},
    {"closed with unread input", test_unread},
    {"a machine goes off", test_off},
    {"and on again", test_on_again},
    {"a link cut one way", test_cut},
    {"an end that is lost", test_lost_end},
};

SUITE("virtual_net", tests)
