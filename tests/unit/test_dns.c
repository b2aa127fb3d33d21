/* Look-ups on a loop: addresses in numbers, an answer that never comes, half an
 * answer, and what is cancelled before its end. */
#include <arpa/inet.h>
#include <malloc.h>
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
static size_t n_told; /* addresses */

static void on_done(void *, const struct dns_answer *answer)
{
    const struct dns_address *first = dns_first(answer);
    struct sockaddr_storage at;

    n_done++;
    n_told = answer->v4.n + answer->v6.n;
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
    static const char *const own[] = {"localhost", "LocalHost", "a.localhost"};
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
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        n_done = 0;
        CU_ASSERT_PTR_NOT_NULL(dns_look_up(dns, own[i], on_done, NULL));
        loop_turn(loop, -1);
        CU_ASSERT_EQUAL(n_done, 1);
        CU_ASSERT_STRING_EQUAL(told, "127.0.0.1");
        CU_ASSERT_EQUAL(n_told, 2);
    }
    CU_ASSERT_TRUE(dns_numeric("fe80::1%lo", &a));
    CU_ASSERT_NOT_EQUAL(a.scope, 0);
    CU_ASSERT_FALSE(dns_numeric("localhost", &a));
    dns_cancel(NULL);
    dns_free(dns);
    dns_free(NULL);
    loop_free(loop);
}

/* A name server of this test, and the last questions that it got. */
struct server {
    int fd;
    char at[32];
    struct {
        unsigned char bytes[512];
        struct sockaddr_in from;
    } v4, v6;
};

static void server_init(struct server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);

    s->fd = socket(AF_INET, SOCK_DGRAM, 0);
    CU_ASSERT_EQUAL_FATAL(bind(s->fd, (struct sockaddr *)&at, n), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(s->fd, (struct sockaddr *)&at, &n), 0);
    snprintf(s->at, sizeof(s->at), "127.0.0.1:%d", ntohs(at.sin_port));
}

/* A name server that says nothing: a look-up ends by being cancelled, and what
 * is under way then with the resolver. */
static void test_silence(void)
{
    struct server server;
    struct loop *loop = loop_new();
    unsigned char question[512];
    struct dns_lookup *l;
    struct dns *dns;

    server_init(&server);
    dns = dns_new(loop, server.at);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dns);
    n_done = 0;
    l = dns_look_up(dns, "engines.test", on_done, NULL);
    CU_ASSERT_PTR_NOT_NULL(l);
    CU_ASSERT(recv(server.fd, question, sizeof(question), 0) > 12);
    CU_ASSERT_EQUAL(question[11], 1); /* EDNS0 */
    loop_turn(loop, 0);
    dns_cancel(l);
    loop_turn(loop, 0);
    CU_ASSERT_EQUAL(n_done, 0);
    dns_free(dns);
    loop_free(loop);
    close(server.fd);
}

/* The questions about engines.test: a head of 12 bytes, a name of 14, the kind
 * and the class. */
enum { KIND_AT = 27, QUESTION_BYTES = 30, KIND_A = 1 };

/* Takes both questions. */
static void server_take(struct server *s)
{
    for (int i = 0; i < 2; i++) {
        unsigned char bytes[512];
        struct sockaddr_in from;
        socklen_t n = sizeof(from);

        CU_ASSERT_FATAL(recvfrom(s->fd, bytes, sizeof(bytes), 0,
                                 (struct sockaddr *)&from,
                                 &n) >= QUESTION_BYTES);
        bool is_v4 = bytes[KIND_AT] == KIND_A;
        memcpy(is_v4 ? s->v4.bytes : s->v6.bytes, bytes, QUESTION_BYTES);
        *(is_v4 ? &s->v4.from : &s->v6.from) = from;
    }
}

/* Answers a question with no address, or with 127.0.0.9. */
static void server_answer(const struct server *s, const unsigned char *question,
                          const struct sockaddr_in *to, bool found)
{
    static const unsigned char record[] = {0xc0, 12, 0, KIND_A, 0,   1, 0, 0,
                                           0,    9,  0, 4,      127, 0, 0, 9};
    unsigned char bytes[QUESTION_BYTES + sizeof(record)];
    size_t n = QUESTION_BYTES + (found ? sizeof(record) : 0);

    memcpy(bytes, question, QUESTION_BYTES);
    bytes[2] = 0x81; /* an answer */
    bytes[3] = 0x80;
    bytes[7] = found;
    bytes[11] = 0; /* without EDNS0 */
    memcpy(bytes + QUESTION_BYTES, record, sizeof(record));
    CU_ASSERT_EQUAL(
        sendto(s->fd, bytes, n, 0, (const struct sockaddr *)to, sizeof(*to)),
        (ssize_t)n);
}

/* A name server that never answers for IPv6: whoever uses only the first
 * address does not wait for that. */
static void test_first(void)
{
    struct server server;
    struct loop *loop = loop_new();
    struct dns *dns;

    server_init(&server);
    dns = dns_new(loop, server.at);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dns);
    for (int first = 0; first < 2; first++) {
        n_done = 0;
        CU_ASSERT_PTR_NOT_NULL((first ? dns_look_up_first : dns_look_up)(
            dns, "engines.test", on_done, NULL));
        server_take(&server);
        server_answer(&server, server.v4.bytes, &server.v4.from, true);
        loop_turn(loop, -1);
        loop_turn(loop, 0);
        CU_ASSERT_EQUAL(n_done, first);
        if (first == 0)
            server_answer(&server, server.v6.bytes, &server.v6.from, false);
        while (n_done == 0)
            loop_turn(loop, -1);
        CU_ASSERT_STRING_EQUAL(told, "127.0.0.9");
        CU_ASSERT_EQUAL(n_done, 1);
    }
    dns_free(dns);
    loop_free(loop);
    close(server.fd);
}

/* c-ares 1.18 loses a copy of the name with each of them. */
static void test_localhost(void)
{
    struct loop *loop = loop_new();
    struct dns *dns = dns_new(loop, "");
    size_t before = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(dns);
    for (int i = 0; i < 1001; i++) {
        if (i == 1)
            before = mallinfo2().uordblks;
        CU_ASSERT_PTR_NOT_NULL(dns_look_up(dns, "localhost", on_done, NULL));
        loop_turn(loop, -1);
    }
    CU_ASSERT(mallinfo2().uordblks < before + 4096);
    dns_free(dns);
    loop_free(loop);
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
    {"numbers, and localhost", test_numbers},
    {"silence", test_silence},
    {"the first address", test_first},
    {"a thousand times localhost", test_localhost},
    {"servers", test_servers},
};
SUITE("dns", tests)
