/* Connecting by name never stops the loop, and asks only the name servers. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/dns.h"
#include "base/frame_conn.h"
#include "base/listener.h"
#include "base/loop/loop.h"
#include "base/socket.h"
#include "base/stream/stream.h"
#include "tests/unit/suite.h"

static int asked;     /* calls of what blocks */
static int ticks;     /* turns that the loop made meanwhile */
static char why[512]; /* `closed` was called with */

/* Stands in for the C library's, which would block here. */
int getaddrinfo(const char *node, const char *service,
                const struct addrinfo *hints, struct addrinfo **res)
{
    (void)node;
    (void)service;
    (void)hints;
    (void)res;
    asked++;
    usleep(300000);
    return EAI_AGAIN;
}

static int on_frame(void *, const struct frame_header *, const uint8_t *)
{
    return 0;
}

static void on_closed(void *arg, const char *reason)
{
    snprintf(why, sizeof(why), "%s", reason);
    loop_stop(arg);
}

static void on_tick(void *arg)
{
    if (++ticks == 20)
        loop_stop(arg);
}

/* A socket on this machine: with SOCK_DGRAM a name server that takes questions
 * and never answers. Its port. */
static uint16_t local_socket(int type, int *fd)
{
    struct sockaddr_in sin = {.sin_family = AF_INET};
    socklen_t n = sizeof(sin);

    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *fd = socket(AF_INET, type, 0);
    CU_ASSERT_EQUAL_FATAL(bind(*fd, (struct sockaddr *)&sin, n), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(*fd, (struct sockaddr *)&sin, &n), 0);
    return ntohs(sin.sin_port);
}

static void connect_to(const char *host, const char *server)
{
    static const struct frame_conn_limits limits = {
        .payload_bytes = 1024,
        .output_watermark_bytes = 4096,
        .output_limit_bytes = 4096,
    };
    static const struct frame_conn_ops ops = {.frame = on_frame,
                                              .closed = on_closed};
    struct loop *loop = loop_new();
    struct stream_loop *streams = stream_loop_new(loop);
    struct dns *dns = dns_new(loop, server);
    struct loop_timer tick;

    asked = ticks = 0;
    why[0] = '\0';
    loop_timer_init(loop, &tick, on_tick, loop);
    loop_timer_repeat(&tick, 10000);
    struct frame_conn *c =
        frame_conn_connect(streams, dns, host, 1, &limits, &ops, loop);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    loop_run(loop);
    frame_conn_free(c);
    stream_loop_free(streams);
    loop_timer_stop(&tick);
    dns_free(dns);
    /* A look-up that was given up is let go of in the next turn. */
    loop_turn(loop, 0);
    loop_free(loop);
}

static void test_names(void)
{
    char server[64];
    int fd;

    snprintf(server, sizeof(server), "127.0.0.1:%u",
             local_socket(SOCK_DGRAM, &fd));
    connect_to("a.name.that.nobody.answers", server);
    CU_ASSERT_EQUAL(asked, 0);
    CU_ASSERT_EQUAL(ticks, 20);
    CU_ASSERT_STRING_EQUAL(why, "");
    connect_to("127.0.0.1", server);
    CU_ASSERT_EQUAL(asked, 0);
    CU_ASSERT_STRING_EQUAL(why, "Connection refused");
    close(fd);
}

/* A socket that listens on both kinds of addresses and one of IPv4 that is
 * connected to it; false where there is no IPv6. */
static bool connect_v4_to_v6(int *listener, int *client)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    struct sockaddr_in to = {.sin_family = AF_INET};
    socklen_t n = sizeof(any);
    int off = 0;

    *client = socket(AF_INET, SOCK_STREAM, 0);
    *listener = socket(AF_INET6, SOCK_STREAM, 0);
    if (*listener < 0 ||
        setsockopt(*listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) ||
        bind(*listener, (struct sockaddr *)&any, n) || listen(*listener, 1) ||
        getsockname(*listener, (struct sockaddr *)&any, &n))
        return false;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = any.sin6_port;
    return connect(*client, (struct sockaddr *)&to, sizeof(to)) == 0;
}

/* Workers are told this address, and it is compared with others. */
static void test_peer_of_both_kinds(void)
{
    char host[64] = "", port[8];
    int listener, client;

    if (connect_v4_to_v6(&listener, &client)) {
        struct loop *own = loop_new();
        int fd = accept(listener, NULL, NULL);

        CU_ASSERT_EQUAL(
            socket_peer(own, fd, host, sizeof(host), port, sizeof(port)), 0);
        CU_ASSERT_STRING_EQUAL(host, "127.0.0.1");
        CU_ASSERT(atoi(port) > 0);
        close(fd);
        loop_free(own);
    } else {
        puts("no IPv6 here: the address within one is not tested");
    }
    close(listener);
    close(client);
}

/* --- a connection that rests -----------------------------------------------
 */

enum { AGAIN = 3 };

static struct loop *loop;
static char came[64]; /* a letter for each frame, '.' for a turn of the loop */

static void note(char what)
{
    size_t n = strlen(came);

    if (n + 1 < sizeof(came))
        came[n] = what;
}

static int on_letter(void *arg, const struct frame_header *h,
                     const uint8_t *payload)
{
    (void)h;
    note((char)payload[0]);
    if (payload[0] == 'a' && ++*(int *)arg <= AGAIN)
        return FRAME_AGAIN;
    return 0;
}

static void on_end(void *, const char *reason)
{
    snprintf(why, sizeof(why), "%s", reason);
    loop_stop(loop);
}

/* Frames a, b, c and d come at once; a is taken in four parts. */
static void test_rest(void)
{
    static const struct frame_conn_limits limits = {.payload_bytes = 1024};
    static const struct frame_conn_ops ops = {.frame = on_letter,
                                              .closed = on_end};
    struct stream_loop *streams;
    struct frame_conn *c;
    struct wire_buf buf;
    int fd[2], times = 0;

    loop = loop_new();
    streams = stream_loop_new(loop);
    memset(came, 0, sizeof(came));
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    c = frame_conn_new(streams, fd[0], &limits, &ops, &times);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    wire_buf_init(&buf, 1024);
    for (char letter = 'a'; letter <= 'd'; letter++) {
        size_t at = frame_begin(&buf, FRAME_TOKENS, 0);

        memset(wire_buf_extend(&buf, 1), letter, 1);
        frame_end(&buf, at);
    }
    CU_ASSERT_EQUAL(write(fd[1], buf.data, buf.len), (ssize_t)buf.len);
    while (!strchr(came, 'd')) {
        loop_turn(loop, 0);
        loop_turn(loop, 0);
        note('.');
        frame_conn_resume(c);
    }
    CU_ASSERT_STRING_EQUAL(came, "a.a.a.abcd");
    frame_conn_resume(c);
    /* What comes later is read as ever, as is the end. */
    memset(came, 0, sizeof(came));
    CU_ASSERT_EQUAL(write(fd[1], buf.data, buf.len), (ssize_t)buf.len);
    close(fd[1]);
    loop_run(loop);
    CU_ASSERT_STRING_EQUAL(came, "abcd");
    CU_ASSERT_STRING_EQUAL(why, FRAME_CONN_ENDED);
    frame_conn_free(c);
    stream_loop_free(streams);
    wire_buf_fini(&buf);
    loop_free(loop);
}

/* --- long frames, and the ends of a connection ------------------------------
 */

enum { LONG_BYTES = 3 << 20, LONG_FRAMES = 3 };

/* One end, and what came there. */
struct end {
    struct frame_conn *conn;
    unsigned frames, bad, closed;
    uint16_t error; /* of a FRAME_ERROR */
};

/* An asker connects to a listener, which makes the other end. */
struct line {
    struct loop *loop;
    struct stream_loop *streams;
    struct dns *dns;
    struct listener *listener;
    struct end asker, other;
};

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 7 + (i >> 9));
}

static int on_long(void *arg, const struct frame_header *h,
                   const uint8_t *payload)
{
    struct end *e = arg;
    struct msg_error m;

    e->frames++;
    if (h->type == FRAME_ERROR) {
        e->bad += msg_error_unpack(payload, h->length, &m) != 0;
        e->error = m.code;
        return 0;
    }
    e->bad += h->length != LONG_BYTES;
    for (size_t i = 0; i < h->length; i++)
        e->bad += payload[i] != byte_at(i);
    return 0;
}

static void on_long_end(void *arg, const char *reason)
{
    struct end *e = arg;

    e->closed++;
    snprintf(why, sizeof(why), "%s", reason);
    frame_conn_free(e->conn);
    e->conn = NULL;
}

static const struct frame_conn_ops long_ops = {.frame = on_long,
                                               .closed = on_long_end};
static const struct frame_conn_limits long_limits = {
    .payload_bytes = LONG_BYTES,
    .output_watermark_bytes = LONG_BYTES,
    .output_limit_bytes = LONG_FRAMES * (LONG_BYTES + FRAME_HEADER_BYTES)};

static void on_asker(void *arg, int fd)
{
    struct line *l = arg;

    l->other.conn =
        frame_conn_new(l->streams, fd, &long_limits, &long_ops, &l->other);
}

static void line_init(struct line *l)
{
    int fd;
    uint16_t port = local_socket(SOCK_STREAM | SOCK_NONBLOCK, &fd);

    *l = (struct line){.loop = loop_new()};
    l->streams = stream_loop_new(l->loop);
    l->dns = dns_new(l->loop, "");
    CU_ASSERT_EQUAL_FATAL(listen(fd, 1), 0);
    CU_ASSERT_EQUAL_FATAL(listener_take(l->loop, fd, on_asker, l, &l->listener),
                          0);
    l->asker.conn = frame_conn_connect(l->streams, l->dns, "localhost", port,
                                       &long_limits, &long_ops, &l->asker);
    CU_ASSERT_PTR_NOT_NULL_FATAL(l->asker.conn);
}

static void line_fini(struct line *l)
{
    frame_conn_free(l->asker.conn);
    frame_conn_free(l->other.conn);
    listener_free(l->listener);
    stream_loop_free(l->streams);
    dns_free(l->dns);
    loop_free(l->loop);
}

static void send_long(struct frame_conn *c)
{
    struct wire_buf buf;

    wire_buf_init(&buf, LONG_BYTES + 1024);
    size_t at = frame_begin(&buf, FRAME_TOKENS, 0);
    uint8_t *to = wire_buf_extend(&buf, LONG_BYTES);
    CU_ASSERT_PTR_NOT_NULL_FATAL(to);
    for (size_t i = 0; i < LONG_BYTES; i++)
        to[i] = byte_at(i);
    frame_end(&buf, at);
    frame_conn_send(c, &buf);
    wire_buf_fini(&buf);
}

/* Frames sent while it connects arrive whole; a refusal is told first. */
static void test_long(void)
{
    struct line l;

    line_init(&l);
    for (unsigned i = 0; i < LONG_FRAMES; i++)
        send_long(l.asker.conn);
    CU_ASSERT_TRUE(frame_conn_full(l.asker.conn));
    CU_ASSERT_FALSE(frame_conn_sent(l.asker.conn));
    while (l.other.frames < LONG_FRAMES)
        CU_ASSERT_EQUAL_FATAL(loop_turn(l.loop, -1), 0);
    CU_ASSERT_TRUE(frame_conn_sent(l.asker.conn));
    frame_conn_refuse(l.other.conn, PROTO_E_BUSY, "no room");
    while (!l.asker.closed || !l.other.closed)
        CU_ASSERT_EQUAL_FATAL(loop_turn(l.loop, -1), 0);
    CU_ASSERT_EQUAL(l.asker.error, PROTO_E_BUSY);
    CU_ASSERT_EQUAL(l.asker.closed + l.other.closed, 2);
    CU_ASSERT_EQUAL(l.asker.bad + l.other.bad, 0);
    line_fini(&l);
}

/* Output over its limit ends the connection, before it stands and later. */
static void test_limit(void)
{
    for (int stands = 0; stands < 2; stands++) {
        struct line l;

        line_init(&l);
        while (stands && !l.other.conn)
            CU_ASSERT_EQUAL_FATAL(loop_turn(l.loop, -1), 0);
        for (unsigned i = 0; i < LONG_FRAMES; i++)
            send_long(l.asker.conn);
        CU_ASSERT_EQUAL(l.asker.closed, 0);
        send_long(l.asker.conn);
        frame_conn_fail(l.asker.conn, "again");
        CU_ASSERT_EQUAL(l.asker.closed, 0);
        while (!l.asker.closed)
            CU_ASSERT_EQUAL_FATAL(loop_turn(l.loop, -1), 0);
        CU_ASSERT_PTR_NOT_NULL(strstr(why, "output limit reached"));
        for (int i = 0; i < 3; i++)
            loop_turn(l.loop, 0);
        CU_ASSERT_EQUAL(l.asker.closed, 1);
        line_fini(&l);
    }
}

static const struct suite_test tests[] = {
    {"names are looked up on the loop", test_names},
    {"IPv4 at a port of both kinds", test_peer_of_both_kinds},
    {"a connection that rests", test_rest},
    {"long frames, sent early", test_long},
    {"a limit of the output", test_limit},
};
SUITE("frame_conn", tests)
