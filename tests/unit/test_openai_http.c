/* The front door over real sockets on one loop, on top of a fake service. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <CUnit/Basic.h>
#include <event2/event.h>
#include <jansson.h>

#include "conductor/front/front.h"
#include "fake_service.h"

#define GIVE_UP_S 10

static struct fixture {
    struct event_base *base;
    struct service service;
    struct front *front;
} f;

/* One client socket and what it has received. */
struct client {
    int fd;
    bool closed;
    size_t n;
    char text[1 << 20];
};

static void open_front(const struct front_options *options)
{
    f.base = event_base_new();
    f.service = (struct service){.model = {.name = "tiny",
                                           .vocab = 512,
                                           .window_tokens = 1000,
                                           .created_s = 1750000000},
                                 .ready = true};
    CU_ASSERT_EQUAL_FATAL(front_new(f.base, &f.service, options, &f.front), 0);
}

static void close_front(void)
{
    front_free(f.front);
    fake_service_reset(&f.service);
    event_base_free(f.base);
}

static struct front_options usual(void)
{
    struct front_options options;

    front_options_default(&options);
    options.http.port = 0;
    return options;
}

static struct client *client_new(void)
{
    struct client *c = calloc(1, sizeof(*c));
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(front_port(f.front)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    CU_ASSERT_EQUAL_FATAL(connect(c->fd, (struct sockaddr *)&to, sizeof(to)),
                          0);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    return c;
}

static void client_free(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}

static void client_read(struct client *c)
{
    ssize_t n;

    while (c->fd >= 0 && !c->closed && c->n < sizeof(c->text) - 1) {
        n = recv(c->fd, c->text + c->n, sizeof(c->text) - 1 - c->n, 0);
        if (n > 0)
            c->n += (size_t)n;
        else if (n == 0 || errno != EAGAIN)
            c->closed = true;
        else
            break;
    }
    c->text[c->n] = '\0';
}

static void turn(void)
{
    event_base_loop(f.base, EVLOOP_NONBLOCK);
}

/* Turn the loop until `test` holds or time is up; the outcome. */
#define WAIT(client, test)                      \
    ({                                          \
        time_t until = time(NULL) + GIVE_UP_S;  \
        while (!(test) && time(NULL) < until) { \
            turn();                             \
            if (client)                         \
                client_read(client);            \
        }                                       \
        (test);                                 \
    })

/* Whether all could be sent. */
static bool client_send(struct client *c, const char *bytes, size_t n)
{
    time_t until = time(NULL) + GIVE_UP_S;

    while (n && time(NULL) < until) {
        ssize_t sent = send(c->fd, bytes, n, MSG_NOSIGNAL);

        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        }
        turn();
    }
    return n == 0;
}

static void client_puts(struct client *c, const char *text)
{
    client_send(c, text, strlen(text));
}

static void client_post(struct client *c, const char *path, const char *headers,
                        const char *body)
{
    char head[512];

    snprintf(head, sizeof(head),
             "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n%s\r\n",
             path, strlen(body), headers);
    client_puts(c, head);
    client_puts(c, body);
}

/* The whole answer with a Content-Length has come. */
static bool whole(const struct client *c)
{
    const char *body = strstr(c->text, "\r\n\r\n");
    const char *length = strcasestr(c->text, "Content-Length: ");

    return c->closed || (body && length &&
                         c->n >= (size_t)(body + 4 - c->text) +
                                     strtoul(length + 16, NULL, 10));
}

static int status(const struct client *c)
{
    return strncmp(c->text, "HTTP/1.1 ", 9) == 0 ? atoi(c->text + 9) : 0;
}

static json_t *body_json(const struct client *c)
{
    const char *body = strstr(c->text, "\r\n\r\n");

    return body ? json_loads(body + 4, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

static const char *error_field(json_t *body, const char *key)
{
    const char *text =
        json_string_value(json_object_get(json_object_get(body, "error"), key));

    return text ? text : "";
}

/* Send a raw request, expect a status and part of the answer. */
static void expect_raw(const char *request, int want, const char *part)
{
    struct client *c = client_new();

    client_puts(c, request);
    WAIT(c, whole(c));
    if (status(c) != want || !strstr(c->text, part)) {
        printf("\n  %s\n  -> %s", request, c->text);
        CU_FAIL("another answer");
    }
    client_free(c);
}

static void test_completion(void)
{
    struct front_options options = usual();
    struct client *c;
    struct service_call *call;
    json_t *body, *choice;

    open_front(&options);
    c = client_new();
    client_post(c, "/v1/completions",
                "x-slo-ttft-ms: 12.5\r\n"
                "X-SLO-TPOT-MS: 3\r\n",
                "{\"model\":\"tiny\",\"prompt\":[5,6,7],\"max_tokens\":4,"
                "\"cache_salt\":\"s\"}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 1));
    call = f.service.calls[0];
    CU_ASSERT_EQUAL(call->params.n_tokens, 3);
    CU_ASSERT_EQUAL(call->params.tokens[2], 7);
    CU_ASSERT_EQUAL(call->params.max_tokens, 4);
    CU_ASSERT_EQUAL(call->params.slo_ttft_us, 12500);
    CU_ASSERT_EQUAL(call->params.slo_tbt_us, 3000);
    CU_ASSERT_STRING_EQUAL(call->params.salt, "s");
    CU_ASSERT_EQUAL(front_in_flight(f.front), 1);
    fake_run(call);
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 200);
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "x-conductor-request-id: r-17\r\n"));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(c->text, "x-conductor-predicted-ttft-ms: 1.500\r\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "x-conductor-prefill: p0\r\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "x-conductor-decode: d0\r\n"));
    body = body_json(c);
    choice = json_array_get(json_object_get(body, "choices"), 0);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(choice, "text")),
                           "abcd");
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    json_decref(body);
    client_free(c);
    close_front();
}

/* Prompts of a batch end in any order; choices come by index. */
static void test_batch(void)
{
    struct front_options options = usual();
    struct client *c;
    json_t *body, *choices;

    open_front(&options);
    c = client_new();
    client_post(c, "/v1/completions", "",
                "{\"prompt\":[\"xy\",\"z\"],\"max_tokens\":2}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 2));
    fake_schedule(f.service.calls[1], "p1", NULL);
    fake_tokens(f.service.calls[1], "no");
    fake_done(f.service.calls[1]);
    fake_run(f.service.calls[0]);
    CU_ASSERT(WAIT(c, whole(c)));
    body = body_json(c);
    choices = json_object_get(body, "choices");
    CU_ASSERT_EQUAL(json_array_size(choices), 2);
    CU_ASSERT_STRING_EQUAL(
        json_string_value(json_object_get(json_array_get(choices, 0), "text")),
        "ab");
    CU_ASSERT_STRING_EQUAL(
        json_string_value(json_object_get(json_array_get(choices, 1), "text")),
        "no");
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(
                        json_object_get(body, "usage"), "prompt_tokens")),
                    3);
    json_decref(body);
    client_free(c);
    close_front();
}

static void test_stream(void)
{
    struct front_options options = usual();
    struct client *c;

    open_front(&options);
    c = client_new();
    client_post(c, "/v1/chat/completions", "",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                "\"max_tokens\":2,\"stream\":true,"
                "\"stream_options\":{\"include_usage\":true}}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 1));
    fake_schedule(f.service.calls[0], "p0", "d0");
    turn();
    client_read(c);
    CU_ASSERT_EQUAL(c->n, 0);
    /* A retry before the first token: its place is what is told. */
    fake_schedule(f.service.calls[0], "p2", "d0");
    fake_tokens(f.service.calls[0], "a");
    CU_ASSERT(WAIT(c, strstr(c->text, "\"content\":\"a\"") != NULL));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "x-conductor-prefill: p2\r\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "text/event-stream"));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "\"role\":\"assistant\""));
    fake_tokens(f.service.calls[0], "b");
    fake_done(f.service.calls[0]);
    CU_ASSERT(WAIT(c, strstr(c->text, "\r\n0\r\n\r\n") != NULL));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "\"finish_reason\":\"length\""));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "\"cached_tokens\":3"));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "\"retries\":1"));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "data: [DONE]\n\n"));
    client_free(c);
    close_front();
}

/* An error before the first token is a status, after it an event. */
static void test_failures(void)
{
    struct front_options options = usual();
    struct client *c;
    json_t *body;

    open_front(&options);
    c = client_new();
    client_post(c, "/v1/completions", "",
                "{\"prompt\":[[1],[2]],\"stream\":true}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 2));
    fake_schedule(f.service.calls[0], "p0", "d0");
    fake_fail(f.service.calls[0], 429, "slo_miss", "too busy", 2500000);
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 429);
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "Retry-After: 3\r\n"));
    body = body_json(c);
    CU_ASSERT_STRING_EQUAL(error_field(body, "code"), "slo_miss");
    CU_ASSERT_STRING_EQUAL(error_field(body, "message"), "too busy");
    CU_ASSERT_STRING_EQUAL(error_field(body, "type"), "rate_limit_error");
    json_decref(body);
    CU_ASSERT_TRUE(f.service.calls[1]->cancelled);

    /* What the service refuses about a request is its prompt. */
    c->n = 0;
    client_post(c, "/v1/completions", "", "{\"prompt\":[1]}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 3));
    fake_fail(f.service.calls[2], 400, "too_long", "too long", 0);
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 400);
    body = body_json(c);
    CU_ASSERT_STRING_EQUAL(error_field(body, "param"), "prompt");
    json_decref(body);

    c->n = 0;
    client_post(c, "/v1/completions", "", "{\"prompt\":[1],\"stream\":true}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 4));
    fake_tokens(f.service.calls[3], "q");
    fake_fail(f.service.calls[3], 502, "worker_lost", "d0 died", 0);
    CU_ASSERT(WAIT(c, strstr(c->text, "\r\n0\r\n\r\n") != NULL));
    CU_ASSERT_EQUAL(status(c), 200);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(c->text, "data: {\"error\":{\"message\":\"d0 died\""));
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    client_free(c);
    close_front();
}

/* Retry-After: the time if it is known, 1 s if not, nothing for never. */
static void test_retry_after(void)
{
    static const struct {
        int status;
        int64_t retry_us;
        const char *header; /* NULL: none */
    } cases[] = {
        {429, 1, "Retry-After: 1\r\n"},
        {429, 2000001, "Retry-After: 3\r\n"},
        {429, 0, "Retry-After: 1\r\n"},
        {429, -1, NULL},
        {503, 0, "Retry-After: 1\r\n"},
        {503, -1, NULL},
        {502, 0, NULL},
        {400, -1, NULL},
    };
    struct front_options options = usual();
    struct client *c;

    open_front(&options);
    c = client_new();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *header;

        c->n = 0;
        client_post(c, "/v1/completions", "", "{\"prompt\":[[1],[2]]}");
        CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 2 * i + 2));
        fake_fail(f.service.calls[2 * i + 1], cases[i].status, "x", "y",
                  cases[i].retry_us);
        CU_ASSERT_TRUE(f.service.calls[2 * i]->cancelled);
        CU_ASSERT(WAIT(c, whole(c)));
        CU_ASSERT_EQUAL(status(c), cases[i].status);
        header = strstr(c->text, "Retry-After");
        CU_ASSERT_EQUAL(header != NULL, cases[i].header != NULL);
        if (header && cases[i].header)
            CU_ASSERT_EQUAL(
                strncmp(header, cases[i].header, strlen(cases[i].header)), 0);
    }
    client_free(c);
    close_front();
}

static void test_cancel(void)
{
    struct front_options options = usual();
    const struct linger reset = {1, 0};
    struct client *c;

    open_front(&options);
    /* While waiting, closed in order. */
    c = client_new();
    client_post(c, "/v1/completions", "", "{\"prompt\":[[1],[2],[3]]}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 3));
    client_free(c);
    CU_ASSERT(WAIT((struct client *)NULL, f.service.n_cancelled == 3));
    /* While waiting, by a reset. */
    c = client_new();
    client_post(c, "/v1/completions", "", "{\"prompt\":[1]}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 4));
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    client_free(c);
    CU_ASSERT(WAIT((struct client *)NULL, f.service.n_cancelled == 4));
    /* In the middle of a stream. */
    c = client_new();
    client_post(c, "/v1/completions", "", "{\"prompt\":[1],\"stream\":true}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 5));
    fake_tokens(f.service.calls[4], "ab");
    CU_ASSERT(WAIT(c, strstr(c->text, "\"b\"") != NULL));
    client_free(c);
    CU_ASSERT(WAIT((struct client *)NULL, f.service.n_cancelled == 5));
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    close_front();
}

/* The daemon goes while requests are in work. */
static void test_free_in_flight(void)
{
    struct front_options options = usual();
    struct client *c;

    open_front(&options);
    c = client_new();
    client_post(c, "/v1/completions", "", "{\"prompt\":[[1],[2]]}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 2));
    front_free(f.front);
    CU_ASSERT_EQUAL(f.service.n_cancelled, 2);
    f.front = NULL;
    client_free(c);
    close_front();
}

/* After front_stop what is in work ends well, and nothing new begins. */
static void test_stop(void)
{
    struct front_options options = usual();
    struct client *idle, *late, *whole_one, *stream;

    open_front(&options);
    idle = client_new();
    client_puts(idle, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
    CU_ASSERT(WAIT(idle, whole(idle)));
    CU_ASSERT_EQUAL(status(idle), 200);
    whole_one = client_new();
    client_post(whole_one, "/v1/completions", "", "{\"prompt\":[[1],[2]]}");
    CU_ASSERT_FATAL(WAIT(whole_one, f.service.n_calls == 2));
    stream = client_new();
    client_post(stream, "/v1/completions", "",
                "{\"prompt\":[1],\"stream\":true}");
    CU_ASSERT_FATAL(WAIT(stream, f.service.n_calls == 3));
    fake_tokens(f.service.calls[2], "a");
    late = client_new();
    client_puts(late, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                      "Content-Length: 14\r\n");
    for (int i = 0; i < 10; i++)
        turn();

    front_stop(f.front);
    CU_ASSERT_FALSE(front_drained(f.front));
    CU_ASSERT(WAIT(idle, idle->closed));
    client_puts(late, "\r\n{\"prompt\":[1]}");
    CU_ASSERT(WAIT(late, late->closed));
    CU_ASSERT_EQUAL(status(late), 503);
    CU_ASSERT_PTR_NOT_NULL(strstr(late->text, "shutting_down"));
    CU_ASSERT_PTR_NOT_NULL(strstr(late->text, "Retry-After: 1\r\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(late->text, "Connection: close\r\n"));
    CU_ASSERT_EQUAL(f.service.n_calls, 3);

    fake_run(f.service.calls[0]);
    fake_run(f.service.calls[1]);
    CU_ASSERT(WAIT(whole_one, whole_one->closed));
    CU_ASSERT_EQUAL(status(whole_one), 200);
    CU_ASSERT_PTR_NOT_NULL(strstr(whole_one->text, "Connection: close\r\n"));
    CU_ASSERT_FALSE(front_drained(f.front));
    fake_done(f.service.calls[2]);
    CU_ASSERT(WAIT(stream, stream->closed));
    CU_ASSERT_PTR_NOT_NULL(strstr(stream->text, "[DONE]"));
    CU_ASSERT_TRUE(front_drained(f.front));
    client_free(idle);
    client_free(late);
    client_free(whole_one);
    client_free(stream);
    close_front();
}

/* /ready of a client that was asking while the front stopped. */
static void test_stop_ready(void)
{
    struct front_options options = usual();
    struct client *c;

    open_front(&options);
    c = client_new();
    client_puts(c, "GET /ready HTTP/1.1\r\nHost:");
    for (int i = 0; i < 10; i++)
        turn();
    front_stop(f.front);
    CU_ASSERT_TRUE(front_drained(f.front));
    client_puts(c, " x\r\n\r\n");
    CU_ASSERT(WAIT(c, c->closed));
    CU_ASSERT_EQUAL(status(c), 503);
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "{\"ready\":false}"));
    client_free(c);
    close_front();
}

/* An answer that the client has yet to take keeps the front from being done. */
static void test_stop_unsent(void)
{
    struct front_options options = usual();
    struct client *c;

    options.http.max_output_bytes = 1 << 30;
    open_front(&options);
    c = client_new();
    client_post(c, "/v1/completions", "", "{\"prompt\":[1],\"stream\":true}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 1));
    /* More than the sockets' buffers take. */
    for (size_t i = 0; i < 100000; i++)
        fake_tokens(f.service.calls[0], "x");
    fake_done(f.service.calls[0]);
    front_stop(f.front);
    for (int i = 0; i < 10; i++)
        turn();
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    CU_ASSERT_FALSE(front_drained(f.front));
    while (WAIT(c, c->closed || c->n == sizeof(c->text) - 1) && !c->closed)
        c->n = 0;
    CU_ASSERT_TRUE(front_drained(f.front));
    client_free(c);
    close_front();
}

static void test_submit_fails(void)
{
    struct front_options options = usual();
    struct client *c;

    open_front(&options);
    f.service.submit_errno = EAGAIN;
    f.service.allowed = 1;
    c = client_new();
    client_post(c, "/v1/completions", "", "{\"prompt\":[[1],[2]]}");
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 429);
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "Retry-After: 1\r\n"));
    CU_ASSERT_EQUAL(f.service.n_cancelled, 1);
    f.service.ready = false;
    c->n = 0;
    client_post(c, "/v1/completions", "", "{\"prompt\":[1]}");
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 503);
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "no_ready_instance"));
    /* No worker has registered yet: nothing to check an id against. */
    f.service.model.vocab = 0;
    f.service.model.window_tokens = 0;
    c->n = 0;
    client_post(c, "/v1/completions", "", "{\"prompt\":[1]}");
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 503);
    client_free(c);
    close_front();
}

static void test_routes(void)
{
    struct front_options options = usual();

    open_front(&options);
    expect_raw("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "\"id\":\"tiny\",\"object\":\"model\"");
    expect_raw("GET /health HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "{\"status\":\"ok\"}");
    expect_raw("GET /ready?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "{\"ready\":true}");
    expect_raw("GET http://any.host:80/ready HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "{\"ready\":true}");
    expect_raw("GET /metrics HTTP/1.0\r\n\r\n", 200, "fake_calls 1\n");
    expect_raw("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "conductor_http_responses_total{class=\"2xx\"} 5\n");
    expect_raw("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, "unknown_path");
    expect_raw("GET /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", 405,
               "Allow: POST\r\n");
    expect_raw("DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n", 405,
               "Allow: GET, HEAD\r\n");
    expect_raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
               "text/plain\r\n"
               "Content-Length: 2\r\n\r\n{}",
               415, "application/json");
    expect_raw("GET /admin/explain/r-17 HTTP/1.0\r\n\r\n", 200, "{\"why\":1}");
    expect_raw("GET /admin/explain/r-18 HTTP/1.0\r\n\r\n", 404,
               "nothing is known of request 'r-18'");
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
               "{\"ready\":false}");
    close_front();
}

static void test_bad_http(void)
{
    struct front_options options = usual();
    static char big[40000];

    open_front(&options);
    expect_raw("hello\r\n\r\n", 400, "invalid_http");
    expect_raw("GET /ready HTTP/1.1\r\n\r\n", 400, "Host");
    expect_raw("GET /ready HTTP/1.1\nHost: x\n\n", 400, "CR LF");
    expect_raw("GET / HTTP/2.0\r\n\r\n", 505, "HTTP/1.1");
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
    close_front();
}

static void test_bad_body(void)
{
    static const struct {
        const char *headers, *body;
        int status;
        const char *part;
    } cases[] = {
        {"", "", 400, "invalid_json"},
        {"", "{\"prompt\":", 400, "invalid_json"},
        {"", "{\"prompt\":[512]}", 400, "prompt[0] is 512"},
        {"", "{\"prompt\":[]}", 400, "prompt 0 is empty"},
        {"", "{\"prompt\":\"a\",\"temperature\":0.7}", 400,
         "'temperature' = 0.7 is not supported by model 'tiny'"},
        {"", "{\"prompt\":\"a\",\"max_tokens\":1000}", 400,
         "context_length_exceeded"},
        {"", "{\"prompt\":\"a\",\"model\":\"gpt\"}", 404, "model_not_found"},
        {"x-slo-ttft-ms: soon\r\n", "{\"prompt\":\"a\"}", 400,
         "header 'x-slo-ttft-ms' is 'soon'"},
        {"x-slo-tpot-ms: -1\r\n", "{\"prompt\":\"a\"}", 400,
         "header 'x-slo-tpot-ms' is '-1'"},
        {"x-slo-tpot-ms: 0\r\n", "{\"prompt\":\"a\"}", 400, "x-slo-tpot-ms"},
    };
    struct front_options options = usual();
    struct client *c;

    open_front(&options);
    c = client_new(); /* one connection for all: an error doesn't end it */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *body;

        c->n = 0;
        client_post(c, "/v1/completions", cases[i].headers, cases[i].body);
        CU_ASSERT(WAIT(c, whole(c)));
        body = body_json(c);
        if (status(c) != cases[i].status || !body ||
            !(strstr(error_field(body, "message"), cases[i].part) ||
              strstr(error_field(body, "code"), cases[i].part))) {
            printf("\n  %s\n  -> %s", cases[i].body, c->text);
            CU_FAIL("another answer");
        }
        json_decref(body);
    }
    CU_ASSERT_EQUAL(f.service.n_calls, 0);
    client_free(c);
    close_front();
}

/* A client that writes all before it reads still sees why it was refused. */
static void test_large_body(void)
{
    struct front_options options = usual();
    struct client *c;
    size_t n = 3 << 20;
    char *big = malloc(n), head[200];

    memset(big, ' ', n);
    options.http.max_body_bytes = 1 << 20;
    open_front(&options);
    c = client_new();
    snprintf(head, sizeof(head),
             "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
             "%zu\r\n\r\n",
             n);
    client_puts(c, head);
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_TRUE(client_send(c, big, n));
    CU_ASSERT_EQUAL(status(c), 413);
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "larger than 1048576 bytes"));
    client_free(c);

    c = client_new();
    client_puts(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n300000\r\n");
    CU_ASSERT_TRUE(client_send(c, big, n));
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 413);
    client_free(c);

    c = client_new();
    client_puts(
        c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n"
           "Expect: 100-continue\r\n\r\n");
    CU_ASSERT(WAIT(c, strstr(c->text, "100 Continue\r\n\r\n") != NULL));
    client_puts(c, "{\"prompt\":\"ab\"}");
    CU_ASSERT(WAIT(c, f.service.n_calls == 1));
    client_free(c);
    free(big);
    close_front();
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
        turn();
    return c;
}

static void expect_busy(size_t n, const char *part, size_t n_part)
{
    struct client *c = client_begin(n, part, n_part);

    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 503);
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "too_many_body_bytes"));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "Retry-After: 1\r\n"));
    client_free(c);
}

/* All bodies together are bounded, and let go once they were submitted. */
static void test_body_total(void)
{
    struct front_options options = usual();
    struct client *a, *b;
    char body[900];

    memset(body, ' ', sizeof(body));
    memcpy(body, "{\"prompt\":[1]}", 14);
    options.http.max_body_total_bytes = 1000;
    open_front(&options);
    a = client_begin(900, body, 600);
    expect_raw("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "conductor_http_body_bytes 600\n");
    expect_busy(900, body, 401);
    expect_busy(0, body, 401);
    b = client_begin(900, body, 400); /* just fits */
    CU_ASSERT_EQUAL(b->n, 0);
    client_free(b); /* and gives it back by leaving */
    turn();
    turn();
    CU_ASSERT_TRUE(client_send(a, body + 600, 300));
    CU_ASSERT_FATAL(WAIT(a, f.service.n_calls == 1));
    expect_raw("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "conductor_http_body_bytes 0\n");
    b = client_begin(0, body, 900); /* while the first is in flight */
    client_puts(b, "\r\n0\r\n\r\n");
    CU_ASSERT(WAIT(b, f.service.n_calls == 2));
    expect_raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
               "Content-Length: 1001\r\n\r\n",
               413, "larger than 1000 bytes");
    expect_raw("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "conductor_http_bodies_refused_total 2\n");
    client_free(a);
    client_free(b);
    close_front();
}

static void test_chunked(void)
{
    struct front_options options = usual();
    struct client *c;

    open_front(&options);
    c = client_new();
    client_puts(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\n{\"pro\r\n");
    client_puts(c, "A\r\nmpt\":\"ab\"}\r\n0\r\nT: t\r\n\r\nGET /ready");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 1));
    CU_ASSERT_EQUAL(f.service.calls[0]->params.n_tokens, 2);
    CU_ASSERT_EQUAL(f.service.calls[0]->params.tokens[1], 'b');
    /* A request sent ahead waits for its turn. */
    client_puts(c, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    turn();
    fake_run(f.service.calls[0]);
    CU_ASSERT(WAIT(c, c->closed));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "{\"ready\":true}"));
    client_free(c);
    close_front();
}

/* A stream nobody reads is cut off; memory stays bounded. */
static void test_slow_reader(void)
{
    struct front_options options = usual();
    struct client *c;
    size_t sent = 0;

    options.http.max_output_bytes = 100000;
    open_front(&options);
    c = client_new();
    client_post(c, "/v1/completions", "",
                "{\"prompt\":[1],\"stream\":true,\"max_tokens\":900}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 1));
    while (!f.service.calls[0]->cancelled && sent < 10000000) {
        fake_tokens(f.service.calls[0], "x");
        sent++;
    }
    CU_ASSERT_TRUE(f.service.calls[0]->cancelled);
    CU_ASSERT(sent < 2000);
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    CU_ASSERT(WAIT(c, c->closed));
    client_free(c);
    close_front();
}

/* Below that bound, a client that takes no byte for too long is cut off. */
static void test_stalled_reader(void)
{
    struct front_options options = usual();
    struct client *c;

    options.http.max_output_bytes = 1 << 30;
    options.http.write_us = 50000;
    open_front(&options);
    c = client_new();
    client_post(c, "/v1/completions", "",
                "{\"prompt\":[1],\"stream\":true,\"max_tokens\":900}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_calls == 1));
    /* More than the sockets' buffers take. */
    for (size_t i = 0; i < 100000; i++)
        fake_tokens(f.service.calls[0], "x");
    CU_ASSERT(WAIT((struct client *)NULL, f.service.n_cancelled == 1));
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    client_free(c);
    close_front();
}

static void test_connection_limit(void)
{
    struct front_options options = usual();
    struct client *c[4];

    options.http.max_connections = 3;
    open_front(&options);
    for (size_t i = 0; i < 4; i++)
        c[i] = client_new();
    CU_ASSERT(WAIT(c[3], c[3]->closed));
    CU_ASSERT_EQUAL(status(c[3]), 503);
    CU_ASSERT(whole(c[3]));
    CU_ASSERT_PTR_NOT_NULL(strstr(c[3]->text, "too_many_connections\"}}"));
    client_free(c[0]);
    client_free(c[3]);
    turn();
    turn();
    expect_raw("GET /ready HTTP/1.1\r\nHost: x\r\n\r\n", 200, "true");
    client_free(c[1]);
    client_free(c[2]);
    close_front();
}

static void test_idle(void)
{
    struct front_options options = usual();
    struct client *c;

    options.http.idle_us = 30000;
    open_front(&options);
    c = client_new();
    CU_ASSERT(WAIT(c, c->closed));
    CU_ASSERT_EQUAL(c->n, 0);
    client_free(c);
    close_front();
}

/* A head and a body that never end. */
static void test_slow_sender(void)
{
    struct front_options options = usual();
    struct client *c;

    options.http.receive_us = 30000;
    open_front(&options);
    c = client_new();
    client_puts(c, "GET /ready HTT");
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 408);
    client_free(c);
    c = client_new();
    client_puts(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                   "Content-Length: 10\r\n\r\n{");
    CU_ASSERT(WAIT(c, whole(c)));
    CU_ASSERT_EQUAL(status(c), 408);
    client_free(c);
    close_front();
}

/* The answer to HEAD is a head. */
static void test_head_method(void)
{
    struct front_options options = usual();
    struct client *c;

    open_front(&options);
    c = client_new();
    client_puts(
        c, "HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    CU_ASSERT(WAIT(c, c->closed));
    CU_ASSERT_PTR_NOT_NULL(strstr(c->text, "Content-Length: 15\r\n"));
    CU_ASSERT_EQUAL(strcmp(c->text + c->n - 4, "\r\n\r\n"), 0);
    client_free(c);
    close_front();
}

static void test_port_in_use(void)
{
    struct front_options options = usual();
    struct front *second;

    open_front(&options);
    options.http.port = front_port(f.front);
    CU_ASSERT_EQUAL(front_new(f.base, &f.service, &options, &second),
                    -EADDRINUSE);
    options.http.host = "not-an-address.invalid";
    CU_ASSERT_EQUAL(front_new(f.base, &f.service, &options, &second),
                    -EADDRNOTAVAIL);
    close_front();
}

int main(void)
{
    CU_pSuite suite;
    unsigned failures;

    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    suite = CU_add_suite("openai_http", NULL, NULL);
    CU_add_test(suite, "completion", test_completion);
    CU_add_test(suite, "batch", test_batch);
    CU_add_test(suite, "stream", test_stream);
    CU_add_test(suite, "failures", test_failures);
    CU_add_test(suite, "Retry-After", test_retry_after);
    CU_add_test(suite, "cancel", test_cancel);
    CU_add_test(suite, "free in flight", test_free_in_flight);
    CU_add_test(suite, "stop", test_stop);
    CU_add_test(suite, "stop, /ready", test_stop_ready);
    CU_add_test(suite, "stop, unsent answer", test_stop_unsent);
    CU_add_test(suite, "submit fails", test_submit_fails);
    CU_add_test(suite, "routes", test_routes);
    CU_add_test(suite, "bad HTTP", test_bad_http);
    CU_add_test(suite, "bad bodies", test_bad_body);
    CU_add_test(suite, "large bodies", test_large_body);
    CU_add_test(suite, "all bodies", test_body_total);
    CU_add_test(suite, "chunked, pipelined", test_chunked);
    CU_add_test(suite, "slow reader", test_slow_reader);
    CU_add_test(suite, "stalled reader", test_stalled_reader);
    CU_add_test(suite, "connection limit", test_connection_limit);
    CU_add_test(suite, "idle client", test_idle);
    CU_add_test(suite, "slow sender", test_slow_sender);
    CU_add_test(suite, "HEAD", test_head_method);
    CU_add_test(suite, "port in use", test_port_in_use);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures != 0;
}
