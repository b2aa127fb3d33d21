/* The status page and the streams of events: what comes when, how many may
 * watch, what becomes of those that take nothing, and of operators' pages
 * without memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "conductor/front/watch/watch.h"
#include "front_client.h"
#include "tests/unit/suite.h"

#define ASK "GET /admin/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

static struct front_options soon(void)
{
    struct front_options options = front_usual();

    options.events_us = 10000;
    return options;
}

static unsigned count(const struct client *c, const char *part)
{
    unsigned n = 0;

    for (const char *at = c->text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

static void test_page(void)
{
    struct front_options options = front_usual();

    front_open(&options);
    expect_raw("GET /admin HTTP/1.1\r\nHost: x\r\n\r\n", 200,
               "Content-Security-Policy: default-src 'none';");
    expect_raw("GET /admin/ HTTP/1.1\r\nHost: x\r\n\r\n", 200, "<!doctype");
    /* It is the engines' where there is one door for all. */
    expect_raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404, "unknown_path");
    expect_raw("POST /admin HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
               405, "Allow: GET, HEAD");
    expect_raw(
        "HEAD /admin/events HTTP/1.1\r\nHost: [::1]:8082\r\nConnection: close"
        "\r\n\r\n",
        200, "text/event-stream");
    /* A page of another origin, and one whose own name led here. */
    expect_raw("GET /admin/events HTTP/1.1\r\nHost: localhost\r\nOrigin: null"
               "\r\n\r\n",
               403, "admin_forbidden");
    expect_raw("GET /admin/decisions HTTP/1.1\r\nHost: localhost\r\n"
               "Origin: null\r\n\r\n",
               403, "admin_forbidden");
    expect_raw("GET /admin/decisions HTTP/1.1\r\nHost: page.example:8082\r\n"
               "\r\n",
               403, "admin_forbidden");
    expect_raw("GET /admin/decisions HTTP/1.1\r\nHost: 127.0.0.1.example\r\n"
               "\r\n",
               403, "admin_forbidden");
    expect_raw("GET /admin/decisions HTTP/1.1\r\nHost: LocalHost:8082\r\n"
               "\r\n",
               200, "[");
    front_close();
}

static void test_events(void)
{
    struct front_options options = soon();
    struct client *c;

    front_open(&options);
    c = client_new();
    client_puts(c, ASK);
    CU_ASSERT(WAIT(c, count(c, "event: history\ndata: {\"step_s\":10}\n\n")));
    /* More of them may have come in the same turn. */
    CU_ASSERT(count(c, "event: overview\ndata: {") >= 1);
    CU_ASSERT(count(c, "event: decisions\n") >= 1);
    CU_ASSERT(WAIT(c, count(c, "event: history\n") >= 3));
    CU_ASSERT(count(c, "event: overview\n") >= 20);
    CU_ASSERT(count(c, "event: history/5m\ndata: {\"step_s\":5}\n\n") >= 5);
    CU_ASSERT_EQUAL(count(c, "event: history/24h\ndata: {\"step_s\":240}\n\n"),
                    1);
    CU_ASSERT_EQUAL(count(c, "event: overview\n"),
                    count(c, "event: instances\n"));
    /* At the first interval it is not known that there was none before. */
    CU_ASSERT(count(c, "event: decisions\n") <= 2);
    f.models.decided = 5;
    CU_ASSERT(WAIT(c, count(c, "data: {\"decisions\":[8,5]}\n\n") == 1));
    client_free(c);
    front_close();
}

static void test_how_many(void)
{
    struct front_options options = soon();
    struct client *all[WATCH_VIEWERS_MAX];

    front_open(&options);
    for (int i = 0; i < WATCH_VIEWERS_MAX; i++) {
        all[i] = client_new();
        client_puts(all[i], ASK);
        CU_ASSERT(WAIT(all[i], count(all[i], "event: history")));
    }
    expect_raw(ASK, 503, "too_many_viewers");
    client_free(all[0]);
    all[0] = client_new();
    for (int i = 0; i < 20; i++)
        front_turn();
    client_puts(all[0], ASK);
    CU_ASSERT(WAIT(all[0], count(all[0], "event: history")));
    front_stop(f.front, false);
    for (int i = 0; i < WATCH_VIEWERS_MAX; i++) {
        CU_ASSERT(WAIT(all[i], all[i]->closed));
        CU_ASSERT(count(all[i], "\r\n0\r\n\r\n") > 0);
        client_free(all[i]);
    }
    CU_ASSERT(WAIT((struct client *)NULL, front_drained(f.front)));
    front_close();
}

static size_t connections(void)
{
    return http_server_stats(f.front->door.server)->connections;
}

/* It takes nothing, while events of 900 KB come: one of them waits for it, and
 * it is closed; others go on. */
static void test_stalled(void)
{
    struct front_options options = soon();
    struct client *stalled, *other;
    const int small = 4096;

    front_open(&options);
    f.models.more_bytes = 900000;
    stalled = client_new();
    setsockopt(stalled->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    client_puts(stalled, ASK);
    CU_ASSERT(WAIT((struct client *)NULL, connections() == 1));
    CU_ASSERT(WAIT((struct client *)NULL, connections() == 0));
    client_free(stalled);
    f.models.more_bytes = 0;
    other = client_new();
    client_puts(other, ASK);
    CU_ASSERT(WAIT(other, count(other, "event: history\n") == 2));
    client_free(other);
    front_close();
}

/* How many allocations succeed before one fails; negative: none
 * fails. */
static int before_failure = -1;

void *__real_realloc(void *old, size_t n);
void *__wrap_realloc(void *old, size_t n);

/* Pages are written into memory that grows. */
void *__wrap_realloc(void *old, size_t n)
{
    return before_failure >= 0 && before_failure-- == 0
               ? NULL
               : __real_realloc(old, n);
}

/* Pages in several pieces of memory, and each allocation in turn fails: a
 * client may get no page, and the next one gets it. */
static void test_memory(void)
{
    static const char *const paths[] = {"/admin/instances", "/metrics",
                                        "/admin/events"};
    struct front_options options = soon();

    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        bool failed = true;

        for (int point = 0; failed; point++) {
            struct client *c;
            char ask[100];

            front_open(&options);
            f.models.more_bytes = 5000;
            c = client_new();
            for (int turn = 0; turn < 5; turn++)
                front_turn();
            snprintf(ask, sizeof(ask),
                     "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", paths[i]);
            before_failure = point;
            client_puts(c, ask);
            CU_ASSERT(WAIT(c, client_whole(c) || count(c, "event: history")));
            failed = before_failure < 0;
            before_failure = -1;
            client_free(c);
            expect_raw("GET /admin/instances HTTP/1.1\r\nHost: x\r\n\r\n", 200,
                       "instances");
            f.models.more_bytes = 0;
            front_close();
        }
    }
}

static const struct suite_test tests[] = {
    {"page", test_page},         {"events", test_events},
    {"how many", test_how_many}, {"stalled", test_stalled},
    {"memory", test_memory},
};

SUITE("watch", tests)
