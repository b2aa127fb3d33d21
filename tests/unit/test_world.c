/* A few seeds of the world (tests/world). */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "tests/world/world.h"

#define SEEDS 6u

static void play(uint64_t seed, bool faults, struct world_result *r)
{
    const struct world_options options = {
        .seed = seed, .faults = faults, .busy_us = 30000000};

    log_init("world", LOG_ERROR);
    printf("[seed %u] ", (unsigned)seed);
    fflush(stdout); /* before a bug ends the program */
    CU_ASSERT_EQUAL_FATAL(world_play(&options, r), 0);
    CU_ASSERT_EQUAL(r->violations, 0);
    CU_ASSERT_EQUAL(r->whole + r->refused + r->broken, r->asked);
}

static void test_calm(void)
{
    struct world_result r;

    play(seed_or(1), false, &r);
    CU_ASSERT_EQUAL(r.whole, r.asked);
    CU_ASSERT(r.asked > 50);
}

static void test_faults(void)
{
    struct world_result r;
    unsigned faults = 0, ended_early = 0;
    uint32_t n = cases_of(SEEDS);

    for (uint32_t i = 0; i < n; i++) {
        play(seed_or(100) + i, true, &r);
        faults += r.faults;
        ended_early += r.refused + r.broken;
    }
    CU_ASSERT(faults > 5 * n);
    CU_ASSERT(ended_early > 0);
}

/* Plays a seed in a process of its own, as the program does with one seed. */
static void play_apart(uint64_t seed, struct world_result *r)
{
    int ends[2], status = -1;

    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    fflush(stdout);
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        play(seed, true, r);
        _exit(write(ends[1], r, sizeof(*r)) != sizeof(*r) || r->violations);
    }
    close(ends[1]); /* so that a child that fails ends the read */
    CU_ASSERT_EQUAL(read(ends[0], r, sizeof(*r)), sizeof(*r));
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
    close(ends[0]);
}

static void test_same(void)
{
    struct world_result one, again, other;

    play_apart(seed_or(7), &one);
    play_apart(seed_or(7), &again);
    play_apart(seed_or(7) + 1, &other);
    CU_ASSERT_EQUAL(one.digest, again.digest);
    CU_ASSERT_NOT_EQUAL(one.digest, other.digest);
}

static const struct suite_test tests[] = {
    {"each request is answered", test_calm},
    {"with faults, too, or an error says why", test_faults},
    {"a seed gives the same log", test_same},
};

SUITE("world", tests)
