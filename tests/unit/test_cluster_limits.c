/* What a conductor reports of clients with limits, and how often, to a Redis
 * that this test plays: a command waits here until it is answered. */
#include <errno.h>
#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop/libevent.h"
#include "base/loop/loop.h"
#include "base/loop/virtual.h"
#include "base/redis/redis.h"
#include "conductor/cluster/limits.h"
#include "tests/unit/suite.h"

#define LEASE_US 60000000
#define CLIENTS 2
#define WORDS_MAX 32

/* In place of base/redis. */
struct redis {
    struct redis_done done; /* fn NULL: nothing waits */
    char *words[WORDS_MAX];
    int n;
    unsigned commands; /* ever */
    bool is_full;      /* it takes none */
};

static int64_t now_us = 1000000;
static struct redis redis;
static struct joint_key clients[CLIENTS];

int64_t clock_now_us(void)
{
    return now_us;
}

int64_t clock_wall_us(void)
{
    return now_us;
}

bool redis_is_up(const struct redis *)
{
    return true;
}

int redis_command(struct redis *r, struct redis_done done, int argc,
                  const char *const argv[], const size_t[])
{
    if (r->is_full)
        return -ENOBUFS;
    CU_ASSERT_PTR_NULL_FATAL(r->done.fn); /* one report at a time */
    CU_ASSERT_TRUE_FATAL(argc <= WORDS_MAX);
    r->done = done;
    r->n = argc;
    r->commands++;
    for (int i = 0; i < argc; i++)
        r->words[i] = strdup(argv[i]);
    return 0;
}

static void answer(const redisReply *reply)
{
    struct redis_done done = redis.done;

    CU_ASSERT_PTR_NOT_NULL_FATAL(done.fn);
    redis.done.fn = NULL;
    for (int i = 0; i < redis.n; i++)
        free(redis.words[i]);
    done.fn(done.arg, reply);
}

static redisReply text(const char *words)
{
    return (redisReply){.type = REDIS_REPLY_STRING,
                        .str = (char *)(uintptr_t)words,
                        .len = strlen(words)};
}

/* Of each client of the report all have taken 1 request and 0 tokens. */
static void answer_report(void)
{
    redisReply asks = text("1"), tokens = text("0");
    redisReply open = {.type = REDIS_REPLY_INTEGER};
    redisReply *all[3 * CLIENTS];
    redisReply reply = {.type = REDIS_REPLY_ARRAY, .element = all};

    CU_ASSERT_STRING_EQUAL(redis.words[0], "EVALSHA");
    reply.elements = 3 * (size_t)atoi(redis.words[2]);
    CU_ASSERT_TRUE_FATAL(reply.elements <= 3 * CLIENTS);
    for (size_t i = 0; i < reply.elements; i += 3) {
        all[i] = &asks;
        all[i + 1] = &tokens;
        all[i + 2] = &open;
    }
    answer(&reply);
}

static struct joint_key *client_at(void *, size_t i)
{
    return i < CLIENTS ? &clients[i] : NULL;
}

/* The time that passes in turn(); NULL = over libevent. */
static struct virtual_time *virtual_time;

static uint32_t tie(void *n)
{
    return ++*(uint32_t *)n;
}

/* Timers that are due now fire. */
static void turn(struct loop *loop)
{
    now_us += 10000; /* reports are a millisecond apart */
    (void)loop_turn(loop, virtual_time ? 10000 : 0);
}

static void take(struct limits *l, struct joint_key *k)
{
    joint_ask(k, now_us);
    limits_due(l);
}

/* Of two clients with limits, whose book was never told: a report of both is
 * under way. */
static struct limits *begin(struct loop *loop)
{
    struct limits *l =
        limits_new(loop, "00000000000000ab", LEASE_US, client_at, NULL);
    redisReply sha = text("5ca1ab1e");

    CU_ASSERT_PTR_NOT_NULL_FATAL(l);
    for (uint64_t i = 0; i < CLIENTS; i++)
        clients[i] =
            (struct joint_key){.number = i + 1, .asks = {.per_minute = 600}};
    redis = (struct redis){0};
    limits_use(l, &redis);
    limits_up(l);
    answer(&sha);
    CU_ASSERT_EQUAL(redis.commands, 2);
    CU_ASSERT_STRING_EQUAL(redis.words[2], "2");
    now_us += 10000;
    return l;
}

/* Over a loop of libevent, and in virtual time. */
#define LOOP_TEST(test)                                   \
    static void test##_body(struct loop *loop);           \
    static void test(void)                                \
    {                                                     \
        uint32_t n = 0;                                   \
        struct loop *loop = loop_new();                   \
                                                          \
        test##_body(loop);                                \
        loop_free(loop);                                  \
        virtual_time = virtual_time_new(now_us, tie, &n); \
        CU_ASSERT_PTR_NOT_NULL_FATAL(virtual_time);       \
        loop = virtual_loop_new(virtual_time);            \
        test##_body(loop);                                \
        loop_free(loop);                                  \
        virtual_time_free(virtual_time);                  \
        virtual_time = NULL;                              \
    }                                                     \
    static void test##_body(struct loop *loop)

/* A report has who took something since the last one, once; and nobody else. */
LOOP_TEST(test_told_once)
{
    struct limits *l = begin(loop);

    answer_report();
    turn(loop);
    CU_ASSERT_EQUAL(redis.commands, 2);
    for (unsigned i = 0; i < 3; i++) {
        take(l, &clients[1]);
        turn(loop);
        CU_ASSERT_EQUAL_FATAL(redis.commands, 3 + i);
        CU_ASSERT_STRING_EQUAL(redis.words[2], "1");
        CU_ASSERT_STRING_EQUAL(redis.words[3],
                               "{conductor:1}:limit:0000000000000002");
        turn(loop);
        now_us += 10000;
        answer_report();
        /* Nothing waits but the poll. */
        CU_ASSERT(virtual_time ||
                  event_base_get_num_events(loop_event_base(loop),
                                            EVENT_BASE_COUNT_ADDED) == 1);
        turn(loop);
        CU_ASSERT_EQUAL(redis.commands, 3 + i);
    }
    CU_ASSERT_EQUAL(limits_counts(l).told, 4);
    limits_free(l);
}

/* What is taken while a report is under way is in the next one. */
LOOP_TEST(test_taken_meanwhile)
{
    struct limits *l = begin(loop);

    take(l, &clients[0]);
    answer_report();
    turn(loop);
    CU_ASSERT_EQUAL_FATAL(redis.commands, 3);
    CU_ASSERT_STRING_EQUAL(redis.words[2], "1");
    now_us += 10000;
    answer_report();
    turn(loop);
    CU_ASSERT_EQUAL(redis.commands, 3);
    limits_free(l);
}

/* A report that Redis did not take is made again, of all that was in it. */
LOOP_TEST(test_refused)
{
    struct limits *l = begin(loop);

    redisReply sha = text("5ca1ab1e");

    answer_report();
    limits_up(l); /* the book may be another one: all are told again */
    redis.is_full = true;
    answer(&sha);
    redis.is_full = false;
    now_us += 10000;
    take(l, &clients[0]);
    turn(loop);
    CU_ASSERT_EQUAL_FATAL(redis.commands, 4);
    CU_ASSERT_STRING_EQUAL(redis.words[2], "2");
    answer_report();
    limits_free(l);
}

static const struct suite_test tests[] = {
    {"told once", test_told_once},
    {"taken meanwhile", test_taken_meanwhile},
    {"refused", test_refused},
};
SUITE("cluster_limits", tests)
