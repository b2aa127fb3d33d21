/* Completions over real sockets: answers, streams, failures, stopping. */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/loop/libevent.h"
#include "front_client.h"
#include "tests/unit/suite.h"

FRONT_TEST(test_completion)
{
    struct service_request *call;
    json_t *body, *choice;

    client_post(c, "/v1/completions",
                "x-slo-ttft-ms: 12.5\r\n"
                "X-SLO-TPOT-MS: 3\r\n",
                "{\"model\":\"tiny\",\"prompt\":[5,6,7],\"max_tokens\":4,"
                "\"cache_salt\":\"s\"}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_requests == 1));
    call = f.service.requests[0];
    CU_ASSERT_EQUAL(call->params.n_tokens, 3);
    CU_ASSERT_EQUAL(call->params.tokens[2], 7);
    CU_ASSERT_EQUAL(call->params.max_tokens, 4);
    CU_ASSERT_EQUAL(call->params.slo_ttft_us, 12500);
    CU_ASSERT_EQUAL(call->params.slo_tbt_us, 3000);
    CU_ASSERT_STRING_EQUAL(call->params.salt, "s");
    CU_ASSERT_EQUAL(front_in_flight(f.front), 1);
    fake_run(call);
    ANSWERED(c, 200);
    HAS(c, "x-conductor-request-id: r-17\r\n");
    HAS(c, "x-conductor-predicted-ttft-ms: 1.500\r\n");
    HAS(c, "x-conductor-prefill: p0\r\n");
    HAS(c, "x-conductor-decode: d0\r\n");
    body = client_json(c);
    choice = json_array_get(json_object_get(body, "choices"), 0);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(choice, "text")),
                           "abcd");
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    json_decref(body);
}

/* Prompts of a batch end in any order; choices come by index. */
FRONT_TEST(test_batch)
{
    json_t *body, *choices;

    POSTED(c, "{\"prompt\":[\"xy\",\"z\"],\"max_tokens\":2}", 2);
    fake_schedule(f.service.requests[1], "p1", NULL);
    fake_tokens(f.service.requests[1], "no");
    fake_done(f.service.requests[1]);
    fake_run(f.service.requests[0]);
    CU_ASSERT(WAIT(c, client_whole(c)));
    body = client_json(c);
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
}

static void test_stream(void)
{
    struct front_options options = front_usual();
    struct client *c;

    front_open(&options);
    c = client_new();
    client_post(c, "/v1/chat/completions", "",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                "\"max_tokens\":2,\"stream\":true,"
                "\"stream_options\":{\"include_usage\":true}}");
    CU_ASSERT_FATAL(WAIT(c, f.service.n_requests == 1));
    fake_schedule(f.service.requests[0], "p0", "d0");
    front_turn();
    client_read(c);
    CU_ASSERT_EQUAL(c->n, 0);
    /* A retry before the first token: its place is what is told. */
    fake_schedule(f.service.requests[0], "p2", "d0");
    fake_tokens(f.service.requests[0], "a");
    CU_ASSERT(WAIT(c, strstr(c->text, "\"content\":\"a\"")));
    HAS(c, "x-conductor-prefill: p2\r\n");
    HAS(c, "text/event-stream");
    HAS(c, "\"role\":\"assistant\"");
    fake_tokens(f.service.requests[0], "b");
    fake_done(f.service.requests[0]);
    CU_ASSERT(WAIT(c, strstr(c->text, "\r\n0\r\n\r\n")));
    HAS(c, "\"finish_reason\":\"length\"");
    HAS(c, "\"cached_tokens\":3");
    HAS(c, "\"retries\":1");
    HAS(c, "data: [DONE]\n\n");
    client_free(c);
    front_close();
}

/* The first of a batch ends without a token, and begins the stream: no comment
 * begins it again. Returns the events on the loop then. */
static int events_of_no_token(int64_t keepalive_us)
{
    struct front_options options = front_usual();
    struct client *c;
    int n;

    options.keepalive_us = keepalive_us;
    front_open(&options);
    c = client_new();
    POSTED(c, "{\"prompt\":[[1],[2]],\"stream\":true}", 2);
    fake_done(f.service.requests[0]);
    CU_ASSERT(WAIT(c, strstr(c->text, "finish_reason")));
    front_turn();
    n = event_base_get_num_events(loop_event_base(f.loop),
                                  EVENT_BASE_COUNT_ADDED);
    fake_run(f.service.requests[1]);
    CU_ASSERT(WAIT(c, client_whole(c)));
    client_free(c);
    front_close();
    return n;
}

static void test_no_token(void)
{
    CU_ASSERT_EQUAL(events_of_no_token(3600000000), events_of_no_token(0));
}

/* An error before the first token is a status, after it an event. */
FRONT_TEST(test_failures)
{
    json_t *body;

    POSTED(c, "{\"prompt\":[[1],[2]],\"stream\":true}", 2);
    fake_schedule(f.service.requests[0], "p0", "d0");
    fake_fail(f.service.requests[0], 429, "slo_miss", "too busy", 2500000);
    ANSWERED(c, 429);
    HAS(c, "Retry-After: 3\r\n");
    body = client_json(c);
    CU_ASSERT_STRING_EQUAL(error_field(body, "code"), "slo_miss");
    CU_ASSERT_STRING_EQUAL(error_field(body, "message"), "too busy");
    CU_ASSERT_STRING_EQUAL(error_field(body, "type"), "rate_limit_error");
    json_decref(body);
    CU_ASSERT_TRUE(f.service.requests[1]->cancelled);

    /* What the service refuses about a request is its prompt. */
    POSTED(c, "{\"prompt\":[1]}", 3);
    fake_fail(f.service.requests[2], 400, "too_long", "too long", 0);
    ANSWERED(c, 400);
    body = client_json(c);
    CU_ASSERT_STRING_EQUAL(error_field(body, "param"), "prompt");
    json_decref(body);

    POSTED(c, "{\"prompt\":[1],\"stream\":true}", 4);
    fake_tokens(f.service.requests[3], "q");
    fake_fail(f.service.requests[3], 502, "worker_lost", "d0 died", 0);
    CU_ASSERT(WAIT(c, strstr(c->text, "\r\n0\r\n\r\n")));
    CU_ASSERT_EQUAL(client_status(c), 200);
    HAS(c, "data: {\"error\":{\"message\":\"d0 died\"");
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
}

/* Retry-After: the time if it is known, 1 s if not, nothing for never. */
FRONT_TEST(test_retry_after)
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

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *header;

        POSTED(c, "{\"prompt\":[[1],[2]]}", 2 * i + 2);
        fake_fail(f.service.requests[2 * i + 1], cases[i].status, "x", "y",
                  cases[i].retry_us);
        CU_ASSERT_TRUE(f.service.requests[2 * i]->cancelled);
        ANSWERED(c, cases[i].status);
        header = strstr(c->text, "Retry-After");
        CU_ASSERT_EQUAL(!header, !cases[i].header);
        if (header && cases[i].header)
            CU_ASSERT_EQUAL(
                strncmp(header, cases[i].header, strlen(cases[i].header)), 0);
    }
}

static void test_cancel(void)
{
    struct front_options options = front_usual();
    const struct linger reset = {1, 0};
    struct client *c;

    front_open(&options);
    /* While waiting, closed in order. */
    c = client_new();
    POSTED(c, "{\"prompt\":[[1],[2],[3]]}", 3);
    client_free(c);
    CU_ASSERT(WAIT((struct client *)NULL, f.service.n_cancelled == 3));
    /* While waiting, by a reset. */
    c = client_new();
    POSTED(c, "{\"prompt\":[1]}", 4);
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    client_free(c);
    CU_ASSERT(WAIT((struct client *)NULL, f.service.n_cancelled == 4));
    /* In the middle of a stream. */
    c = client_new();
    POSTED(c, "{\"prompt\":[1],\"stream\":true}", 5);
    fake_tokens(f.service.requests[4], "ab");
    CU_ASSERT(WAIT(c, strstr(c->text, "\"b\"")));
    client_free(c);
    CU_ASSERT(WAIT((struct client *)NULL, f.service.n_cancelled == 5));
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    front_close();
}

/* The daemon goes while requests are in work. */
FRONT_TEST(test_free_in_flight)
{
    POSTED(c, "{\"prompt\":[[1],[2]]}", 2);
    front_free(f.front);
    CU_ASSERT_EQUAL(f.service.n_cancelled, 2);
    f.front = NULL;
}

/* After front_stop what is in work ends well, and nothing new begins. */
static void test_stop(void)
{
    struct front_options options = front_usual();
    struct client *idle, *late, *whole_one, *stream;

    front_open(&options);
    idle = client_new();
    client_puts(idle, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
    ANSWERED(idle, 200);
    whole_one = client_new();
    POSTED(whole_one, "{\"prompt\":[[1],[2]]}", 2);
    stream = client_new();
    POSTED(stream, "{\"prompt\":[1],\"stream\":true}", 3);
    fake_tokens(f.service.requests[2], "a");
    late = client_new();
    client_puts(late, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                      "Content-Length: 14\r\n");
    for (int i = 0; i < 10; i++)
        front_turn();

    front_stop(f.front, false);
    CU_ASSERT_FALSE(front_drained(f.front));
    CU_ASSERT(WAIT(idle, idle->closed));
    client_puts(late, "\r\n{\"prompt\":[1]}");
    CU_ASSERT(WAIT(late, late->closed));
    CU_ASSERT_EQUAL(client_status(late), 503);
    HAS(late, "shutting_down");
    HAS(late, "Retry-After: 1\r\n");
    HAS(late, "Connection: close\r\n");
    CU_ASSERT_EQUAL(f.service.n_requests, 3);
    client_free(late);

    fake_run(f.service.requests[0]);
    fake_run(f.service.requests[1]);
    CU_ASSERT(WAIT(whole_one, whole_one->closed));
    CU_ASSERT_EQUAL(client_status(whole_one), 200);
    HAS(whole_one, "Connection: close\r\n");
    CU_ASSERT_FALSE(front_drained(f.front));
    fake_done(f.service.requests[2]);
    CU_ASSERT(WAIT(stream, stream->closed));
    HAS(stream, "[DONE]");
    CU_ASSERT_TRUE(front_drained(f.front));
    client_free(idle);
    client_free(whole_one);
    client_free(stream);
    front_close();
}

/* A prompt, all of it but its end. */
static struct client *half_sent(void)
{
    struct client *c = client_new();

    client_puts(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                   "Content-Length: 14\r\n\r\n{\"prompt\":[1");
    for (int i = 0; i < 10; i++)
        front_turn();
    return c;
}

/* The front stops while this much of a request has come, perhaps behind another
 * one, and the loop has read it or not: the client is told so before the daemon
 * ends. */
static void stop_in(const char *part, bool used, bool was_read)
{
    struct front_options options = front_usual();
    struct client *c;

    front_open(&options);
    c = client_new();
    if (used) {
        client_puts(c, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
        CU_ASSERT(WAIT(c, client_whole(c)));
        c->n = 0;
        *c->text = '\0';
    } else {
        for (int i = 0; i < 10; i++)
            front_turn();
    }
    CU_ASSERT_EQUAL(write(c->fd, part, strlen(part)), (ssize_t)strlen(part));
    for (int i = 0; was_read && i < 10; i++)
        front_turn();
    front_stop(f.front, false);
    CU_ASSERT_FALSE(front_drained(f.front));
    CU_ASSERT(WAIT(c, client_status(c) == 503));
    HAS(c, "shutting_down");
    HAS(c, "Retry-After: 1\r\n");
    HAS(c, "Connection: close\r\n");
    CU_ASSERT_FALSE(front_drained(f.front));
    shutdown(c->fd, SHUT_WR);
    CU_ASSERT(WAIT(c, front_drained(f.front)));
    CU_ASSERT_EQUAL(f.service.n_requests, 0);
    client_free(c);
    front_close();
}

static void test_stop_in_a_request(void)
{
    static const char *const parts[] = {
        "P",
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\n",
        ("POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
         "Content-Length: 14\r\n\r\n{\"prompt\":[1"),
    };

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        for (int how = 0; how < 4; how++)
            stop_in(parts[i], how & 1, how & 2);
}

/* Where another process takes the next ones, it is served still; and told so
 * when its time is over. */
static void test_handed_over_in_a_body(void)
{
    struct front_options options = front_usual();
    struct client *in_time, *late;

    front_open(&options);
    in_time = half_sent();
    late = half_sent();
    front_stop(f.front, true);
    CU_ASSERT_FALSE(front_drained(f.front));
    client_puts(in_time, "]}");
    CU_ASSERT_FATAL(WAIT(in_time, f.service.n_requests == 1));
    fake_run(f.service.requests[0]);
    CU_ASSERT(WAIT(in_time, in_time->closed));
    CU_ASSERT_EQUAL(client_status(in_time), 200);
    CU_ASSERT_FALSE(front_drained(f.front));
    front_stop(f.front, false);
    CU_ASSERT(WAIT(late, client_status(late) == 503));
    client_free(late);
    CU_ASSERT(WAIT(in_time, front_drained(f.front)));
    client_free(in_time);
    front_close();
}

/* Balancers are told before the front stops. */
FRONT_TEST(test_unready)
{
    front_unready(f.front);
    client_puts(c, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
    ANSWERED(c, 503);
    HAS(c, "{\"ready\":false,");
}

/* An answer that the client has yet to take keeps the front from being done. */
FRONT_TEST_WITH(test_stop_unsent, (options.http.max_output_bytes = 1 << 30))
{
    POSTED(c, "{\"prompt\":[1],\"stream\":true}", 1);
    /* More than the sockets' buffers take. */
    for (size_t i = 0; i < 100000; i++)
        fake_tokens(f.service.requests[0], "x");
    fake_done(f.service.requests[0]);
    front_stop(f.front, false);
    for (int i = 0; i < 10; i++)
        front_turn();
    CU_ASSERT_EQUAL(front_in_flight(f.front), 0);
    CU_ASSERT_FALSE(front_drained(f.front));
    while (WAIT(c, c->closed || c->n == sizeof(c->text) - 1) && !c->closed)
        c->n = 0;
    CU_ASSERT_TRUE(front_drained(f.front));
}

static void test_submit_fails(void)
{
    struct front_options options = front_usual();
    struct client *c;

    front_open(&options);
    f.service.submit_errno = EAGAIN;
    f.service.allowed = 1;
    c = client_new();
    client_post(c, "/v1/completions", "", "{\"prompt\":[[1],[2]]}");
    ANSWERED(c, 429);
    HAS(c, "Retry-After: 1\r\n");
    CU_ASSERT_EQUAL(f.service.n_cancelled, 1);
    f.service.ready = false;
    c->n = 0;
    client_post(c, "/v1/completions", "", "{\"prompt\":[1]}");
    ANSWERED(c, 503);
    HAS(c, "no_ready_instance");
    f.service.lacks = "prefill";
    c->n = 0;
    client_post(c, "/v1/completions", "", "{\"prompt\":[1]}");
    ANSWERED(c, 503);
    HAS(c, "no_prefill_instance");
    HAS(c, "no prefill instance is ready\"");
    f.service.drained = ": all 2 are drained";
    c->n = 0;
    client_post(c, "/v1/completions", "", "{\"prompt\":[1]}");
    ANSWERED(c, 503);
    HAS(c, "no prefill instance is ready: all 2 are drained\"");
    f.service.drained = NULL;
    /* No worker has registered yet: nothing to check an id against. */
    f.service.model.vocab = 0;
    f.service.model.window_tokens = 0;
    c->n = 0;
    client_post(c, "/v1/completions", "", "{\"prompt\":[1]}");
    ANSWERED(c, 503);
    client_free(c);
    front_close();
}

static const struct suite_test tests[] = {
    {"completion", test_completion},
    {"batch", test_batch},
    {"stream", test_stream},
    {"no token", test_no_token},
    {"failures", test_failures},
    {"Retry-After", test_retry_after},
    {"cancel", test_cancel},
    {"free in flight", test_free_in_flight},
    {"stop", test_stop},
    {"stop, in a request", test_stop_in_a_request},
    {"handed over in a body", test_handed_over_in_a_body},
    {"not ready", test_unready},
    {"stop, unsent answer", test_stop_unsent},
    {"submit fails", test_submit_fails},
};
SUITE("openai_http", tests)
