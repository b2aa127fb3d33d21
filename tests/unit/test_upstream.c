/* Connections to engines when memory runs out: allocations of libevent fail in
 * turn, and every exchange ends exactly once all the same. */
#include <CUnit/Basic.h>
#include <arpa/inet.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/event_loop.h"
#include "conductor/link/engine/tls.h"
#include "conductor/link/engine/upstream/upstream.h"

#define TURNS_MAX 20000 /* of 1 ms */
#define POINTS_MAX 200  /* more allocations than an exchange has */

/* How many allocations succeed before one fails; negative: none fails. */
static int before_failure = -1;

static void *allocate(size_t n)
{
    return before_failure >= 0 && before_failure-- == 0 ? NULL : malloc(n);
}

static void *allocate_again(void *old, size_t n)
{
    return before_failure >= 0 && before_failure-- == 0 ? NULL
                                                        : realloc(old, n);
}

/* A server on plain sockets, which allocates nothing. */
struct server {
    int listener, fd;
    bool answers; /* else it closes a connection that has sent something */
};

static void server_open(struct server *s, uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);

    *s = (struct server){.fd = -1, .answers = true};
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CU_ASSERT_EQUAL_FATAL(bind(s->listener, (struct sockaddr *)&at, n), 0);
    CU_ASSERT_EQUAL_FATAL(listen(s->listener, 8), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(s->listener, (struct sockaddr *)&at, &n),
                          0);
    *port = ntohs(at.sin_port);
}

static void server_turn(struct server *s)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    char bytes[4096];
    int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK);

    if (fd >= 0) {
        if (s->fd >= 0)
            close(s->fd);
        s->fd = fd;
    }
    if (s->fd < 0 || read(s->fd, bytes, sizeof(bytes)) <= 0)
        return;
    if (s->answers) {
        CU_ASSERT_EQUAL(write(s->fd, answer, sizeof(answer) - 1),
                        (ssize_t)sizeof(answer) - 1);
        return;
    }
    close(s->fd);
    s->fd = -1;
    s->answers = true;
}

/* What became of an exchange. */
struct fate {
    unsigned ended, failed;
    int status;
    char why[80];
};

static void on_answer(void *arg, const struct http_head *head)
{
    ((struct fate *)arg)->status = head->status;
}

static void on_bytes(void *, const char *, size_t)
{
}

static void on_ended(void *arg)
{
    ((struct fate *)arg)->ended++;
}

static void on_failed(void *arg, enum upstream_fault, const char *why)
{
    struct fate *fate = arg;

    fate->failed++;
    snprintf(fate->why, sizeof(fate->why), "%s", why);
}

static const struct upstream_ops ops = {on_answer, on_bytes, on_ended,
                                        on_failed};

/* Sends a request and waits for its end. False: it could not be sent. */
static bool exchange(struct event_base *base, struct upstream *u,
                     struct server *s, struct fate *fate)
{
    const struct upstream_request request = {
        .method = "GET", .path = "/", .headers = ""};

    *fate = (struct fate){0};
    if (!upstream_send(u, &request, &ops, fate)) {
        CU_ASSERT_EQUAL(upstream_busy(u), 0);
        return false;
    }
    for (int i = 0; i < TURNS_MAX && !fate->ended && !fate->failed; i++) {
        event_base_loop(base, EVLOOP_NONBLOCK);
        server_turn(s);
        usleep(i < 50 ? 0 : 1000);
    }
    event_base_loop(base, EVLOOP_NONBLOCK);
    CU_ASSERT_EQUAL(fate->ended + fate->failed, 1);
    CU_ASSERT_EQUAL(upstream_busy(u), 0);
    return true;
}

/* A kept connection that the server closes when it is used: the request is sent
 * once more, or fails where there is no memory for another connection. That is
 * the last point that is tried: behind it libevent itself does not look. */
static void test_again_without_memory(void)
{
    const struct upstream_options options = {4, 65536, 2000000, 20000000};
    struct event_base *base = event_loop_new(1);
    struct engine_url url;
    struct server s;
    struct fate fate = {0};
    char text[64];
    uint16_t port;

    server_open(&s, &port);
    snprintf(text, sizeof(text), "http://127.0.0.1:%u", port);
    CU_ASSERT_PTR_NULL_FATAL(engine_url_parse(text, &url));
    for (int point = -1; point < POINTS_MAX && !fate.failed; point++) {
        struct upstream *u = upstream_new(base, NULL, &url, NULL, &options);

        CU_ASSERT_FATAL(u && exchange(base, u, &s, &fate) && fate.ended);
        CU_ASSERT_EQUAL(upstream_idle(u), 1);
        s.answers = false;
        before_failure = point;
        bool sent = exchange(base, u, &s, &fate);
        before_failure = -1;
        CU_ASSERT(point >= 0 || (sent && fate.ended));
        s.answers = true;
        upstream_free(u);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    CU_ASSERT_STRING_EQUAL(fate.why, "out of memory");
    close(s.listener);
    close(s.fd);
    event_base_free(base);
}

/* What an engine says on a kept connection before it is asked again is nobody's
 * answer. */
static void test_answer_that_nobody_asked_for(void)
{
    static const char more[] = "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n";
    const struct upstream_options options = {4, 65536, 2000000, 20000000};
    struct event_base *base = event_loop_new(1);
    struct engine_url url;
    struct server s;
    struct fate fate;
    char text[64];
    uint16_t port;

    server_open(&s, &port);
    snprintf(text, sizeof(text), "http://127.0.0.1:%u", port);
    CU_ASSERT_PTR_NULL_FATAL(engine_url_parse(text, &url));
    struct upstream *u = upstream_new(base, NULL, &url, NULL, &options);
    CU_ASSERT_FATAL(u && exchange(base, u, &s, &fate));
    CU_ASSERT_EQUAL(fate.status, 200);
    CU_ASSERT_EQUAL(upstream_idle(u), 1);
    CU_ASSERT_EQUAL(write(s.fd, more, sizeof(more) - 1),
                    (ssize_t)sizeof(more) - 1);
    CU_ASSERT_TRUE(exchange(base, u, &s, &fate));
    CU_ASSERT_EQUAL(fate.status, 200);
    CU_ASSERT_EQUAL(upstream_idle(u), 1);
    upstream_free(u);
    close(s.listener);
    close(s.fd);
    event_base_loop(base, EVLOOP_NONBLOCK);
    event_base_free(base);
}

/* A host that no certificate can name: no connection, and nothing is freed
 * twice or left behind. */
static void test_tls_host(void)
{
    struct event_base *base = event_loop_new(1);
    char err[200], host[400];
    struct tls *tls = tls_new("", true, err, sizeof(err));

    memset(host, 'h', sizeof(host) - 1);
    host[sizeof(host) - 1] = '\0';
    CU_ASSERT_PTR_NOT_NULL_FATAL(tls);
    CU_ASSERT_PTR_NULL(tls_connection(tls, base, host, BEV_OPT_CLOSE_ON_FREE));
    struct bufferevent *bev =
        tls_connection(tls, base, "a.test", BEV_OPT_CLOSE_ON_FREE);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bev);
    bufferevent_free(bev);
    tls_free(tls);
    event_base_loop(base, EVLOOP_NONBLOCK);
    event_base_free(base);
}

int main(void)
{
    event_set_mem_functions(allocate, allocate_again, free);
    CU_initialize_registry();
    CU_pSuite s = CU_add_suite("upstream", NULL, NULL);

    CU_add_test(s, "sent again without memory", test_again_without_memory);
    CU_add_test(s, "an answer that nobody asked for",
                test_answer_that_nobody_asked_for);
    CU_add_test(s, "a host for TLS", test_tls_host);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures != 0;
}
