/* The pool: ids, health, accepted work, corrections, pending blocks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/pool/internal.h"
#include "tests/unit/busy.h"
#include "tests/unit/cases.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/pool_check.h"
#include "tests/unit/suite.h"

static struct pool *small_pool_of(uint32_t max_pending_blocks, bool grows,
                                  const char *order)
{
    struct pool_config config = pool_config_default;

    config.max_instances = 3;
    config.max_waiting = 4;
    config.max_running = 2;
    config.max_decodes = 3;
    config.max_pending_blocks = max_pending_blocks;
    config.grows = grows;
    config.order = queue_order_by_name(order);
    config.correction_tau_us = 3476; /* 1000 us count for a quarter */
    return pool_new(&config);
}

static struct pool *small_pool(void)
{
    return small_pool_of(64, false, "fifo");
}

static uint32_t add(struct pool *pool, unsigned role)
{
    uint32_t id = POOL_NO_INSTANCE;

    id = ADDED(pool, .name = "w", .role = role, .kv_capacity_tokens = 10000,
               .link_bytes_per_s = 1e9);
    CU_ASSERT_NOT_EQUAL(id, POOL_NO_INSTANCE);
    return id;
}

static int accept(struct pool *pool, uint32_t id, uint64_t request,
                  int64_t cost_us, const uint64_t *keys, size_t n_keys)
{
    return pool_prefill_accept(
        pool, id,
        &(struct pool_prefill_request){.request_id = request,
                                       .predicted_us = cost_us,
                                       .uncached_tokens = 100,
                                       .keys = keys,
                                       .n_keys = n_keys});
}

static void test_ids(void)
{
    struct pool *pool = small_pool();
    uint32_t a = add(pool, ROLE_PREFILL);
    uint32_t b = add(pool, ROLE_DECODE);
    uint32_t c = add(pool, ROLE_BOTH);
    uint32_t d;
    struct pool_instance_config bad = {.role = ROLE_BOTH,
                                       .kv_capacity_tokens = 1};

    CU_ASSERT_EQUAL(pool_add(pool, &bad, &d), -ENOSPC);
    bad.role = 0;
    CU_ASSERT_EQUAL(pool_add(pool, &bad, &d), -EINVAL);
    CU_ASSERT_EQUAL(pool_slots(pool), 3);
    CU_ASSERT_EQUAL(pool_get(pool, b)->slot, 1);
    CU_ASSERT_EQUAL(pool_remove(pool, b, 0), 0);
    CU_ASSERT_PTR_NULL(pool_get(pool, b));
    CU_ASSERT_PTR_NULL(pool_at(pool, 1));
    CU_ASSERT_EQUAL(pool_remove(pool, b, 0), -ESTALE);
    /* The slot is used again, the old id is not. */
    d = add(pool, ROLE_DECODE);
    CU_ASSERT_EQUAL(pool_get(pool, d)->slot, 1);
    CU_ASSERT_NOT_EQUAL(d, b);
    CU_ASSERT_EQUAL(accept(pool, b, 1, 1, NULL, 0), -ESTALE);
    CU_ASSERT_EQUAL(pool_set_health(pool, b, HEALTH_READY), -ESTALE);
    CU_ASSERT_EQUAL(pool_decode_accept(pool, b, 1, 1, 1), -ESTALE);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, b, 1, 1, 0), -ESTALE);
    CU_ASSERT_EQUAL(pool_remove(pool, c, 0), 0);
    CU_ASSERT_EQUAL(pool_slots(pool), 2);
    CU_ASSERT_PTR_NULL(pool_get(pool, POOL_NO_INSTANCE));
    CU_ASSERT_PTR_NOT_NULL(pool_get(pool, a));
    CU_ASSERT(pool_check(pool));
    pool_free(pool);
    pool_free(NULL);
}

#define SMALL_POOL_TEST(test) \
    SUITE_TEST_OF(test, struct pool, pool, small_pool(), pool_free(pool))

SMALL_POOL_TEST(test_health)
{
    uint32_t id = add(pool, ROLE_BOTH);

    CU_ASSERT_EQUAL(pool_get(pool, id)->health, HEALTH_STARTING);
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_READY), 0);
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_READY), 0);
    CU_ASSERT_PTR_NULL(pool_broken(pool));
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_STARTING), -EPERM);
    CU_ASSERT_PTR_NOT_NULL(pool_broken(pool));
    CU_ASSERT_PTR_NULL(pool_broken(pool)); /* it is told once */
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_SUSPECT), 0);
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_READY), 0);
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_DRAINING), 0);
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_GONE), 0);
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_READY), -EPERM);
    CU_ASSERT_EQUAL(pool_get(pool, id)->health, HEALTH_GONE);
}

SMALL_POOL_TEST(test_held)
{
    uint32_t id = add(pool, ROLE_BOTH);
    const struct pool_instance *i = pool_get(pool, id);
    const uint8_t *ready = pool_ready_roles(pool);

    CU_ASSERT_EQUAL(pool_hold(pool, id, true), 0);
    CU_ASSERT_EQUAL(pool_shown_health(i), HEALTH_STARTING);
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_READY), 0);
    CU_ASSERT_EQUAL(pool_shown_health(i), HEALTH_DRAINING);
    CU_ASSERT_FALSE(pool_takes_work(i));
    CU_ASSERT_EQUAL(ready[i->slot], 0);
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_SUSPECT), 0);
    CU_ASSERT_EQUAL(pool_shown_health(i), HEALTH_SUSPECT);
    /* It is not well: letting it go gives it no work. */
    CU_ASSERT_EQUAL(pool_hold(pool, id, false), 0);
    CU_ASSERT_EQUAL(ready[i->slot], 0);
    CU_ASSERT_EQUAL(pool_set_health(pool, id, HEALTH_READY), 0);
    CU_ASSERT_EQUAL(ready[i->slot], ROLE_BOTH);
    CU_ASSERT_EQUAL(pool_hold(pool, id, true), 0);
    CU_ASSERT_EQUAL(ready[i->slot], 0);
    CU_ASSERT_EQUAL(pool_hold(pool, id, false), 0);
    CU_ASSERT(pool_takes_work(i));
    CU_ASSERT_EQUAL(pool_shown_health(i), HEALTH_READY);
    CU_ASSERT_EQUAL(pool_remove(pool, id, 0), 0);
    CU_ASSERT_EQUAL(pool_hold(pool, id, true), -ESTALE);
}

static int64_t wait_us(struct pool *pool, uint32_t id, int64_t now_us)
{
    return pool_queue_place(pool, pool_get(pool, id), now_us, 1, 0, now_us)
        .wait_us;
}

SMALL_POOL_TEST(test_queue_time)
{
    uint32_t id = add(pool, ROLE_PREFILL);

    CU_ASSERT_EQUAL(wait_us(pool, id, 0), 0);
    CU_ASSERT_EQUAL(accept(pool, id, 1, 1000, NULL, 0), 0);
    CU_ASSERT_EQUAL(accept(pool, id, 1, 1000, NULL, 0), -EEXIST);
    CU_ASSERT_EQUAL(accept(pool, id, 2, 300, NULL, 0), 0);
    CU_ASSERT_EQUAL(wait_us(pool, id, 0), 1300);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 1, 100), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 1, 100), -ENOENT);
    CU_ASSERT_EQUAL(wait_us(pool, id, 100), 1300);
    CU_ASSERT_EQUAL(wait_us(pool, id, 600), 800);
    CU_ASSERT_EQUAL(wait_us(pool, id, 5000), 300); /* late is not negative */
    /* It took twice as long: the ratio goes a quarter of the way to 2, and
     * with it what waits. */
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 1, 2000, 0), 0);
    CU_ASSERT_DOUBLE_EQUAL(pool_get(pool, id)->correction.ratio, 1.25, 1e-5);
    CU_ASSERT_EQUAL(wait_us(pool, id, 2100), 375);
    CU_ASSERT(pool_check(pool));
    /* What never started can be done or cancelled too; an unknown time
     * teaches nothing. */
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 2, -1, 0), 0);
    CU_ASSERT_DOUBLE_EQUAL(pool_get(pool, id)->correction.ratio, 1.25, 1e-5);
    CU_ASSERT_EQUAL(wait_us(pool, id, 2100), 0);
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, id, 2, 0), -ENOENT);
    CU_ASSERT(pool_check(pool));
}

/* Of two the one that was slow fades back while the other has all the work. */
SMALL_POOL_TEST(test_forget)
{
    uint32_t slow = add(pool, ROLE_PREFILL), other = add(pool, ROLE_PREFILL);
    double ratio;

    CU_ASSERT_EQUAL(accept(pool, slow, 1, 1000, NULL, 0), 0);
    CU_ASSERT_EQUAL(accept(pool, other, 2, 1000, NULL, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, slow, 1, 4000, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, other, 2, 4000, 0), 0);
    CU_ASSERT_DOUBLE_EQUAL(pool_get(pool, slow)->correction.ratio, 1.75, 1e-4);
    for (uint64_t id = 3; id < 40; id++) {
        ratio = pool_get(pool, slow)->correction.ratio;
        CU_ASSERT_EQUAL(accept(pool, other, id, 1000, NULL, 0), 0);
        CU_ASSERT_EQUAL(pool_prefill_done(pool, other, id, 1750, 0), 0);
        if (id < 6) /* not yet */
            CU_ASSERT_EQUAL(pool_get(pool, slow)->correction.ratio, ratio);
    }
    ratio = pool_get(pool, slow)->correction.ratio;
    CU_ASSERT(ratio > 1.0 && ratio < 1.0 + 0.75 / 8);
    CU_ASSERT_DOUBLE_EQUAL(pool_get(pool, other)->correction.ratio, 1.75, 1e-4);
    /* Not while it has something to do. */
    CU_ASSERT_EQUAL(accept(pool, slow, 1, 1000, NULL, 0), 0);
    for (uint64_t id = 40; id < 60; id++) {
        CU_ASSERT_EQUAL(accept(pool, other, id, 1000, NULL, 0), 0);
        CU_ASSERT_EQUAL(pool_prefill_cancel(pool, other, id, 0), 0);
    }
    CU_ASSERT_EQUAL(pool_get(pool, slow)->correction.ratio, ratio);
    CU_ASSERT(pool_check(pool));
}

SMALL_POOL_TEST(test_ready)
{
    uint32_t id = add(pool, ROLE_PREFILL);
    struct pool_prefill_request fetching = {
        .request_id = 1, .predicted_us = 500, .ready_at_us = 9000};

    CU_ASSERT_EQUAL(pool_prefill_accept(pool, id, &fetching), 0);
    CU_ASSERT_EQUAL(wait_us(pool, id, 1000), 0); /* it would be passed */
    CU_ASSERT_EQUAL(wait_us(pool, id, 9000), 500);
    CU_ASSERT(pool_check(pool));
    fetching.predicted_us = -1;
    CU_ASSERT_EQUAL(pool_prefill_accept(pool, id, &fetching), -EINVAL);
}

static void test_bounds(void)
{
    struct pool *pool = small_pool();
    uint32_t id = add(pool, ROLE_BOTH);

    for (uint64_t r = 1; r <= 4; r++)
        CU_ASSERT_EQUAL(accept(pool, id, r, 10, NULL, 0), 0);
    CU_ASSERT(pool_prefill_full(pool_get(pool, id)));
    CU_ASSERT_EQUAL(accept(pool, id, 5, 10, NULL, 0), -ENOSPC);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 3, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 1, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 2, 0), -ENOSPC);
    CU_ASSERT_EQUAL(accept(pool, id, 5, 10, NULL, 0), 0);
    for (uint64_t r = 1; r <= 3; r++)
        CU_ASSERT_EQUAL(pool_decode_accept(pool, id, r, 100, 50), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 3, 100, 50), -EEXIST);
    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 4, 100, 50), -ENOSPC);
    CU_ASSERT(pool_decode_full(pool_get(pool, id)));
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, id, 2, 0), 0);
    CU_ASSERT(pool_check(pool));
    pool_free(pool);

    struct pool_config bad = pool_config_default;
    bad.max_waiting = QUEUE_ITEMS_MAX;
    CU_ASSERT_PTR_NULL(pool_new(&bad));
    bad = pool_config_default;
    bad.correction_min_ratio = 5.0;
    CU_ASSERT_PTR_NULL(pool_new(&bad));
}

SMALL_POOL_TEST(test_decode)
{
    uint32_t id = add(pool, ROLE_BOTH);
    const struct pool_instance *i = pool_get(pool, id);

    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 1, 1000, 200), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 2, 500, 300), 0);
    CU_ASSERT_EQUAL(i->decode_kv_tokens, 1500);
    CU_ASSERT_EQUAL(i->decode_reserved_tokens, 1998);
    CU_ASSERT_EQUAL(pool_decode_room_tokens(i), 8002);
    CU_ASSERT_EQUAL(pool_decode_started(pool, id, 1), 0);
    CU_ASSERT_EQUAL(pool_decode_progress(pool, id, 1, 20), 0);
    CU_ASSERT_EQUAL(pool_decode_progress(pool, id, 1, 30), 0);
    CU_ASSERT_EQUAL(pool_decode_progress(pool, id, 1, -1), -EINVAL);
    CU_ASSERT_EQUAL(pool_decode_progress(pool, id, 9, 1), -ENOENT);
    CU_ASSERT_EQUAL(i->decode_kv_tokens, 1530);
    CU_ASSERT_EQUAL(pool_decode_room_tokens(i), 8002);
    /* Steps of the whole batch: request 2 has not started. */
    CU_ASSERT_EQUAL(pool_decode_advance(pool, id, 5), 0);
    CU_ASSERT_EQUAL(pool_decode_advance(pool, id, -1), -EINVAL);
    CU_ASSERT_EQUAL(pool_decode_advance(pool, id + 1, 5), -ESTALE);
    CU_ASSERT_EQUAL(i->decode_kv_tokens, 1535);
    CU_ASSERT_EQUAL(i->decodes[0].produced_tokens, 35);
    CU_ASSERT(pool_check(pool));
    /* A running prefill of another request takes room, one of request 2 is
     * counted already. */
    CU_ASSERT_EQUAL(accept(pool, id, 2, 10, NULL, 0), 0);
    CU_ASSERT_EQUAL(accept(pool, id, 3, 10, NULL, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 2, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 3, 0), 0);
    CU_ASSERT_EQUAL(pool_decode_room_tokens(i), 7902);
    CU_ASSERT_EQUAL(pool_decode_done(pool, id, 1), 0);
    CU_ASSERT_EQUAL(pool_decode_done(pool, id, 1), -ENOENT);
    CU_ASSERT_EQUAL(i->decode_kv_tokens, 500);
    CU_ASSERT_EQUAL(i->decode_reserved_tokens, 799);
    CU_ASSERT(pool_check(pool));
}

/* Workers allocate whole blocks, and never feed the last token back. */
SMALL_POOL_TEST(test_blocks)
{
    uint32_t id;

    id = ADDED(pool, .role = ROLE_BOTH, .kv_capacity_tokens = 1024,
               .block_tokens = 256);
    const struct pool_instance *i = pool_get(pool, id);

    CU_ASSERT_EQUAL(pool_kv_tokens(i, 0, 0), 0);
    CU_ASSERT_EQUAL(pool_kv_tokens(i, 1, 0), 256);
    CU_ASSERT_EQUAL(pool_kv_tokens(i, 256, 1), 256);
    CU_ASSERT_EQUAL(pool_kv_tokens(i, 206, 51), 256);
    CU_ASSERT_EQUAL(pool_kv_tokens(i, 206, 52), 512);
    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 1, 2, 50), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 2, 250, 50), 0);
    CU_ASSERT_EQUAL(i->decode_reserved_tokens, 256 + 512);
    CU_ASSERT_EQUAL(pool_decode_room_tokens(i), 256);
    CU_ASSERT_EQUAL(accept(pool, id, 3, 10, NULL, 0), 0); /* 100 tokens */
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 3, 0), 0);
    CU_ASSERT_EQUAL(pool_decode_room_tokens(i), 0);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_decode_done(pool, id, 2), 0);
    CU_ASSERT_EQUAL(i->decode_reserved_tokens, 256);
}

SMALL_POOL_TEST(test_max_batch)
{
    uint32_t id;

    id = ADDED(pool, .role = ROLE_DECODE, .kv_capacity_tokens = 1000,
               .max_batch = 2);
    const struct pool_instance *i = pool_get(pool, id);

    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 1, 10, 10), 0);
    CU_ASSERT_FALSE(pool_decode_full(i));
    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 2, 10, 10), 0);
    CU_ASSERT(pool_decode_full(i));
    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 3, 10, 10), -ENOSPC);
    CU_ASSERT_EQUAL(pool_decode_done(pool, id, 1), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(pool, id, 3, 10, 10), 0);
    CU_ASSERT(pool_check(pool));
}

SMALL_POOL_TEST(test_links)
{
    uint32_t id = add(pool, ROLE_BOTH);
    const struct pool_instance *i = pool_get(pool, id);

    CU_ASSERT_EQUAL(pool_link_observed(pool, id, 5000000, 1000), 0);
    CU_ASSERT_DOUBLE_EQUAL(i->link_bytes_per_s, 2e9, 1.0);
    CU_ASSERT_EQUAL(pool_link_observed(pool, id, 0, 1000), 0);
    CU_ASSERT_DOUBLE_EQUAL(i->link_bytes_per_s, 2e9, 1.0);
    CU_ASSERT_EQUAL(busy_link(pool, id, 700), 0);
    CU_ASSERT_EQUAL(busy_link(pool, id, 600), 0);
    CU_ASSERT_EQUAL(i->egress_free_us, 700);
    CU_ASSERT_EQUAL(pool_set_kv_used(pool, id, -1), -EINVAL);
    CU_ASSERT_EQUAL(pool_set_kv_used(pool, id, 77), 0);
    CU_ASSERT_EQUAL(i->kv_used_tokens, 77);
}

static void test_pending(void)
{
    struct pool *pool = small_pool();
    uint32_t a = add(pool, ROLE_PREFILL);
    uint32_t b = add(pool, ROLE_PREFILL);
    const uint64_t keys[] = {11, 12, 13, 14, 15};
    const uint64_t other[] = {11, 12, 23};
    uint64_t many[70];
    struct prefix_match match;
    const uint32_t *blocks;

    CU_ASSERT_EQUAL_FATAL(
        prefix_match_init(&match, pool_config(pool)->max_instances), 0);
    blocks = match.blocks;
    for (uint64_t k = 0; k < 70; k++)
        many[k] = 100 + k;
    CU_ASSERT_EQUAL(accept(pool, a, 1, 10, keys, 5), 0);
    CU_ASSERT_EQUAL(accept(pool, a, 2, 10, other, 3), 0);
    CU_ASSERT_EQUAL(accept(pool, b, 3, 10, other, 3), 0);
    pool_pending_match(pool, keys, 5, &match);
    CU_ASSERT(blocks[0] == 5 && blocks[1] == 2 && blocks[2] == 0);
    /* Shared blocks stay as long as one request needs them. */
    CU_ASSERT_EQUAL(pool_prefill_started(pool, a, 1, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, a, 1, 10, 0), 0);
    pool_pending_match(pool, keys, 5, &match);
    CU_ASSERT(blocks[0] == 2 && blocks[1] == 2);
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, a, 2, 0), 0);
    pool_pending_match(pool, other, 3, &match);
    CU_ASSERT(blocks[0] == 0 && blocks[1] == 3);
    /* Over the bound the work is accepted and its blocks are not seen. */
    CU_ASSERT_EQUAL(accept(pool, a, 4, 10, many, 70), 0);
    CU_ASSERT_EQUAL(accept(pool, a, 5, 10, many, 64), 0);
    CU_ASSERT_EQUAL(pool_pending_dropped(pool), 2);
    pool_pending_match(pool, many, 64, &match);
    CU_ASSERT_EQUAL(blocks[0], 0);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_prefill_done(pool, a, 4, 10, 0), 0);
    CU_ASSERT_EQUAL(pool_remove(pool, b, 0), 0);
    CU_ASSERT_EQUAL(pool_remove(pool, a, 0), 0);
    pool_pending_match(pool, other, 3, &match);
    CU_ASSERT(blocks[0] == 0 && blocks[1] == 0);
    CU_ASSERT(pool_check(pool));
    pool_free(pool);
    prefix_match_fini(&match);
}

/* More blocks than the tables of pending ones have places at first. */
static void pending_of_many(bool grows)
{
    enum { N = 100000, REQUESTS = 4 };
    struct pool *pool = small_pool_of(1u << 20, grows, "fifo");
    uint32_t mask = pool->pending->mask;
    uint32_t a = add(pool, ROLE_PREFILL);
    uint64_t *keys = calloc(N, sizeof(*keys));
    struct prefix_match match;

    CU_ASSERT_PTR_NOT_NULL_FATAL(keys);
    CU_ASSERT_EQUAL_FATAL(
        prefix_match_init(&match, pool_config(pool)->max_instances), 0);
    for (uint64_t r = 1; r <= REQUESTS; r++) {
        for (uint64_t k = 0; k < N; k++)
            keys[k] = r << 32 | k;
        CU_ASSERT_EQUAL(accept(pool, a, r, 10, keys, N), 0);
        pool_pending_match(pool, keys, N, &match);
        CU_ASSERT_EQUAL(match.blocks[0], N);
    }
    CU_ASSERT_EQUAL(pool_pending_dropped(pool), 0);
    CU_ASSERT_EQUAL(pool->pending->mask > mask, grows);
    CU_ASSERT(pool_check(pool));
    for (uint64_t r = 1; r < REQUESTS; r++)
        CU_ASSERT_EQUAL(pool_prefill_cancel(pool, a, r, 0), 0);
    pool_pending_match(pool, keys, N, &match);
    CU_ASSERT_EQUAL(match.blocks[0], N);
    CU_ASSERT(pool_check(pool));
    prefix_match_fini(&match);
    free(keys);
    pool_free(pool);
}

/* A daemon's tables never grow, since that takes long. */
static void test_pending_grows(void)
{
    pending_of_many(false);
    pending_of_many(true);
}

/* The longest way that a lookup goes through the table of pending blocks. */
static uint32_t longest_run(const struct pending *pending)
{
    uint32_t longest = 0, run = 0;

    for (uint32_t i = 0; i <= pending->mask; i++) {
        run = pending->slots[i].count ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Keys that a client has searched for: under a multiplication by this constant
 * they differ in the upper 13 bits and the lower 32 alone, whatever is between,
 * so that a table that takes those between has one home for all of them. */
static void test_pending_searched(void)
{
    enum { N = 4096 };
    const uint64_t c = UINT64_C(0xbf58476d1ce4e5b9);
    struct pool *pool = small_pool_of(1u << 16, false, "fifo");
    uint32_t a = add(pool, ROLE_PREFILL), slot = pool_get(pool, a)->slot;
    uint64_t inverse = 1, *keys = calloc(N, sizeof(*keys));

    CU_ASSERT_PTR_NOT_NULL_FATAL(keys);
    for (int i = 0; i < 6; i++)
        inverse *= 2 - c * inverse;
    for (uint64_t k = 0; k < N; k++)
        keys[k] =
            (((k * 7919 << 51 | UINT64_C(12345) << 32 | k) * inverse) - slot) ^
            pool_config(pool)->seed;
    CU_ASSERT_EQUAL(accept(pool, a, 1, 10, keys, N), 0);
    CU_ASSERT(longest_run(pool->pending) < 128);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, a, 1, 0), 0);
    CU_ASSERT(pool_check(pool));
    free(keys);
    pool_free(pool);
}

static unsigned rnd(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* The next turn of a conversation waits for the turn before it, which shorter
 * ones pass. A short prompt that shares a few of its blocks does not. */
static void test_followed(void)
{
    static const uint64_t turn[] = {1, 2, 3, 4}, other[] = {9};
    struct pool *pool = small_pool_of(512, true, "shortest_first");
    uint32_t id = add(pool, ROLE_PREFILL);
    const struct pool_instance *i = pool_get(pool, id);
    struct queue_item item = {.cost_us = 1000, .has_slo = true};

    CU_ASSERT_EQUAL(accept(pool, id, 1, 50000, NULL, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 1, 0), 0);
    CU_ASSERT_EQUAL(accept(pool, id, 2, 100000, turn, 4), 0);
    CU_ASSERT_EQUAL(accept(pool, id, 3, 20000, other, 1), 0);
    CU_ASSERT_EQUAL(pool_followed_us(pool, i, turn, 4, &item, 0), 170000);
    CU_ASSERT_EQUAL(pool_followed_us(pool, i, other, 1, &item, 0), 70000);
    /* Without an SLO it follows where it would come later anyway. */
    item.has_slo = false;
    CU_ASSERT_EQUAL(pool_followed_us(pool, i, turn, 4, &item, 0), 170000);
    CU_ASSERT_EQUAL(pool_followed_us(pool, i, turn, 1, &item, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, id, 2, 0), 0);
    CU_ASSERT_EQUAL(pool_followed_us(pool, i, turn, 4, &item, 0), 0);
    pool_free(pool);
    /* Served by age it comes later without that. */
    pool = small_pool();
    id = add(pool, ROLE_PREFILL);
    CU_ASSERT_EQUAL(accept(pool, id, 2, 100000, turn, 4), 0);
    CU_ASSERT_EQUAL(
        pool_followed_us(pool, pool_get(pool, id), turn, 4, &item, 0), 0);
    pool_free(pool);
}

/* Random work, with the invariants checked after every operation, and the
 * pending blocks against what the accepted prefills say. */
static void test_random(void)
{
    unsigned state = (unsigned)cases_seed(4711);
    struct pool *pool = small_pool_of(512, true, "shortest_first");
    uint32_t ids[3] = {add(pool, ROLE_BOTH), add(pool, ROLE_BOTH),
                       add(pool, ROLE_BOTH)};
    struct prefix_match match;

    CU_ASSERT_EQUAL_FATAL(
        prefix_match_init(&match, pool_config(pool)->max_instances), 0);
    for (int op = 0; op < 100000; op++) {
        uint32_t *id = &ids[rnd(&state, 3)];
        uint64_t request = rnd(&state, 12);
        uint64_t keys[12];
        size_t n = rnd(&state, 13);
        uint64_t tail = rnd(&state, 3) + 1;

        for (uint64_t k = 0; k < n; k++)
            keys[k] = k < 4 ? k + 1 : tail * 1000 + k;
        switch (rnd(&state, 8)) {
        case 0:
        case 1:
        case 2:
            (void)!accept(pool, *id, request, (int64_t)rnd(&state, 1000), keys,
                          n);
            (void)!pool_decode_accept(pool, *id, request, 10, 10);
            (void)!pool_decode_likely(pool, *id, request, 10);
            (void)pool_book_push(
                pool,
                &(struct pool_push){ids[rnd(&state, 3)],
                                    (int64_t)rnd(&state, 500) - 1, op},
                *id, request);
            break;
        case 3:
            (void)!pool_prefill_started(pool, *id, request, op);
            (void)pool_decode_progress(pool, *id, request,
                                       (int64_t)rnd(&state, 9));
            break;
        case 4:
            (void)pool_prefill_done(pool, *id, request,
                                    (int64_t)rnd(&state, 2000), 0);
            break;
        case 5:
            (void)pool_prefill_cancel(pool, *id, request, 0);
            break;
        case 6:
            if (rnd(&state, 2))
                (void)pool_decode_started(pool, *id, request);
            else
                (void)pool_decode_done(pool, *id, request);
            break;
        default:
            if (rnd(&state, 40) == 0) {
                CU_ASSERT_EQUAL(pool_remove(pool, *id, 0), 0);
                *id = add(pool, ROLE_BOTH);
            }
        }
        (void)pool_queue_place(pool, pool_get(pool, *id), op,
                               (int64_t)rnd(&state, 1000), 0, op);
        if (!pool_check(pool)) {
            CU_FAIL("an invariant is broken");
            break;
        }
        pool_pending_match(pool, keys, n, &match);
        for (uint32_t s = 0; s < 3; s++) {
            const struct pool_instance *i = pool_at(pool, s);
            uint32_t most = 0;

            /* Chains share four blocks, or all of them. */
            for (size_t w = 0; w < i->n_waiting + i->n_running; w++) {
                const struct pool_prefill *p =
                    w < i->n_waiting ? &i->waiting[w]
                                     : &i->running[w - i->n_waiting];
                uint32_t low = p->n_keys < n ? p->n_keys : (uint32_t)n;

                most = most > low ? most : low;
            }
            if (match.blocks[s] > most ||
                (most <= 4 && match.blocks[s] != most)) {
                CU_FAIL("pending blocks are wrong");
                op = 100000;
            }
        }
    }
    CU_ASSERT_EQUAL(pool_pending_dropped(pool), 0);
    for (uint64_t request = 0; request < 12; request++)
        for (uint32_t s = 0; s < 3; s++)
            (void)pool_decode_done(pool, ids[s], request);
    for (uint32_t s = 0; s < 3; s++) {
        const struct pool_instance *i = pool_get(pool, ids[s]);

        CU_ASSERT(i->push_out_bytes == 0 && i->push_in_bytes == 0);
        CU_ASSERT(i->n_pushes_out == 0 && i->n_pushes_in == 0);
    }
    pool_free(pool);
    prefix_match_fini(&match);
}

/* What a prefill booked is given back when it ends, and what was booked behind
 * it comes sooner. Nothing is given back twice. */
static void test_bookings(void)
{
    struct pool *pool = pool_new(&pool_config_default);
    struct pool_instance_config config = {.role = ROLE_PREFILL,
                                          .kv_capacity_tokens = 1000};
    const struct pool_instance *i;
    uint32_t a, b;

    a = core_add(pool, &config);
    b = core_add(pool, &config);
    i = pool_get(pool, a);
    for (uint64_t n = 1; n <= 5; n++) {
        struct pool_prefill_request work = {.request_id = n};

        CU_ASSERT_EQUAL(pool_prefill_accept(pool, b, &work), 0);
        BOOKS(pool, b, n, 0, a, POOL_EGRESS, (int64_t)n * 12);
        BOOKS(pool, b, n, 0, a, TIER_DISK, 7);
    }
    CU_ASSERT_EQUAL(i->egress_free_us, 60);
    CU_ASSERT_EQUAL(i->tier_free_us[TIER_DISK], 7);
    CU_ASSERT(pool_check(pool));
    /* The first one is half over: what it has used stays used. */
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, b, 1, 6), 0);
    CU_ASSERT_EQUAL(i->egress_free_us, 54);
    CU_ASSERT_EQUAL(i->tier_free_us[TIER_DISK], 6);
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, b, 3, 6), 0);
    CU_ASSERT_EQUAL(i->egress_free_us, 42);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_prefill_started(pool, b, 2, 6), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, b, 2, 1, 18), 0);
    CU_ASSERT_EQUAL(i->egress_free_us, 42);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_remove(pool, b, 20), 0);
    CU_ASSERT_EQUAL(i->egress_free_us, 20);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(
        pool_book(pool, &(struct pool_booking){a, POOL_EGRESS, 90}, b, 4, 0),
        -ENOENT);
    CU_ASSERT_EQUAL(
        pool_book(pool, &(struct pool_booking){b, POOL_EGRESS, 90}, a, 4, 0),
        -ESTALE);
    pool_free(pool);
}

/* The holder goes before those who booked it; its place is taken by another. */
static void test_bookings_of_the_gone(void)
{
    struct pool_config bounded = pool_config_default;
    struct pool_instance_config config = {.role = ROLE_PREFILL,
                                          .kv_capacity_tokens = 1000};
    uint32_t a, b;

    bounded.max_bookings = 2;
    struct pool *pool = pool_new(&bounded);

    a = core_add(pool, &config);
    b = core_add(pool, &config);
    for (uint64_t n = 1; n <= 3; n++) { /* the third one is over the bound */
        struct pool_prefill_request work = {.request_id = n};

        CU_ASSERT_EQUAL(pool_prefill_accept(pool, a, &work), 0);
        BOOKS(pool, a, n, 0, b, POOL_EGRESS, (int64_t)n * 10);
    }
    CU_ASSERT_EQUAL(pool_get(pool, b)->egress_free_us, 30);
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, a, 3, 0), 0);
    CU_ASSERT_EQUAL(pool_get(pool, b)->egress_free_us, 30);
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, a, 2, 0), 0);
    CU_ASSERT_EQUAL(pool_get(pool, b)->egress_free_us, 20);
    CU_ASSERT_EQUAL(pool_remove(pool, b, 0), 0);
    CU_ASSERT(pool_check(pool));
    b = core_add(pool, &config);
    BOOKS(pool, a, 1, 0, b, POOL_EGRESS, 5);
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, a, 1, 0), 0);
    CU_ASSERT_EQUAL(pool_get(pool, b)->egress_free_us, 0);
    CU_ASSERT(pool_check(pool));
    pool_free(pool);
}

/* Room is counted with the answer's tokens but the last, in whole blocks; the
 * window in tokens. */
static void test_too_long(void)
{
    struct pool_instance i = {.kv_capacity_tokens = 1024,
                              .kv_whole_tokens = 1024,
                              .block_tokens = 256};

    CU_ASSERT_FALSE(pool_too_long(&i, 1024, 1));
    CU_ASSERT_TRUE(pool_too_long(&i, 1024, 2));
    i.window_tokens = 300;
    CU_ASSERT_FALSE(pool_too_long(&i, 300, 1));
    CU_ASSERT_FALSE(pool_too_long(&i, 299, 2));
    CU_ASSERT_TRUE(pool_too_long(&i, 300, 2));
    CU_ASSERT_TRUE(pool_too_long(&i, 301, 1));
}

/* Prefills that share steps: of two that run, the second begins where the first
 * ends, and what passed before that is not its own. */
static void test_shared_steps(void)
{
    struct pool_config config = pool_config_default;
    struct pool *pool, *apart;
    uint32_t id, other;

    config.max_instances = 2;
    config.max_waiting = 4;
    config.max_running = 3;
    config.correction_tau_us = 3476; /* 1000 us count for a quarter */
    apart = pool_new(&config);
    config.shared_steps = true;
    pool = pool_new(&config);
    id = add(pool, ROLE_BOTH);
    other = add(apart, ROLE_BOTH);
    for (uint64_t r = 1; r <= 3; r++) {
        CU_ASSERT_EQUAL(accept(pool, id, r, 1000, NULL, 0), 0);
        CU_ASSERT_EQUAL(accept(apart, other, r, 1000, NULL, 0), 0);
    }
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 1, 5000), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 2, 5800), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(apart, other, 1, 5000), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(apart, other, 2, 5800), 0);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_running_left_us(pool_get(pool, id), 5900), 1100);
    CU_ASSERT_EQUAL(pool_running_left_us(pool_get(apart, other), 5900),
                    100 + 900);
    /* The first is late: it may end any moment, the second has not begun. */
    CU_ASSERT_EQUAL(pool_running_left_us(pool_get(pool, id), 6200), 1000);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 1, 1000, 6000), 0);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_running_left_us(pool_get(pool, id), 6100), 900);
    /* 200 of its 1200 us were the first one's. */
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 2, 1200, 7000), 0);
    CU_ASSERT_DOUBLE_EQUAL(pool_get(pool, id)->correction.ratio, 1.0, 1e-9);
    CU_ASSERT_EQUAL(pool_prefill_done(apart, other, 1, 1000, 6000), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(apart, other, 2, 1200, 7000), 0);
    CU_ASSERT(pool_get(apart, other)->correction.ratio > 1.04);
    /* All of it; and one that never began teaches what it says. */
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 3, 6900), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 3, 50, 7000), 0);
    CU_ASSERT(pool_get(pool, id)->correction.ratio < 1.0);
    CU_ASSERT(pool_check(pool));
    pool_free(apart);
    pool_free(pool);
}

/* What unfinished prefills will leave, each block once, beside the tiers. */
SMALL_POOL_TEST(test_blocks_over)
{
    static const uint64_t one[] = {11, 12, 13, 14, 15, 16};
    static const uint64_t two[] = {11, 12, 13, 14, 25, 26};
    const struct pool_instance *i;
    uint32_t id;

    id = ADDED(pool, .name = "w", .role = ROLE_PREFILL,
               .kv_capacity_tokens = 10000, .block_tokens = 16,
               .cache_tokens = 10 * 16);
    i = pool_get(pool, id);
    CU_ASSERT_EQUAL(pool_blocks_over(pool, i, 50), 0); /* nobody else waits */
    CU_ASSERT_EQUAL(accept(pool, id, 1, 1000, one, 6), 0);
    CU_ASSERT_EQUAL(pool_blocks_over(pool, i, 4), 0);
    CU_ASSERT_EQUAL(pool_blocks_over(pool, i, 5), 1);
    CU_ASSERT_EQUAL(accept(pool, id, 2, 1000, two, 6), 0);
    CU_ASSERT_EQUAL(pool_blocks_over(pool, i, 5), 3);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 1, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 1, 1000, 1000), 0);
    CU_ASSERT_EQUAL(pool_blocks_over(pool, i, 5), 1);
    CU_ASSERT_EQUAL(pool_prefill_cancel(pool, id, 2, 1000), 0);
    CU_ASSERT_EQUAL(pool_blocks_over(pool, i, 50), 0);

    /* Answers take part of what one holds that decodes, too. */
    id = ADDED(pool, .name = "both", .role = ROLE_PREFILL | ROLE_DECODE,
               .kv_capacity_tokens = 160, .block_tokens = 16,
               .cache_tokens = 10 * 16);
    CU_ASSERT_EQUAL(accept(pool, id, 4, 1000, one, 6), 0);
    CU_ASSERT_EQUAL(pool_blocks_over(pool, pool_get(pool, id), 50), 0);

    /* Of an instance that does not tell its room nothing is known. */
    id = add(pool, ROLE_PREFILL);
    CU_ASSERT_EQUAL(accept(pool, id, 3, 1000, one, 6), 0);
    CU_ASSERT_EQUAL(pool_blocks_over(pool, pool_get(pool, id), 1 << 30), 0);
}

/* Prefills that keep the engine for longer than they were accepted for leave
 * less time to promise, although their engine was as fast as predicted. */
static void test_kept_for_longer(void)
{
    struct pool_config config = pool_config_default;
    struct pool_place place;
    struct pool *pool;
    uint32_t id;

    config.order = queue_order_by_name("shortest_first_yield");
    config.correction_tau_us = 3000;
    pool = pool_new(&config);
    id = add(pool, ROLE_PREFILL);
    for (int k = 0; k < 20; k++) {
        int64_t from_us = 10000 * k, took_us = k % 2 == 0 ? 1000 : 2000;

        CU_ASSERT_EQUAL(accept(pool, id, 1, 1000, NULL, 0), 0);
        CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 1, from_us), 0);
        CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 1, 1000, from_us + took_us),
                        0);
    }
    CU_ASSERT_EQUAL(pool_get(pool, id)->correction.ratio, 1.0);
    ACCEPTS(pool, id, .request_id = 1, .predicted_us = 5000,
            .arrived_us = 200000);
    place = pool_queue_place(pool, pool_get(pool, id), 0, 9000, 0, 200000);
    CU_ASSERT_EQUAL(place.wait_us, 5000);
    CU_ASSERT_EQUAL(place.most_us, 5000);
    CU_ASSERT(place.doubt_us > 500);
    CU_ASSERT(pool_check(pool));
    pool_free(pool);
}

/* A stack: the last one that began is at work. */
static void test_interrupted(void)
{
    struct pool_config config = pool_config_default;
    struct pool *pool;
    struct pool_place place;
    uint32_t id;

    config.order = queue_order_by_name("shortest_first_yield");
    pool = pool_new(&config);
    id = add(pool, ROLE_PREFILL);
    CU_ASSERT_EQUAL(accept(pool, id, 1, 9000, NULL, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 1, 5000), 0);
    CU_ASSERT_EQUAL(pool_running_left_us(pool_get(pool, id), 8000), 6000);
    /* One of a third goes in front of it; a longer one does not. */
    place = pool_queue_place(pool, pool_get(pool, id), 0, 2000, 0, 8000);
    CU_ASSERT_EQUAL(place.wait_us, 0);
    CU_ASSERT_EQUAL(place.most_us, 6000);
    CU_ASSERT_EQUAL(place.behind, 1);
    place = pool_queue_place(pool, pool_get(pool, id), 0, 2001, 0, 8000);
    CU_ASSERT_EQUAL(place.wait_us, 6000);
    CU_ASSERT_EQUAL(place.behind, 0);
    CU_ASSERT_EQUAL(accept(pool, id, 2, 2000, NULL, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 2, 8000), 0);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_running_left_us(pool_get(pool, id), 9500), 6500);
    /* Late, it may end any moment; what is below is as long as it was. */
    CU_ASSERT_EQUAL(pool_running_left_us(pool_get(pool, id), 10500), 6000);
    /* 600 do not interrupt what has 500 left, but the one below. */
    place = pool_queue_place(pool, pool_get(pool, id), 0, 600, 0, 9500);
    CU_ASSERT_EQUAL(place.wait_us, 500);
    CU_ASSERT_EQUAL(place.behind, 1);
    CU_ASSERT_EQUAL(pool_interrupted(pool), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 2, 2000, 10000), 0);
    CU_ASSERT_EQUAL(pool_interrupted(pool), 1);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(pool_running_left_us(pool_get(pool, id), 11000), 5000);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 1, 9000, 16000), 0);
    CU_ASSERT_EQUAL(pool_running_left_us(pool_get(pool, id), 16000), 0);
    CU_ASSERT_DOUBLE_EQUAL(pool_get(pool, id)->correction.ratio, 1.0, 1e-9);
    CU_ASSERT_EQUAL(pool_interrupted(pool), 1);
    pool_free(pool);
}

SMALL_POOL_TEST(test_others)
{
    uint32_t id = add(pool, ROLE_BOTH);

    CU_ASSERT_EQUAL(pool_set_others(pool, id, 3, 4000), 0);
    CU_ASSERT_EQUAL(pool_get(pool, id)->other_decodes, 3);
    CU_ASSERT_EQUAL(pool_get(pool, id)->other_kv_tokens, 4000);
    CU_ASSERT_EQUAL(pool_set_others(pool, id, -1, 0), -EINVAL);
    CU_ASSERT_EQUAL(pool_set_others(pool, id, 1, -1), -EINVAL);
    CU_ASSERT_EQUAL(pool_set_others(pool, id + 1, 1, 1), -ESTALE);
    CU_ASSERT_EQUAL(pool_get(pool, id)->other_decodes, 3);
    CU_ASSERT(pool_decode_has_room(pool_get(pool, id), 9000, 10));
    CU_ASSERT_FALSE(pool_decode_has_room(pool_get(pool, id), 9999, 10));
}

/* An engine of twice the time of its model: what it has accepted is predicted
 * again, and teaches nothing more. */
SMALL_POOL_TEST(test_other_costs)
{
    static const struct cost_model model = {.prefill = {100, 10},
                                            .shared_us = 100},
                                   own = {.prefill = {200, 20},
                                          .shared_us = 200};
    uint32_t id = add(pool, ROLE_BOTH);
    const struct pool_instance *i = pool_get(pool, id);

    CU_ASSERT_EQUAL(accept(pool, id, 1, 1100, NULL, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 1, 2200, 0), 0);
    CU_ASSERT(i->correction.ratio > 1.1);
    CU_ASSERT_EQUAL(accept(pool, id, 2, 1100, NULL, 0), 0);
    ACCEPTS(pool, id, .request_id = 3, .predicted_us = 1100, .shared_us = 100,
            .uncached_tokens = 100);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 2, 0), 0);
    CU_ASSERT_EQUAL(pool_set_cost(pool, id, &own), 0);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(i->load.cost_us, 1000);
    CU_ASSERT_EQUAL(pool_predict_again(pool, id, &model, &own), 0);
    CU_ASSERT(pool_check(pool));
    CU_ASSERT_EQUAL(i->load.cost_us, 2000);
    CU_ASSERT_EQUAL(pool_running_left_us(i, 0), 2200);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 2, 2200, 2200), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 3, 2200, 4400), 0);
    CU_ASSERT_EQUAL(i->correction.ratio, 1.0);
    CU_ASSERT_EQUAL(pool_predict_again(pool, id + 1, &model, &own), -ESTALE);
}

/* A card that turns `slower` times slower: after 3 minutes of its predicted
 * work, in prompts of 0.05 to 10 s, 5 % of the difference is left, and as much
 * as the noise of the last minute. */
static void check_found_out(double slower, uint64_t noise_percent,
                            double off_by)
{
    struct pool_config config = pool_config_default;
    struct pool *pool;
    uint64_t seed = 1, request = 0;
    int64_t work_us = 0;
    uint32_t id;

    config.max_instances = 1;
    pool = pool_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
    id = add(pool, ROLE_PREFILL);
    while (work_us < 180000000) {
        int64_t us, percent = 100;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        us = 50000 << (seed >> 33) % 8;
        if (noise_percent > 0)
            percent += (int64_t)((seed >> 40) % (2 * noise_percent + 1)) -
                       (int64_t)noise_percent;
        CU_ASSERT_EQUAL(accept(pool, id, request, us, NULL, 0), 0);
        CU_ASSERT_EQUAL(
            pool_prefill_done(
                pool, id, request++,
                (int64_t)((double)us * slower * (double)percent / 100.0), 0),
            0);
        work_us += us;
    }
    CU_ASSERT_DOUBLE_EQUAL(pool_get(pool, id)->correction.ratio, slower,
                           off_by);
    pool_free(pool);
}

static void test_found_out(void)
{
    check_found_out(1.0, 0, 0.0);
    check_found_out(1.3, 0, 0.3 * 0.05);
    check_found_out(2.0, 0, 1.0 * 0.05);
    check_found_out(1.3, 50, 0.3 * 0.05 + 0.13); /* a tenth of it */
    check_found_out(2.0, 50, 1.0 * 0.05 + 0.2);
}

/* Without correction nothing is learned. */
static void test_uncorrected(void)
{
    struct pool_config config = pool_config_default;
    struct pool *pool;
    uint32_t id;

    config.max_instances = 1;
    config.uncorrected = true;
    pool = pool_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
    id = add(pool, ROLE_PREFILL);
    CU_ASSERT_EQUAL(accept(pool, id, 1, 60000000, NULL, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(pool, id, 1, 120000000, 0), 0);
    CU_ASSERT_EQUAL(pool_get(pool, id)->correction.ratio, 1.0);
    pool_free(pool);
}

/* When what has begun will have computed blocks that a newcomer could use. */
static void test_computed(void)
{
    static const uint64_t keys[] = {11, 12, 13, 14}, others[] = {11, 21};
    struct pool_config config = pool_config_default;
    const struct pool_instance *i;
    struct pool *pool;
    uint32_t id;

    config.order = queue_order_by_name("shortest_first_yield");
    pool = pool_new(&config);
    id = add(pool, ROLE_PREFILL);
    i = pool_get(pool, id);
    CU_ASSERT_EQUAL(accept(pool, id, 1, 8000, keys, 4), 0);
    CU_ASSERT_EQUAL(pool_computed_us(pool, i, keys, 2, 4000), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 1, 5000), 0);
    CU_ASSERT_EQUAL(pool_computed_us(pool, i, keys, 2, 6000), 9000);
    CU_ASSERT_EQUAL(pool_computed_us(pool, i, keys, 4, 6000), 13000);
    CU_ASSERT_EQUAL(pool_computed_us(pool, i, keys, 2, 9500), 0);
    CU_ASSERT_EQUAL(pool_computed_us(pool, i, others, 2, 6000), 0);
    /* Those on top come first. */
    CU_ASSERT_EQUAL(accept(pool, id, 2, 2000, NULL, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(pool, id, 2, 6000), 0);
    CU_ASSERT_EQUAL(pool_computed_us(pool, i, keys, 2, 6500), 11000);
    pool_free(pool);
}

static const struct suite_test tests[] = {
    {"ids", test_ids},
    {"health", test_health},
    {"held", test_held},
    {"queue time", test_queue_time},
    {"forget", test_forget},
    {"ready", test_ready},
    {"bounds", test_bounds},
    {"decode", test_decode},
    {"blocks", test_blocks},
    {"max batch", test_max_batch},
    {"links", test_links},
    {"pending", test_pending},
    {"pending, more than at first", test_pending_grows},
    {"pending, keys searched for", test_pending_searched},
    {"bookings", test_bookings},
    {"bookings of the gone", test_bookings_of_the_gone},
    {"too long", test_too_long},
    {"random", test_random},
    {"shared steps", test_shared_steps},
    {"interrupted", test_interrupted},
    {"blocks over", test_blocks_over},
    {"kept for longer", test_kept_for_longer},
    {"computed", test_computed},
    {"decodes of others", test_others},
    {"other costs", test_other_costs},
    {"a slower card is found out", test_found_out},
    {"uncorrected", test_uncorrected},
    {"followed", test_followed},
};
SUITE("pool", tests)
