/* The model of Redis in tests/world/redis: what its faults do. That its answers
 * are those of a real server is shown by redis_differs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "conductor/cluster/internal.h"
#include "tests/unit/suite.h"
#include "tests/world/redis/mr.h"

#define EPOCH_US INT64_C(1700000000000000)
#define WORDS_MAX 16

/* A connection to the model, and its last answer. */
struct client {
    struct mr_conn *c;
    unsigned ready;
    char answer[1 << 16];
};

struct rig {
    struct mr *m;
    struct client at[3];
};

static void on_ready(void *arg)
{
    struct client *client = arg;

    client->ready++;
}

static void begin_with(struct rig *r, struct mr_options options)
{
    *r = (struct rig){0};
    options.clock_us = EPOCH_US;
    options.seed = 7;
    r->m = mr_new(&options, 0);
    for (size_t i = 0; i < 3; i++)
        r->at[i].c = mr_open(r->m, on_ready, &r->at[i]);
}

static void begin(struct rig *r)
{
    begin_with(r, (struct mr_options){.lag = 8});
}

static void end(struct rig *r)
{
    mr_check(r->m);
    for (size_t i = 0; i < 3; i++)
        mr_close(r->at[i].c);
    mr_free(r->m);
}

static void reopen(struct rig *r)
{
    for (size_t i = 0; i < 3; i++) {
        CU_ASSERT_TRUE(mr_is_over(r->at[i].c));
        mr_close(r->at[i].c);
        r->at[i].c = mr_open(r->m, on_ready, &r->at[i]);
    }
}

#define TEST(name) SUITE_TEST(name, struct rig, r, begin(r), end(r))

/* Takes what it was answered. */
static const char *told(struct client *client)
{
    size_t n;
    const char *bytes = mr_output(client->c, &n);

    CU_ASSERT_FATAL(n < sizeof(client->answer));
    if (n)
        memcpy(client->answer, bytes, n);
    client->answer[n] = '\0';
    mr_sent(client->c, n);
    return client->answer;
}

/* Sends words, which end with NULL. */
static void send_words(struct client *client, const char *const *words)
{
    char head[64];
    int n = 0;

    while (words[n])
        n++;
    mr_feed(client->c, head,
            (size_t)snprintf(head, sizeof(head), "*%d\r\n", n));
    for (int i = 0; i < n; i++) {
        mr_feed(
            client->c, head,
            (size_t)snprintf(head, sizeof(head), "$%zu\r\n", strlen(words[i])));
        mr_feed(client->c, words[i], strlen(words[i]));
        mr_feed(client->c, "\r\n", 2);
    }
}

/* Sends a line of words. */
static const char *ask(struct rig *r, unsigned who, const char *line)
{
    mr_feed(r->at[who].c, line, strlen(line));
    mr_feed(r->at[who].c, "\r\n", 2);
    return told(&r->at[who]);
}

/* --- */

TEST(test_knows_the_scripts)
{
    const char *const renew[] = {
        "EVAL",     registry_script, "4",      "conductors",
        "about",    "token",         "leader", "0000000000000001",
        "1 host:1", "3000",          "0",      "0",
        NULL};
    const char *const limits[] = {
        "EVAL", limits_script, "1",   "limit", "0000000000000001",
        "3000", "60",          "600", "1",     "0",
        "10",   "0",           "0",   "0",     "1",
        NULL};
    const char *const other[] = {"EVAL", "return 2", "0", NULL};

    send_words(&r->at[0], renew);
    CU_ASSERT_STRING_EQUAL(
        told(&r->at[0]),
        "*7\r\n$13\r\n1700000000000\r\n:1\r\n$13\r\n1700000000001\r\n:1\r\n"
        "$16\r\n0000000000000001\r\n$22\r\n1700000000000 1 host:1\r\n"
        ":3000\r\n");
    send_words(&r->at[0], limits);
    CU_ASSERT_STRING_EQUAL(
        told(&r->at[0]),
        "*3\r\n$11\r\n1.000000000\r\n$12\r\n10.000000000\r\n:1\r\n");
    send_words(&r->at[0], other);
    CU_ASSERT_STRING_EQUAL(told(&r->at[0]),
                           "-ERR the model of Redis has no script "
                           "7f923f79fe76194c868d7e1d0820de36700eb649\r\n");
    CU_ASSERT_EQUAL(mr_counts(r->m).unknown, 1);
}

TEST(test_says_what_it_lacks)
{
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "SET a b XX"),
                           "-ERR the model of Redis has no SET with xx\r\n");
    CU_ASSERT_STRING_EQUAL(
        ask(r, 0, "LPUSH a b"),
        "-ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' \r\n");
    CU_ASSERT_EQUAL(mr_counts(r->m).unknown, 2);
    CU_ASSERT_EQUAL(mr_counts(r->m).errors, 2);
}

/* AUTH without a password, which redis_differs does not see. */
TEST(test_no_password)
{
    CU_ASSERT_PTR_NOT_NULL(
        strstr(ask(r, 0, "AUTH x"), "called without any password"));
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "AUTH default x"), "+OK\r\n");
}

TEST(test_read_waits)
{
    mr_feed(r->at[0].c, "XREAD BLOCK 500 STREAMS s $\r\nPING\r\n", 35);
    CU_ASSERT_TRUE(mr_is_blocked(r->at[0].c));
    CU_ASSERT_EQUAL(mr_due_us(r->m), 501000);
    mr_tick(r->m, 500999);
    CU_ASSERT_STRING_EQUAL(told(&r->at[0]), "");
    CU_ASSERT_STRING_EQUAL(ask(r, 1, "XADD s * e 1"),
                           "$15\r\n1700000000500-0\r\n");
    CU_ASSERT_STRING_EQUAL(told(&r->at[0]),
                           "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n"
                           "$15\r\n1700000000500-0\r\n*2\r\n$1\r\ne\r\n$1\r\n1"
                           "\r\n+PONG\r\n");
    CU_ASSERT_EQUAL(mr_due_us(r->m), MR_NEVER);
    mr_feed(r->at[0].c, "XREAD BLOCK 500 STREAMS s $\r\n", 29);
    mr_tick(r->m, mr_due_us(r->m));
    CU_ASSERT_STRING_EQUAL(told(&r->at[0]), "*-1\r\n");
}

/* A clock that goes back ends no wait, and gives places that only grow. */
TEST(test_clock_jumps)
{
    ask(r, 0, "SET k v PX 1000");
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "XADD s * e 1"),
                           "$15\r\n1700000000000-0\r\n");
    mr_feed(r->at[1].c, "XREAD BLOCK 500 STREAMS s $\r\n", 29);
    mr_jump(r->m, -60000000);
    CU_ASSERT_TRUE(mr_is_blocked(r->at[1].c));
    CU_ASSERT_EQUAL(mr_due_us(r->m), 60501000);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "PTTL k"), ":61000\r\n");
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "XADD s * e 1"),
                           "$15\r\n1700000000000-1\r\n");
    mr_jump(r->m, 61001000);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "GET k"), "$-1\r\n");
    CU_ASSERT_EQUAL(mr_counts(r->m).expired, 1);
}

TEST(test_fail_over)
{
    ask(r, 0, "SET a 1");
    ask(r, 0, "HSET h f 1");
    ask(r, 0, "XADD s * e 1");
    ask(r, 0, "SET a 2");
    ask(r, 0, "ZADD z 1 m");
    ask(r, 0, "GET a"); /* no write */
    mr_feed(r->at[1].c, "XREAD BLOCK 0 STREAMS s $\r\n", 27);
    CU_ASSERT_EQUAL(mr_fail_over(r->m, 2), 2);
    CU_ASSERT_FALSE(mr_is_blocked(r->at[1].c));
    reopen(r);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "GET a"), "$1\r\n1\r\n");
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "HGET h f"), "$1\r\n1\r\n");
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "EXISTS s z"), ":1\r\n");
    CU_ASSERT_EQUAL(mr_fail_over(r->m, 5), 0); /* none since */
    reopen(r);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "GET a"), "$1\r\n1\r\n");
    for (unsigned i = 0; i < 20; i++)
        ask(r, 0, "XADD s * e 1");
    CU_ASSERT_EQUAL(mr_fail_over(r->m, 100), 8); /* options.lag */
    reopen(r);
    mr_check(r->m);
}

/* A script is lost as a whole, and scripts are loaded anew. */
TEST(test_scripts_fail_over)
{
    const char *const load[] = {"SCRIPT", "LOAD", limits_script, NULL};
    const char *limits[] = {"EVALSHA", NULL, "1",   "limit", "0000000000000001",
                            "3000",    "60", "600", "1",     "0",
                            "10",      "0",  "0",   "0",     "1",
                            NULL};
    char sha[41] = "";

    send_words(&r->at[0], load);
    sscanf(told(&r->at[0]), "$40\r\n%40s", sha);
    limits[1] = sha;
    send_words(&r->at[0], limits);
    CU_ASSERT_NSTRING_EQUAL(told(&r->at[0]), "*3\r\n", 4);
    CU_ASSERT_EQUAL(mr_fail_over(r->m, 0), 0);
    reopen(r);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "EXISTS limit"), ":1\r\n");
    send_words(&r->at[0], limits);
    CU_ASSERT_NSTRING_EQUAL(told(&r->at[0]), "-NOSCRIPT", 9);
    send_words(&r->at[0], load);
    told(&r->at[0]);
    send_words(&r->at[0], limits);
    told(&r->at[0]);
    CU_ASSERT_EQUAL(mr_fail_over(r->m, 1), 1);
    reopen(r);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "HGET limit 0000000000000001"),
                           "$20\r\n1 10 1 1700000003000\r\n");
}

TEST(test_restart_and_flush)
{
    ask(r, 0, "SET a 1");
    mr_flush(r->m);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "GET a"), "$-1\r\n");
    mr_check(r->m);
    ask(r, 0, "SET a 1");
    mr_restart(r->m);
    reopen(r);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "GET a"), "$-1\r\n");
}

TEST(test_evicts)
{
    ask(r, 0, "SET never 1");
    ask(r, 0, "SET late 1 EX 900");
    ask(r, 0, "SET soon 1 EX 9");
    ask(r, 0, "GET never");
    CU_ASSERT_EQUAL(mr_evict(r->m, "no such", 1), -1);
    CU_ASSERT_EQUAL(mr_evict(r->m, "noeviction", 1), 0);
    CU_ASSERT_EQUAL(mr_evict(r->m, "volatile-ttl", 1), 1);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "EXISTS soon"), ":0\r\n");
    CU_ASSERT_EQUAL(mr_evict(r->m, "allkeys-lru", 1), 1);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "EXISTS late"), ":0\r\n");
    CU_ASSERT_EQUAL(mr_evict(r->m, "volatile-random", 5), 0);
    CU_ASSERT_EQUAL(mr_evict(r->m, "allkeys-random", 5), 1);
    CU_ASSERT_EQUAL(mr_counts(r->m).evicted, 3);
    mr_check(r->m); /* so does the replica */
}

/* With a policy keys go until there is room; without one writes are refused, in
 * scripts only in front of their first write. */
TEST(test_full)
{
    const char *const renew[] = {
        "EVAL",     registry_script, "4",      "conductors",
        "about",    "token",         "leader", "0000000000000001",
        "1 host:1", "3000",          "0",      "0",
        NULL};
    char line[600];

    for (unsigned i = 0; i < 9; i++) {
        snprintf(line, sizeof(line), "SET key%u %0500u", i, i);
        ask(r, 0, line);
    }
    CU_ASSERT_EQUAL(mr_set_maxmemory(r->m, mr_bytes(r->m) - 1, "odd"), -1);
    CU_ASSERT_EQUAL(mr_set_maxmemory(r->m, mr_bytes(r->m) - 1, "allkeys-lru"),
                    0);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "SET a 1"), "+OK\r\n");
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "EXISTS key0 key1"), ":1\r\n");
    CU_ASSERT_EQUAL(mr_set_maxmemory(r->m, 1, "noeviction"), 0);
    CU_ASSERT_NSTRING_EQUAL(ask(r, 0, "SET a 1"), "-OOM command", 12);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "GET a"), "$1\r\n1\r\n");
    send_words(&r->at[0], renew);
    CU_ASSERT_NSTRING_EQUAL(told(&r->at[0]), "-OOM command", 12);
    ask(r, 0, "DEL about");
    mr_set_maxmemory(r->m, 0, NULL);
    ask(r, 0, "SADD about x"); /* gives way: the script's first write */
    mr_set_maxmemory(r->m, 1, NULL);
    send_words(&r->at[0], renew);
    CU_ASSERT_NSTRING_EQUAL(told(&r->at[0]), "*7\r\n", 4);
}

TEST(test_slow)
{
    mr_set_slow(r->m, 1000);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "PING"), "+PONG\r\n");
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "PING"), "");
    CU_ASSERT_STRING_EQUAL(ask(r, 1, "PING"), "");
    CU_ASSERT_EQUAL(mr_due_us(r->m), 1000);
    mr_tick(r->m, 999);
    CU_ASSERT_STRING_EQUAL(told(&r->at[0]), "");
    mr_tick(r->m, 1000);
    CU_ASSERT_STRING_EQUAL(told(&r->at[0]), "+PONG\r\n");
    CU_ASSERT_STRING_EQUAL(told(&r->at[1]), "");
    CU_ASSERT_EQUAL(mr_due_us(r->m), 2000);
    mr_tick(r->m, 2000);
    CU_ASSERT_STRING_EQUAL(told(&r->at[1]), "+PONG\r\n");
    mr_set_slow(r->m, 0);
    mr_stall(r->m, 50000);
    CU_ASSERT_STRING_EQUAL(ask(r, 2, "PING"), "");
    CU_ASSERT_EQUAL(mr_due_us(r->m), 50000);
    mr_tick(r->m, 50000);
    CU_ASSERT_STRING_EQUAL(told(&r->at[2]), "+PONG\r\n");
}

TEST(test_roles)
{
    mr_set_role(r->m, MR_REPLICA);
    CU_ASSERT_NSTRING_EQUAL(ask(r, 0, "SET a 1"), "-READONLY", 9);
    CU_ASSERT_NSTRING_EQUAL(ask(r, 0, "ROLE"), "*5\r\n$5\r\nslave", 13);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "GET a"), "$-1\r\n");
    mr_set_role(r->m, MR_LOADING);
    CU_ASSERT_NSTRING_EQUAL(ask(r, 0, "GET a"), "-LOADING", 8);
    mr_set_role(r->m, MR_PRIMARY);
    CU_ASSERT_STRING_EQUAL(ask(r, 0, "SET a 1"), "+OK\r\n");
}

static void test_bounds(void)
{
    struct rig rig, *r = &rig;
    char big[301];

    begin_with(r, (struct mr_options){.max_input = 200, .max_output = 300});
    memset(big, 'x', sizeof(big));
    mr_feed(r->at[0].c, big, 200);
    CU_ASSERT_FALSE(mr_is_over(r->at[0].c));
    mr_feed(r->at[0].c, big, 1);
    CU_ASSERT_TRUE(mr_is_over(r->at[0].c));
    CU_ASSERT_EQUAL(r->at[0].ready, 1);
    for (unsigned i = 0; i < 42; i++)
        mr_feed(r->at[1].c, "PING\r\n", 6);
    CU_ASSERT_FALSE(mr_is_over(r->at[1].c)); /* 294 bytes wait */
    mr_feed(r->at[1].c, "PING\r\n", 6);
    CU_ASSERT_TRUE(mr_is_over(r->at[1].c));
    CU_ASSERT_STRING_EQUAL(told(&r->at[1]), "");
    end(r);
}

static const struct suite_test tests[] = {
    {"the scripts of conductors are known", test_knows_the_scripts},
    {"names what it lacks", test_says_what_it_lacks},
    {"no password", test_no_password},
    {"a read waits, in virtual time", test_read_waits},
    {"the clock jumps", test_clock_jumps},
    {"a replica without the last writes", test_fail_over},
    {"scripts and a replica", test_scripts_fail_over},
    {"emptied, and begun anew", test_restart_and_flush},
    {"evicts by each order", test_evicts},
    {"no memory", test_full},
    {"slow and stalled", test_slow},
    {"a replica, or still loading", test_roles},
    {"bounds of a connection", test_bounds},
};

SUITE("redis_model", tests)
