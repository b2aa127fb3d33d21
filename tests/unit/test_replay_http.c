/* Requests to a server that goes away, or that cannot be reached. */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop/libevent.h"
#include "base/loop/loop.h"
#include "tests/unit/suite.h"
#include "tools/replay/live/exchange.h"
#include "tools/replay/live/http_request.h"

/* Answers one request, and closes the connection at the next one. */
struct fake {
    struct loop *loop;
    struct replay_server server;
    struct replay_record record;
    int n_requests;
};

static void on_read(struct bufferevent *bev, void *arg)
{
    static const char answer[] = "HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n";
    struct evbuffer *input = bufferevent_get_input(bev);
    struct fake *fake = arg;

    evbuffer_drain(input, evbuffer_get_length(input));
    if (fake->n_requests++ == 0) {
        CU_ASSERT_EQUAL(bufferevent_write(bev, answer, sizeof answer - 1), 0);
        return;
    }
    /* A header that cannot be sent, as if memory was short. */
    strcpy(fake->server.authorization, "a\nb");
    bufferevent_free(bev);
}

static void on_event(struct bufferevent *bev, short, void *)
{
    bufferevent_free(bev);
}

static void on_connection(struct evconnlistener *listener, int fd,
                          struct sockaddr *, int, void *arg)
{
    struct bufferevent *bev = bufferevent_socket_new(
        evconnlistener_get_base(listener), fd, BEV_OPT_CLOSE_ON_FREE);

    CU_ASSERT_PTR_NOT_NULL_FATAL(bev);
    bufferevent_setcb(bev, on_read, NULL, on_event, arg);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
}

static struct evconnlistener *serve(struct fake *fake)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    struct evconnlistener *listener = evconnlistener_new_bind(
        loop_event_base(fake->loop), on_connection, fake, LEV_OPT_CLOSE_ON_FREE,
        -1, (struct sockaddr *)&at, sizeof at);
    char url[64];

    CU_ASSERT_PTR_NOT_NULL_FATAL(listener);
    CU_ASSERT_EQUAL(getsockname(evconnlistener_get_fd(listener),
                                (struct sockaddr *)&at, &size),
                    0);
    snprintf(url, sizeof url, "http://127.0.0.1:%u",
             (unsigned)ntohs(at.sin_port));
    CU_ASSERT_EQUAL(replay_server_parse(url, &fake->server), 0);
    return listener;
}

static void on_done(void *arg, struct replay_record *)
{
    struct fake *fake = arg;

    loop_stop(fake->loop);
}

/* Sends a request and waits for its end. */
static void ask(struct fake *fake, struct replay_idle *idle)
{
    const struct replay_request_params params = {.loop = fake->loop,
                                                 .server = &fake->server,
                                                 .idle = idle,
                                                 .record = &fake->record,
                                                 .start_us = clock_now_us(),
                                                 .timeout_us = 60000000,
                                                 .done = on_done,
                                                 .arg = fake};
    struct replay_request *request;

    fake->record = (struct replay_record){.first_token_us = -1};
    CU_ASSERT_EQUAL_FATAL(
        replay_request_start(&params, evbuffer_new(), &request), 0);
    loop_run(fake->loop);
}

/* A request that cannot be sent again is no timeout. */
static void test_not_sent_again(void)
{
    struct fake fake = {.loop = loop_new()};
    struct replay_idle idle = {0};
    struct evconnlistener *listener = serve(&fake);

    ask(&fake, &idle);
    CU_ASSERT_EQUAL(fake.record.outcome, REPLAY_REJECTED);
    CU_ASSERT_EQUAL(idle.count, 1);
    ask(&fake, &idle);
    CU_ASSERT_EQUAL(fake.n_requests, 2);
    CU_ASSERT_EQUAL(fake.record.outcome, REPLAY_FAILED);
    CU_ASSERT_STRING_EQUAL(fake.record.reason, "out of memory");
    replay_idle_fini(&idle);
    evconnlistener_free(listener);
    loop_free(fake.loop);
}

struct late {
    struct loop *loop;
    bool came;
};

static void on_late(void *arg)
{
    struct late *late = arg;

    late->came = true;
    loop_stop(late->loop);
}

/* A connection that fails at once ends the exchange, also on a loop with other
 * events. */
static void test_fails_at_once(void)
{
    struct loop *loop = loop_new();
    struct replay_server server;
    struct exchange_answer answer;
    char error[600] = "";
    struct late late = {.loop = loop};
    struct loop_timer other;

    loop_timer_init(loop, &other, on_late, &late);
    loop_timer_start(&other, 30000000);
    CU_ASSERT_EQUAL(replay_server_parse("http://255.255.255.255:9", &server),
                    0);
    CU_ASSERT_EQUAL(exchange(loop, &server, NULL, "/", 60000000, &answer, error,
                             sizeof error),
                    -EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error, "no answer from http://255.255."));
    CU_ASSERT_FALSE(late.came);
    loop_timer_stop(&other);
    loop_free(loop);
}

static const struct suite_test tests[] = {
    {"not sent again", test_not_sent_again},
    {"fails at once", test_fails_at_once},
};
SUITE("replay_http", tests)
