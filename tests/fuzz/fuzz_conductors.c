/* Batches of events from other conductors, each behind two bytes of its length,
 * and an entry of the registry. Whatever they say, the pool stays whole, and
 * nothing is left when the leases are over. So inputs share one pool and one
 * scheduler, which take most of the time to make: each input comes a day behind
 * the one before, when none of its prices count any more. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/cluster/foreign.h"
#include "conductor/cluster/member.h"
#include "conductor/cluster/names.h"
#include "conductor/core/observation/lengths.h"
#include "conductor/core/pool/pool.h"
#include "conductor/core/schedule/schedule.h"
#include "tests/unit/pool_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BETWEEN_US (INT64_C(24) * 3600 * 1000000)

/* What inputs share. */
struct shared {
    struct pool *pool;
    struct names *names;
    struct prefix_index *index;
    struct scheduler *scheduler;
    int64_t now_us;
};

static const char *const instance_names[] = {"p0", "d0", "b0"};

static struct pool *make_pool(void)
{
    struct pool_config config = pool_config_default;
    struct pool *pool;
    uint32_t id;

    config.max_instances = 3;
    config.max_waiting = 4;
    config.max_running = 2;
    config.max_decodes = 3;
    config.max_pending_blocks = 64;
    config.max_bookings = 8;
    pool = pool_new(&config);
    for (unsigned i = 0; pool && i < 3; i++)
        if (pool_add(pool,
                     &(struct pool_instance_config){.name = instance_names[i],
                                                    .role = i + 1,
                                                    .kv_capacity_tokens = 9999,
                                                    .block_tokens = 16},
                     &id))
            abort();
    return pool;
}

/* What it is told of requests of others. */
static struct scheduler *make_scheduler(struct pool *pool,
                                        struct prefix_index *index)
{
    static const struct cost_model cost = {.prefill = {200, 5, 0.1},
                                           .range = {1, 9999, 9999, 64, 99999}};
    const struct schedule_policy *plan = schedule_policy_by_name("plan");
    double options[POLICY_OPTIONS_MAX];

    policy_options_init(plan, options);
    return scheduler_new(
        &(struct schedule_config){.policy = plan, .options = options},
        &(struct estimate_model){.cost = &cost,
                                 .block_tokens = 16,
                                 .kv_bytes_per_token = 1000,
                                 .layers = 4,
                                 .step_tokens = 512},
        pool, index);
}

static struct shared *shared(void)
{
    static struct shared s;

    s.now_us += BETWEEN_US;
    if (s.pool)
        return &s;
    s.pool = make_pool();
    s.names = s.pool ? names_new(s.pool) : NULL;
    s.index = prefix_index_new(&(struct prefix_index_config){
        .max_instances = 3, .max_bytes = 1 << 14});
    s.scheduler = s.names && s.index ? make_scheduler(s.pool, s.index) : NULL;
    if (!s.scheduler)
        abort();
    return &s;
}

static void take_member(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    char written[MEMBER_TEXT_MAX];
    struct member m;

    if (size >= MEMBER_ID_BYTES &&
        member_read(text, MEMBER_ID_BYTES, text + MEMBER_ID_BYTES,
                    size - MEMBER_ID_BYTES, &m) == 0) {
        if (m.id == 0)
            abort();
        member_write(&m, written);
    }
}

static void must_be_empty(const struct pool *pool)
{
    for (uint32_t i = 0; i < 3; i++)
        if (!pool_is_empty(pool_at(pool, i)))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shared *s = shared();
    struct pool *pool = s->pool;
    struct lengths lengths = {0};
    struct foreign *f = foreign_new(pool, s->names, &lengths, 99);
    int64_t now_us = s->now_us;

    if (!f)
        abort();
    foreign_prices(f, s->scheduler);
    take_member(data, size);
    while (size >= 2) {
        size_t n = (size_t)data[0] | (size_t)data[1] << 8;
        void *batch;

        data += 2;
        size -= 2;
        n = n < size ? n : size;
        batch = malloc(n ? n : 1); /* of its own, so that reading on is seen */
        if (!batch)
            abort();
        memcpy(batch, data, n);
        (void)foreign_take(f, batch, n, 1000000, now_us);
        free(batch);
        if (!pool_check(pool))
            abort();
        data += n;
        size -= n;
        now_us += 1000;
    }
    (void)foreign_expire(f, now_us + 1000000);
    if (foreign_counts(f).entries || foreign_counts(f).owners ||
        !pool_check(pool))
        abort();
    must_be_empty(pool);
    foreign_free(f);
    return 0;
}
