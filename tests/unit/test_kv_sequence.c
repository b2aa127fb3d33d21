/* What the numbers of messages say. */

#include "conductor/link/events/sequence.h"
#include "tests/unit/suite.h"

static enum kv_verdict live(struct kv_sequence *s, uint64_t number, double at_s)
{
    enum kv_verdict verdict = kv_sequence_live(s, number, at_s);

    if (verdict == KV_SEQUENCE_NEXT)
        kv_sequence_applied(s, number, at_s);
    return verdict;
}

static void test_in_order(void)
{
    struct kv_sequence s = {0};

    CU_ASSERT(kv_sequence_wanted(&s) == 0);
    for (uint64_t i = 0; i < 5; i++)
        CU_ASSERT(live(&s, i, 0) == KV_SEQUENCE_NEXT);
    CU_ASSERT(live(&s, 7, 0) == KV_SEQUENCE_GAP);
    CU_ASSERT(kv_sequence_wanted(&s) == 5);
}

static void test_a_replay_overlaps(void)
{
    struct kv_sequence s = {0};

    CU_ASSERT(live(&s, 3, 13) == KV_SEQUENCE_GAP);
    for (uint64_t i = 0; i < 6; i++)
        kv_sequence_applied(&s, i, 10 + (double)i);
    CU_ASSERT(live(&s, 4, 14) == KV_SEQUENCE_DUPLICATE);
    CU_ASSERT(live(&s, 5, 15) == KV_SEQUENCE_DUPLICATE);
    CU_ASSERT(live(&s, 6, 16) == KV_SEQUENCE_NEXT);
}

static void test_a_restart(void)
{
    struct kv_sequence s = {0};

    CU_ASSERT(live(&s, 0, 1) == KV_SEQUENCE_NEXT);
    CU_ASSERT(live(&s, 1, 2) == KV_SEQUENCE_NEXT);
    CU_ASSERT(live(&s, 1, 3) == KV_SEQUENCE_RESTART);
    kv_sequence_forget(&s);
    CU_ASSERT(live(&s, 2, 4) == KV_SEQUENCE_GAP);
    kv_sequence_forget(&s);
    CU_ASSERT(live(&s, 0, 5) == KV_SEQUENCE_RESTART);
}

/* It is known that another process may follow, and a replay was quicker. */
static void test_begin(void)
{
    struct kv_sequence s = {0};

    for (uint64_t i = 0; i < 9; i++)
        CU_ASSERT(live(&s, i, (double)i) == KV_SEQUENCE_NEXT);
    kv_sequence_begin(&s);
    for (uint64_t i = 0; i < 3; i++)
        kv_sequence_applied(&s, i, 20 + (double)i);
    CU_ASSERT(live(&s, 1, 21) == KV_SEQUENCE_DUPLICATE);
    CU_ASSERT(live(&s, 2, 22) == KV_SEQUENCE_DUPLICATE);
    CU_ASSERT(live(&s, 3, 23) == KV_SEQUENCE_NEXT);
}

/* The engine restarts before the first live message: only its clock tells. */
static void test_a_restart_behind_a_replay(void)
{
    struct kv_sequence s = {0};

    for (uint64_t i = 0; i < 100; i++)
        kv_sequence_applied(&s, i, 10 + (double)i);
    CU_ASSERT(live(&s, 0, 200) == KV_SEQUENCE_RESTART);
    s = (struct kv_sequence){0};
    for (uint64_t i = 0; i < 100; i++)
        kv_sequence_applied(&s, i, 0); /* no clock */
    CU_ASSERT(live(&s, 50, 0) == KV_SEQUENCE_DUPLICATE);
    CU_ASSERT(live(&s, 50, 0) == KV_SEQUENCE_RESTART);
}

static const struct suite_test tests[] = {
    {"in order", test_in_order},
    {"a replay overlaps", test_a_replay_overlaps},
    {"a restart", test_a_restart},
    {"another process may follow", test_begin},
    {"a restart behind a replay", test_a_restart_behind_a_replay},
};
SUITE("kv_sequence", tests)
