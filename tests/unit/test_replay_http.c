/* Requests to a server that cannot be reached. */
#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>
#include <errno.h>
#include <event2/event.h>
#include <string.h>

#include "tools/replay/live/exchange.h"

static void on_late(evutil_socket_t, short, void *arg)
{
    bool *late = arg;

    *late = true;
}

/* A connection that fails at once ends the exchange, also on a base with other
 * events. */
static void test_fails_at_once(void)
{
    struct event_base *base = event_base_new();
    struct timeval s = {.tv_sec = 30};
    struct replay_server server;
    struct exchange_answer answer;
    char error[600] = "";
    bool late = false;
    struct event *other = event_new(base, -1, EV_PERSIST, on_late, &late);

    CU_ASSERT_PTR_NOT_NULL_FATAL(other);
    event_add(other, &s);
    event_base_loopexit(base, &s);
    CU_ASSERT_EQUAL(replay_server_parse("http://255.255.255.255:9", &server),
                    0);
    CU_ASSERT_EQUAL(exchange(base, &server, NULL, "/", 60000000, &answer, error,
                             sizeof error),
                    -EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error, "no answer from http://255.255."));
    CU_ASSERT_FALSE(late);
    event_free(other);
    event_base_free(base);
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite s = CU_add_suite("replay_http", NULL, NULL);
    CU_add_test(s, "fails at once", test_fails_at_once);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed > 0;
}
