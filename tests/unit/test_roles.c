/* Who switches its role, when, and how a switch goes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "conductor/core/roles/roles.h"
#include "tests/unit/cases.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

enum { BLOCK = 256, SLOTS = 20, CAPACITY = 100 * BLOCK, LASTING_S = 10 };
#define SECOND INT64_C(1000000)

struct rig {
    struct cost_model cost;
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    struct dispatch dispatch;
    struct roles *r;
    uint32_t nodes[SLOTS];
    int64_t now_us;
    uint64_t next_request;
};

static uint32_t add_node(struct rig *g, unsigned role, bool switches)
{
    return READY(g->pool, .role = role, .kv_capacity_tokens = CAPACITY,
                 .link_bytes_per_s = 1e9, .block_tokens = BLOCK,
                 .switches = switches);
}

static void rig_init_as(struct rig *g, uint32_t prefills, uint32_t decodes,
                        double lasting_s, bool coupled)
{
    struct pool_config pool = pool_config_default;

    memset(g, 0, sizeof(*g));
    g->cost.prefill[1] = 1000;
    g->cost.decode[0] = 10000; /* 10 ms a step, and 1 ms for each request */
    g->cost.decode[1] = 1000;
    g->cost.range = (struct cost_model_range){1, 100000, 100000, 64, 1000000};
    pool.max_instances = SLOTS;
    g->pool = pool_new(&pool);
    g->index = core_index(SLOTS, 1 << 20);
    CORE_SCHEDULER(g, "plan",
                   (&(struct estimate_model){.cost = &g->cost,
                                             .block_tokens = BLOCK,
                                             .kv_bytes_per_token = 1000,
                                             .coupled = coupled}),
                   {"switch_roles", lasting_s});
    dispatch_init(&g->dispatch);
    g->dispatch.scheduler = g->scheduler;
    g->r = roles_new(&g->dispatch, SLOTS, 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g->r);
    for (uint32_t i = 0; i < prefills + decodes; i++)
        g->nodes[i] =
            add_node(g, i < prefills ? ROLE_PREFILL : ROLE_DECODE, true);
}

static void rig_init(struct rig *g, uint32_t prefills, uint32_t decodes,
                     double lasting_s)
{
    rig_init_as(g, prefills, decodes, lasting_s, false);
}

static void rig_fini(struct rig *g)
{
    roles_free(g->r);
    CORE_FREE(g);
}

/* A request that takes so long to prefill, and has so many tokens. */
static void place(struct rig *g, int64_t prefill_us, int64_t prompt,
                  int64_t output)
{
    const struct dispatch_request request = {
        .ask = {.n_tokens = prompt,
                .max_output_tokens = output,
                .expected_tokens = output}};
    const struct dispatch_order order = {
        .action = DISPATCH_SEND,
        .decided = true,
        .decision.chosen = {.instance = g->nodes[0], .prefill_us = prefill_us}};

    roles_placed(g->r, &request, &order);
}

/* Seconds in which every tenth one request comes; orders are carried out but
 * for the capacity, which stays. Returns how many took another role. */
static uint32_t run(struct rig *g, int64_t seconds, int64_t prefill_us,
                    int64_t prompt, int64_t output)
{
    int64_t end_us = g->now_us + seconds * SECOND;
    struct roles_action a;
    uint32_t taken = 0;

    for (; g->now_us < end_us; g->now_us += SECOND / 10) {
        place(g, prefill_us, prompt, output);
        (void)roles_pass(g->r, g->now_us);
        while (roles_next(g->r, &a)) {
            CU_ASSERT(a.from != a.to);
            if (a.taken)
                CU_ASSERT_EQUAL(pool_take_role(g->pool, a.instance, CAPACITY),
                                0);
            taken += a.taken;
        }
        CU_ASSERT(roles_check(g->r));
    }
    return taken;
}

static uint32_t count(const struct rig *g, unsigned role)
{
    uint32_t n = 0;

    for (uint32_t slot = 0; slot < pool_slots(g->pool); slot++)
        n += pool_at(g->pool, slot) && pool_at(g->pool, slot)->role == role;
    return n;
}

/* 101 tokens behind 412: 100 steps of which each one takes 1 ms and a share of
 * 10 ms, which is the larger one of 513 of 25,600 tokens, a place of 64, and 1
 * of the 10 ms that a step within 20 ms leaves to requests. */
static void test_decode_us(void)
{
    const struct cost_model cost = {.decode = {10000, 1000, 0}};
    const struct cost_model long_kv = {.decode = {10000, 0, 2}};

    CU_ASSERT_DOUBLE_EQUAL(roles_decode_us(&cost, 412, 101, 25600, 0, 0),
                           100 * (513.0 / 25600 * 10000 + 1000), 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(roles_decode_us(&cost, 412, 101, 25600, 20, 0),
                           100 * (0.05 * 10000 + 1000), 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(roles_decode_us(&cost, 412, 101, 25600, 20, 20000),
                           100 * (0.1 * 10000 + 1000), 1e-6);
    /* No step keeps such a TBT: one alone takes an instance. */
    CU_ASSERT_DOUBLE_EQUAL(roles_decode_us(&cost, 412, 101, 25600, 20, 9000),
                           100 * 11000.0, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(roles_decode_us(&long_kv, 449, 101, 55000, 0, 0),
                           100 * (0.01 * 10000 + 2 * 499.5), 1e-6);
    CU_ASSERT_EQUAL(roles_decode_us(&cost, 412, 1, 25600, 0, 0), 0.0);
}

#define RIG_TEST(test, ...) \
    SUITE_TEST(test, struct rig, g, rig_init(g, __VA_ARGS__), rig_fini(g))

/* 10 requests a second of 0.29 s: 2.9 of 2 engines are needed to prefill, and
 * nearly none of 4 to decode. After 10 s of fading means and 10 s more two
 * switch, one after the other, and no more: 2.9 of 4 is 0.73, of 5 it is 0.58,
 * a gain that would be enough to go on, so a third one does. */
RIG_TEST(test_lasting, 2, 4, LASTING_S)
{
    CU_ASSERT(roles_on(g->r));
    CU_ASSERT_EQUAL(run(g, 10, 290000, 100, 2), 0);
    CU_ASSERT(run(g, 8, 290000, 100, 2) > 0);
    run(g, 10, 290000, 100, 2);
    CU_ASSERT_EQUAL(count(g, ROLE_PREFILL), 5);
    CU_ASSERT_EQUAL(roles_counts(g->r)->begun[0][0], 3);
    CU_ASSERT_EQUAL(roles_counts(g->r)->taken, 3);
    CU_ASSERT_DOUBLE_EQUAL(roles_seen(g->r).prefill_needed, 2.9, 0.01);
    /* One stays, whatever is asked for. */
    run(g, 100, 5000000, 100, 2);
    CU_ASSERT_EQUAL(count(g, ROLE_DECODE), 1);
}

/* A change that does not last, and a load that nobody suffers from. */
RIG_TEST(test_stays, 2, 4, LASTING_S)
{
    for (int k = 0; k < 10; k++) {
        run(g, 5, 290000, 100, 2);
        run(g, 20, 1000, 100, 2);
    }
    run(g, 100, 110000, 100, 2); /* 0.55 of each */
    CU_ASSERT_EQUAL(roles_counts(g->r)->begun[0][0], 0);
    CU_ASSERT_EQUAL(count(g, ROLE_PREFILL), 2);
}

/* Decodes that take most: the other way. Four decodes of 101 tokens at once
 * take a step of 14 ms, 0.35 s of an engine each. */
RIG_TEST(test_to_decode, 4, 2, LASTING_S)
{
    run(g, 40, 50000, 6299, 101);
    CU_ASSERT_DOUBLE_EQUAL(roles_seen(g->r).decode_needed, 3.5, 0.02);
    CU_ASSERT_EQUAL(count(g, ROLE_DECODE), 5);
    CU_ASSERT_EQUAL(roles_counts(g->r)->begun[0][1], 3);
}

/* Refused requests count as well, by what their tokens take otherwise. */
RIG_TEST(test_refused, 2, 2, LASTING_S)
{
    struct dispatch_order order = {.action = DISPATCH_REJECT, .decided = true};
    struct dispatch_request request = {
        .ask = {.n_tokens = 200, .max_output_tokens = 1}};

    roles_placed(g->r, &request, &order); /* nothing is known yet */
    run(g, 30, 100000, 100, 2);
    CU_ASSERT_DOUBLE_EQUAL(roles_seen(g->r).prefill_needed, 1.0, 0.01);
    /* Beside ten a second one that is twice as long is refused. */
    for (int k = 0; k < 30; k++) {
        roles_placed(g->r, &request, &order);
        run(g, 1, 100000, 100, 2);
    }
    CU_ASSERT_DOUBLE_EQUAL(roles_seen(g->r).prefill_needed, 1.2, 0.02);
}

/* One that has work ends it first; the one with the least is taken. */
RIG_TEST(test_ends_its_work, 1, 3, LASTING_S)
{
    struct roles_action a;
    const struct pool_instance *i;

    for (uint64_t n = 1; n <= 3; n++)
        CU_ASSERT_EQUAL(
            pool_decode_accept(g->pool, g->nodes[n], n, 100, n == 2 ? 10 : 20),
            0);
    CU_ASSERT_EQUAL(run(g, 30, 290000, 100, 2), 0);
    i = pool_get(g->pool, g->nodes[2]);
    CU_ASSERT_EQUAL(i->next_role, ROLE_PREFILL);
    CU_ASSERT(!pool_takes_work(i));
    CU_ASSERT_EQUAL(pool_shown_health(i), HEALTH_DRAINING);
    CU_ASSERT_EQUAL(pool_ready_roles(g->pool)[i->slot], 0);
    CU_ASSERT_EQUAL(pool_take_role(g->pool, i->id, CAPACITY), -EBUSY);
    CU_ASSERT_EQUAL(pool_decode_done(g->pool, g->nodes[2], 2), 0);
    CU_ASSERT(roles_next(g->r, &a));
    CU_ASSERT(a.taken && a.instance == i->id && a.to == ROLE_PREFILL);
    CU_ASSERT(!a.reason.command && a.reason.prefills == 1 &&
              a.reason.best_prefills == 3);
    CU_ASSERT_EQUAL(pool_take_role(g->pool, i->id, 10 * BLOCK + 1), 0);
    CU_ASSERT_EQUAL(i->role, ROLE_PREFILL);
    CU_ASSERT_EQUAL(i->kv_whole_tokens, 10 * BLOCK);
    CU_ASSERT_EQUAL(pool_ready_roles(g->pool)[i->slot], ROLE_PREFILL);
    CU_ASSERT(!roles_next(g->r, &a));
}

RIG_TEST(test_command, 2, 1, 0)
{
    struct roles_action a;

    CU_ASSERT(!roles_on(g->r));
    CU_ASSERT(!roles_pass(g->r, 10 * SECOND));
    CU_ASSERT_EQUAL(roles_command(g->r, 12345, ROLE_DECODE), -ESTALE);
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[0], 0), -EINVAL);
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[0], 4), -EINVAL);
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[2], ROLE_PREFILL), -EBUSY);
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[2], ROLE_DECODE), 0);
    CU_ASSERT(!roles_next(g->r, &a));
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[0], ROLE_DECODE), 0);
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[0], ROLE_DECODE), 0);
    CU_ASSERT_EQUAL(roles_counts(g->r)->begun[1][1], 1);
    /* The other one is the last that takes work. */
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[1], ROLE_DECODE), -EBUSY);
    CU_ASSERT(roles_next(g->r, &a));
    CU_ASSERT(!a.taken && a.reason.command && a.from == ROLE_PREFILL);
    /* Called off. */
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[0], ROLE_PREFILL), 0);
    CU_ASSERT(pool_takes_work(pool_get(g->pool, g->nodes[0])));
    CU_ASSERT(!roles_next(g->r, &a));
    /* Lost on the way; its slot is another one's. */
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[0], ROLE_DECODE), 0);
    CU_ASSERT_EQUAL(pool_remove(g->pool, g->nodes[0], 0), 0);
    g->nodes[0] = add_node(g, ROLE_PREFILL, false);
    CU_ASSERT(!roles_next(g->r, &a));
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[0], ROLE_DECODE), -EINVAL);
    CU_ASSERT_EQUAL(roles_command(g->r, g->nodes[1], ROLE_DECODE), 0);
    CU_ASSERT(roles_next(g->r, &a) && !a.taken);
    CU_ASSERT(roles_next(g->r, &a) && a.taken);
    CU_ASSERT_EQUAL(pool_take_role(g->pool, a.instance, CAPACITY), 0);
    CU_ASSERT_EQUAL(count(g, ROLE_DECODE), 2);
    roles_free(NULL);
}

/* Nothing where one engine does both, or where nothing is predicted. */
static void test_off(void)
{
    struct rig g;

    rig_init(&g, 2, 2, LASTING_S);
    g.dispatch.unpredicted = true;
    CU_ASSERT(!roles_on(g.r));
    rig_fini(&g);
    rig_init_as(&g, 2, 2, LASTING_S, true);
    CU_ASSERT(!roles_on(g.r));
    CU_ASSERT_EQUAL(run(&g, 30, 290000, 100, 2), 0);
    CU_ASSERT_EQUAL(roles_counts(g.r)->passes, 0);
    CU_ASSERT_EQUAL(roles_command(g.r, g.nodes[0], ROLE_DECODE), -EINVAL);
    rig_fini(&g);
}

/* What is seen: instances that are ready, requests the first time, and nothing
 * before it is known for long enough, however high the clock is. */
static void sees(int64_t begin_us)
{
    const struct dispatch_order order = {
        .action = DISPATCH_SEND,
        .decided = true,
        .decision.chosen = {.prefill_us = 1000000}};
    const struct dispatch_request again = {
        .ask = {.n_tokens = 100, .max_output_tokens = 2}, .retries = 1};
    struct rig g;

    rig_init(&g, 3, 3, LASTING_S);
    g.now_us = begin_us;
    CU_ASSERT_EQUAL(pool_hold(g.pool, g.nodes[0], true), 0);
    CU_ASSERT_EQUAL(pool_set_health(g.pool, g.nodes[3], HEALTH_SUSPECT), 0);
    for (int k = 0; k < 2; k++) {
        roles_placed(g.r, &again, &order);
        run(&g, 1, 50000, 100, 2);
    }
    CU_ASSERT(!roles_seen(g.r).known);
    run(&g, 4, 50000, 100, 2);
    CU_ASSERT(roles_seen(g.r).known);
    CU_ASSERT_EQUAL(roles_seen(g.r).prefills, 2);
    CU_ASSERT_EQUAL(roles_seen(g.r).decodes, 2);
    CU_ASSERT_DOUBLE_EQUAL(roles_seen(g.r).prefill_needed, 0.5, 0.01);
    rig_fini(&g);
}

static void test_seen(void)
{
    sees(0);
    sees(1000000 * SECOND);
}

/* A prefill waits there. */
static void queue(struct rig *g, uint32_t instance)
{
    const struct pool_prefill_request request = {.request_id =
                                                     ++g->next_request,
                                                 .predicted_us = 1000,
                                                 .uncached_tokens = 100};

    CU_ASSERT_EQUAL(pool_prefill_accept(g->pool, instance, &request), 0);
}

/* Of those that prefill the one with the least before it, of those that decode
 * the one with the least KV, and nobody that cannot. */
static void test_who_switches(void)
{
    static const uint32_t queues[] = {2, 1, 3};
    struct rig g;

    rig_init(&g, 3, 1, LASTING_S);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t k = 0; k < queues[i]; k++)
            queue(&g, g.nodes[i]);
    run(&g, 30, 1000, 6299, 101);
    CU_ASSERT_EQUAL(pool_get(g.pool, g.nodes[1])->next_role, ROLE_DECODE);
    rig_fini(&g);
    rig_init(&g, 1, 0, LASTING_S);
    for (uint32_t i = 1; i < 4; i++) {
        g.nodes[i] = add_node(&g, ROLE_DECODE, i != 1);
        CU_ASSERT_EQUAL(
            pool_set_kv_used(g.pool, g.nodes[i], i == 2 ? 300 : 100 * (i > 1)),
            0);
    }
    while (g.now_us < 30 * SECOND && run(&g, 1, 290000, 100, 2) == 0)
        ;
    CU_ASSERT_EQUAL(pool_get(g.pool, g.nodes[3])->role, ROLE_PREFILL);
    rig_fini(&g);
}

/* A need that comes in bursts is known less well than its mean says. */
static void test_bursts(void)
{
    struct rig g;

    for (int bursts = 0; bursts < 2; bursts++) {
        rig_init(&g, 2, 2, LASTING_S);
        for (int k = 0; k < 30; k++) {
            run(&g, bursts ? 3 : 1, 1, 1, 1);
            for (int n = bursts ? 30 : 10; n > 0; n--)
                place(&g, 160000, 100, 2);
        }
        CU_ASSERT_EQUAL(roles_counts(g.r)->begun[0][0] > 0, !bursts);
        rig_fini(&g);
    }
}

/* Too many of one role for a while, then of the other: neither lasts. */
RIG_TEST(test_turns_round, 3, 3, LASTING_S)
{
    run(g, 12, 290000, 100, 2);
    CU_ASSERT(roles_seen(g->r).best_prefills > 3);
    run(g, 6, 1000, 20000, 200);
    CU_ASSERT(roles_seen(g->r).best_prefills < 3);
    CU_ASSERT_EQUAL(roles_counts(g->r)->begun[0][0], 0);
    CU_ASSERT_EQUAL(roles_counts(g->r)->begun[0][1], 0);
}

/* The only one that decodes stays while another is only on its way to it; and
 * one that takes a second role loses none. */
static void test_last_one(void)
{
    struct rig g;

    rig_init(&g, 12, 4, LASTING_S);
    CU_ASSERT_EQUAL(roles_command(g.r, g.nodes[0], ROLE_BOTH), 0);
    CU_ASSERT_EQUAL(roles_command(g.r, g.nodes[0], ROLE_PREFILL), 0);
    queue(&g, g.nodes[0]);
    while (g.now_us < 60 * SECOND && roles_counts(g.r)->taken < 2)
        run(&g, 1, 5000000, 100, 2);
    CU_ASSERT_EQUAL(roles_command(g.r, g.nodes[0], ROLE_DECODE), 0);
    run(&g, 60, 5000000, 100, 2);
    CU_ASSERT_EQUAL(pool_get(g.pool, g.nodes[0])->next_role, ROLE_DECODE);
    CU_ASSERT_EQUAL(count(&g, ROLE_DECODE), 1);
    rig_fini(&g);
    rig_init(&g, 2, 1, LASTING_S);
    CU_ASSERT_EQUAL(roles_command(g.r, g.nodes[2], ROLE_BOTH), 0);
    rig_fini(&g);
}

static void step(struct rig *g, struct random_state *random)
{
    struct roles_action a;
    uint32_t n = (uint32_t)random_below(random, SLOTS);
    static const unsigned roles[] = {ROLE_PREFILL, ROLE_DECODE, ROLE_BOTH};

    place(g, (int64_t)random_below(random, 4000000),
          (int64_t)random_below(random, 10000) + 1,
          (int64_t)random_below(random, 200) + 1);
    switch (random_below(random, 12)) {
    case 0:
        if (pool_get(g->pool, g->nodes[n]))
            (void)pool_remove(g->pool, g->nodes[n], g->now_us);
        else
            g->nodes[n] = add_node(g, roles[random_below(random, 3)],
                                   random_below(random, 4) > 0);
        break;
    case 1:
        (void)!roles_command(g->r, g->nodes[n], roles[random_below(random, 3)]);
        break;
    case 2:
        (void)!pool_hold(g->pool, g->nodes[n], random_below(random, 2) > 0);
        break;
    case 3:
        (void)!pool_decode_accept(g->pool, g->nodes[n], ++g->next_request, 10,
                                  10);
        break;
    case 4:
        if (g->next_request > 0)
            (void)pool_decode_done(
                g->pool, g->nodes[n],
                random_below(random, (uint32_t)g->next_request) + 1);
        break;
    default:
        break;
    }
    (void)roles_pass(g->r, g->now_us);
    while (random_below(random, 8) > 0 && roles_next(g->r, &a))
        if (a.taken)
            CU_ASSERT_EQUAL(pool_take_role(g->pool, a.instance, CAPACITY), 0);
    CU_ASSERT(roles_check(g->r));
}

/* Instances come and go, are held, and told to switch, at any time. */
static void test_random(void)
{
    uint32_t n = cases_of(100);

    for (uint64_t seed = 1; seed <= n && CU_get_number_of_failures() == 0;
         seed++) {
        struct random_state random;
        struct rig g;

        random_init(&random, seed);
        rig_init(&g, (uint32_t)random_below(&random, 5) + 1,
                 (uint32_t)random_below(&random, 5) + 1, 3);
        for (int k = 0; k < 500; k++) {
            step(&g, &random);
            g.now_us += (int64_t)random_below(&random, SECOND);
        }
        rig_fini(&g);
        if (CU_get_number_of_failures() > 0)
            printf("seed %llu\n", (unsigned long long)seed);
    }
}

/* Requests of one kind, at random times and of random lengths: once a ratio is
 * found nobody switches back. */
static void test_no_flapping(void)
{
    uint32_t n = cases_of(100);

    for (uint64_t seed = 1; seed <= n && CU_get_number_of_failures() == 0;
         seed++) {
        struct random_state random;
        struct rig g;
        const struct roles_counts *c;
        uint32_t us, output;

        random_init(&random, seed);
        us = random_below(&random, 600000) + 10000;
        output = random_below(&random, 150) + 1;
        rig_init(&g, (uint32_t)random_below(&random, 6) + 1,
                 (uint32_t)random_below(&random, 6) + 1, 30);
        for (int k = 0; k < 600; k++) {
            uint32_t times = random_below(&random, 10);

            for (uint32_t t = 0; t < times; t++)
                place(&g, (int64_t)random_below(&random, us) * 2,
                      (int64_t)random_below(&random, 4000) + 1,
                      (int64_t)random_below(&random, output) * 2 + 1);
            run(&g, 1, 1, 1, 1);
        }
        c = roles_counts(g.r);
        CU_ASSERT(c->begun[0][0] == 0 || c->begun[0][1] == 0);
        rig_fini(&g);
        if (CU_get_number_of_failures() > 0)
            printf("seed %llu\n", (unsigned long long)seed);
    }
}

static const struct suite_test tests[] = {
    {"decode_us", test_decode_us},
    {"lasting", test_lasting},
    {"stays", test_stays},
    {"to decode", test_to_decode},
    {"refused", test_refused},
    {"ends its work", test_ends_its_work},
    {"command", test_command},
    {"off", test_off},
    {"seen", test_seen},
    {"who switches", test_who_switches},
    {"bursts", test_bursts},
    {"turns round", test_turns_round},
    {"the last one", test_last_one},
    {"random", test_random},
    {"no flapping", test_no_flapping},
};
SUITE("roles", tests)
