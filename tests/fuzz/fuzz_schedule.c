/*
 * Bytes are a configuration and a sequence of what may happen to a scheduler:
 * instances come and go, report blocks and times, true or not; requests are
 * decided, committed, served and cancelled. After each the invariants of pool
 * and index must hold, and each decision must be one that may be made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/schedule/schedule.h"
#include "tests/unit/busy.h"
#include "tests/unit/pool_check.h"
#include "tests/unit/prefix_check.h"

enum { BLOCK = 16, SLOTS = 4, CHAIN_BLOCKS = 8, OPS_MAX = 400 };

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                        \
        }                                                                   \
    } while (0)

struct rig {
    const uint8_t *at, *end;
    struct cost_model cost;
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    uint32_t ids[SLOTS]; /* by slot, stale ones too */
    int64_t now_us;
    bool stateless; /* the policy decides alike when asked again */
    bool admits_all;
    bool coupled;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t byte(struct rig *r)
{
    return r->at < r->end ? *r->at++ : 0;
}

static uint32_t below(struct rig *r, uint32_t n)
{
    return byte(r) % n;
}

/* Mostly small, at times anything up to 2^bits. */
static int64_t number(struct rig *r, unsigned bits)
{
    uint64_t n = byte(r);

    if (n < 0xc0)
        return (int64_t)n;
    for (int i = 0; i < 7; i++)
        n = n << 8 | byte(r);
    return (int64_t)(n & ((UINT64_C(1) << bits) - 1));
}

/* Three prompts that share their first two blocks. */
static uint64_t key_of(uint32_t chain, uint32_t block)
{
    return block < 2 ? 1 + block : 100 * (chain + 1) + block;
}

static void chain_keys(uint32_t chain, uint64_t keys[CHAIN_BLOCKS])
{
    for (uint32_t b = 0; b < CHAIN_BLOCKS; b++)
        keys[b] = key_of(chain, b);
}

static void rig_init(struct rig *r)
{
    struct pool_config pool = pool_config_default;
    struct prefix_index_config index = {.max_instances = SLOTS,
                                        .max_bytes = PREFIX_INDEX_BYTES_MIN};
    double options[POLICY_OPTIONS_MAX];
    uint32_t n_policies = 0, n_orders = 0;
    struct schedule_config config = {.options = options};
    struct simulated_world world = {.disks_send = false};
    uint8_t flags = byte(r);

    r->cost.prefill[0] = 100;
    r->cost.prefill[1] = 10;
    r->cost.prefill[2] = 0.5;
    r->cost.decode[0] = 50;
    r->cost.decode[1] = 100;
    r->cost.decode[2] = 0.1;
    pool.max_instances = SLOTS;
    pool.max_waiting = 3;
    pool.max_running = 2;
    pool.max_decodes = 3;
    pool.max_pending_blocks = 16;
    while (queue_order_name(n_orders))
        n_orders++;
    pool.order = queue_order_by_name(queue_order_name(byte(r) % n_orders));
    while (schedule_policy_at(n_policies))
        n_policies++;
    config.policy = schedule_policy_at(below(r, n_policies));
    policy_options_init(config.policy, options);
    (void)!policy_options_set(config.policy, options, "load_modes",
                              byte(r) & LOAD_MODE_ALL);
    world.disks_send = below(r, 2);
    config.admission = flags & 2 ? "plain" : "none";
    (void)!policy_options_set(config.policy, options,
                              "kvcache_balancing_threshold",
                              flags & 4 ? 1.0 : 1.5);
    world.pooled_cache = flags & 16;
    world.whole_prompt_reuse = flags & 32;
    world.links_unshared = flags & 64;
    r->admits_all = !(flags & 2);
    r->coupled = flags & 8;
    r->stateless = strcmp(config.policy->name, "random") != 0 &&
                   strcmp(config.policy->name, "round_robin") != 0;
    r->pool = pool_new(&pool);
    r->index = prefix_index_new(&index);
    CHECK(r->pool && r->index);
    r->scheduler =
        scheduler_new(&config,
                      &(struct estimate_model){.cost = &r->cost,
                                               .block_tokens = BLOCK,
                                               .kv_bytes_per_token = 64,
                                               .layers = below(r, 3),
                                               .coupled = r->coupled,
                                               .simulated = world},
                      r->pool, r->index);
    CHECK(r->scheduler);
}

static void rig_fini(struct rig *r)
{
    scheduler_free(r->scheduler);
    prefix_index_free(r->index);
    pool_free(r->pool);
}

static void on_add(struct rig *r)
{
    uint32_t id;
    struct pool_instance_config config = {
        .name = "w",
        .role = below(r, 4),
        .kv_capacity_tokens = (int64_t)below(r, 24) * BLOCK,
        .link_bytes_per_s = (double)number(r, 40),
        .block_tokens = below(r, 2) * BLOCK,
        .max_batch = below(r, 4),
        .tier_bytes_per_s = {[TIER_DISK] = (double)number(r, 40)},
    };

    if (pool_add(r->pool, &config, &id) < 0)
        return;
    r->ids[pool_get(r->pool, id)->slot] = id;
    CHECK(pool_set_health(r->pool, id, HEALTH_READY) == 0);
}

static void on_remove(struct rig *r, uint32_t slot)
{
    if (pool_remove(r->pool, r->ids[slot], r->now_us) == 0)
        prefix_index_cleared(r->index, slot);
}

/* True chains, and at times a block behind any other. */
static void on_stored(struct rig *r, uint32_t slot)
{
    uint64_t keys[CHAIN_BLOCKS];
    uint32_t first = below(r, CHAIN_BLOCKS);
    uint32_t n = below(r, CHAIN_BLOCKS - first) + 1;
    uint8_t parent = byte(r);

    chain_keys(below(r, 3), keys);
    (void)!prefix_index_stored(r->index, slot,
                               (enum block_tier)below(r, BLOCK_TIERS),
                               parent > 250 ? parent
                               : first == 0 ? 0
                                            : keys[first - 1],
                               keys + first, n);
}

/* A plan's pieces cover what it loads, each from one that has it. */
static void check_plan(const struct rig *r, const struct schedule_request *q,
                       const struct schedule_decision *d)
{
    uint32_t block = d->plan.split_block;

    CHECK(d->chosen.planned && !d->chosen.at_least);
    CHECK(d->plan.finish_us - q->now_us == d->chosen.ttft_us);
    CHECK(d->plan.n_pieces <= LOAD_PLAN_PIECES_MAX);
    CHECK(d->n_sources <= SCHEDULE_SOURCES_MAX);
    for (uint32_t p = 0; p < d->plan.n_pieces; p++) {
        const struct load_piece *piece = &d->plan.pieces[p];
        const struct schedule_source *s = &d->sources[piece->source];

        CHECK(piece->source < d->n_sources && piece->from_block == block);
        CHECK(piece->from_block >= s->from_block &&
              piece->to_block <= s->to_block);
        CHECK(pool_get(r->pool, s->instance));
        block = piece->to_block;
    }
    CHECK(block == d->plan.cached_blocks && block <= q->n_keys);
    for (size_t i = 0; i < q->n_exclude; i++)
        for (size_t s = 0; s < d->n_sources; s++)
            CHECK(q->exclude[i] != d->sources[s].instance);
}

static void check_choice(const struct rig *r, const struct schedule_request *q,
                         const struct schedule_decision *d)
{
    const struct pool_instance *p = pool_get(r->pool, d->prefill);
    const struct pool_instance *t = pool_get(r->pool, d->decode);
    const struct prefill_estimate *c = &d->chosen;

    CHECK(p && p->health == HEALTH_READY && p->role & ROLE_PREFILL);
    CHECK(!pool_prefill_full(p));
    CHECK(pool_kv_tokens(p, q->n_tokens, 1) <= p->kv_capacity_tokens);
    CHECK(c->local_blocks <= c->used_blocks && c->used_blocks <= q->n_keys + 1);
    CHECK(c->cached_tokens <= q->n_tokens && c->ttft_us >= c->queue_us);
    CHECK(c->fetch_from == POOL_NO_INSTANCE ||
          (c->fetch_from != d->prefill && pool_get(r->pool, c->fetch_from)));
    if (c->planned)
        check_plan(r, q, d);
    CHECK((!t) != (q->max_output_tokens > 1));
    for (size_t i = 0; i < q->n_exclude; i++)
        CHECK(q->exclude[i] != d->prefill && q->exclude[i] != c->fetch_from &&
              (!t || q->exclude[i] != d->decode));
    CHECK(d->retry_after_us == 0);
    if (!r->admits_all && q->slo_ttft_us > 0)
        CHECK(c->ttft_us <= q->slo_ttft_us);
    if (!t)
        return;
    CHECK(t->health == HEALTH_READY && t->role & ROLE_DECODE);
    CHECK(!r->coupled || t == p);
    CHECK(!pool_decode_full(t));
    CHECK(pool_kv_tokens(t, q->n_tokens, q->max_output_tokens) <=
          pool_decode_room_tokens(t));
    if (!r->admits_all && q->slo_tbt_us > 0)
        CHECK(d->tbt_us <= q->slo_tbt_us);
}

/* All that a commit may change, counted. */
static int64_t work(const struct rig *r)
{
    int64_t n = 0;

    for (uint32_t s = 0; s < SLOTS; s++) {
        const struct pool_instance *i = pool_at(r->pool, s);

        if (i)
            n += (int64_t)(i->n_waiting + i->n_decodes) +
                 i->decode_reserved_tokens + i->egress_free_us +
                 i->tier_free_us[TIER_DISK];
    }
    return n;
}

static void on_request(struct rig *r)
{
    uint64_t keys[CHAIN_BLOCKS];
    struct schedule_request q = {
        .request_id = below(r, 12),
        .keys = keys,
        .n_tokens = 1 + below(r, CHAIN_BLOCKS * BLOCK + BLOCK - 1),
        .max_output_tokens = 1 + number(r, 20),
        .slo_ttft_us = number(r, 16),
        .slo_tbt_us = number(r, 12),
        .now_us = r->now_us,
    };
    struct schedule_decision d, again;
    int64_t before;

    chain_keys(below(r, 3), keys);
    q.n_keys = (size_t)(q.n_tokens / BLOCK);
    q.exclude[0] = r->ids[below(r, SLOTS)];
    q.n_exclude = q.exclude[0] != POOL_NO_INSTANCE && below(r, 8) == 0;
    before = work(r);
    schedule_decide(r->scheduler, &q, &d);
    CHECK((unsigned)d.verdict < SCHEDULE_VERDICTS && d.retry_after_us >= -1);
    if (r->stateless) {
        schedule_decide(r->scheduler, &q, &again);
        CHECK(memcmp(&d, &again, sizeof(d)) == 0);
    }
    CHECK(work(r) == before);
    if (d.verdict == SCHEDULE_ACCEPT)
        check_choice(r, &q, &d);
    int rc = schedule_commit(r->scheduler, &q, &d);
    CHECK(rc == 0 || work(r) == before);
    CHECK(d.verdict == SCHEDULE_ACCEPT || rc < 0);
    if (rc == 0 && d.decode != POOL_NO_INSTANCE)
        CHECK(pool_decode_room_tokens(pool_get(r->pool, d.decode)) >= 0);
}

static void on_prefill(struct rig *r, uint32_t id, uint64_t request)
{
    switch (below(r, 3)) {
    case 0:
        (void)!pool_prefill_started(r->pool, id, request, r->now_us);
        break;
    case 1:
        (void)pool_prefill_done(r->pool, id, request, number(r, 62) - 1,
                                r->now_us);
        break;
    default:
        (void)pool_prefill_cancel(r->pool, id, request, r->now_us);
    }
}

static void on_decode(struct rig *r, uint32_t id, uint64_t request)
{
    switch (below(r, 5)) {
    case 0:
        (void)pool_decode_started(r->pool, id, request);
        break;
    case 1:
        (void)pool_decode_progress(r->pool, id, request, number(r, 32) - 1);
        break;
    case 2:
        (void)pool_decode_advance(r->pool, id, number(r, 16) - 1);
        break;
    case 3:
        (void)!pool_decode_accept(r->pool, id, request, number(r, 20) - 1,
                                  number(r, 20) - 1);
        break;
    default:
        (void)pool_decode_done(r->pool, id, request);
    }
}

static void on_report(struct rig *r, uint32_t id)
{
    int64_t bytes = number(r, 50) - 1;

    switch (below(r, 6)) {
    case 0:
        (void)!pool_set_health(r->pool, id,
                               (enum pool_health)below(r, HEALTH_STATES + 1));
        break;
    case 3:
        (void)!pool_set_tier_rate(r->pool, id,
                                  (enum block_tier)below(r, BLOCK_TIERS + 1),
                                  (double)bytes);
        break;
    case 4:
        (void)busy_tier(r->pool, id, (enum block_tier)below(r, BLOCK_TIERS + 1),
                        r->now_us + number(r, 40));
        break;
    case 1:
        (void)pool_link_observed(r->pool, id, bytes, number(r, 40) - 1);
        break;
    case 2:
        (void)busy_link(r->pool, id, r->now_us + number(r, 40));
        break;
    default:
        (void)pool_set_kv_used(r->pool, id, bytes);
    }
}

static void operate(struct rig *r)
{
    uint8_t op = byte(r);
    uint32_t slot = below(r, SLOTS);
    uint64_t request, key;

    switch (op % 12) {
    case 0:
        on_add(r);
        break;
    case 1:
        on_remove(r, slot);
        break;
    case 2:
    case 3:
        on_stored(r, slot);
        break;
    case 4:
        key = key_of(below(r, 3), below(r, CHAIN_BLOCKS));
        (void)!prefix_index_removed(
            r->index, slot, (enum block_tier)below(r, BLOCK_TIERS), &key, 1);
        break;
    case 5:
        prefix_index_cleared(r->index, slot);
        break;
    case 6:
        r->now_us += number(r, 30);
        break;
    case 7:
        on_report(r, r->ids[slot]);
        break;
    case 8:
        request = below(r, 12);
        on_prefill(r, r->ids[slot], request);
        break;
    case 9:
        request = below(r, 12);
        on_decode(r, r->ids[slot], request);
        break;
    default:
        on_request(r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig r = {.at = data, .end = data + size};

    rig_init(&r);
    for (int n = 0; r.at < r.end && n < OPS_MAX; n++) {
        operate(&r);
        CHECK(pool_check(r.pool));
        CHECK(prefix_index_check(r.index));
    }
    rig_fini(&r);
    return 0;
}
