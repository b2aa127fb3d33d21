/* Copying blocks to the disk tier: everything that memory holds gets there, in
 * whatever order, through a full queue, eviction and failure. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/log.h"
#include "disk_rig.h"
#include "tests/unit/cases.h"
#include "tests/unit/disk_check.h"
#include "tests/unit/kv_store_check.h"
#include "tests/unit/suite.h"
#include "workers/disk/write_behind.h"

#define STORE_BLOCKS 24u

struct behind {
    struct disk_rig rig;
    struct kv_store *store;
    struct write_behind *wb;
    uint32_t n_released;
    uint64_t rng;
};

static uint32_t rnd(struct behind *b, uint32_t n)
{
    return draw_below(&b->rng, n);
}

static void on_released(void *arg)
{
    struct behind *b = arg;

    b->n_released++;
}

static void begin(struct behind *b, uint32_t slots)
{
    struct kv_store_config c = {.capacity_blocks = STORE_BLOCKS,
                                .block_tokens = RIG_TOKENS,
                                .event_capacity = 1000};

    disk_rig_init(&b->rig, 4096, slots);
    b->rig.config.max_writes = write_behind_max(STORE_BLOCKS);
    c.block_bytes = b->rig.config.geometry.block_bytes;
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&b->rig), 0);
    CU_ASSERT_EQUAL_FATAL(kv_store_new(&c, &b->store), 0);
    b->wb = write_behind_new(b->store, b->rig.t, on_released, b);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b->wb);
}

/* Blocks that the writer has not let go of. */
static uint32_t pinned(const struct behind *b)
{
    struct kv_store_stats s;

    kv_store_stats(b->store, &s);
    return s.held_blocks - s.evictable_blocks;
}

static void finish(struct behind *b)
{
    struct kv_store_stats s;

    disk_tier_close(b->rig.t);
    b->rig.t = NULL;
    kv_store_stats(b->store, &s);
    CU_ASSERT_EQUAL(s.evictable_blocks, s.held_blocks);
    CU_ASSERT_EQUAL(s.private_blocks, 0);
    write_behind_free(b->wb);
    kv_store_free(b->store);
    disk_rig_fini(&b->rig);
}

/* Tells of what the store gained, as the worker does. */
static void drain(struct behind *b)
{
    struct kv_store_event e;

    while (kv_store_next_event(b->store, &e))
        if (e.kind == KV_EVENT_STORED)
            write_behind_stored(b->wb, e.key);
}

static void settle(struct behind *b)
{
    do {
        disk_rig_settle(&b->rig);
        write_behind_resume(b->wb);
    } while (pinned(b) > 0);
}

/* Computes a prompt of `n` blocks and leaves it in the store. */
static void compute(struct behind *b, const struct rig_prompt *p, uint32_t n)
{
    uint32_t ids[RIG_CHAIN];
    uint32_t held;
    uint32_t at = kv_store_match(b->store, p->keys, p->tokens, n, ids);

    if (kv_store_alloc(b->store, n - at, ids + at) < 0) {
        n = at;
        at = n;
    }
    for (uint32_t i = at; i < n; i++) {
        disk_rig_fill(&b->rig, p, i, kv_store_data(b->store, ids[i]));
        CU_ASSERT_EQUAL_FATAL(
            kv_store_commit(b->store, ids[i], i ? ids[i - 1] : KV_BLOCK_NONE,
                            p->keys[i], p->tokens + i * RIG_TOKENS, &held),
            KV_COMMITTED);
    }
    while (n > 0)
        kv_store_release(b->store, ids[--n]);
}

static uint32_t match_memory(struct behind *b, const struct rig_prompt *p)
{
    uint32_t ids[RIG_CHAIN];
    uint32_t n = kv_store_match(b->store, p->keys, p->tokens, RIG_CHAIN, ids);

    for (uint32_t i = 0; i < n; i++)
        kv_store_release(b->store, ids[i]);
    return n;
}

static void test_max(void)
{
    CU_ASSERT_EQUAL(write_behind_max(1), 1);
    CU_ASSERT_EQUAL(write_behind_max(24), 3);
    CU_ASSERT_EQUAL(write_behind_max(1u << 30), 256);
}

/* A chain longer than the queue; then the same again: nothing to do. */
static void test_chain(void)
{
    struct behind b = {.rng = 1};
    struct rig_prompt p;
    struct disk_tier_stats s;

    begin(&b, 40);
    disk_rig_prompt(&p, 1, 0);
    compute(&b, &p, RIG_CHAIN);
    drain(&b);
    CU_ASSERT_EQUAL(pinned(&b), 3);
    settle(&b);
    CU_ASSERT_EQUAL(b.n_released, RIG_CHAIN);
    CU_ASSERT_EQUAL(disk_rig_match(&b.rig, &p), RIG_CHAIN);
    for (uint32_t i = 0; i < RIG_CHAIN; i++)
        CU_ASSERT_EQUAL(disk_rig_read(&b.rig, &p, i, 0, 3), 0);
    disk_tier_stats(b.rig.t, &s);
    uint64_t written = s.written_bytes;
    for (uint32_t i = 0; i < RIG_CHAIN; i++)
        write_behind_stored(b.wb, p.keys[i]);
    write_behind_stored(b.wb, 12345); /* not held any more */
    settle(&b);
    disk_tier_stats(b.rig.t, &s);
    CU_ASSERT_EQUAL(s.written_bytes, written);
    finish(&b);
}

/* The tier lost the front of a chain: it is written again with its end. */
static void test_front_lost(void)
{
    struct behind b = {.rng = 1};
    struct rig_prompt p;

    begin(&b, 40);
    disk_rig_prompt(&p, 1, 0);
    compute(&b, &p, 3);
    drain(&b);
    settle(&b);
    disk_rig_flip(&b.rig,
                  disk_rig_data_offset(&b.rig, disk_rig_slot(&b.rig, &p, 1)));
    CU_ASSERT(disk_rig_read(&b.rig, &p, 1, 0, 3) < 0);
    CU_ASSERT_EQUAL(disk_rig_match(&b.rig, &p), 1);
    compute(&b, &p, 4);
    drain(&b);
    settle(&b);
    CU_ASSERT_EQUAL(disk_rig_match(&b.rig, &p), 4);
    CU_ASSERT_EQUAL(disk_rig_read(&b.rig, &p, 3, 0, 3), 0);
    finish(&b);
}

/* Nothing can be written: pins come back, and memory serves on. */
static void test_failure(void)
{
    struct behind b = {.rng = 1};
    struct rig_prompt p;
    struct rlimit old;

    begin(&b, 40);
    disk_rig_prompt(&p, 1, 0);
    compute(&b, &p, RIG_CHAIN);
    signal(SIGXFSZ, SIG_IGN);
    CU_ASSERT_EQUAL(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit none = {.rlim_cur = 4096, .rlim_max = old.rlim_max};
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &none), 0);
    drain(&b);
    settle(&b);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &old), 0);
    CU_ASSERT_EQUAL(disk_rig_match(&b.rig, &p), 0);
    CU_ASSERT_EQUAL(match_memory(&b, &p), RIG_CHAIN);
    finish(&b);
}

/* The block that found the queue full is evicted, and the tier is smaller than
 * the store: what was computed since is written all the same. */
static void test_behind_evicted(void)
{
    struct behind b = {.rng = 1};
    struct rig_prompt p;

    begin(&b, 13);
    for (uint32_t seed = 1; seed <= 1 + STORE_BLOCKS / RIG_CHAIN; seed++) {
        disk_rig_prompt(&p, seed, 0);
        compute(&b, &p, RIG_CHAIN);
        drain(&b);
    }
    disk_rig_prompt(&p, 1, 0);
    CU_ASSERT_EQUAL(match_memory(&b, &p), 3);
    settle(&b);
    disk_rig_prompt(&p, 1 + STORE_BLOCKS / RIG_CHAIN, 0);
    CU_ASSERT_EQUAL(disk_rig_match(&b.rig, &p), RIG_CHAIN);
    finish(&b);
}

/* Random prompts. In the end all blocks in memory are on disk, if there is
 * room; if not, the blocks on disk are right. */
static void walk(struct behind *b, uint32_t slots)
{
    struct rig_prompt p;
    uint32_t n_found = 0;

    begin(b, slots);
    for (int i = 0; i < 1500; i++) {
        disk_rig_prompt(&p, rnd(b, 6), rnd(b, 5));
        compute(b, &p, 1 + rnd(b, RIG_CHAIN));
        if (rnd(b, 2))
            drain(b);
        struct pollfd fd = {.fd = disk_tier_fd(b->rig.t), .events = POLLIN};
        if (rnd(b, 2) && poll(&fd, 1, 0) == 1)
            disk_tier_poll(b->rig.t);
        if (rnd(b, 4) == 0)
            write_behind_resume(b->wb);
        kv_store_check(b->store);
        disk_tier_check(b->rig.t);
    }
    drain(b);
    settle(b);
    for (uint32_t seed = 0; seed < 6; seed++) {
        for (uint32_t from = 0; from < 5; from++) {
            disk_rig_prompt(&p, seed, from);
            uint32_t n = disk_rig_match(&b->rig, &p);
            if (slots >= 6 * STORE_BLOCKS)
                CU_ASSERT(n >= match_memory(b, &p));
            for (uint32_t k = 0; k < n; k++)
                CU_ASSERT_EQUAL(disk_rig_read(&b->rig, &p, k, 0, 3), 0);
            n_found += n;
        }
    }
    CU_ASSERT(n_found > 10);
    finish(b);
}

static void test_random(void)
{
    struct behind b = {.rng = cases_seed((uint64_t)time(NULL))};

    walk(&b, 200);
    walk(&b, 13);
}

static const struct suite_test tests[] = {
    {"bound", test_max},
    {"chain", test_chain},
    {"front lost", test_front_lost},
    {"failure", test_failure},
    {"behind, and evicted", test_behind_evicted},
    {"random", test_random},
};

int main(void)
{
    log_init("test", LOG_ERROR); /* damage is what these tests make */
    return SUITE_RUN("write_behind", tests);
}
