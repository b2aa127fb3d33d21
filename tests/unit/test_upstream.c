/* Connections to engines when memory runs out: allocations fail in turn, and
 * every exchange ends exactly once all the same. And whose answers
 * they bring, and what of them is acknowledged. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/loop/loop.h"
#include "base/tls.h"
#include "conductor/link/upstream/exchange/upstream.h"
#include "conductor/link/upstream/exchange/whose.h"
#include "tests/unit/suite.h"

#define TURNS_MAX 20000 /* of 1 ms */
#define POINTS_MAX 200  /* more allocations than an exchange has */

/* The number of allocations that succeed before one fails; negative: none
 * fails. */
static int before_failure = -1;

void *__real_calloc(size_t n, size_t each);
void *__real_malloc(size_t n);
void *__real_realloc(void *old, size_t n);
void *__wrap_calloc(size_t n, size_t each);
void *__wrap_malloc(size_t n);
void *__wrap_realloc(void *old, size_t n);

static bool fails(void)
{
    return before_failure >= 0 && before_failure-- == 0;
}

void *__wrap_calloc(size_t n, size_t each)
{
    return fails() ? NULL : __real_calloc(n, each);
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_realloc(void *old, size_t n)
{
    return fails() ? NULL : __real_realloc(old, n);
}

/* In place of libc's: it counts the acknowledgements that are asked for. */
static unsigned n_acknowledged;

int setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
    n_acknowledged += level == IPPROTO_TCP && name == TCP_QUICKACK;
    return (int)syscall(SYS_setsockopt, fd, level, name, value, n);
}

/* A server on plain sockets, which allocates nothing. */
struct server {
    int listener, fd;
    bool answers; /* else it closes a connection that has sent something */
    const char *const *says; /* what it answers, in turn, up to NULL; NULL: a
                                plain answer, each time. What is behind a | is
                                said a turn later, and the connection closed */
    const char *rest;        /* of an answer, behind a | */
    unsigned n_connections;
    char heard[4096]; /* the last request */
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
    const char *says = answer;
    ssize_t n;
    size_t some;
    int fd;

    if (s->rest) {
        some = strlen(s->rest);
        CU_ASSERT_EQUAL(write(s->fd, s->rest, some), (ssize_t)some);
        close(s->fd);
        s->fd = -1;
        s->rest = NULL;
    }
    fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd >= 0) {
        if (s->fd >= 0)
            close(s->fd);
        s->fd = fd;
        s->n_connections++;
    }
    n = s->fd < 0 ? 0 : read(s->fd, s->heard, sizeof(s->heard) - 1);
    if (n <= 0)
        return;
    s->heard[n] = '\0';
    if (s->says && *s->says)
        says = *s->says++;
    if (s->answers) {
        some = strcspn(says, "|");
        s->rest = says[some] ? says + some + 1 : NULL;
        CU_ASSERT_EQUAL(write(s->fd, says, some), (ssize_t)some);
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
    char body[256];
};

static void on_answer(void *arg, const struct http_head *head)
{
    ((struct fate *)arg)->status = head->status;
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct fate *fate = arg;
    size_t used = strlen(fate->body);

    snprintf(fate->body + used, sizeof(fate->body) - used, "%.*s", (int)n,
             bytes);
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
static bool exchange_of(struct loop *loop, struct upstream *u, struct server *s,
                        struct fate *fate, const char *headers, bool repeats)
{
    const struct upstream_request request = {
        .method = "GET", .path = "/", .headers = headers, .repeats = repeats};

    *fate = (struct fate){0};
    if (!upstream_send(u, &request, &ops, fate)) {
        CU_ASSERT_EQUAL(upstream_busy(u), 0);
        return false;
    }
    for (int i = 0; i < TURNS_MAX && !fate->ended && !fate->failed; i++) {
        loop_turn(loop, 0);
        server_turn(s);
        usleep(i < 50 ? 0 : 1000);
    }
    loop_turn(loop, 0);
    CU_ASSERT_EQUAL(fate->ended + fate->failed, 1);
    CU_ASSERT_EQUAL(upstream_busy(u), 0);
    return true;
}

static bool exchange(struct loop *loop, struct upstream *u, struct server *s,
                     struct fate *fate)
{
    return exchange_of(loop, u, s, fate, "", false);
}

#define EVENT_LOOP_TEST(test) \
    SUITE_TEST_OF(test, struct loop, loop, loop_new(), loop_free(loop))

/* A kept connection that the server closes when it is used: the request is sent
 * once more, or fails where there is no memory for another connection. That is
 * the last point that is tried. */
EVENT_LOOP_TEST(test_again_without_memory)
{
    const struct upstream_options options = {4, 65536, 2000000, 20000000};
    struct engine_url url;
    struct server s;
    struct fate fate = {0};
    char text[64];
    uint16_t port;

    server_open(&s, &port);
    snprintf(text, sizeof(text), "http://127.0.0.1:%u", port);
    CU_ASSERT_PTR_NULL_FATAL(engine_url_parse(text, &url));
    for (int point = -1; point < POINTS_MAX && !fate.failed; point++) {
        struct upstream *u = upstream_new(loop, NULL, &url, NULL, &options);

        CU_ASSERT_FATAL(u && exchange(loop, u, &s, &fate) && fate.ended);
        CU_ASSERT_EQUAL(upstream_idle(u), 1);
        s.answers = false;
        before_failure = point;
        bool sent = exchange(loop, u, &s, &fate);
        before_failure = -1;
        CU_ASSERT(point >= 0 || (sent && fate.ended));
        s.answers = true;
        upstream_free(u);
        loop_turn(loop, 0);
    }
    CU_ASSERT_STRING_EQUAL(fate.why, "out of memory");
    close(s.listener);
    close(s.fd);
}

/* What an engine says on a kept connection before it is asked again is nobody's
 * answer. */
EVENT_LOOP_TEST(test_answer_that_nobody_asked_for)
{
    static const char more[] = "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n";
    const struct upstream_options options = {4, 65536, 2000000, 20000000};
    struct engine_url url;
    struct server s;
    struct fate fate;
    char text[64];
    uint16_t port;

    server_open(&s, &port);
    snprintf(text, sizeof(text), "http://127.0.0.1:%u", port);
    CU_ASSERT_PTR_NULL_FATAL(engine_url_parse(text, &url));
    struct upstream *u = upstream_new(loop, NULL, &url, NULL, &options);
    CU_ASSERT_FATAL(u && exchange(loop, u, &s, &fate));
    CU_ASSERT_EQUAL(fate.status, 200);
    CU_ASSERT_EQUAL(upstream_idle(u), 1);
    CU_ASSERT_EQUAL(write(s.fd, more, sizeof(more) - 1),
                    (ssize_t)sizeof(more) - 1);
    CU_ASSERT_TRUE(exchange(loop, u, &s, &fate));
    CU_ASSERT_EQUAL(fate.status, 200);
    CU_ASSERT_EQUAL(upstream_idle(u), 1);
    upstream_free(u);
    close(s.listener);
    close(s.fd);
    loop_turn(loop, 0);
}

#define HEAD(n) "HTTP/1.1 200 OK\r\nContent-Length: " #n "\r\n\r\n"
#define A "X-Request-Id: a\r\n"
#define B "Accept: */*\r\nx-request-id: b\r\n"
#define FOR_A HEAD(15) "{\"id\":\"cmpl-a\"}"
#define FOR_B HEAD(15) "{\"id\":\"cmpl-b\"}"
#define FOR_NOBODY HEAD(2) "{}"
#define TO_END "HTTP/1.1 200 OK\r\n\r\n"
#define REFUSED \
    "HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\n{\"bad\":1}"
#define BUSY "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"

/* Requests in turn, of one connection's home: what the server says, and what
 * becomes of the last one. */
static const struct {
    const char *says[4], *headers[3];
    bool repeats;
    int status;
    const char *body, *why;
    unsigned n_connections, n_idle;
    bool closes; /* the last request asked for that */
} turns[] = {
    /* Answers that name their requests leave the connection open. */
    {{FOR_A, FOR_B}, {A, B}, true, 200, "{\"id\":\"cmpl-b\"}", "", 1, 1, false},
    {{"HTTP/1.1 200 OK\r\n" A "Content-Length: 0\r\n\r\n", FOR_B},
     {A, B},
     true,
     200,
     "{\"id\":\"cmpl-b\"}",
     "",
     1,
     1,
     false},
    /* A second answer to the first request is not the second one's. */
    {{FOR_A, FOR_A, FOR_B},
     {A, B},
     true,
     200,
     "{\"id\":\"cmpl-b\"}",
     "",
     2,
     1,
     false},
    {{FOR_A, FOR_A},
     {A, B},
     false,
     0,
     "",
     "its answer is to another request",
     1,
     0,
     false},
    /* Nor is one that does not say. */
    {{FOR_A, FOR_NOBODY, FOR_B},
     {A, B},
     true,
     200,
     "{\"id\":\"cmpl-b\"}",
     "",
     2,
     1,
     false},
    {{FOR_A, REFUSED, FOR_B},
     {A, B},
     true,
     200,
     "{\"id\":\"cmpl-b\"}",
     "",
     2,
     1,
     false},
    {{FOR_A, REFUSED}, {A, B}, false, 400, "{\"bad\":1}", "", 1, 0, false},
    {{FOR_A, BUSY}, {A, B}, true, 503, "", "", 1, 0, false},
    /* Without a length, one that ends with the connection, whose body comes
     * behind its head: its body names the request, or its end shows that it
     * does not. */
    {{FOR_A, TO_END "|{\"id\":\"cmpl-b\"}"},
     {A, B},
     false,
     200,
     "{\"id\":\"cmpl-b\"}",
     "",
     1,
     0,
     false},
    {{FOR_A, TO_END "|{}", FOR_B},
     {A, B},
     true,
     200,
     "{\"id\":\"cmpl-b\"}",
     "",
     2,
     1,
     false},
    {{TO_END "|"}, {A}, false, 200, "", "", 1, 0, false},
    /* Of who does not name them a connection brings one answer. */
    {{FOR_NOBODY, FOR_NOBODY}, {A, B}, true, 200, "{}", "", 2, 0, true},
    {{FOR_B, FOR_B, FOR_A},
     {A, B, A},
     true,
     200,
     "{\"id\":\"cmpl-a\"}",
     "",
     2,
     1,
     false},
    /* Connections of requests without an id are their own. The server keeps one
     * at a time. */
    {{FOR_NOBODY, FOR_A},
     {"", A},
     true,
     200,
     "{\"id\":\"cmpl-a\"}",
     "",
     2,
     1,
     false},
    {{FOR_A, FOR_NOBODY}, {A, ""}, true, 200, "{}", "", 2, 1, false},
    /* An id that no answer can be compared with. */
    {{FOR_A, FOR_B},
     {A, "X-Request-Id: b c\r\n"},
     true,
     200,
     "{\"id\":\"cmpl-b\"}",
     "",
     2,
     0,
     false},
};

EVENT_LOOP_TEST(test_whose_answer)
{
    const struct upstream_options options = {4, 65536, 2000000, 20000000};
    struct engine_url url;
    char text[64];
    uint16_t port;

    for (size_t i = 0; i < sizeof(turns) / sizeof(*turns); i++) {
        struct fate fate = {0};
        struct server s;

        server_open(&s, &port);
        s.says = turns[i].says;
        snprintf(text, sizeof(text), "http://127.0.0.1:%u", port);
        CU_ASSERT_PTR_NULL_FATAL(engine_url_parse(text, &url));
        struct upstream *u = upstream_new(loop, NULL, &url, NULL, &options);
        for (size_t k = 0; k < 3 && turns[i].headers[k]; k++)
            CU_ASSERT_FATAL(u &&
                            exchange_of(loop, u, &s, &fate, turns[i].headers[k],
                                        turns[i].repeats));
        if (fate.status != turns[i].status ||
            strcmp(fate.body, turns[i].body) != 0 ||
            strcmp(fate.why, turns[i].why) != 0 ||
            s.n_connections != turns[i].n_connections ||
            upstream_idle(u) != turns[i].n_idle ||
            turns[i].closes != !!strstr(s.heard, "Connection: close\r\n"))
            printf("row %zu: %d \"%s\" \"%s\", %u connections, %zu kept\n%s", i,
                   fate.status, fate.body, fate.why, s.n_connections,
                   upstream_idle(u), s.heard);
        CU_ASSERT_EQUAL(fate.status, turns[i].status);
        CU_ASSERT_STRING_EQUAL(fate.body, turns[i].body);
        CU_ASSERT_STRING_EQUAL(fate.why, turns[i].why);
        CU_ASSERT_EQUAL(s.n_connections, turns[i].n_connections);
        CU_ASSERT_EQUAL(upstream_idle(u), turns[i].n_idle);
        CU_ASSERT_EQUAL(!!strstr(s.heard, "Connection: close\r\n"),
                        turns[i].closes);
        upstream_free(u);
        close(s.listener);
        close(s.fd);
        loop_turn(loop, 0);
    }
}

/* Bodies as they come, of a request "r.1". */
static void test_whose(void)
{
    static const struct {
        const char *begin;
        bool all;
        enum whose whose;
    } bodies[] = {
        {"{\"id\":\"cmpl-r.1\",\"object\"", false, WHOSE_OWN},
        {"data: {\"id\": \"chatcmpl-r.1\"", false, WHOSE_OWN},
        {"data:{\"id\":\"resp_r.1\"", false, WHOSE_OWN},
        {" \r\n{ \"id\" : \"r.1\"", false, WHOSE_OWN},
        {"{\"id\":\"xr.1\"", false, WHOSE_OTHER},
        {"{\"id\":\"cmpl-r.1-0\"", false, WHOSE_OTHER},
        {"{\"id\":\"\"", false, WHOSE_OTHER},
        {"{\"id\":\"cmpl-r\\u002e1\"", false, WHOSE_NOBODYS},
        {"{\"id\":\"cmpl-r.1", false, WHOSE_MORE},
        {"{\"id\":\"cmpl-r.1", true, WHOSE_NOBODYS},
        {"data", false, WHOSE_MORE},
        {"", false, WHOSE_MORE},
        {"", true, WHOSE_NOBODYS},
        {"{\"id\":7", false, WHOSE_NOBODYS},
        {"{\"object\":\"list\"", false, WHOSE_NOBODYS},
        {"[", false, WHOSE_NOBODYS},
        {"event: response.created\ndata: {\"id\":\"r.1\"", false,
         WHOSE_NOBODYS},
    };
    const struct http_head head = {.status = 200}, bad = {.status = 400};
    struct http_slice id;

    CU_ASSERT_TRUE_FATAL(whose_id("A: x-request-id: n\r\n"
                                  "X-REQUEST-ID:  r.1 \r\nB: c\r\n",
                                  &id) == true);
    CU_ASSERT_EQUAL(id.n, 0); /* white space behind it: a strange one */
    CU_ASSERT_TRUE_FATAL(whose_id("B: c\r\nX-REQUEST-ID:  r.1\r\n", &id));
    CU_ASSERT_TRUE(http_is(id, "r.1"));
    CU_ASSERT_FALSE(whose_id("B: c\r\nX-Request: r\r\n", &id));
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        const char *begin = bodies[i].begin;

        CU_ASSERT_EQUAL(
            whose_answer(&head, begin, strlen(begin), bodies[i].all, id),
            bodies[i].whose);
        CU_ASSERT_EQUAL(whose_answer(&bad, begin, strlen(begin), true, id),
                        WHOSE_NOBODYS);
    }
}

/* An engine with Nagle's algorithm sends the next piece of a stream when the
 * one before is acknowledged: each read asks for that, on a fresh connection
 * and on a kept one, but the one with the end. */
EVENT_LOOP_TEST(test_acknowledges)
{
    static const char *const pieces[] = {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" A "\r\n",
        "7\r\nfirst, \r\n", "6\r\nsec", "ond\r\n", "0\r\n\r\n"};
    const size_t n = sizeof(pieces) / sizeof(*pieces);
    const struct upstream_options options = {4, 65536, 2000000, 20000000};
    const struct upstream_request request = {
        .method = "GET", .path = "/", .headers = A, .holds_head = true};
    struct engine_url url;
    struct server s;
    char text[64];
    uint16_t port;

    server_open(&s, &port);
    snprintf(text, sizeof(text), "http://127.0.0.1:%u", port);
    CU_ASSERT_PTR_NULL_FATAL(engine_url_parse(text, &url));
    struct upstream *u = upstream_new(loop, NULL, &url, NULL, &options);
    for (unsigned round = 0; round < 3; round++) {
        const char *first[] = {pieces[0], NULL};
        struct fate fate = {0};

        s.says = first;
        n_acknowledged = 0;
        CU_ASSERT_PTR_NOT_NULL_FATAL(upstream_send(u, &request, &ops, &fate));
        for (size_t i = 0; i < n; i++) {
            if (i > 0)
                CU_ASSERT_EQUAL(write(s.fd, pieces[i], strlen(pieces[i])),
                                (ssize_t)strlen(pieces[i]));
            for (int k = 0; k < TURNS_MAX && n_acknowledged == i && !fate.ended;
                 k++) {
                loop_turn(loop, 0);
                if (i == 0)
                    server_turn(&s);
                usleep(k < 50 ? 0 : 1000);
            }
            CU_ASSERT_EQUAL(n_acknowledged, i + 1 < n ? i + 1 : i);
        }
        CU_ASSERT_EQUAL(fate.ended, 1);
        CU_ASSERT_STRING_EQUAL(fate.body, "first, second");
        CU_ASSERT_EQUAL(s.n_connections, 1);
    }
    upstream_free(u);
    close(s.listener);
    close(s.fd);
    loop_turn(loop, 0);
}

/* A host that no certificate can name: no connection, and nothing is freed
 * twice or left behind. */
static void test_tls_host(void)
{
    char err[200], host[400];
    struct tls *tls = tls_new("", true, err, sizeof(err));

    memset(host, 'h', sizeof(host) - 1);
    host[sizeof(host) - 1] = '\0';
    CU_ASSERT_PTR_NOT_NULL_FATAL(tls);
    CU_ASSERT_PTR_NULL(tls_ssl(tls, host));
    struct ssl_st *ssl = tls_ssl(tls, "a.test");
    CU_ASSERT_PTR_NOT_NULL_FATAL(ssl);
    SSL_free(ssl);
    tls_free(tls);
}

static const struct suite_test tests[] = {
    {"sent again without memory", test_again_without_memory},
    {"an answer that nobody asked for", test_answer_that_nobody_asked_for},
    {"whose answer a connection brings", test_whose_answer},
    {"whose answer this is", test_whose},
    {"each read is acknowledged", test_acknowledges},
    {"a host for TLS", test_tls_host},
};

int main(void)
{
    return SUITE_RUN("upstream", tests);
}
