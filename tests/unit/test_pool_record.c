/* What a request has in one pool is the same in another one. */
#include <errno.h>
#include <string.h>

#include "conductor/core/pool/record.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/pool_check.h"
#include "tests/unit/suite.h"

#define NOW_US 1000000

/* Two instances in each of two pools; the ids differ. */
struct twins {
    struct pool *from, *to;
    uint32_t p[2], d[2]; /* by pool */
};

static uint32_t add(struct pool *pool, const char *name, unsigned role)
{
    return ADDED(pool, .name = name, .role = role, .kv_capacity_tokens = 10000,
                 .block_tokens = 16, .link_bytes_per_s = 1e9);
}

static struct twins twins_of(const char *order)
{
    struct pool_config config = pool_config_default;
    struct twins t;

    config.max_instances = 4;
    config.order = queue_order_by_name(order);
    t.from = pool_new(&config);
    t.to = pool_new(&config);
    t.p[0] = add(t.from, "p", ROLE_PREFILL);
    t.d[0] = add(t.from, "d", ROLE_DECODE);
    t.d[1] = add(t.to, "d", ROLE_DECODE);
    t.p[1] = add(t.to, "p", ROLE_PREFILL);
    return t;
}

static struct twins twins_new(void)
{
    return twins_of("fifo");
}

static void twins_free(struct twins *t)
{
    CU_ASSERT_TRUE(pool_check(t->from));
    CU_ASSERT_TRUE(pool_check(t->to));
    pool_free(t->from);
    pool_free(t->to);
}

static void carry_prefill(struct twins *t, uint64_t request)
{
    struct pool_record_prefill r;

    CU_ASSERT_EQUAL_FATAL(
        pool_read_prefill(t->from, t->p[0], request, NOW_US, &r), 0);
    r.instance = t->p[1];
    for (size_t i = 0; i < r.n_booked; i++)
        r.booked[i].holder = r.booked[i].holder == t->p[0] ? t->p[1] : t->d[1];
    CU_ASSERT_EQUAL(pool_enter_prefill(t->to, &r, NOW_US), 0);
}

static void carry_decode(struct twins *t, uint64_t request)
{
    struct pool_record_decode r;

    CU_ASSERT_EQUAL_FATAL(pool_read_decode(t->from, t->d[0], request, &r), 0);
    r.instance = t->d[1];
    if (r.push.from)
        r.push.from = t->p[1];
    if (r.request.prefill)
        r.request.prefill = t->p[1];
    CU_ASSERT_EQUAL(pool_enter_decode(t->to, &r, NOW_US), 0);
}

static void book(struct twins *t, uint64_t request, uint32_t holder,
                 unsigned channel, int64_t until_us)
{
    BOOKS(t->from, t->p[0], request, NOW_US, holder, channel, until_us);
}

static void accept(struct twins *t, uint64_t request, int64_t cost_us)
{
    const uint64_t keys[] = {request, request + 1};

    ACCEPTS(t->from, t->p[0], .request_id = request, .predicted_us = cost_us,
            .ready_at_us = NOW_US + 10, .loading_until_us = NOW_US + 20,
            .arrived_us = NOW_US, .deadline_us = NOW_US + 900,
            .uncached_tokens = 100, .cached_tokens = 32, .stage = true,
            .work = {100, cost_us, 1, 2, 3}, .keys = keys, .n_keys = 2);
}

static const struct pool_instance *of(struct twins *t, int side, bool decodes)
{
    return pool_get(side ? t->to : t->from, decodes ? t->d[side] : t->p[side]);
}

static void same_load(struct twins *t)
{
    const struct pool_instance *a = of(t, 0, false), *b = of(t, 1, false);

    CU_ASSERT_EQUAL(a->n_waiting, b->n_waiting);
    CU_ASSERT_EQUAL(a->n_running, b->n_running);
    CU_ASSERT_EQUAL(a->load.cost_us, b->load.cost_us);
    CU_ASSERT_EQUAL(a->load.latest_ready_us, b->load.latest_ready_us);
    CU_ASSERT_EQUAL(a->load.latest_loading_us, b->load.latest_loading_us);
    CU_ASSERT_EQUAL(a->prefill_tokens, b->prefill_tokens);
    CU_ASSERT_EQUAL(a->accepted.us, b->accepted.us);
    CU_ASSERT_EQUAL(a->ingress_free_us, b->ingress_free_us);
    CU_ASSERT_EQUAL(a->egress_free_us, b->egress_free_us);
    CU_ASSERT_EQUAL(a->push_out_bytes, b->push_out_bytes);
    a = of(t, 0, true);
    b = of(t, 1, true);
    CU_ASSERT_EQUAL(a->n_decodes, b->n_decodes);
    CU_ASSERT_EQUAL(a->decode_kv_tokens, b->decode_kv_tokens);
    CU_ASSERT_EQUAL(a->decode_reserved_tokens, b->decode_reserved_tokens);
    CU_ASSERT_EQUAL(a->push_in_bytes, b->push_in_bytes);
    CU_ASSERT_EQUAL(a->egress_free_us, b->egress_free_us);
}

#define TWINS_TEST(test) \
    SUITE_TEST(test, struct twins, t, *t = twins_new(), twins_free(t))

TWINS_TEST(test_prefills)
{
    accept(t, 7, 500);
    book(t, 7, t->d[0], POOL_EGRESS, NOW_US + 40);
    book(t, 7, t->p[0], POOL_INGRESS, NOW_US + 50);
    carry_prefill(t, 7);
    accept(t, 9, 700);
    book(t, 9, t->p[0], POOL_INGRESS, NOW_US + 80);
    carry_prefill(t, 9);
    same_load(t);
    CU_ASSERT_EQUAL(of(t, 1, false)->ingress_free_us, NOW_US + 80);
    CU_ASSERT_EQUAL(of(t, 1, false)->queue[0].deadline_us, NOW_US + 900);
    CU_ASSERT_TRUE(of(t, 1, false)->queue[0].has_slo);
    CU_ASSERT_TRUE(of(t, 1, false)->waiting[0].stage);
    /* Given back, all is as before, as it is there. */
    CU_ASSERT_EQUAL(pool_prefill_cancel(t->to, t->p[1], 7, NOW_US), 0);
    CU_ASSERT_EQUAL(pool_prefill_cancel(t->from, t->p[0], 7, NOW_US), 0);
    same_load(t);
    CU_ASSERT_EQUAL(of(t, 1, false)->ingress_free_us, NOW_US + 30);
}

/* Two that were decided at once on the same free link need it one after the
 * other. */
TWINS_TEST(test_booked_at_once)
{
    accept(t, 7, 500);
    book(t, 7, t->p[0], POOL_INGRESS, NOW_US + 50);
    ACCEPTS(t->to, t->p[1], .request_id = 8);
    BOOKS(t->to, t->p[1], 8, NOW_US, t->p[1], POOL_INGRESS, NOW_US + 100);
    carry_prefill(t, 7);
    CU_ASSERT_EQUAL(of(t, 1, false)->ingress_free_us, NOW_US + 150);
}

TWINS_TEST(test_started)
{
    accept(t, 7, 500);
    CU_ASSERT_EQUAL(pool_prefill_started(t->from, t->p[0], 7, NOW_US - 300), 0);
    carry_prefill(t, 7);
    same_load(t);
    CU_ASSERT_EQUAL(of(t, 1, false)->n_running, 1);
    CU_ASSERT_EQUAL(pool_running_left_us(of(t, 1, false), NOW_US + 50), 150);
}

/* One interrupts another: both go on as they are. */
static void test_interrupted(void)
{
    struct twins t = twins_of("shortest_first_yield");
    const struct pool_instance *a, *b;

    accept(&t, 7, 9000);
    accept(&t, 8, 2000);
    CU_ASSERT_EQUAL(pool_prefill_started(t.from, t.p[0], 7, NOW_US - 4000), 0);
    CU_ASSERT_EQUAL(pool_prefill_started(t.from, t.p[0], 8, NOW_US - 1500), 0);
    carry_prefill(&t, 7);
    carry_prefill(&t, 8);
    a = of(&t, 0, false);
    b = of(&t, 1, false);
    CU_ASSERT_EQUAL(pool_running_left_us(a, NOW_US + 100), 400 + 6500);
    CU_ASSERT_EQUAL(pool_running_left_us(b, NOW_US + 100), 400 + 6500);
    CU_ASSERT_EQUAL(b->running[0].begun.left_us, 6500);
    CU_ASSERT_EQUAL(b->running[0].begun.stood_us, 1500);
    CU_ASSERT_EQUAL(b->running[1].begun.left_us, 500);
    CU_ASSERT_EQUAL(b->running[1].begun.stood_us, 0);
    twins_free(&t);
}

/* A prefill that began before the machine of the other pool did. */
TWINS_TEST(test_started_long_ago)
{
    struct pool_record_prefill r;

    accept(t, 7, 500);
    CU_ASSERT_EQUAL(pool_prefill_started(t->from, t->p[0], 7, NOW_US), 0);
    CU_ASSERT_EQUAL(pool_read_prefill(t->from, t->p[0], 7, NOW_US, &r), 0);
    r.instance = t->p[1];
    r.started_us = -5;
    r.worked_us = NOW_US + 5;
    CU_ASSERT_EQUAL(pool_enter_prefill(t->to, &r, NOW_US), 0);
    CU_ASSERT_EQUAL(of(t, 1, false)->n_running, 1);
    CU_ASSERT_EQUAL(pool_running_left_us(of(t, 1, false), NOW_US), 0);
}

/* The deadline of a prefill without an SLO is by the queue that it met. */
TWINS_TEST(test_implied)
{
    const struct queue_item *item;

    accept(t, 7, 5000);
    ACCEPTS(t->from, t->p[0], .request_id = 8, .predicted_us = 700,
            .arrived_us = NOW_US);
    carry_prefill(t, 8);
    item = &of(t, 1, false)->queue[0];
    CU_ASSERT_EQUAL(item->deadline_us, NOW_US + 2 * (5000 + 700));
    CU_ASSERT_EQUAL(item->slo_us, 2 * (5000 + 700));
    CU_ASSERT_FALSE(item->has_slo);
}

TWINS_TEST(test_decodes)
{
    struct pool_record_decode r;

    accept(t, 7, 500);
    CU_ASSERT_EQUAL(
        pool_decode_expect(t->from, t->d[0],
                           &(struct pool_decode_request){
                               7, 132, 50, 20, NOW_US + 5, t->p[0], 400}),
        0);
    PUSHES(t->from, t->d[0], 7, t->p[0], 1000, NOW_US);
    CU_ASSERT_EQUAL(pool_decode_likely(t->from, t->d[0], 7, 30), 0);
    carry_prefill(t, 7);
    carry_decode(t, 7);
    same_load(t);
    CU_ASSERT_EQUAL(of(t, 1, true)->decodes[0].comes_us, NOW_US + 5);
    CU_ASSERT_EQUAL(of(t, 1, true)->decodes[0].prefill, t->p[1]);
    CU_ASSERT_EQUAL(of(t, 1, true)->decodes[0].likely_tokens, 30);
    /* One that goes on already, longer than was expected. */
    CU_ASSERT_EQUAL(pool_decode_done(t->to, t->d[1], 7), 0);
    CU_ASSERT_EQUAL(pool_decode_started(t->from, t->d[0], 7), 0);
    CU_ASSERT_EQUAL(pool_decode_progress(t->from, t->d[0], 7, 25), 0);
    carry_decode(t, 7);
    same_load(t);
    CU_ASSERT_EQUAL(of(t, 1, true)->decodes[0].produced_tokens, 25);
    CU_ASSERT_EQUAL(pool_read_decode(t->from, t->d[0], 8, &r), -ENOENT);
    CU_ASSERT_EQUAL(pool_read_decode(t->from, 99, 7, &r), -ESTALE);
}

static const struct suite_test tests[] = {
    {"prefills", test_prefills},
    {"booked at once", test_booked_at_once},
    {"started", test_started},
    {"interrupted", test_interrupted},
    {"started long ago", test_started_long_ago},
    {"implied deadline", test_implied},
    {"decodes", test_decodes},
};
SUITE("pool_record", tests)
