/* Where computing and loading meet: against trying every end of a chunk. */
#include <stdlib.h>

#include "conductor/core/step/meeting.h"
#include "tests/unit/suite.h"

static void test_planned(void)
{
    CU_ASSERT(!meeting_met(31, 32));
    CU_ASSERT(meeting_met(32, 32));
    /* To the split, then a block at a time, never into what is loaded. */
    CU_ASSERT_EQUAL(meeting_planned_block(0, 16, 5, 10, false), 5);
    CU_ASSERT_EQUAL(meeting_planned_block(80, 16, 5, 10, false), 6);
    CU_ASSERT_EQUAL(meeting_planned_block(81, 16, 5, 10, false), 6);
    CU_ASSERT_EQUAL(meeting_planned_block(80, 16, 5, 5, false), 5);
    CU_ASSERT_EQUAL(meeting_planned_block(0, 16, 5, 3, false), 3);
    /* Nothing more comes: all that did not is computed. */
    CU_ASSERT_EQUAL(meeting_planned_block(0, 16, 5, 10, true), 10);
}

/* A token takes 1 us, and the deeper the more. */
static double pace_us(const void *arg, uint32_t n_tokens, uint32_t position,
                      uint32_t cached)
{
    const double *slope = arg;

    (void)cached;
    return n_tokens * (1 + *slope * (position + n_tokens / 2.0));
}

static double unknown_us(const void *arg, uint32_t n_tokens, uint32_t position,
                         uint32_t cached)
{
    (void)arg;
    (void)n_tokens;
    (void)position;
    (void)cached;
    return -1;
}

static uint32_t draw(unsigned *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* When both are done if the next chunk has n tokens. */
static double done_us(const struct meeting *m, uint32_t n, double slope)
{
    uint32_t bt = m->block_tokens;
    uint32_t behind = 0; /* blocks that it begins */
    double us = pace_us(&slope, n, m->position, 0);

    for (uint32_t t = m->position; t < m->position + n; t++)
        behind += t % bt == 0;
    uint32_t left = behind < m->missing ? m->missing - behind : 0;
    double load_us = meeting_load_us(m, left);
    return us > load_us ? us : load_us;
}

static void test_chunk(void)
{
    unsigned state = 4711;
    int n_less = 0;

    for (int round = 0; round < 20000; round++) {
        double slope = draw(&state, 100) * 1e-4;
        struct meeting m = {.position = draw(&state, 100),
                            .block_tokens = 8,
                            .most = 1 + draw(&state, 64),
                            .missing = draw(&state, 12),
                            .first_us = draw(&state, 30),
                            .block_us = draw(&state, 20)};
        uint32_t n = meeting_chunk(&m, pace_us, &slope);
        uint32_t end = m.position + n;

        CU_ASSERT_FATAL(n <= m.most);
        if (n == m.most)
            continue;
        n_less++;
        /* It ends with a block, and no other end is sooner. */
        CU_ASSERT_FATAL(n == 0 || end % m.block_tokens == 0);
        for (uint32_t k = 0; k <= m.most; k++)
            if ((m.position + k) % m.block_tokens == 0)
                CU_ASSERT_FATAL(done_us(&m, n, slope) <= done_us(&m, k, slope));
        CU_ASSERT_EQUAL_FATAL(meeting_chunk(&m, unknown_us, NULL), m.most);
    }
    CU_ASSERT(n_less > 1000);
}

/* The slowest source says when all is there. */
static void test_load(void)
{
    const struct meeting m = {
        .first_us = 5, .block_us = 10, .n_tails = 1, .tails = {{2, 40, 50}}};

    CU_ASSERT_EQUAL(meeting_load_us(&m, 0), 0);
    CU_ASSERT_EQUAL(meeting_load_us(&m, 1), 40);
    CU_ASSERT_EQUAL(meeting_load_us(&m, 2), 90);
    CU_ASSERT_EQUAL(meeting_load_us(&m, 20), 195);
}

static const struct suite_test tests[] = {
    {"planned", test_planned},
    {"chunk", test_chunk},
    {"load", test_load},
};
SUITE("meeting", tests)
