/* What libevent says is a line of the log; and what a socket does not take at
 * once is sent later. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/event_loop.h"
#include "tests/unit/suite.h"

static void loop_again(evutil_socket_t, short, void *base)
{
    CU_ASSERT_EQUAL(event_base_loop(base, EVLOOP_NONBLOCK), -1);
}

/* What is written to the standard error while libevent complains of a loop in
 * a loop. */
static void complain(char *text, size_t size)
{
    struct event_base *base = event_loop_new(1);
    FILE *out = tmpfile();
    int before = dup(STDERR_FILENO);

    CU_ASSERT_PTR_NOT_NULL_FATAL(base);
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    fflush(stderr);
    dup2(fileno(out), STDERR_FILENO);
    event_base_once(base, -1, EV_TIMEOUT, loop_again, base, NULL);
    event_base_dispatch(base);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(out);
    text[fread(text, 1, size - 1, out)] = '\0';
    fclose(out);
    event_base_free(base);
}

static void test_messages(void)
{
    char text[1000];

    complain(text, sizeof(text));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, " warn "));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "libevent: event_base_loop: "));
    CU_ASSERT_PTR_EQUAL(strchr(text, '\n'), strrchr(text, '\n'));
}

#define MANY_BYTES 4000000 /* more than a socket takes */

static void count(struct bufferevent *bev, void *arg)
{
    struct evbuffer *in = bufferevent_get_input(bev);
    size_t *n = arg;

    *n += evbuffer_get_length(in);
    evbuffer_drain(in, evbuffer_get_length(in));
    if (*n == MANY_BYTES + 5)
        event_base_loopbreak(bufferevent_get_base(bev));
}

/* First what the socket takes whole, then more than it takes. */
static void test_send(void)
{
    struct event_base *base = event_loop_new(1);
    char *many = calloc(1, MANY_BYTES);
    struct bufferevent *from, *to;
    int fds[2] = {-1, -1};
    size_t n = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(base);
    CU_ASSERT_PTR_NOT_NULL_FATAL(many);
    CU_ASSERT_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) ==
                    0);
    from = bufferevent_socket_new(base, fds[0], BEV_OPT_CLOSE_ON_FREE);
    to = bufferevent_socket_new(base, fds[1], BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(to, count, NULL, NULL, &n);
    bufferevent_enable(to, EV_READ);
    bufferevent_disable(from, EV_WRITE);
    CU_ASSERT(event_loop_send(from));
    bufferevent_write(from, "first", 5);
    CU_ASSERT(event_loop_send(from));
    CU_ASSERT_FALSE(bufferevent_get_enabled(from) & EV_WRITE);
    bufferevent_write(from, many, MANY_BYTES);
    CU_ASSERT_FALSE(event_loop_send(from));
    CU_ASSERT(bufferevent_get_enabled(from) & EV_WRITE);
    event_base_dispatch(base);
    CU_ASSERT_EQUAL(n, MANY_BYTES + 5);
    bufferevent_free(from);
    bufferevent_free(to);
    event_base_free(base);
    free(many);
}

static const struct suite_test tests[] = {
    {"messages of libevent", test_messages},
    {"what a socket does not take", test_send},
};
SUITE("event_loop", tests)
