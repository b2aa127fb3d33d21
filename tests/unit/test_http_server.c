/* The HTTP server over real sockets: routes, limits, clients that are slow, odd
 * or gone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop/loop.h"
#include "front_client.h"
#include "tests/unit/suite.h"

static void test_routes(void)
{
    struct front_options options = front_usual();

    front_open(&options);
    expect_raw("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "\"id\":\"tiny\",\"object\":\"model\"");
    expect_raw("GET /health HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "{\"status\":\"ok\"}");
    expect_raw("GET /ready?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "{\"ready\":true,\"models\":{\"tiny\":true}}");
    expect_raw("GET http://any.host:80/ready HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "{\"ready\":true,\"models\":{\"tiny\":true}}");
    expect_raw("GET /metrics HTTP/1.0\r\n\r\n", 200,
               "fake_calls 1\nfake_calls 2\nfake_calls 3\n# HELP");
    expect_raw("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "conductor_http_responses_total{class=\"2xx\"} 6\n");
    expect_raw("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, "unknown_path");
    expect_raw("GET /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", 405,
               "Allow: POST\r\n");
    expect_raw("DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n", 405,
               "Allow: GET, HEAD\r\n");
    expect_raw("DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n", 405,
               "method: \\\"DELETE\\\": must be one of GET, HEAD for "
               "\\\"/health\\\"");
    expect_raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
               "text/plain\r\n"
               "Content-Length: 2\r\n\r\n{}",
               415, "text/plain\\\": must be application/json");
    expect_raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\nx-slo-ttft-ms: 5"
               "\r\nX-SLO-TTFT-ms: 6\r\nContent-Length: 14\r\n\r\n"
               "{\"prompt\":[5]}",
               400, "header x-slo-ttft-ms: \\\"5\\\": must come only once");
    expect_raw("GET /admin/explain/r-17 HTTP/1.0\r\n\r\n", 200, "{\"why\":1}");
    expect_raw("GET /admin/explain/r-18 HTTP/1.0\r\n\r\n", 404,
               "r-18\\\": is unknown, or no longer kept");
    expect_raw("GET /admin/explain/ HTTP/1.0\r\n\r\n", 404, "unknown_request");
    expect_raw("GET /admin/explain/"
               "0123456789012345678901234567890123456789012345678901234567890"
               "123456789 HTTP/1.0\r\n\r\n",
               404, "unknown_request");
    expect_raw("POST /admin/explain/r-17 HTTP/1.0\r\nContent-Length: 0\r\n"
               "\r\n",
               405, "method_not_allowed");
    f.service.ready = false;
    expect_raw("GET /ready HTTP/1.1\r\nHost: x\r\n\r\n", 503,
               "{\"ready\":false,\"models\":{\"tiny\":false}}");
    front_close();
}

static void test_bad_http(void)
{
    struct front_options options = front_usual();
    static char big[40000];

    front_open(&options);
    expect_raw("hello\r\n\r\n", 400, "invalid_http");
    expect_raw("GET /ready HTTP/1.1\r\n\r\n", 400, "Host");
    expect_raw("GET /ready HTTP/1.1\nHost: x\n\n", 400, "CR LF");
    expect_raw("GET / HTTP/2.0\r\n\r\n", 505, "HTTP/1.1");
    expect_raw("GET / HTTP/2.0\r\n\r\n", 505, "x-should-retry: false");
    expect_raw("GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400, "colon");
    expect_raw(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        400, "Content-Length");
    expect_raw(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        "Transfer-Encoding: chunked\r\n\r\n",
        400, "Transfer-Encoding");
    expect_raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
               "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
               400, "chunked body is malformed");
    memset(big, 'a', sizeof(big) - 1);
    memcpy(big, "GET / HTTP/1.1\r\nX: ", 19);
    expect_raw(big, 431, "head_too_large");
    front_close();
}

FRONT_TEST(test_bad_body)
{
    static const struct {
        const char *headers, *body;
        int status;
        const char *part;
    } cases[] = {
        {"", "", 400, "invalid_json"},
        {"", "{\"prompt\":", 400, "invalid_json"},
        {"", "{\"prompt\":[512]}", 400, "prompt[0]: 512: must"},
        {"", "{\"prompt\":[]}", 400, "prompt: must not be empty"},
        {"", "{\"prompt\":\"a\",\"temperature\":0.7}", 400,
         "temperature: 0.7: not supported by model \"tiny\""},
        {"", "{\"prompt\":\"a\",\"max_tokens\":1000}", 400,
         "context_length_exceeded"},
        {"", "{\"prompt\":\"a\",\"model\":\"gpt\"}", 404, "model_not_found"},
        {"x-slo-ttft-ms: soon\r\n", "{\"prompt\":\"a\"}", 400,
         "header x-slo-ttft-ms: \"soon\": must"},
        {"x-slo-tpot-ms: -1\r\n", "{\"prompt\":\"a\"}", 400,
         "header x-slo-tpot-ms: \"-1\": must"},
        {"x-slo-tpot-ms: 0\r\n", "{\"prompt\":\"a\"}", 400, "x-slo-tpot-ms"},
    };

    /* One connection for all: an error doesn't end it. */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *body;

        c->n = 0;
        client_post(c, "/v1/completions", cases[i].headers, cases[i].body);
        CU_ASSERT(WAIT(c, client_whole(c)));
        body = client_json(c);
        if (client_status(c) != cases[i].status || !body ||
            !(strstr(error_field(body, "message"), cases[i].part) ||
              strstr(error_field(body, "code"), cases[i].part))) {
            printf("\n  %s\n  -> %s", cases[i].body, c->text);
            CU_FAIL("another answer");
        }
        json_decref(body);
    }
    CU_ASSERT_EQUAL(f.service.n_requests, 0);
}

/* A client that writes all before it reads still sees why it was refused. */
static void test_large_body(void)
{
    struct front_options options = front_usual();
    struct client *c;
    size_t n = 3 << 20;
    char *big = malloc(n), head[200];

    memset(big, ' ', n);
    options.http.max_body_bytes = 1 << 20;
    front_open(&options);
    c = client_new();
    snprintf(head, sizeof(head),
             "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
             "%zu\r\n\r\n",
             n);
    client_puts(c, head);
    CU_ASSERT(WAIT(c, client_whole(c)));
    CU_ASSERT_TRUE(client_send(c, big, n));
    CU_ASSERT_EQUAL(client_status(c), 413);
    HAS(c, "larger than 1048576 bytes");
    client_free(c);

    c = client_new();
    client_puts(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n300000\r\n");
    CU_ASSERT_TRUE(client_send(c, big, n));
    ANSWERED(c, 413);
    client_free(c);

    c = client_new();
    client_puts(
        c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n"
           "Expect: 100-continue\r\n\r\n");
    CU_ASSERT(WAIT(c, strstr(c->text, "100 Continue\r\n\r\n")));
    client_puts(c, "{\"prompt\":\"ab\"}");
    CU_ASSERT(WAIT(c, f.service.n_requests == 1));
    client_free(c);
    free(big);
    front_close();
}

#define LONG_IDS 900u

/* A request whose body is 600 KB: its ids far apart. Returns its bytes. */
static size_t long_request(char *to, unsigned first_id)
{
    size_t n = 0, head = 100;

    for (unsigned i = 0; i < LONG_IDS; i++)
        n += (size_t)sprintf(to + head + n, "%s%700u",
                             i ? "," : "{\"prompt\":[", (first_id + i) % 500);
    n += (size_t)sprintf(to + head + n, "]}");
    memset(to, ' ', head);
    int used = sprintf(to,
                       "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                       "Content-Length: %zu\r\n\r\n",
                       n);
    memmove(to + used, to + head, n);
    return (size_t)used + n;
}

static void expect_long(const struct service_request *request,
                        uint32_t first_id)
{
    CU_ASSERT_EQUAL_FATAL(request->params.n_tokens, LONG_IDS);
    for (uint32_t i = 0; i < LONG_IDS; i++)
        CU_ASSERT_EQUAL(request->params.tokens[i], (first_id + i) % 500);
}

/* Two long bodies, one right behind the other, as the socket takes them. */
static void test_long_bodies(void)
{
    struct front_options options = front_usual();
    char *both = malloc(2 << 20);
    struct client *c;
    size_t n;

    CU_ASSERT_PTR_NOT_NULL_FATAL(both);
    n = long_request(both, 1);
    n += long_request(both + n, 77);
    front_open(&options);
    c = client_new();
    CU_ASSERT_TRUE(client_send(c, both, 700000));
    CU_ASSERT_FATAL(WAIT(c, f.service.n_requests == 1));
    expect_long(f.service.requests[0], 1);
    fake_run(f.service.requests[0]);
    CU_ASSERT_TRUE(client_send(c, both + 700000, n - 700000));
    CU_ASSERT_FATAL(WAIT(c, f.service.n_requests == 2));
    expect_long(f.service.requests[1], 77);
    client_free(c);
    free(both);
    front_close();
}

/* A POST whose head declares n bytes of body (0: chunked), and the first part
 * of that. */
static struct client *client_begin(size_t n, const char *part, size_t n_part)
{
    struct client *c = client_new();
    char head[200], framing[50];

    snprintf(framing, sizeof(framing),
             n ? "Content-Length: %zu" : "Transfer-Encoding: chunked", n);
    snprintf(head, sizeof(head),
             "POST /v1/completions HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s",
             framing, n ? "" : "384\r\n");
    client_puts(c, head);
    CU_ASSERT_TRUE(client_send(c, part, n_part));
    for (int i = 0; i < 10; i++)
        front_turn();
    return c;
}

static void expect_busy(size_t n, const char *part, size_t n_part)
{
    struct client *c = client_begin(n, part, n_part);

    ANSWERED(c, 503);
    HAS(c, "too_many_body_bytes");
    HAS(c, "Retry-After: 1\r\n");
    HAS(c, "retry-after-ms: 1000\r\n");
    client_free(c);
}

/* All bodies together are bounded, and let go once they were submitted. */
static void test_body_total(void)
{
    struct front_options options = front_usual();
    struct client *a, *b;
    char body[900];

    memset(body, ' ', sizeof(body));
    memcpy(body, "{\"prompt\":[1]}", 14);
    options.http.max_body_total_bytes = 1000;
    front_open(&options);
    a = client_begin(900, body, 600);
    expect_raw("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "conductor_http_body_bytes 600\n");
    expect_busy(900, body, 401);
    expect_busy(0, body, 401);
    b = client_begin(900, body, 400); /* just fits */
    CU_ASSERT_EQUAL(b->n, 0);
    client_free(b); /* and gives it back by leaving */
    front_turn();
    front_turn();
    CU_ASSERT_TRUE(client_send(a, body + 600, 300));
    CU_ASSERT_FATAL(WAIT(a, f.service.n_requests == 1));
    expect_raw("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "conductor_http_body_bytes 0\n");
    b = client_begin(0, body, 900); /* while the first is in flight */
    client_puts(b, "\r\n0\r\n\r\n");
    CU_ASSERT(WAIT(b, f.service.n_requests == 2));
    expect_raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
               "Content-Length: 1001\r\n\r\n",
               413, "larger than 1000 bytes");
    expect_raw("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "conductor_http_bodies_refused_total 2\n");
    client_free(a);
    client_free(b);
    front_close();
}

FRONT_TEST(test_chunked)
{
    client_puts(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\n{\"pro\r\n");
    client_puts(c, "A\r\nmpt\":\"ab\"}\r\n0\r\nT: t\r\n\r\nGET /ready");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_requests == 1));
    CU_ASSERT_EQUAL(f.service.requests[0]->params.n_tokens, 2);
    CU_ASSERT_EQUAL(f.service.requests[0]->params.tokens[1], 'b');
    /* A request sent ahead waits for its turn. */
    client_puts(c, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    front_turn();
    fake_run(f.service.requests[0]);
    CU_ASSERT(WAIT(c, c->closed));
    HAS(c, "{\"ready\":true,\"models\":{\"tiny\":true}}");
}

/* What a client has got of answers of /health, and the most in a turn. */
struct seen {
    struct client *client;
    size_t n, most;
};

/* At each turn of the loop: its descriptor can always be read. */
static void count_health(void *arg, unsigned)
{
    struct seen *seen = arg;
    size_t before = seen->n;
    const char *at = seen->client->text;

    client_read(seen->client);
    for (seen->n = 0; (at = strstr(at, "{\"status\"")); at++)
        seen->n++;
    if (seen->n - before > seen->most)
        seen->most = seen->n - before;
}

/* Who sends many requests ahead does not keep the loop from others: a turn
 * answers only some of them. */
static void test_many_ahead(void)
{
    enum { MANY = 400, A_TURN = 100, LENGTH = 33 };
    static const char one[] = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    struct front_options options = front_usual();
    time_t until = time(NULL) + GIVE_UP_S;
    char all[MANY * LENGTH];
    struct seen seen = {.n = 0};
    struct loop_watch turn;
    int fd = eventfd(1, 0);

    for (size_t i = 0; i < MANY; i++)
        memcpy(all + i * LENGTH, one, LENGTH);
    front_open(&options);
    seen.client = client_new();
    front_turn();
    loop_watch_init(f.loop, &turn, fd, LOOP_READ, count_health, &seen);
    CU_ASSERT_FATAL(loop_watch_start(&turn, 0) == 0);
    CU_ASSERT_EQUAL(send(seen.client->fd, all, sizeof(all), 0), sizeof(all));
    while (seen.n < MANY && time(NULL) < until)
        loop_turn(f.loop, -1);
    CU_ASSERT_EQUAL(seen.n, MANY);
    CU_ASSERT(seen.most <= A_TURN);
    loop_watch_stop(&turn);
    close(fd);
    client_free(seen.client);
    front_close();
}

/* How often a connection had to wait for the next turn. */
static long put_off(void)
{
    static const char name[] = "\nconductor_http_put_off_total ";
    struct client *c = client_new();
    const char *at;
    long n = -1;

    client_puts(c, "GET /metrics HTTP/1.0\r\n\r\n");
    CU_ASSERT(WAIT(c, c->closed));
    at = strstr(c->text, name);
    if (at)
        n = strtol(at + sizeof(name) - 1, NULL, 10);
    client_free(c);
    return n;
}

/* So many clients of one address have sent this before the loop turns again. */
static void all_send(struct client **c, size_t n, const char *bytes,
                     size_t n_bytes)
{
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_EQUAL(send(c[i]->fd, bytes, n_bytes, 0), (ssize_t)n_bytes);
}

/* What is refused by its head is work, too, and so is what comes behind a
 * refusal: neither is all done in one turn. */
static void test_share_of_a_turn(void)
{
    enum { MANY = 120, MORE = 60000, LONG = 12000 };
    static const char nothing[] = "GET /nothing HTTP/1.1\r\nHost: x\r\nx: ",
                      large[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                                "Content-Length: 1000000000\r\n\r\n";
    static char more[MORE];
    struct front_options options = front_usual();
    struct client *c[MANY];

    front_open(&options);
    for (size_t i = 0; i < MANY; i++) {
        c[i] = client_new();
        front_turn();
    }
    CU_ASSERT_EQUAL(put_off(), 0);
    memset(more, 'x', MORE);
    memcpy(more, nothing, sizeof(nothing) - 1);
    memcpy(more + LONG - 4, "\r\n\r\n", 4);
    all_send(c, MANY, more, LONG);
    for (size_t i = 0; i < MANY; i++)
        CU_ASSERT(WAIT(c[i], client_status(c[i]) == 404));
    CU_ASSERT(put_off() > 10);
    for (size_t i = 0; i < MANY; i++) {
        c[i]->n = 0;
        c[i]->text[0] = '\0';
        client_puts(c[i], large);
        CU_ASSERT(WAIT(c[i], client_status(c[i]) == 413));
        front_turn();
    }
    long before = put_off();
    all_send(c, MANY, more, MORE);
    for (size_t i = 0; i < MANY; i++)
        front_turn();
    CU_ASSERT(put_off() > before + MANY / 2);
    for (size_t i = 0; i < MANY; i++)
        client_free(c[i]);
    front_close();
}

/* A stream nobody reads is cut off; memory stays bounded. */
FRONT_TEST_WITH(test_slow_reader, (options.http.max_output_bytes = 100000))
{
    size_t sent = 0;

    POSTED(c, "{\"prompt\":[1],\"stream\":true,\"max_tokens\":900}", 1);
    while (!f.service.requests[0]->cancelled && sent < 10000000) {
        fake_tokens(f.service.requests[0], "x");
        sent++;
    }
    CU_ASSERT_TRUE(f.service.requests[0]->cancelled);
    CU_ASSERT(sent < 2000);
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    CU_ASSERT(WAIT(c, c->closed));
}

/* Below that bound, a client that takes no byte for too long is cut off. */
FRONT_TEST_WITH(test_stalled_reader, (options.http.max_output_bytes = 1 << 30,
                                      options.http.write_us = 50000))
{
    POSTED(c, "{\"prompt\":[1],\"stream\":true,\"max_tokens\":900}", 1);
    /* More than the sockets' buffers take. */
    for (size_t i = 0; i < 100000; i++)
        fake_tokens(f.service.requests[0], "x");
    CU_ASSERT(WAIT((struct client *)NULL, f.service.n_cancelled == 1));
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
}

/* One that has been idle longest goes for the next; where all are busy, only
 * what is urgent is answered. */
static void test_connection_limit(void)
{
    struct front_options options = front_usual();
    struct client *c[4];

    options.http.max_connections = 3;
    options.cors_origins = "https://a.example";
    front_open(&options);
    for (size_t i = 0; i < 4; i++)
        c[i] = client_new();
    CU_ASSERT(WAIT(c[0], c[0]->closed));
    CU_ASSERT_EQUAL(c[0]->n, 0);
    for (size_t i = 1; i < 3; i++)
        client_post(c[i], "/v1/completions", "", "{\"prompt\":[1]}");
    CU_ASSERT(WAIT(c[1], f.service.n_requests == 2));
    client_post(c[3], "/v1/completions", "", "{\"prompt\":[1]}");
    CU_ASSERT(WAIT(c[3], f.service.n_requests == 3));
    expect_raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
               "Content-Length: 0\r\n\r\n",
               503, "too_many_connections");
    /* A page can read it, too. */
    expect_raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
               "Origin: https://a.example\r\nContent-Length: 0\r\n\r\n",
               503, "Access-Control-Allow-Origin: https://a.example\r\n");
    for (size_t i = 0; i < 40; i++)
        expect_raw("GET /ready HTTP/1.1\r\nHost: x\r\n\r\n", 200, "true");
    for (size_t i = 0; i < 4; i++)
        client_free(c[i]);
    front_close();
}

/* The answer to who comes when there is no room at all, the reserve's neither,
 * to these origins: with the head that has come by then. */
static void turned_away(const char *origins, const char *head, const char *line)
{
    struct front_options options = front_usual();
    struct client *c[4];

    options.http.max_connections = 3;
    options.http.reserve = 0;
    options.cors_origins = origins;
    front_open(&options);
    for (size_t i = 0; i < 3; i++) {
        c[i] = client_new();
        client_post(c[i], "/v1/completions", "", "{\"prompt\":[1]}");
        CU_ASSERT(WAIT(c[i], f.service.n_requests == i + 1));
    }
    c[3] = client_new();
    CU_ASSERT_EQUAL(write(c[3]->fd, head, strlen(head)), (ssize_t)strlen(head));
    CU_ASSERT(WAIT(c[3], c[3]->closed));
    CU_ASSERT_EQUAL(client_status(c[3]), 503);
    json_t *body = client_json(c[3]);
    CU_ASSERT_STRING_EQUAL(error_field(body, "code"), "too_many_connections");
    json_decref(body);
    if (line)
        HAS(c[3], line);
    if (!line)
        CU_ASSERT_PTR_NULL(strstr(c[3]->text, "Access-Control"));
    for (size_t i = 0; i < 4; i++)
        client_free(c[i]);
    front_close();
}

static void test_turned_away(void)
{
    static const char one[] = "https://a.example",
                      two[] = "https://a.example, https://b.example",
                      head[] = "POST /v1/completions HTTP/1.1\r\n"
                               "Origin: https://b.example\r\n\r\n",
                      a[] = "\r\nAccess-Control-Allow-Origin: "
                            "https://a.example\r\n",
                      b[] = "\r\nAccess-Control-Allow-Origin: "
                            "https://b.example\r\n";

    turned_away("", head, NULL);
    turned_away("*", "", "\r\nAccess-Control-Allow-Origin: *\r\n");
    turned_away(one, "", a);
    turned_away(one, head, NULL);
    turned_away(two, "", NULL);
    turned_away(two, head, b);
}

/* All connections of a client are busy: it has four fifths of what there is. */
static void test_share_of_connections(void)
{
    struct front_options options = front_usual();
    struct client *c[10];

    options.http.max_connections = 10;
    front_open(&options);
    for (size_t i = 0; i < 10; i++) {
        c[i] = client_new();
        client_post(c[i], "/v1/completions", "", "{\"prompt\":[1]}");
        CU_ASSERT(WAIT(c[i], i < 8 ? f.service.n_requests == i + 1
                                   : client_status(c[i]) == 503));
    }
    CU_ASSERT_EQUAL(f.service.n_requests, 8);
    for (size_t i = 0; i < 10; i++)
        client_free(c[i]);
    front_close();
}

FRONT_TEST_WITH(test_idle, (options.http.idle_us = 30000))
{
    CU_ASSERT(WAIT(c, c->closed));
    CU_ASSERT_EQUAL(c->n, 0);
}

/* A head and a body that never end. */
static void test_slow_sender(void)
{
    struct front_options options = front_usual();
    struct client *c;

    options.http.receive_us = 30000;
    front_open(&options);
    c = client_new();
    client_puts(c, "GET /ready HTT");
    ANSWERED(c, 408);
    client_free(c);
    c = client_new();
    client_puts(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                   "Content-Length: 10\r\n\r\n{");
    ANSWERED(c, 408);
    client_free(c);
    front_close();
}

/* A request has come when its last byte has, however long that took, and not
 * when it was read through. */
FRONT_TEST(test_arrival)
{
    client_puts(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                   "Content-Length: 14\r\n\r\n{\"prom");
    for (int i = 0; i < 3; i++)
        front_turn();
    CU_ASSERT_EQUAL(f.service.n_requests, 0);
    int64_t before_us = clock_now_us();
    client_puts(c, "pt\":\"a\"}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_requests == 1));
    int64_t arrived_us = f.service.requests[0]->params.arrived_us;
    CU_ASSERT(arrived_us >= before_us && arrived_us <= clock_now_us());
}

/* The answer to HEAD is a head. */
FRONT_TEST(test_head_method)
{
    client_puts(
        c, "HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    CU_ASSERT(WAIT(c, c->closed));
    HAS(c, "Content-Length: 15\r\n");
    CU_ASSERT_EQUAL(strcmp(c->text + c->n - 4, "\r\n\r\n"), 0);
}

/* Nor has one that the server refuses by itself a body. */
FRONT_TEST(test_head_refused)
{
    client_puts(c, "HEAD /health HTTP/1.1\r\nHost: x\r\n"
                   "Content-Length: 99999999999\r\n\r\n");
    CU_ASSERT(WAIT(c, strstr(c->text, "\r\n\r\n")));
    HAS(c, " 413 ");
    CU_ASSERT_EQUAL(strcmp(c->text + c->n - 4, "\r\n\r\n"), 0);
}

static void test_port_in_use(void)
{
    struct front_options options = front_usual();
    struct front *second;

    front_open(&options);
    options.http.port = front_port(f.front);
    CU_ASSERT_EQUAL(front_new(f.loop, &f.models, &options, &second),
                    -EADDRINUSE);
    options.http.host = "not-an-address.invalid";
    CU_ASSERT_EQUAL(front_new(f.loop, &f.models, &options, &second),
                    -EADDRNOTAVAIL);
    front_close();
}

static const struct suite_test tests[] = {
    {"routes", test_routes},
    {"bad HTTP", test_bad_http},
    {"bad bodies", test_bad_body},
    {"large bodies", test_large_body},
    {"long bodies", test_long_bodies},
    {"all bodies", test_body_total},
    {"chunked, pipelined", test_chunked},
    {"many ahead", test_many_ahead},
    {"share of a turn", test_share_of_a_turn},
    {"slow reader", test_slow_reader},
    {"stalled reader", test_stalled_reader},
    {"connection limit", test_connection_limit},
    {"turned away", test_turned_away},
    {"share of connections", test_share_of_connections},
    {"idle client", test_idle},
    {"slow sender", test_slow_sender},
    {"arrival", test_arrival},
    {"HEAD", test_head_method},
    {"HEAD, refused", test_head_refused},
    {"port in use", test_port_in_use},
};
SUITE("http_server", tests)
