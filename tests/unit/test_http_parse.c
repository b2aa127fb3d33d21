/* Request heads and chunked bodies, whole and cut at every byte. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/http/parse.h"
#include "tests/unit/suite.h"

static long parse(const char *bytes, struct http_head *head,
                  struct http_fault *fault)
{
    return http_parse_head(bytes, strlen(bytes), head, fault);
}

static void test_head(void)
{
    const char *bytes = "\r\nPOST /v1/x?a=b HTTP/1.1\r\nHost: h\r\n"
                        "Content-Length:  12 \r\nX-Empty:\r\n"
                        "Expect: 100-Continue\r\n\r\nbody";
    struct http_head head;
    struct http_fault fault;

    CU_ASSERT_EQUAL(parse(bytes, &head, &fault), (long)strlen(bytes) - 4);
    CU_ASSERT(http_is(head.method, "POST"));
    CU_ASSERT(http_is(head.path, "/v1/x"));
    CU_ASSERT_EQUAL(head.content_length, 12);
    CU_ASSERT_TRUE(head.expect_continue);
    CU_ASSERT_TRUE(head.keep_alive);
    CU_ASSERT_EQUAL(http_find(&head, "x-empty")->n, 0);
    CU_ASSERT_PTR_NULL(http_find(&head, "x-none"));
    for (size_t n = 0; n < strlen(bytes) - 4; n++)
        CU_ASSERT_EQUAL(http_parse_head(bytes, n, &head, &fault), 0);
}

/* Its bytes are somewhere else: those of before may go. */
static void test_moved(void)
{
    char bytes[] = "POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\nX-Empty:\r\n\r\n";
    char copy[sizeof(bytes)];
    struct http_head head;
    struct http_fault fault;

    CU_ASSERT_EQUAL(parse(bytes, &head, &fault), (long)strlen(bytes));
    memcpy(copy, bytes, sizeof(bytes));
    http_head_move(&head, bytes, strlen(bytes), copy);
    memset(bytes, '?', sizeof(bytes));
    CU_ASSERT(http_is(head.method, "POST"));
    CU_ASSERT(http_is(head.path, "/v1/x"));
    CU_ASSERT(http_is(head.query, "?a=b"));
    CU_ASSERT(http_is(*http_find(&head, "host"), "h"));
    CU_ASSERT_EQUAL(http_find(&head, "x-empty")->n, 0);
    CU_ASSERT_EQUAL(
        parse("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", &head, &fault), 34);
    http_head_move(&head, bytes, 1, copy); /* what is constant stays */
    CU_ASSERT(http_is(head.path, "/"));
}

static void test_keep_alive(void)
{
    static const char *const closing[] = {
        "connection: close\r\n",
        "Connection: foo, Close\r\n",
        "Connection: close , keep-alive\r\n",
        "Connection: close\r\nConnection: keep-alive\r\n",
        "Connection: ,,\tclose\r\n",
    };
    struct http_head head;
    struct http_fault fault;

    CU_ASSERT(parse("GET / HTTP/1.0\r\n\r\n", &head, &fault) > 0);
    CU_ASSERT_FALSE(head.keep_alive);
    CU_ASSERT(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", &head,
                    &fault) > 0);
    CU_ASSERT_TRUE(head.keep_alive);
    for (size_t i = 0; i < sizeof(closing) / sizeof(closing[0]); i++) {
        char bytes[200];

        snprintf(bytes, sizeof(bytes), "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n",
                 closing[i]);
        CU_ASSERT(parse(bytes, &head, &fault) > 0);
        CU_ASSERT_FALSE(head.keep_alive);
    }
    CU_ASSERT(parse("GET / HTTP/1.1\r\nHost: h\r\nConnection: closed, \r\n\r\n",
                    &head, &fault) > 0);
    CU_ASSERT_TRUE(head.keep_alive);
}

static void test_targets(void)
{
    static const char *const cases[][2] = {
        {"/a/b?c=/d", "/a/b"},
        {"http://h/a?b", "/a"},
        {"HTTP://h:80/a/b", "/a/b"},
        {"http://h", "/"},
        {"http://h?q=/x", "/"},
        {"http:/a", "http:/a"},
        {"*", "*"},
    };
    struct http_head head;
    struct http_fault fault;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char bytes[200];

        snprintf(bytes, sizeof(bytes), "GET %s HTTP/1.1\r\nHost: h\r\n\r\n",
                 cases[i][0]);
        CU_ASSERT(parse(bytes, &head, &fault) > 0);
        CU_ASSERT(http_is(head.path, cases[i][1]));
    }
}

static void test_refused(void)
{
    static const struct {
        const char *bytes;
        int status;
    } cases[] = {
        {"GET\r\n\r\n", 400},
        {"GET /\r\n\r\n", 400},
        {"GET  HTTP/1.1\r\n\r\n", 400},
        {"G@T / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.2\r\n\r\n", 505},
        {"GET /\x01 HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nContent-Length: +5\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
         400},
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
         "Content-Length: 1\r\n\r\n",
         400},
        {"GET / HTTP/1.1\r\nContent-Length: 9999999999999999999\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nContent-Length: 1\r\n"
         "Transfer-Encoding: chunked\r\n\r\n",
         400},
        {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {"GET / HTTP/1.1\r\nExpect: more\r\n\r\n", 417},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/1.1\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\n\n", 400},
        {"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    };
    struct http_head head;
    struct http_fault fault;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CU_ASSERT_EQUAL(parse(cases[i].bytes, &head, &fault), -EBADMSG);
        CU_ASSERT_EQUAL(fault.status, cases[i].status);
    }
}

static void test_many_headers(void)
{
    char bytes[4096] = "GET / HTTP/1.1\r\nHost: h\r\n";
    struct http_head head;
    struct http_fault fault;

    for (int i = 1; i < HTTP_MAX_HEADERS; i++)
        strcat(bytes, "a: b\r\n");
    strcat(bytes, "\r\n");
    CU_ASSERT(parse(bytes, &head, &fault) > 0);
    strcpy(bytes + strlen(bytes) - 2, "a: b\r\n\r\n");
    CU_ASSERT_EQUAL(parse(bytes, &head, &fault), -EBADMSG);
    CU_ASSERT_EQUAL(fault.status, 431);
}

/* Decode in pieces of `step` bytes. 1: whole, 0: goes on, < 0: malformed. */
static int decode(const char *bytes, size_t step, char *out, size_t *n_out)
{
    struct http_chunked decoder = {0};
    size_t n = strlen(bytes), at = 0;
    int rc = 0;

    *n_out = 0;
    while (at < n && rc == 0) {
        struct http_piece piece;
        size_t used;

        rc = http_chunked_next(&decoder, bytes + at,
                               n - at < step ? n - at : step, &used, &piece);
        if (rc < 0)
            break;
        memcpy(out + *n_out, piece.at ? piece.at : "", piece.n);
        *n_out += piece.n;
        at += used;
    }
    return rc;
}

static void test_chunked(void)
{
    const char *bytes =
        "5\r\nhello\r\nA;ext=\"v\"\r\n, chunks!!\r\n0\r\nT: x\r\n\r\n";
    char out[100];
    size_t n;

    for (size_t step = 1; step < 60; step++) {
        CU_ASSERT_EQUAL(decode(bytes, step, out, &n), 1);
        CU_ASSERT_EQUAL(n, 15);
        CU_ASSERT(memcmp(out, "hello, chunks!!", 15) == 0);
    }
    CU_ASSERT_EQUAL(decode("5\r\nhell", 9, out, &n), 0);
    CU_ASSERT_EQUAL(n, 4);
    CU_ASSERT_EQUAL(decode("5 \t\r\nhello\r\n0 ;a\r\n\r\n", 9, out, &n), 1);
    CU_ASSERT_EQUAL(decode("0\r\nT:\r\nU-v: \xc3\xa4 b\r\n\r\n", 9, out, &n),
                    1);
}

static void test_bad_chunks(void)
{
    static const char *const cases[] = {
        "\r\n",
        "x\r\n",
        ";a\r\n",
        "5\rhello",
        "2\r\nabc\r\n",
        "2\r\nab\rc",
        "1\r2\r\n",
        "fffffffffffffffff\r\n",
        "-1\r\n",
        "5 x\r\r",
        "2\nab\r\n",
        "2\r\nab\n",
        "0\r\n\n",
        "0\r\nT: t\n",
        "2;x=y\nab",
        "2 d\r\n",
        "2d 5\r\n",
        "2\t\t5\r\n",
        "2 \x01\r\n",
        "2;\x01\r\n",
        " 2\r\n",
        "0\r\nT\r\n",
        "0\r\n: t\r\n",
        "0\r\nT : t\r\n",
        "0\r\n T: t\r\n",
        "0\r\nT: \x01\r\n",
        "0\r\nGET / HTTP/1.1\r\n",
        "0\r\nT: t\r\nx\r\n\r\n",
    };
    char out[100];
    size_t n;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CU_ASSERT_EQUAL(decode(cases[i], 100, out, &n), -EBADMSG);
    for (unsigned lines = 64; lines <= 65; lines++) {
        char bytes[400] = "0\r\n";

        for (unsigned i = 0; i < lines; i++)
            strcat(bytes, "T:\r\n");
        strcat(bytes, "\r\n");
        CU_ASSERT_EQUAL(decode(bytes, 7, out, &n), lines > 64 ? -EBADMSG : 1);
    }
}

static void test_answers(void)
{
    static const char good[] = "HTTP/1.1 429 Too Many\r\nContent-Length: 7\r\n"
                               "Connection: close\r\nX: y\r\n\r\n1234567";
    static const char *const odd[] = {
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.0 204 No Content\r\n\r\n",
    };
    static const char *const refused[] = {
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 20\r\n\r\n",
        "HTTP/1.1 2000 x\r\n\r\n",
        "HTTP/1.1 099 x\r\n\r\n",
        "HTTP/1.1 600 x\r\n\r\n",
        "HTTP/1.1  200 x\r\n\r\n",
        "\r\nHTTP/1.1 200 x\r\n\r\n",
        "HTTP/1.1 200 x\n\n",
        "HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        ("HTTP/1.1 200 x\r\nContent-Length: 1\r\nTransfer-Encoding: "
         "chunked\r\n\r\n"),
        "HTTP/1.1 200 x\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 x\r\nA B: c\r\n\r\n",
    };
    struct http_head head;
    struct http_fault fault;

    CU_ASSERT_EQUAL(http_parse_answer(good, sizeof(good) - 1, &head, &fault),
                    (long)sizeof(good) - 8);
    CU_ASSERT_EQUAL(head.status, 429);
    CU_ASSERT_EQUAL(head.content_length, 7);
    CU_ASSERT_FALSE(head.keep_alive);
    CU_ASSERT(http_is(*http_find(&head, "x"), "y"));
    for (size_t n = 0; n < sizeof(good) - 8; n++)
        CU_ASSERT_EQUAL(http_parse_answer(good, n, &head, &fault), 0);
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
        CU_ASSERT_EQUAL(
            http_parse_answer(odd[i], strlen(odd[i]), &head, &fault),
            (long)strlen(odd[i]));
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        CU_ASSERT_EQUAL(
            http_parse_answer(refused[i], strlen(refused[i]), &head, &fault),
            -EBADMSG);
        CU_ASSERT_EQUAL(fault.status, 502);
    }
}

static void test_query(void)
{
    struct http_head head;
    struct http_fault fault;

    CU_ASSERT(parse("GET /a?b=c HTTP/1.0\r\n\r\n", &head, &fault) > 0);
    CU_ASSERT(http_is(head.query, "?b=c"));
    CU_ASSERT(parse("GET http://h?b HTTP/1.0\r\n\r\n", &head, &fault) > 0);
    CU_ASSERT(http_is(head.path, "/") && http_is(head.query, "?b"));
    CU_ASSERT(parse("GET /a HTTP/1.0\r\n\r\n", &head, &fault) > 0);
    CU_ASSERT_EQUAL(head.query.n, 0);
}

static const struct suite_test tests[] = {
    {"head", test_head},
    {"moved", test_moved},
    {"keep-alive", test_keep_alive},
    {"targets", test_targets},
    {"refused", test_refused},
    {"many headers", test_many_headers},
    {"chunked", test_chunked},
    {"bad chunks", test_bad_chunks},
    {"answers", test_answers},
    {"query", test_query},
};
SUITE("http_parse", tests)
