/* Recorded sessions: lines, what each turn waits for, and the closed loop, with
 * times worked out by hand. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "tools/replay/simulate/sim.h"
#include "traces/recorded/loop.h"
#include "traces/recorded/session.h"

#define HEAD(model_) \
    "{\"block_tokens\":64,\"tool_tokens\":64,\"system_tokens\":64," model_
#define FIRST(in, add, model)                                             \
    "{\"t\":0,\"sub\":0,\"in\":" #in ",\"out\":2,\"from\":-1,\"keep\":0," \
    "\"add\":" add ",\"api\":1,\"think\":0,\"model\":\"" model "\"}"
#define TURN(t, sub, in, from, keep, add, rest)                                \
    ",{\"t\":" #t ",\"sub\":" #sub ",\"in\":" #in ",\"out\":2,\"from\":" #from \
    ",\"keep\":" #keep ",\"add\":" add rest "}"

/* A parent of three turns and two sub-agents: the second one has a turn behind
 * the parent's last. Spaces, and fields that nobody asked for. */
#define AGENTS                                                     \
    HEAD("\"id\": \"a\", \"requests\": [ ")                        \
    FIRST(200, "[[1,3]]", "m")                                     \
    TURN(3, 0, 270, 0, 3, "[[4,1]]",                               \
         ",\"think\":2,\"api\":1,\"itypes\":[\"x\",{}]")           \
    TURN(4.5, 1, 130, 0, 0, "[[10,2]]", ",\"think\":0,\"api\":1")  \
    TURN(5, 2, 64, 0, 0, "[[20,1]]", ",\"think\":0,\"api\":10")    \
    TURN(6, 1, 200, 1, 2, "[[12,1]]", ",\"think\":0.25,\"api\":1") \
    TURN(9, 0, 300, 0, 4, "[]", ",\"think\":1,\"api\":null")       \
    TURN(20, 2, 64, 2, 1, "[]", ",\"think\":null") "]}\n"

#define ONE(in, add, model) HEAD("\"requests\":[") FIRST(in, add, model) "]}\n"

static char path[64];

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT(fputs(text, f) >= 0);
    CU_ASSERT_EQUAL(fclose(f), 0);
}

static void test_session(void)
{
    static const struct {
        uint32_t after, joins, waits;
        int64_t pause_us;
    } want[] = {
        {RECORDED_NONE, RECORDED_NONE, 0, 0},
        {0, RECORDED_NONE, 1, 2000000},
        {1, RECORDED_NONE, 1, 500000},  /* 4.5 - (3 + 1) */
        {1, RECORDED_NONE, 1, 1000000}, /* 5 - (3 + 1) */
        {2, 5, 1, 250000},
        {1, RECORDED_NONE, 2, 1000000},
        {3, RECORDED_NONE, 1, 0},
    };
    static const uint64_t third[] = {10, 11, 12}, fifth[] = {1, 2, 3, 4};
    struct recorded_session s = {0};
    char why[256] = "";
    uint64_t ids[8];

    CU_ASSERT_EQUAL_FATAL(
        recorded_session_read(AGENTS, strlen(AGENTS), &s, why, sizeof why), 0);
    CU_ASSERT_EQUAL_FATAL(s.n_turns, 7);
    for (size_t i = 0; i < 7; i++) {
        CU_ASSERT_EQUAL(s.turns[i].after, want[i].after);
        CU_ASSERT_EQUAL(s.turns[i].joins, want[i].joins);
        CU_ASSERT_EQUAL(s.turns[i].waits, want[i].waits);
        CU_ASSERT_EQUAL(s.turns[i].pause_us, want[i].pause_us);
    }
    CU_ASSERT_EQUAL(s.shared_blocks, 2);
    CU_ASSERT_EQUAL(s.last_id, 20);
    CU_ASSERT_EQUAL(recorded_blocks(&s, 4), 3);
    recorded_session_ids(&s, 4, ids);
    CU_ASSERT_EQUAL(memcmp(ids, third, sizeof third), 0);
    CU_ASSERT_EQUAL(recorded_blocks(&s, 5), 4);
    recorded_session_ids(&s, 5, ids);
    CU_ASSERT_EQUAL(memcmp(ids, fifth, sizeof fifth), 0);
    recorded_session_fini(&s);
}

static void expect_refused(const char *line, const char *message)
{
    struct recorded_session s = {0};
    char why[256] = "";

    CU_ASSERT_EQUAL(
        recorded_session_read(line, strlen(line), &s, why, sizeof why),
        -EINVAL);
    if (strcmp(why, message) != 0)
        printf("\n%s\n", why);
    CU_ASSERT_STRING_EQUAL(why, message);
    recorded_session_fini(&s);
}

static void test_refused(void)
{
    expect_refused("{", "line 1, column 1: string or '}' expected near end of "
                        "file");
    expect_refused("{\"block_tokens\":0}",
                   "block_tokens: 0: must be an integer of 1 to 65536");
    expect_refused(HEAD("\"requests\":[]}"),
                   "requests: []: must be an array of 1 to 16384 objects");
    expect_refused(HEAD("\"requests\":[7]}"),
                   "requests[0]: 7: must be an object");
    expect_refused(ONE(200, "[[1,2]]", "m"),
                   "requests[0].add: 2 blocks: must be 3, the full blocks of "
                   "in (3) less keep");
    expect_refused(ONE(200, "[[1,0]]", "m"),
                   "requests[0].add[0]: [1,0]: must be [first id, count], the "
                   "count above 0 and no id above 4294967295");
    expect_refused(
        ONE(200, "[[1,3]]", ""),
        "requests[0].model: \"\": must be a text of 1 to 127 printable "
        "bytes");
    expect_refused(HEAD("\"requests\":[") FIRST(200, "[[1,3]]", "m")
                       TURN(1, 0, 270, 0, 4, "[]", "") "]}",
                   "requests[1].keep: 4: must be an integer of 0 to 3");
    expect_refused(HEAD("\"requests\":[") FIRST(200, "[[1,3]]", "m")
                       TURN(1, 1, 270, 1, 0, "[[9,4]]", "") "]}",
                   "requests[1].from: 1: must be -1, or an agent with a prompt "
                   "before this one");
    expect_refused(HEAD("\"requests\":[") FIRST(200, "[[1,3]]", "m")
                       TURN(-1, 0, 64, -1, 0, "[[9,1]]", "") "]}",
                   "requests[1].t: -1: must be a number of 0 to 1e+09");
    expect_refused(HEAD("\"requests\":[") FIRST(200, "[[1,3]]", "m")
                       TURN(2, 0, 64, -1, 0, "[[9,1]]", "")
                           TURN(1, 0, 64, -1, 0, "[[9,1]]", "") "]}",
                   "requests[2].t: 1: must be at least 2, the t of the turn "
                   "before");
    expect_refused(HEAD("\"requests\":[") FIRST(200, "[[1,3]]", "m")
                       TURN(1, 0, 130, 0, 3, "[]", "") "]}",
                   "requests[1].keep: 3: must be an integer of 0 to 2");
    expect_refused(HEAD("\"requests\":[") FIRST(200, "[[1,3]]", "m")
                       TURN(1, 0, 300, 0, 3, "[[4,9]]", "") "]}",
                   "requests[1].add: 9 blocks: must be 1, the full blocks of "
                   "in (4) less keep");
    expect_refused(HEAD("\"requests\":[{\"t\":0,\"sub\":1}]}"),
                   "requests[0].sub: 1: must be 0, the parent, in the first "
                   "turn");
    expect_refused(HEAD("\"requests\":[") FIRST(200, "7", "m") "]}",
                   "requests[0].add: 7: must be an array of [first id, count]");
}

static struct closed_loop *open_loop(const char *text, uint32_t in_flight,
                                     uint64_t sessions, uint32_t input_max)
{
    const struct closed_loop_options options = {.path = path,
                                                .block_tokens = 64,
                                                .in_flight = in_flight,
                                                .think_max_us = 1500000,
                                                .input_max_tokens = input_max,
                                                .sessions = sessions};
    struct closed_loop *loop = NULL;
    char error[256] = "";

    write_file(text);
    CU_ASSERT_EQUAL_FATAL(
        closed_loop_open(&options, &loop, error, sizeof error), 0);
    return loop;
}

/* Takes the next turn, which starts then and has so many tokens. */
static void expect_turn(struct closed_loop *loop, int64_t at_us,
                        uint32_t tokens)
{
    struct trace_request q = {0};

    CU_ASSERT_EQUAL(closed_loop_due_us(loop), at_us);
    CU_ASSERT_EQUAL_FATAL(closed_loop_next(loop, &q), 1);
    CU_ASSERT_EQUAL(q.arrival_us, at_us);
    CU_ASSERT_EQUAL(q.input_tokens, tokens);
    CU_ASSERT_EQUAL(q.block_count, (tokens + 63) / 64);
    trace_request_fini(&q);
}

static void end(struct closed_loop *loop, uint64_t number, int64_t at_us)
{
    CU_ASSERT_EQUAL(closed_loop_ended(loop, number, at_us, true), 0);
}

static void test_agents(void)
{
    struct closed_loop *loop = open_loop(AGENTS, 1, 1, 1000);

    expect_turn(loop, 0, 200);
    CU_ASSERT_EQUAL(closed_loop_due_us(loop), -1);
    end(loop, 0, 3000000);
    expect_turn(loop, 4500000, 270); /* 2 s of thinking, cut to 1.5 */
    end(loop, 1, 5000000);
    expect_turn(loop, 5500000, 130); /* both sub-agents, beside each other */
    expect_turn(loop, 6000000, 64);
    CU_ASSERT_EQUAL(closed_loop_due_us(loop), -1); /* the parent waits */
    end(loop, 2, 7000000);
    expect_turn(loop, 7250000, 200);
    end(loop, 4, 9000000);
    expect_turn(loop, 9000000, 300); /* the first sub-agent's last answer */
    end(loop, 3, 9500000);
    expect_turn(loop, 9500000, 64);
    end(loop, 5, 10000000);
    CU_ASSERT_EQUAL(closed_loop_counts(loop).finished, 0);
    end(loop, 6, 11000000);
    CU_ASSERT_EQUAL(closed_loop_due_us(loop), -1);
    CU_ASSERT_EQUAL(closed_loop_counts(loop).finished, 1);
    CU_ASSERT_EQUAL(closed_loop_counts(loop).turns, 7);
    closed_loop_free(loop);
}

/* Every session in its turn, each with ids of its own but for what it shares.
 */
static void test_ids(void)
{
    struct closed_loop *loop =
        open_loop(ONE(200, "[[1,3]]", "m") ONE(128, "[[7,2]]", "m")
                      ONE(130, "[[1,2]]", "n"),
                  3, 5, 1000);
    struct trace_request q[5] = {0};

    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL_FATAL(closed_loop_next(loop, &q[i]), 1);
    end(loop, 2, 100);
    end(loop, 0, 200);
    CU_ASSERT_EQUAL_FATAL(closed_loop_next(loop, &q[3]), 1);
    CU_ASSERT_EQUAL(q[3].arrival_us, 100);
    CU_ASSERT_EQUAL_FATAL(closed_loop_next(loop, &q[4]), 1);
    end(loop, 1, 300);
    CU_ASSERT_EQUAL(closed_loop_due_us(loop), -1); /* five have started */
    for (int i = 0; i < 2; i++) {
        uint64_t id = q[0].hash_ids[i];

        CU_ASSERT_EQUAL(q[1].hash_ids[i], id); /* the same tools and model */
        CU_ASSERT_NOT_EQUAL(q[2].hash_ids[i], id);
        CU_ASSERT_EQUAL(q[3].hash_ids[i], id); /* the first session again */
    }
    CU_ASSERT_EQUAL(q[3].input_tokens, 200);
    for (int i = 2; i < 4; i++) /* one full block, one that is not */
        CU_ASSERT_NOT_EQUAL(q[3].hash_ids[i], q[0].hash_ids[i]);
    CU_ASSERT_EQUAL(q[4].input_tokens, 128);
    CU_ASSERT_EQUAL(closed_loop_counts(loop).started, 5);
    CU_ASSERT_EQUAL(closed_loop_counts(loop).finished, 3);
    for (int i = 0; i < 5; i++)
        trace_request_fini(&q[i]);
    closed_loop_free(loop);
}

/* A shared block is known by its place, too: an id elsewhere is the session's.
 */
static void test_shared_place(void)
{
    struct closed_loop *loop = open_loop(
        HEAD("\"requests\":[") FIRST(200, "[[1,1],[5,2]]", "m")
            TURN(1, 0, 192, 0, 1, "[[5,1],[1,1]]", ",\"think\":0") "]}\n",
        1, 1, 1000);
    struct trace_request first = {0}, second = {0};

    CU_ASSERT_EQUAL_FATAL(closed_loop_next(loop, &first), 1);
    end(loop, 0, 100);
    CU_ASSERT_EQUAL_FATAL(closed_loop_next(loop, &second), 1);
    CU_ASSERT_EQUAL_FATAL(second.block_count, 3);
    CU_ASSERT_EQUAL(second.hash_ids[0], first.hash_ids[0]);
    CU_ASSERT_EQUAL(second.hash_ids[1], first.hash_ids[1]);
    CU_ASSERT_NOT_EQUAL(second.hash_ids[2], second.hash_ids[0]);
    trace_request_fini(&first);
    trace_request_fini(&second);
    closed_loop_free(loop);
}

/* A session ends before its first long prompt, and with a turn that is
 * refused; one whose first prompt is too long is left out. */
static void test_ends(void)
{
    struct closed_loop *loop =
        open_loop(ONE(301, "[[1,4]]", "m") AGENTS, 1, 2, 250);
    const char *const none = "no session has a first prompt within the limit";
    const struct closed_loop_options options = {.path = path,
                                                .block_tokens = 96,
                                                .in_flight = 1,
                                                .input_max_tokens = 10};
    char error[256] = "";

    expect_turn(loop, 0, 200);
    end(loop, 0, 1000); /* the next one has 270 tokens */
    CU_ASSERT_EQUAL(closed_loop_counts(loop).finished, 1);
    expect_turn(loop, 1000, 200);
    CU_ASSERT_EQUAL(closed_loop_ended(loop, 1, 2000, false), 0);
    CU_ASSERT_EQUAL(closed_loop_due_us(loop), -1);
    CU_ASSERT_EQUAL(closed_loop_counts(loop).finished, 1);
    CU_ASSERT_EQUAL(closed_loop_counts(loop).lost, 1);
    closed_loop_free(loop);

    CU_ASSERT_EQUAL(closed_loop_open(&options, &loop, error, sizeof error),
                    -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(error, ":1: block_tokens: 64: must divide 96"));
    struct closed_loop_options short_ones = options;

    short_ones.block_tokens = 64;
    CU_ASSERT_EQUAL(closed_loop_open(&short_ones, &loop, error, sizeof error),
                    -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error, none));
}

/* No turn starts at until_us or later; a session that ends later is not
 * finished. */
static void test_until(void)
{
    const struct closed_loop_options options = {.path = path,
                                                .block_tokens = 64,
                                                .in_flight = 2,
                                                .input_max_tokens = 1000,
                                                .until_us = 1000};
    struct closed_loop *loop = NULL;
    char error[256] = "";

    write_file(ONE(200, "[[1,3]]", "m"));
    CU_ASSERT_EQUAL_FATAL(
        closed_loop_open(&options, &loop, error, sizeof error), 0);
    expect_turn(loop, 0, 200);
    expect_turn(loop, 0, 200);
    end(loop, 1, 999);
    expect_turn(loop, 999, 200);
    end(loop, 0, 1000);
    CU_ASSERT_EQUAL(closed_loop_due_us(loop), -1);
    end(loop, 2, 1001);
    CU_ASSERT_EQUAL(closed_loop_due_us(loop), -1);
    CU_ASSERT_EQUAL(closed_loop_counts(loop).started, 3);
    CU_ASSERT_EQUAL(closed_loop_counts(loop).finished, 2);
    closed_loop_free(loop);
}

/* In the order of their starts. */
struct simulated {
    size_t n;
    int64_t start_us[7];
    int64_t end_us[7];
};

static int observe(void *arg, const struct replay_record *record)
{
    struct simulated *seen = arg;

    CU_ASSERT_FATAL(seen->n < 7);
    seen->start_us[seen->n] = record->intended_us;
    seen->end_us[seen->n++] = record->end_us;
    return 0;
}

/*
 * One node that computes a token in 10 ms, one prompt after the other, and
 * keeps full blocks. A prompt's last token is computed in any case, with its
 * block.
 *   turn  due                     tokens     begins  ends
 *   0     0                       200        0       2.00
 *   1     2.00 + 1.50             270 - 192  3.50    4.28
 *   2     4.28 + 0.50             130        4.78    6.08
 *   3     4.28 + 1.00             64         6.08    6.72
 *   4     6.08 + 0.25             200 - 128  6.72    7.44
 *   6     6.72                    64         7.44    8.08
 *   5     7.44, 4's answer        300 - 256  8.08    8.52
 */
static void test_simulated(void)
{
    static const int64_t start_us[] = {0,       3500000, 4780000, 5280000,
                                       6330000, 6720000, 7440000};
    static const int64_t end_us[] = {2000000, 4280000, 6080000, 6720000,
                                     7440000, 8080000, 8520000};
    const struct cluster cluster = {
        .name = "test",
        .layers = 1,
        .block_tokens = 64,
        .kv_bytes_per_token = 1,
        .cost = {.prefill = {0, 10000, 0, 0}},
        .prefill_nodes = 1,
        .order = "fifo",
        .max_waiting = 10,
        .pipeline_stages = 1,
        .prefix_cache = true,
        .kvcache_balancing_threshold = 1,
        .tiers = {[TIER_DEVICE] = {.capacity_tokens = 10000}}};
    const struct closed_loop_options loop = {.path = path,
                                             .in_flight = 1,
                                             .think_max_us = 1500000,
                                             .input_max_tokens = 1000,
                                             .sessions = 1};
    struct simulated seen = {.n = 0};
    const struct replay_sim_params params = {
        .sim = {.cluster = &cluster, .policy = "local_cache", .speed = 1},
        .loop = &loop,
        .observe = observe,
        .observe_arg = &seen};
    struct replay_sim_result result;
    char error[256] = "";

    write_file(AGENTS);
    CU_ASSERT_EQUAL_FATAL(replay_sim_run(&params, &result, error, sizeof error),
                          0);
    CU_ASSERT_EQUAL(seen.n, 7);
    for (size_t i = 0; i < 7; i++) {
        CU_ASSERT_EQUAL(seen.start_us[i], start_us[i]);
        CU_ASSERT_EQUAL(seen.end_us[i], end_us[i]);
    }
    CU_ASSERT_EQUAL(result.sessions.counts.turns, 7);
    CU_ASSERT_EQUAL(result.sessions.counts.finished, 1);
    CU_ASSERT_EQUAL(result.sessions.turn_s.count, 7);
    CU_ASSERT_DOUBLE_EQUAL(result.sessions.finished_per_hour, 3600 / 8.52,
                           1e-6);
    CU_ASSERT_DOUBLE_EQUAL(result.sessions.ttft_s.mean, 9.07 / 7, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(result.sessions.ttft_s.max, 2.0, 1e-6);
    replay_sim_result_fini(&result);
}

static const struct suite_test tests[] = {
    {"session", test_session},
    {"refused", test_refused},
    {"agents", test_agents},
    {"ids", test_ids},
    {"shared place", test_shared_place},
    {"ends", test_ends},
    {"until", test_until},
    {"simulated", test_simulated},
};

int main(void)
{
    snprintf(path, sizeof path, "/tmp/test_recorded.%d", (int)getpid());
    int failed = SUITE_RUN("recorded", tests);
    unlink(path);
    return failed;
}
