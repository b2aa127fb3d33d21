/* A simulation reads its trace twice: what happens if it changes meanwhile. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "tools/replay/simulate/sim.h"

/* More than is read at once, so that what is added during a pass is seen. */
enum { LINES = 5000 };

static char path[64];

static void add_lines(const char *mode, int first, int n)
{
    FILE *f = fopen(path, mode);

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    for (int i = first; i < first + n; i++) {
        fprintf(f,
                "{\"timestamp\": %d, \"input_length\": 600, "
                "\"output_length\": 1, \"hash_ids\": [1, 2]}\n",
                1000 * i);
    }
    CU_ASSERT_EQUAL(fclose(f), 0);
}

/* Sees the first record while most of the file is still to be read. */
static int grow_trace(void *arg, const struct replay_record *record)
{
    (void)arg;
    if (record->index == 0)
        add_lines("a", LINES, 1);
    return 0;
}

static int run(bool grows, char *error, size_t size)
{
    const struct cluster cluster = {
        .name = "test",
        .layers = 1,
        .block_tokens = 512,
        .kv_bytes_per_token = 1,
        .cost = {.prefill = {0, 1, 0, 0}},
        .prefill_nodes = 1,
        .order = "fifo",
        .max_waiting = 10,
        .pipeline_stages = 1,
        .prefix_cache = true,
        .kvcache_balancing_threshold = 1,
        .tiers = {[TIER_DEVICE] = {.capacity_tokens = 10000}}};
    const struct replay_sim_params params = {
        .sim = {.cluster = &cluster, .policy = "local_cache", .speed = 1},
        .source = {.path = path, .block_tokens = 512, .length_scale = 1},
        .with_facts = true,
        .observe = grows ? grow_trace : NULL};
    struct replay_sim_result result;
    int rc = replay_sim_run(&params, &result, error, size);

    if (rc == 0) {
        CU_ASSERT_EQUAL(result.summary.requests, LINES);
        replay_sim_result_fini(&result);
    }
    return rc;
}

static void test_trace_changes(void)
{
    char error[256];

    add_lines("w", 0, LINES);
    CU_ASSERT_EQUAL(run(false, error, sizeof error), 0);
    CU_ASSERT_EQUAL(run(true, error, sizeof error), -ESTALE);
    CU_ASSERT_STRING_EQUAL(error, "the trace has changed: 5001 requests, 5000 "
                                  "when it was first read");
}

static const struct suite_test tests[] = {
    {"trace changes", test_trace_changes},
};

int main(void)
{
    snprintf(path, sizeof path, "/tmp/test_replay_sim.%d", (int)getpid());
    int failed = SUITE_RUN("replay_sim", tests);
    unlink(path);
    return failed;
}
