/* What libevent says is a line of the log. */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static const struct suite_test tests[] = {
    {"messages of libevent", test_messages},
};
SUITE("event_loop", tests)
