/* The transport tcp between two ends on one loop: what is granted, and only
 * that, is read, however its peer behaves. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "base/stream/stream.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "workers/transfer/engine/shm/internal.h"
#include "workers/transfer/engine/shm/slab.h"
#include "workers/transfer/engine/sum.h"
#include "workers/transfer/engine/tcp/internal.h"
#include "workers/transfer/engine/tcp/tcp.h"
#include "workers/transfer/engine/tcp/wire.h"

#define REGION_BYTES (8u << 20)
#define OPS_MAX 64u

/* A data connection that is opening. */
struct door {
    struct rig *rig;
    struct frame_conn *conn;
    struct handshake handshake;
};

/* Two transports, a peer of one of them, and what they have said. */
struct rig {
    struct loop *loop;
    struct stream_loop *stream_loop;
    struct listener *listener;
    struct door doors[64];
    uint32_t n_doors;
    struct transport *holder, *asker;
    struct transport_offer *offer;
    struct transport_path *path;
    uint8_t *theirs, *ours; /* memory of holder and asker */
    uint8_t descriptor[TRANSPORT_DESCRIPTOR_MAX];
    size_t n_descriptor;
    int rc[OPS_MAX]; /* of ops, 1: not done */
    uint32_t n_revoked;
    uint32_t n_asked, n_done;
    uint32_t done_as[OPS_MAX]; /* the how manyth of n_done */
    bool broken, withdrawn, stands, closed;
};

static const struct msg_hello hello = {.magic = PROTO_MAGIC,
                                       .version_min = PROTO_VERSION,
                                       .version_max = PROTO_VERSION,
                                       .kind = PROTO_PEER_WORKER_PEER,
                                       .role = PROTO_ROLE_BOTH,
                                       .name = "rig"};

static int on_frame(void *arg, const struct frame_header *h,
                    const uint8_t *payload)
{
    struct door *d = arg;
    struct handshake_refusal refusal;
    struct wire_buf buf;

    CU_ASSERT_EQUAL_FATAL(
        handshake_accept(&d->handshake, d->conn, h, payload, &refusal), 1);
    CU_ASSERT_EQUAL(d->handshake.hello.kind, PROTO_PEER_WORKER_DATA);
    wire_buf_init(&buf, 4096);
    msg_welcome_pack(&buf, 0,
                     &(struct msg_welcome){PROTO_VERSION, 0, 0, 0, ""});
    frame_conn_send(d->conn, &buf);
    wire_buf_fini(&buf);
    int fd = frame_conn_detach(d->conn);
    CU_ASSERT_FATAL(fd >= 0);
    tcp_transport_take(d->rig->holder, fd);
    frame_conn_free(d->conn);
    d->conn = NULL;
    return 0;
}

static void on_conn_closed(void *arg, const char *reason)
{
    struct door *d = arg;

    (void)reason;
    frame_conn_free(d->conn);
    d->conn = NULL;
}

static void on_accept(void *arg, int fd)
{
    static const struct frame_conn_ops ops = {.frame = on_frame,
                                              .closed = on_conn_closed};
    static const struct frame_conn_limits limits = {
        .payload_bytes = 1024,
        .output_watermark_bytes = 4096,
        .output_limit_bytes = 65536};
    struct rig *r = arg;
    struct door *d = &r->doors[r->n_doors++];

    d->rig = r;
    d->conn = frame_conn_new(r->stream_loop, fd, &limits, &ops, d);
}

static void on_stands(void *arg)
{
    struct rig *r = arg;

    CU_ASSERT(!r->stands && !r->closed);
    r->stands = true;
}

static void on_done(void *arg, uint64_t op_id, int rc)
{
    struct rig *r = arg;

    CU_ASSERT_EQUAL(r->rc[op_id], 1);
    r->rc[op_id] = rc;
    r->done_as[op_id] = ++r->n_done;
}

static void on_closed(void *arg, int rc, const char *why)
{
    struct rig *r = arg;

    (void)why;
    CU_ASSERT(rc < 0);
    CU_ASSERT_EQUAL(r->n_done, r->n_asked);
    r->closed = true;
}

static void on_revoked(void *arg, uint64_t id)
{
    struct rig *r = arg;

    (void)id;
    r->n_revoked++;
}

static void on_broken(void *arg, const char *why)
{
    struct rig *r = arg;

    (void)why;
    r->broken = true;
}

static void on_withdrawn(void *arg)
{
    struct rig *r = arg;

    r->withdrawn = true;
}

static const struct transport_path_ops path_ops = {on_stands, on_done,
                                                   on_closed};
static const struct transport_offer_ops offer_ops = {on_revoked, on_broken,
                                                     on_withdrawn};

/* Waits for what comes next, or a millisecond: other threads may be done. */
static void turn(struct loop *loop)
{
    (void)loop_turn(loop, 1000);
}

#define UNTIL(r, what)                              \
    do {                                            \
        int64_t end_us = clock_now_us() + 20000000; \
        while (!(what) && clock_now_us() < end_us)  \
            turn((r)->loop);                        \
        CU_ASSERT(what);                            \
    } while (0)

static void open_path(struct rig *r)
{
    const struct transport_peer peer = {"127.0.0.1", listener_port(r->listener),
                                        r->descriptor, r->n_descriptor};

    r->stands = false;
    r->path = r->asker->ops->open(r->asker, &peer, &path_ops, r);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->path);
    UNTIL(r, r->stands);
}

static void rig_init(struct rig *r)
{
    char err[400];

    *r = (struct rig){.loop = loop_new()};
    r->stream_loop = stream_loop_new(r->loop);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->stream_loop);
    CU_ASSERT_EQUAL_FATAL(listener_new(r->loop, "127.0.0.1", 0, on_accept, r,
                                       &r->listener, err, sizeof(err)),
                          0);
    const struct tcp_config config = {.loop = r->loop,
                                      .stream_loop = r->stream_loop,
                                      .hello = &hello,
                                      .streams = 2};
    r->holder = tcp_transport_new(&config);
    r->asker = tcp_transport_new(&config);
    CU_ASSERT_FATAL(r->holder && r->asker);
    r->theirs = malloc(REGION_BYTES);
    r->ours = malloc(REGION_BYTES);
    CU_ASSERT_FATAL(r->theirs && r->ours);
    for (uint32_t i = 0; i < REGION_BYTES; i++) {
        r->theirs[i] = (uint8_t)(i * 7 + (i >> 8));
        r->ours[i] = 0x5a;
    }
    for (uint32_t i = 0; i < OPS_MAX; i++)
        r->rc[i] = 1;
    CU_ASSERT_EQUAL(r->holder->ops->reg(r->holder, r->theirs, REGION_BYTES, -1),
                    0);
    CU_ASSERT_EQUAL(r->asker->ops->reg(r->asker, r->ours, REGION_BYTES, -1), 0);
    r->offer = r->holder->ops->offer(r->holder, &offer_ops, r, r->descriptor,
                                     &r->n_descriptor);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->offer);
}

static void rig_fini(struct rig *r)
{
    r->asker->ops->free(r->asker);
    r->holder->ops->free(r->holder);
    for (uint32_t i = 0; i < r->n_doors; i++)
        frame_conn_free(r->doors[i].conn);
    listener_free(r->listener);
    stream_loop_free(r->stream_loop);
    loop_free(r->loop);
    free(r->theirs);
    free(r->ours);
}

static void grant(struct rig *r, uint64_t id)
{
    const struct transport_range ranges[] = {{0, 4u << 20, 1u << 20},
                                             {0, 0, 2u << 20}};

    CU_ASSERT_EQUAL(r->offer->ops->grant(r->offer, id, ranges, 2), 0);
}

static int ask_into(struct rig *r, uint8_t *local, uint64_t op, uint64_t id,
                    uint64_t offset, uint64_t bytes)
{
    const struct transport_slice slice = {
        .local = local, .offset = offset, .bytes = bytes};

    int rc = r->path->ops->read(r->path, op, id, &slice, 1);
    r->n_asked += rc == 0;
    return rc;
}

static int ask(struct rig *r, uint64_t op, uint64_t id, uint64_t offset,
               uint64_t bytes)
{
    return ask_into(r, r->ours, op, id, offset, bytes);
}

#define RIG_TEST(test) SUITE_TEST(test, struct rig, r, rig_init(r), rig_fini(r))

RIG_TEST(test_reads)
{
    open_path(r);
    grant(r, 77);
    const struct transport_range range = {0, 0, 1};
    CU_ASSERT_EQUAL(r->offer->ops->grant(r->offer, 77, &range, 1), -EEXIST);
    CU_ASSERT_EQUAL(ask(r, 1, 77, 1000, (2u << 20) - 1000), 0);
    UNTIL(r, r->rc[1] <= 0);
    CU_ASSERT_EQUAL(r->rc[1], 0);
    CU_ASSERT(memcmp(r->ours, r->theirs + 1000, (2u << 20) - 1000) == 0);
    CU_ASSERT_EQUAL(r->ours[(2u << 20) - 1000], 0x5a);
    CU_ASSERT_EQUAL(r->path->ops->moved_bytes(r->path), (2u << 20) - 1000);
    r->offer->ops->revoke(r->offer, 77);
    UNTIL(r, r->n_revoked == 1);
    CU_ASSERT_EQUAL(ask(r, 3, 77, 0, 100), 0);
    UNTIL(r, r->rc[3] <= 0);
    CU_ASSERT_EQUAL(r->rc[3], -EACCES);
    CU_ASSERT_FALSE(r->broken || r->closed);
}

/* A short op does not wait for the end of long ones that were there before. */
static void test_turns(void)
{
    const size_t bytes = 2u << 20;
    struct transport_slice slices[32];
    uint8_t *memory = malloc(32 * bytes);
    struct rig r;

    CU_ASSERT_PTR_NOT_NULL_FATAL(memory);
    rig_init(&r);
    open_path(&r);
    grant(&r, 77);
    for (uint32_t i = 0; i < 32; i++)
        slices[i] = (struct transport_slice){.local = memory + i * bytes,
                                             .bytes = bytes};
    for (uint64_t op = 1; op <= 2; op++)
        CU_ASSERT_EQUAL(
            r.path->ops->read(r.path, op, 77, slices + 16 * (op - 1), 16), 0);
    r.n_asked = 2;
    CU_ASSERT_EQUAL(ask(&r, 3, 77, 0, 100), 0);
    UNTIL(&r, r.n_done == 3);
    CU_ASSERT_EQUAL(r.done_as[3], 1);
    for (uint64_t op = 1; op <= 3; op++)
        CU_ASSERT_EQUAL(r.rc[op], 0);
    rig_fini(&r);
    free(memory);
}

/* What nobody granted is refused, and the connection closed. */
static void test_odd_peers(void)
{
    static const struct {
        uint64_t grant_id, offset, bytes;
    } odd[] = {
        {78, 0, 100},               /* another grant */
        {77, (2u << 20) - 50, 100}, /* past its end */
        {77, (4u << 20) - 1, 100},  /* in front of it */
        {77, 5u << 20, 1},          /* behind the last */
        {77, UINT64_MAX - 50, 40},  /* far away */
    };

    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        struct rig r;

        rig_init(&r);
        uint8_t before = r.theirs[0];
        grant(&r, 77);
        open_path(&r);
        CU_ASSERT_EQUAL(
            ask(&r, 1, odd[i].grant_id, odd[i].offset, odd[i].bytes), 0);
        UNTIL(&r, r.rc[1] <= 0 && r.broken && r.closed);
        CU_ASSERT(r.rc[1] < 0);
        CU_ASSERT_EQUAL(r.ours[0], 0x5a);
        CU_ASSERT_EQUAL(r.theirs[0], before);
        rig_fini(&r);
    }
}

/* Its path ends: the op does, too, or does not even begin. */
static void ask_in_vain(struct rig *r, uint64_t op)
{
    int rc = ask(r, op, 77, 0, 100);

    CU_ASSERT(rc == 0 || rc == -ENOTCONN);
    UNTIL(r, r->closed && (rc < 0 || r->rc[op] <= 0));
    CU_ASSERT(rc < 0 || r->rc[op] < 0);
}

/* Without the token of an offer that stands, nothing is answered. */
RIG_TEST(test_strangers)
{
    grant(r, 77);
    r->descriptor[3] ^= 1;
    open_path(r);
    ask_in_vain(r, 1);
    CU_ASSERT_FALSE(r->broken);
    r->path->ops->close(r->path);
    r->descriptor[3] ^= 1;
    r->offer->ops->withdraw(r->offer);
    UNTIL(r, r->withdrawn && r->n_revoked == 1);
    r->closed = false;
    open_path(r);
    ask_in_vain(r, 2);
}

RIG_TEST(test_sums)
{
    uint64_t sums[8];

    open_path(r);
    grant(r, 77);
    for (uint32_t i = 0; i < 8; i++)
        sums[i] = sum_of(r->theirs + i * 250000ull, 250000);
    struct transport_slice slice = {
        .local = r->ours, .bytes = 2000000, .sums = sums, .sum_bytes = 250000};
    r->n_asked = 2;
    CU_ASSERT_EQUAL(r->path->ops->read(r->path, 1, 77, &slice, 1), 0);
    UNTIL(r, r->rc[1] <= 0);
    CU_ASSERT_EQUAL(r->rc[1], 0);
    sums[7] ^= 1;
    CU_ASSERT_EQUAL(r->path->ops->read(r->path, 2, 77, &slice, 1), 0);
    UNTIL(r, r->rc[2] <= 0);
    CU_ASSERT_EQUAL(r->rc[2], -EILSEQ);
    CU_ASSERT_FALSE(r->closed);
}

/* What was cancelled or revoked is poisoned at once; nothing changes in it. */
static void test_given_away(void)
{
    unsigned seed = (unsigned)getpid();
    struct rig r;

    printf("[seed %u] ", seed);
    srand(seed);
    rig_init(&r);
    open_path(&r);
    for (uint64_t i = 1; i <= cases_of(40); i++) {
        uint64_t op = i % OPS_MAX;

        grant(&r, i);
        r.rc[op] = 1;
        CU_ASSERT_EQUAL_FATAL(ask(&r, op, i, 0, 2u << 20), 0);
        for (int n = rand() % 400; n > 0; n--)
            (void)loop_turn(r.loop, 0);
        uint32_t before = r.n_revoked;
        if (rand() % 2)
            r.path->ops->cancel(r.path, op);
        r.offer->ops->revoke(r.offer, i);
        UNTIL(&r, r.n_revoked > before);
        memset(r.theirs, 0xa5, 2u << 20);
        UNTIL(&r, r.rc[op] <= 0);
        memset(r.ours, 0x5a, 2u << 20);
        for (int n = 0; n < 200; n++)
            (void)loop_turn(r.loop, 0);
        CU_ASSERT(r.theirs[0] == 0xa5 &&
                  memcmp(r.theirs, r.theirs + 1, (2u << 20) - 1) == 0);
        CU_ASSERT(r.ours[0] == 0x5a &&
                  memcmp(r.ours, r.ours + 1, (2u << 20) - 1) == 0);
    }
    CU_ASSERT_FALSE(r.closed || r.broken);
    rig_fini(&r);
}

/* One that asks and does not read keeps no memory for ever. */
RIG_TEST(test_who_does_not_read)
{
    const struct tcp_request request = {
        .kind = TCP_READ, .grant_id = 77, .bytes = 2u << 20};
    uint8_t head[TCP_REQUEST_BYTES];
    int fds[2];

    grant(r, 77);
    CU_ASSERT_EQUAL_FATAL(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    tcp_transport_take(r->holder, fds[0]);
    tcp_request_encode(&request, head);
    CU_ASSERT_EQUAL(send(fds[1], r->descriptor, TCP_TOKEN_BYTES, 0),
                    TCP_TOKEN_BYTES);
    CU_ASSERT_EQUAL(send(fds[1], head, sizeof(head), 0), sizeof(head));
    UNTIL(r, recv(fds[1], head, 1, 0) == 1);
    r->offer->ops->revoke(r->offer, 77);
    UNTIL(r, r->n_revoked == 1);
    close(fds[1]);
}

/* However a path ends, its ops are over before it is. */
static void test_paths_that_break(void)
{
    for (uint64_t i = cases_of(30); i > 0; i--) {
        struct rig r;

        rig_init(&r);
        grant(&r, 77);
        open_path(&r);
        for (uint64_t op = 1; op <= 4; op++)
            CU_ASSERT_EQUAL(ask_into(&r, r.ours + (op - 1) * (2u << 20), op, 77,
                                     0, 2u << 20),
                            0);
        UNTIL(&r, r.path->ops->moved_bytes(r.path) > i % 40 * 100000);
        r.offer->ops->withdraw(r.offer);
        UNTIL(&r, r.closed);
        r.path->ops->close(r.path);
        UNTIL(&r, r.withdrawn && r.n_done == r.n_asked);
        rig_fini(&r);
    }
}

static uint32_t unbound(struct transport *transport)
{
    struct tcp *t = (struct tcp *)(void *)transport;

    pthread_mutex_lock(&t->set.lock);
    uint32_t n = t->unbound.n + t->n_leaving;
    pthread_mutex_unlock(&t->set.lock);
    return n;
}

/* A data connection whose other side is `ends[0]`. */
static void connect_data(struct transport *t, int ends[2])
{
    CU_ASSERT_EQUAL_FATAL(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    tcp_transport_take(t, ends[1]);
}

static bool is_closed(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;

    return poll(&p, 1, 60000) == 1 && recv(fd, &byte, 1, 0) == 0;
}

/* Connections that do not say whose they are keep no peer out: the oldest one
 * goes, and those that said it stay. */
static void test_unbound(void)
{
    enum { N = HANDSHAKE_STRANGERS_MAX + 1 };
    static const struct transport_offer_ops ops = {0};
    struct loop *loop = loop_new();
    const struct tcp_config config = {
        .loop = loop, .hello = &hello, .streams = 2};
    struct transport *t = tcp_transport_new(&config);
    uint8_t token[TRANSPORT_DESCRIPTOR_MAX];
    int ends[N][2], peer[2];
    size_t n;
    char byte;

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_PTR_NOT_NULL(t->ops->offer(t, &ops, NULL, token, &n));
    connect_data(t, peer);
    CU_ASSERT_EQUAL(send(peer[0], token, n, 0), (ssize_t)n);
    while (unbound(t) > 0)
        usleep(1000);
    for (uint32_t i = 0; i + 1 < N; i++)
        connect_data(t, ends[i]);
    CU_ASSERT_EQUAL(recv(ends[0][0], &byte, 1, 0), -1);
    connect_data(t, ends[N - 1]);
    CU_ASSERT(is_closed(ends[0][0]));
    for (uint32_t i = 1; i < N; i++)
        CU_ASSERT_EQUAL(recv(ends[i][0], &byte, 1, 0), -1);
    CU_ASSERT_EQUAL(recv(peer[0], &byte, 1, 0), -1);
    CU_ASSERT_EQUAL(unbound(t), HANDSHAKE_STRANGERS_MAX);
    /* The newest one is served. */
    CU_ASSERT_EQUAL_FATAL(send(ends[N - 1][0], token, n, MSG_NOSIGNAL),
                          (ssize_t)n);
    while (unbound(t) == HANDSHAKE_STRANGERS_MAX)
        usleep(1000);
    CU_ASSERT_EQUAL(recv(ends[N - 1][0], &byte, 1, 0), -1);
    t->ops->free(t);
    for (uint32_t i = 0; i < N; i++)
        close(ends[i][0]);
    close(peer[0]);
    loop_free(loop);
}

/* A process without descriptors does not spin at its door. */
static void test_door_without_descriptors(void)
{
    struct loop *loop = loop_new();
    struct transport *t = shm_transport_new(loop);
    struct shm *s = (struct shm *)(void *)t;
    static const uint8_t token[SHM_TOKEN_BYTES];
    struct rlimit old;
    char byte;

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    int fd = shm_door_knock(s->name, token);
    CU_ASSERT_FATAL(fd >= 0);
    getrlimit(RLIMIT_NOFILE, &old);
    const struct rlimit none = {(rlim_t)fd + 1, old.rlim_max};
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    loop_turn(loop, 0);
    CU_ASSERT_FALSE(loop_watch_pending(&s->listening));
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &old), 0);
    /* The caller is let in later; nobody was told that token. */
    while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0)
        loop_turn(loop, -1);
    close(fd);
    t->ops->free(t);
    loop_free(loop);
}

/* Connects to the socket of shm's door, and says nothing. */
static int knock_silently(const uint8_t *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    char *at = a.sun_path + 1;

    at += sprintf(at, "conductor-kv-");
    for (uint32_t i = 0; i < SHM_NAME_BYTES; i++)
        at += sprintf(at, "%02x", name[i]);
    CU_ASSERT_EQUAL_FATAL(
        connect(fd, (struct sockaddr *)&a, (socklen_t)(at - (char *)&a)), 0);
    return fd;
}

/* Any process of the machine can find the door. Those that say nothing keep
 * nobody out. */
static void test_door_with_silent_callers(void)
{
    struct loop *loop = loop_new();
    struct transport *t = shm_transport_new(loop);
    struct shm *s = (struct shm *)(void *)t;
    uint8_t descriptor[TRANSPORT_DESCRIPTOR_MAX];
    struct shm_region regions[TRANSPORT_REGIONS_MAX];
    int silent[SHM_CALLERS_MAX];
    int slab_fd, rc;
    size_t n;

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    void *slab = shm_slab_new(4096, &slab_fd);
    CU_ASSERT_EQUAL(t->ops->reg(t, slab, 4096, slab_fd), 0);
    CU_ASSERT_PTR_NOT_NULL(t->ops->offer(t, &offer_ops, NULL, descriptor, &n));
    for (uint32_t i = 0; i < SHM_CALLERS_MAX; i++) {
        silent[i] = knock_silently(s->name);
        loop_turn(loop, 0);
    }
    CU_ASSERT_EQUAL(s->n_callers, SHM_CALLERS_MAX);
    int fd =
        shm_door_knock(s->name, descriptor + SHM_BOOT_BYTES + SHM_NAME_BYTES);
    CU_ASSERT_FATAL(fd >= 0);
    while ((rc = shm_door_take(fd, NULL, regions)) == -EAGAIN)
        loop_turn(loop, -1);
    CU_ASSERT_EQUAL_FATAL(rc, 1);
    munmap(regions[0].memory, regions[0].bytes);
    close(fd);
    for (uint32_t i = 0; i < SHM_CALLERS_MAX; i++)
        close(silent[i]);
    t->ops->free(t);
    shm_slab_free(slab, 4096, slab_fd);
    loop_free(loop);
}

/* A card that only has memory, and the pages of another that it opened. */
struct fake_card {
    struct shared_card card;
    uint8_t pages[65536];
    bool refuses;
    uint32_t n_open, n_read, n_kept;
};

static struct fake_card cards[2]; /* of holder and asker */

static void *card_open(const struct shared_card *c, const uint8_t *handle,
                       uint64_t bytes)
{
    struct fake_card *f = c->arg;

    if (f->refuses || handle[0] != 42 || bytes != sizeof(f->pages))
        return NULL;
    f->n_open++;
    return cards[0].pages;
}

static void card_shut(const struct shared_card *c, void *memory)
{
    struct fake_card *f = c->arg;

    CU_ASSERT_PTR_EQUAL(memory, cards[0].pages);
    f->n_open--;
}

/* On a thread of the transport. */
static int card_read(const struct shared_card *c, const void *from, void *to,
                     uint64_t bytes, uint32_t *page)
{
    struct fake_card *f = c->arg;

    memcpy(to, from, bytes);
    *page = 7;
    f->n_read++;
    return 0;
}

static void card_read_over(const struct shared_card *c, const void *to,
                           uint64_t bytes, uint32_t page, bool ok)
{
    struct fake_card *f = c->arg;

    (void)to;
    (void)bytes;
    f->n_kept += ok && page == 7;
}

static void card_rig_init(struct rig *r, bool refuses, int *slab_fd)
{
    static const struct shared_card_ops ops = {.open = card_open,
                                               .shut = card_shut,
                                               .read = card_read,
                                               .read_over = card_read_over};

    *r = (struct rig){.loop = loop_new()};
    r->stream_loop = stream_loop_new(r->loop);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->stream_loop);
    r->holder = shm_transport_new(r->loop);
    r->asker = shm_transport_new(r->loop);
    r->theirs = shm_slab_new(8192, slab_fd);
    r->ours = malloc(65536);
    CU_ASSERT_FATAL(r->holder && r->asker && r->theirs && r->ours);
    for (uint32_t i = 0; i < OPS_MAX; i++)
        r->rc[i] = 1;
    for (int i = 0; i < 2; i++) {
        cards[i] = (struct fake_card){.refuses = refuses};
        cards[i].card = (struct shared_card){.ops = &ops,
                                             .arg = &cards[i],
                                             .bytes = sizeof(cards[i].pages),
                                             .handle = {42},
                                             .has_handle = true};
    }
    for (uint32_t i = 0; i < sizeof(cards[0].pages); i++)
        cards[0].pages[i] = (uint8_t)(i * 5 + (i >> 8));
    CU_ASSERT_EQUAL(r->holder->ops->reg(r->holder, r->theirs, 8192, *slab_fd),
                    0);
    CU_ASSERT_EQUAL(r->holder->ops->reg_card(r->holder, &cards[0].card), 1);
    CU_ASSERT_EQUAL(r->asker->ops->reg_card(r->asker, &cards[1].card), 0);
    r->offer = r->holder->ops->offer(r->holder, &offer_ops, r, r->descriptor,
                                     &r->n_descriptor);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->offer);
    const struct transport_peer peer = {"127.0.0.1", 1, r->descriptor,
                                        r->n_descriptor};
    r->path = r->asker->ops->open(r->asker, &peer, &path_ops, r);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->path);
    UNTIL(r, r->stands);
}

static int ask_card(struct rig *r, uint64_t op, uint64_t offset,
                    const uint64_t *sums)
{
    const struct transport_slice slice = {.local = r->ours,
                                          .region = 1,
                                          .offset = offset,
                                          .bytes = 8192,
                                          .sums = sums,
                                          .sum_bytes = 4096};

    int rc = r->path->ops->read(r->path, op, 1, &slice, 1);
    r->n_asked += rc == 0;
    return rc;
}

static void card_rig_fini(struct rig *r, int slab_fd)
{
    r->asker->ops->free(r->asker);
    r->holder->ops->free(r->holder);
    CU_ASSERT_EQUAL(cards[1].n_open, 0);
    stream_loop_free(r->stream_loop);
    loop_free(r->loop);
    shm_slab_free(r->theirs, 8192, slab_fd);
    free(r->ours);
}

/* Pages of a card are read by the card, and kept there only if their sums are
 * right. */
static void test_card(void)
{
    uint64_t sums[2] = {0};
    struct rig r;
    int slab_fd;

    card_rig_init(&r, false, &slab_fd);
    CU_ASSERT(r.path->ops->reads_card(r.path));
    CU_ASSERT_EQUAL(ask_card(&r, 1, 4096, sums), 0);
    UNTIL(&r, r.rc[1] <= 0);
    CU_ASSERT_EQUAL(r.rc[1], -EILSEQ);
    CU_ASSERT_EQUAL(cards[1].n_read, 1);
    CU_ASSERT_EQUAL(cards[1].n_kept, 0);
    for (int i = 0; i < 2; i++)
        sums[i] = sum_of(cards[0].pages + 4096 * (i + 1), 4096);
    CU_ASSERT_EQUAL(ask_card(&r, 2, 4096, sums), 0);
    UNTIL(&r, r.rc[2] <= 0);
    CU_ASSERT_EQUAL(r.rc[2], 0);
    CU_ASSERT_EQUAL(cards[1].n_kept, 1);
    CU_ASSERT_EQUAL(memcmp(r.ours, cards[0].pages + 4096, 8192), 0);
    CU_ASSERT_EQUAL(ask_card(&r, 3, sizeof(cards[0].pages) - 4096, sums),
                    -ENOTCONN);
    UNTIL(&r, r.closed);
    CU_ASSERT_EQUAL(cards[1].n_read, 2);
    card_rig_fini(&r, slab_fd);
}

/* A card that cannot reach the other one leaves the slab. */
static void test_card_out_of_reach(void)
{
    struct rig r;
    int slab_fd;

    card_rig_init(&r, true, &slab_fd);
    CU_ASSERT_FALSE(r.path->ops->reads_card(r.path));
    memset(r.theirs, 0x77, 8192);
    CU_ASSERT_EQUAL(ask(&r, 1, 1, 0, 8192), 0);
    UNTIL(&r, r.rc[1] <= 0);
    CU_ASSERT_EQUAL(r.rc[1], 0);
    CU_ASSERT(r.ours[0] == 0x77 && memcmp(r.ours, r.ours + 1, 8191) == 0);
    CU_ASSERT_EQUAL(ask_card(&r, 2, 0, NULL), -ENOTCONN);
    card_rig_fini(&r, slab_fd);
}

/* Have the kernel answer MADV_POPULATE_WRITE so from now on. False: it takes
 * no such orders. */
static bool answer_populate(uint32_t error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_POPULATE_WRITE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

enum slab_outcome { SLAB_NONE, SLAB_TOUCHED, SLAB_ODD, SLAB_UNTESTED };

static enum slab_outcome slab_outcome(uint32_t error)
{
    const size_t bytes = 64 * 4096;
    unsigned char there[64];
    int fd;

    if (!answer_populate(error))
        return SLAB_UNTESTED;
    int before = dup(0);
    close(before);
    void *memory = shm_slab_new(bytes, &fd);
    if (!memory) {
        int after = dup(0);

        return fd == -1 && after == before ? SLAB_NONE : SLAB_ODD;
    }
    if (mincore(memory, bytes, there))
        return SLAB_ODD;
    for (size_t i = 0; i < sizeof(there); i++)
        if (!(there[i] & 1))
            return SLAB_ODD;
    shm_slab_free(memory, bytes, fd);
    return SLAB_TOUCHED;
}

/* What a kernel says that has no pages left, or does not know the question. */
static void test_slab_without_pages(void)
{
    static const struct {
        uint32_t error;
        enum slab_outcome want;
    } cases[] = {
        {ENOMEM, SLAB_NONE}, {EFAULT, SLAB_NONE}, {EINVAL, SLAB_TOUCHED}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pid_t pid = fork(); /* the answer stays for good */
        int status;

        CU_ASSERT_FATAL(pid >= 0);
        if (pid == 0)
            _exit((int)slab_outcome(cases[i].error));
        CU_ASSERT_EQUAL_FATAL(waitpid(pid, &status, 0), pid);
        CU_ASSERT_FATAL(WIFEXITED(status));
        if (WEXITSTATUS(status) == SLAB_UNTESTED)
            printf("[skipped: no seccomp here] ");
        else
            CU_ASSERT_EQUAL(WEXITSTATUS(status), cases[i].want);
    }
}

static const struct suite_test tests[] = {
    {"reads", test_reads},
    {"a short op among long ones", test_turns},
    {"odd peers", test_odd_peers},
    {"strangers", test_strangers},
    {"checksums", test_sums},
    {"memory that was given away", test_given_away},
    {"who does not read", test_who_does_not_read},
    {"paths that break", test_paths_that_break},
    {"who does not say whose it is", test_unbound},
    {"a door without descriptors", test_door_without_descriptors},
    {"a door with silent callers", test_door_with_silent_callers},
    {"pages of a card", test_card},
    {"a card that cannot reach another", test_card_out_of_reach},
    {"a slab without pages", test_slab_without_pages},
};

int main(void)
{
    log_init("test_transport", LOG_ERROR);
    return SUITE_RUN("transport", tests);
}
