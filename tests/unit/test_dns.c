/* Look-ups on a loop: addresses in numbers, an answer that never comes, and
 * what is cancelled before its end. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dns.h"
#include "base/loop/loop.h"
#include "tests/unit/suite.h"

/* What on_done() was told. */
static int n_done;
static char told[64];

static void on_done(void *, const struct dns_answer *answer)
{
    const struct dns_address *first = dns_first(answer);
    struct sockaddr_storage at;

    n_done++;
    CU_ASSERT_PTR_NULL(dns_why_not(answer));
    CU_ASSERT_PTR_NOT_NULL_FATAL(first);
    CU_ASSERT_EQUAL(dns_sockaddr(first, 7, &at),
                    first->family == AF_INET ? sizeof(struct sockaddr_in)
                                             : sizeof(struct sockaddr_in6));
    CU_ASSERT_PTR_NOT_NULL(
        inet_ntop(first->family, first->bytes, told, sizeof(told)));
}

static void test_numbers(void)
{
    static const char *const hosts[] = {"127.0.0.9", "::1"};
    struct loop *loop = loop_new();
    struct dns *dns = dns_new(loop, "");
    struct dns_address a;

    CU_ASSERT_PTR_NOT_NULL_FATAL(dns);
    for (size_t i = 0; i < 2; i++) {
        n_done = 0;
        CU_ASSERT_PTR_NOT_NULL(dns_look_up(dns, hosts[i], on_done, NULL));
        CU_ASSERT_EQUAL(n_done, 0); /* from the loop alone */
        loop_turn(loop, -1);
        CU_ASSERT_EQUAL(n_done, 1);
        CU_ASSERT_STRING_EQUAL(told, hosts[i]);
    }
    CU_ASSERT_TRUE(dns_numeric("fe80::1%lo", &a));
    CU_ASSERT_NOT_EQUAL(a.scope, 0);
    CU_ASSERT_FALSE(dns_numeric("localhost", &a));
    dns_cancel(NULL);
    dns_free(dns);
    dns_free(NULL);
    loop_free(loop);
}

/* A name server that says nothing: a look-up ends by being cancelled, and what
 * is under way then with the resolver. */
static void test_silence(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct loop *loop = loop_new();
    char server[32], question[512];
    struct dns_lookup *l;
    struct dns *dns;

    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&at, n), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    snprintf(server, sizeof(server), "127.0.0.1:%d", ntohs(at.sin_port));
    dns = dns_new(loop, server);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dns);
    n_done = 0;
    l = dns_look_up(dns, "engines.test", on_done, NULL);
    CU_ASSERT_PTR_NOT_NULL(l);
    CU_ASSERT(recv(fd, question, sizeof(question), 0) > 12);
    CU_ASSERT_EQUAL(question[11], 1); /* EDNS0 */
    loop_turn(loop, 0);
    dns_cancel(l);
    loop_turn(loop, 0);
    CU_ASSERT_EQUAL(n_done, 0);
    dns_free(dns);
    loop_free(loop);
    close(fd);
}

static void test_servers(void)
{
    static const char *const bad[] = {"name:53", "127.0.0.1:99999", "::1::"};
    struct loop *loop = loop_new();

    for (size_t i = 0; i < 3; i++)
        CU_ASSERT_PTR_NULL(dns_new(loop, bad[i]));
    struct dns *dns = dns_new(loop, "[::1]:53");
    CU_ASSERT_PTR_NOT_NULL(dns);
    dns_free(dns);
    loop_free(loop);
}

static const struct suite_test tests[] = {
    {"numbers", test_numbers},
    {"silence", test_silence},
    {"servers", test_servers},
};
SUITE("dns", tests)
