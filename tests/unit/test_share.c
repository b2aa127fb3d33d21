/*
 * Priorities and fair shares: whoever has work waiting gets at least half of
 * his share of every minute, however much another one asks for. A greedy tenant
 * floods some instances; the others ask as they please. Simulated with the
 * scheduler and the queues of core, in whatever order the policy brings.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/dispatch/dispatch.h"
#include "conductor/core/step/step.h"
#include "tests/unit/cases.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

enum {
    BLOCK = 512,
    CHUNK = 1000, /* tokens: a tenth of a second */
    TENANTS = 3,
    MINUTES = 6,
    MOST = 60000,
    NODES = 2,
    BEGUN = 16, /* at most, on one node */
    WAITING = 4000,
};
#define SECOND INT64_C(1000000)

struct job {
    struct dispatch_request r;
    uint32_t tenant;
    int64_t us;      /* of work */
    int64_t done_us; /* -1: not yet */
    /* Once it has begun. */
    struct queue_item item;
    int64_t began_us, left_us;
};

/* prefill_us = 100 a token. */
struct rig {
    struct cost_model cost;
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    struct dispatch dispatch;
    struct job *jobs;
    size_t n_jobs;
    uint32_t nodes[NODES];
    struct job *begun[NODES][BEGUN]; /* the last one is at work */
    uint32_t n_begun[NODES];
    struct random_state random;
    int64_t now_us;
    uint32_t refused[TENANTS], sent[TENANTS];
    /* Of each second: what was served, and whether somebody had work waiting
     * all of it. */
    int64_t served_us[TENANTS][MINUTES * 60];
    bool idle[TENANTS][MINUTES * 60];
};

static void rig_init(struct rig *r, double shares, uint64_t seed)
{
    struct pool_config pool = pool_config_default;
    const struct schedule_policy *plan = schedule_policy_by_name("plan");
    double options[POLICY_OPTIONS_MAX];
    struct schedule_config config = {.policy = plan, .options = options};
    struct schedule_rules rules;

    memset(r, 0, sizeof(*r));
    policy_options_init(plan, options);
    CU_ASSERT_EQUAL(policy_options_set(plan, options, "shares", shares), 0);
    r->cost.prefill[1] = 100;
    r->cost.range = (struct cost_model_range){1, 1 << 20, 1 << 20, 64, 1 << 30};
    pool.max_instances = NODES;
    pool.max_waiting = WAITING;
    pool.max_running = BEGUN;
    pool.step_tokens = CHUNK;
    rules = policy_rules(plan, options);
    pool.order = queue_order_by_name(
        policy_queue_order(&rules, QUEUE_ORDER_DEFAULT, true));
    CU_ASSERT_FATAL(pool.order->preempts);
    r->pool = pool_new(&pool);
    r->index = core_index(NODES, 1 << 15);
    r->scheduler = scheduler_new(
        &config,
        &(struct estimate_model){
            .cost = &r->cost, .block_tokens = BLOCK, .kv_bytes_per_token = 1},
        r->pool, r->index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->scheduler);
    for (int i = 0; i < NODES; i++) {
        struct pool_instance_config node = {.role = ROLE_PREFILL,
                                            .kv_capacity_tokens = 1 << 22,
                                            .max_batch = 1,
                                            .block_tokens = BLOCK};

        r->nodes[i] = core_ready(r->pool, &node);
    }
    dispatch_init(&r->dispatch);
    r->dispatch.scheduler = r->scheduler;
    r->jobs = calloc(MOST, sizeof(*r->jobs));
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->jobs);
    random_init(&r->random, seed);
    r->now_us = SECOND;
}

static void rig_fini(struct rig *r)
{
    free(r->jobs);
    CORE_FREE(r);
}

static void note(struct job *j, struct rig *r,
                 const struct dispatch_order *order)
{
    if (order->action == DISPATCH_REJECT) {
        j->done_us = 0;
        r->refused[j->tenant]++;
    }
    r->sent[j->tenant] += order->action == DISPATCH_SEND;
}

static struct job *come(struct rig *r, uint32_t tenant, double weight,
                        int64_t us, int32_t priority, int64_t slo_us)
{
    struct job *j = &r->jobs[r->n_jobs];
    struct dispatch_order order;

    CU_ASSERT_FATAL(r->n_jobs < MOST);
    *j = (struct job){
        .r = {.ask = {.request_id = r->n_jobs++,
                      .n_tokens = us / 100,
                      .max_output_tokens = 1,
                      .session = POOL_NO_INSTANCE},
              .owner = j,
              .arrived_us = r->now_us,
              .slo_ttft_us = slo_us,
              .tenant = tenant + 1,
              .weight = weight,
              .priority = priority},
        .tenant = tenant,
        .us = us,
        .done_us = -1,
    };
    dispatch_place(&r->dispatch, &j->r, r->now_us, &order);
    note(j, r, &order);
    return j;
}

static struct job *at_work(const struct rig *r, int i)
{
    return r->begun[i][r->n_begun[i] - 1];
}

static void end(struct rig *r, int i)
{
    struct job *j = r->begun[i][--r->n_begun[i]];

    CU_ASSERT_EQUAL(pool_prefill_done(r->pool, r->nodes[i], j->r.ask.request_id,
                                      j->us, r->now_us),
                    0);
    j->done_us = r->now_us;
    dispatch_forget(&r->dispatch, &j->r);
    dispatch_freed(&r->dispatch);
}

static void begin(struct rig *r, int i, uint32_t at)
{
    const struct pool_instance *in = pool_get(r->pool, r->nodes[i]);
    uint64_t id = in->waiting[at].request_id;
    struct job *j = &r->jobs[id];

    j->item = in->queue[at];
    CU_ASSERT_EQUAL(pool_prefill_started(r->pool, r->nodes[i], id, r->now_us),
                    0);
    j->began_us = r->now_us;
    j->left_us = j->us;
    r->begun[i][r->n_begun[i]++] = j;
}

/* At the end of a chunk: whether another one is at work then, as workers
 * choose. */
static void begin_next(struct rig *r, int i)
{
    static struct queue_item items[WAITING + BEGUN];
    const struct pool_instance *in = pool_get(r->pool, r->nodes[i]);
    struct step_prefill active[BEGUN];
    struct step step;
    struct step_choice next;

    (void)step_begin(
        &step,
        &(struct step_config){.order = in->order,
                              .tokens = CHUNK,
                              .max_prefills = 1,
                              .max_segments = 1,
                              .patience_us = pool_config(r->pool)->patience_us},
        0);
    for (uint32_t a = 0; a < r->n_begun[i]; a++) {
        const struct job *j = r->begun[i][a];
        int64_t worked_us = j->us - j->left_us;

        active[a] = (struct step_prefill){
            .item = j->item,
            .begun = {.cost_us = j->us,
                      .left_us = j->left_us,
                      .stood_us = r->now_us - j->began_us - worked_us}};
    }
    memcpy(items, in->queue, in->n_waiting * sizeof(*items));
    next = step_next(&step, active, r->n_begun[i], items,
                     r->n_begun[i] < BEGUN ? (uint32_t)in->n_waiting : 0,
                     r->now_us);
    if (next.kind == STEP_START)
        begin(r, i, next.index);
}

static void note_second(struct rig *r, size_t second)
{
    for (uint32_t t = 0; t < TENANTS; t++) {
        r->idle[t][second] = true;
        for (size_t i = 0; i < r->n_jobs && r->idle[t][second]; i++)
            r->idle[t][second] =
                r->jobs[i].tenant != t || r->jobs[i].done_us >= 0;
    }
}

/* Ten times a second. */
static void step(struct rig *r)
{
    struct dispatch_order order;
    struct dispatch_request *next;
    size_t second;

    r->now_us += SECOND / 10;
    second = (size_t)(r->now_us / SECOND - 1);
    for (int i = 0; i < NODES; i++) {
        if (r->n_begun[i] > 0) {
            struct job *j = at_work(r, i);

            j->left_us -= SECOND / 10;
            if (j->left_us <= 0)
                end(r, i);
        }
        begin_next(r, i);
    }
    while ((next = dispatch_next(&r->dispatch, r->now_us, &order)))
        note(next->owner, r, &order);
    for (int i = 0; i < NODES; i++)
        if (r->n_begun[i] > 0 && second < MINUTES * 60)
            r->served_us[at_work(r, i)->tenant][second] += SECOND / 10;
    if (r->now_us % SECOND == 0 && second < MINUTES * 60)
        note_second(r, second);
}

/* Of all minutes in which a tenant always had work waiting: the least part of
 * its share that it got. Its share is among those who had work at all. */
static double worst_minute(const struct rig *r, uint32_t tenant,
                           const double weights[TENANTS])
{
    double all = 0.0, worst = 1e9;

    for (uint32_t t = 0; t < TENANTS; t++)
        all += weights[t];
    for (size_t at = 0; at + 60 <= MINUTES * 60; at++) {
        int64_t got_us = 0;
        bool idle = false;

        for (size_t s = at; s < at + 60; s++) {
            got_us += r->served_us[tenant][s];
            idle = idle || r->idle[tenant][s];
        }
        double share = 60.0 * NODES * SECOND * weights[tenant] / all;
        if (!idle && (double)got_us / share < worst)
            worst = (double)got_us / share;
    }
    return worst;
}

/* Tenant 0 always has 200 s of work more than is done; 1 asks now and then, for
 * a burst of long requests at times; 2 likewise for others. */
static void flood(struct rig *r, const double weights[TENANTS], int64_t slo_us)
{
    int64_t owed_us = 0;

    for (int64_t tick = 0; tick < MINUTES * 600; tick++) {
        while (owed_us < 200 * SECOND + tick * NODES * SECOND / 10) {
            int64_t us = 50000 + (int64_t)random_below(&r->random, 1000000);

            owed_us += us;
            come(r, 0, weights[0], us, 0, slo_us);
        }
        for (uint32_t t = 1; t < TENANTS; t++) {
            uint64_t n = random_below(&r->random, 600) == 0
                             ? 60
                             : random_below(&r->random, 50) == 0;

            while (n-- > 0)
                come(r, t, weights[t],
                     100000 + (int64_t)random_below(&r->random, t * 4000000), 0,
                     slo_us);
        }
        step(r);
    }
}

static double run(double shares, const double weights[TENANTS], uint64_t seed)
{
    struct rig *r = malloc(sizeof(*r));
    double worst = 1e9;

    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    rig_init(r, shares, seed);
    /* All are known. */
    for (uint32_t t = 0; t < TENANTS; t++)
        come(r, t, weights[t], 100000, 0, 0);
    flood(r, weights, 0);
    for (uint32_t t = 0; t < TENANTS; t++) {
        double least = worst_minute(r, t, weights);

        printf(" %.2f", least > 1e8 ? -1.0 : least);
        worst = least < worst ? least : worst;
    }
    CU_ASSERT(shares == 0 || pool_interrupted(r->pool) > 0);
    rig_fini(r);
    free(r);
    return worst;
}

static const double cases[][TENANTS] = {{1, 1, 1}, {1, 3, 2}, {4, 1, 1}};

static void test_greedy(void)
{
    for (uint64_t seed = 1; seed <= cases_of(20); seed++)
        for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
            printf("\n    seed %u, weights %g %g %g, least of a share:",
                   (unsigned)seed, cases[c][0], cases[c][1], cases[c][2]);
            CU_ASSERT(run(1, cases[c], seed) >= 0.5);
        }
    printf("\n    without shares, seed 1:");
    CU_ASSERT(run(0, cases[0], 1) < 0.5);
}

/* With a TTFT SLO the flood is refused first, and whoever asks seldom hardly
 * ever: the queues have room for him. */
static void test_slo(void)
{
    static const double weights[TENANTS] = {1, 1, 1};

    for (uint64_t seed = 1; seed <= cases_of(5); seed++)
        for (double shares = 0; shares <= 1; shares++) {
            struct rig *r = malloc(sizeof(*r));
            double asked, refused;

            CU_ASSERT_PTR_NOT_NULL_FATAL(r);
            rig_init(r, shares, seed);
            for (int64_t tick = 0; tick < MINUTES * 600; tick++) {
                for (int n = 0; n < 2; n++)
                    come(r, 0, weights[0],
                         50000 + (int64_t)random_below(&r->random, 1000000), 0,
                         20 * SECOND);
                if (random_below(&r->random, 100) == 0)
                    come(r, 1, weights[1],
                         1000000 + (int64_t)random_below(&r->random, 8000000),
                         0, 20 * SECOND);
                step(r);
            }
            refused = r->refused[1];
            asked = refused + r->sent[1];
            printf("\n    seed %u, shares %g: refused %u of %u, of the "
                   "flood %u of %u",
                   (unsigned)seed, shares, (unsigned)refused, (unsigned)asked,
                   r->refused[0], r->refused[0] + r->sent[0]);
            CU_ASSERT(shares == 0 ? refused > 0.5 * asked
                                  : 3 * refused <= asked);
            rig_fini(r);
            free(r);
        }
}

/* A flood of small requests with a TTFT SLO, of which nearly all are refused,
 * does not make the price refuse the long ones of others, who ask for less than
 * their share, while instances idle. */
static void test_price(void)
{
    for (uint64_t seed = 1; seed <= cases_of(3); seed++) {
        struct rig *r = malloc(sizeof(*r));
        double asked_us = 0.0, sent_us = 0.0;

        CU_ASSERT_PTR_NOT_NULL_FATAL(r);
        rig_init(r, 1, seed);
        for (int64_t tick = 0; tick < 1500; tick++) {
            for (int n = 0; n < 38; n++)
                come(r, 0, 1, 100000, 0, 20 * SECOND);
            if (random_below(&r->random, 70) == 0) {
                int64_t us =
                    1000000 + (int64_t)random_below(&r->random, 8000000);
                const struct job *j = come(r, 1, 1, us, 0, 20 * SECOND);

                asked_us += (double)us;
                sent_us += j->done_us != 0 ? (double)us : 0.0;
            }
            step(r);
        }
        printf("\n    seed %u: of others' work sent %.0f of %.0f s",
               (unsigned)seed, sent_us / 1e6, asked_us / 1e6);
        CU_ASSERT(sent_us > 0.5 * asked_us);
        rig_fini(r);
        free(r);
    }
}

/* Who is in the first place is not known once there are tenants: nobody there
 * gives way to another's priority. */
static void test_first_place(void)
{
    struct share s;

    share_init(&s);
    CU_ASSERT_EQUAL(share_arrived(&s, 0, 1, -5, SECOND), 0);
    CU_ASSERT(share_orders(&s, 0));
    CU_ASSERT_EQUAL(share_queue_us(&s, 0, 0, 8, SECOND), 4);
    CU_ASSERT_EQUAL(share_arrived(&s, 7, 1, -5, SECOND), 1);
    CU_ASSERT_FALSE(share_orders(&s, 0));
    CU_ASSERT(share_orders(&s, 1));
    share_use(&s, 1, SHARE_PREFILL, 1000.0, SECOND);
    CU_ASSERT_EQUAL(share_queue_us(&s, 0, 0, 8, SECOND), INT64_MAX);
    CU_ASSERT_EQUAL(share_queue_us(&s, 1, 0, 8, SECOND), 4);
}

/* Of one tenant the earlier priority comes first. */
static void test_priority(void)
{
    struct rig *r = malloc(sizeof(*r));
    struct job *urgent, *late[50];

    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    rig_init(r, 1, 1);
    (void)come(r, 0, 1, 100000, -1, 0);
    for (int i = 0; i < 50; i++)
        late[i] = come(r, 0, 1, 1000000, i % 2, 0);
    urgent = come(r, 0, 1, 500000, -1, 0);
    for (int i = 0; i < 400; i++)
        step(r);
    CU_ASSERT(urgent->done_us > 0 && urgent->done_us < 6 * SECOND);
    for (int i = 10; i < 50; i += 2)
        CU_ASSERT(late[i]->done_us > 0 && late[i]->done_us < late[49]->done_us);
    rig_fini(r);
    free(r);
}

/* What a request was is known when it has ended. A tenant that lets too much be
 * charged does not get back what has faded, or turns that others had. */
static void test_correct(void)
{
    struct share s;
    double turn;

    share_init(&s);
    CU_ASSERT_EQUAL(share_arrived(&s, 7, 1, 0, SECOND), 1);
    CU_ASSERT_EQUAL(share_arrived(&s, 8, 1, 0, SECOND), 2);
    share_use(&s, 1, SHARE_PREFILL, 1000.0, SECOND);
    share_use(&s, 1, SHARE_PREFILL, 500.0, 61 * SECOND);
    share_correct(&s, 1, 7, SHARE_PREFILL, -1000.0, SECOND, 61 * SECOND);
    CU_ASSERT_DOUBLE_EQUAL(s.tenants[1].used_us[SHARE_PREFILL], 500.0, 20.0);
    share_correct(&s, 1, 7, SHARE_PREFILL, 300.0, 61 * SECOND, 61 * SECOND);
    CU_ASSERT_DOUBLE_EQUAL(s.tenants[1].used_us[SHARE_PREFILL], 800.0, 20.0);
    share_use(&s, 2, SHARE_PREFILL, 5000.0, 61 * SECOND);
    share_use(&s, 2, SHARE_PREFILL, 1.0, 61 * SECOND);
    CU_ASSERT_EQUAL(share_arrived(&s, 7, 1, 0, 61 * SECOND), 1);
    turn = share_turn(&s, 1);
    share_correct(&s, 1, 7, SHARE_PREFILL, -800.0, 61 * SECOND, 61 * SECOND);
    CU_ASSERT_EQUAL(share_turn(&s, 1), turn);
    CU_ASSERT_DOUBLE_EQUAL(s.tenants[1].used_us[SHARE_PREFILL], 0.0, 20.0);
    /* Its place is another tenant's. */
    share_correct(&s, 2, 7, SHARE_PREFILL, 9000.0, 61 * SECOND, 61 * SECOND);
    CU_ASSERT_DOUBLE_EQUAL(s.tenants[2].used_us[SHARE_PREFILL], 5001.0, 1.0);
}

/* More tenants than places: the rest share the first one. */
static void test_places(void)
{
    struct share s;

    share_init(&s);
    CU_ASSERT_EQUAL(share_arrived(&s, 0, 5, 0, SECOND), 0);
    CU_ASSERT_FALSE(s.matters);
    for (uint64_t t = 1; t < SHARE_TENANTS; t++)
        CU_ASSERT_EQUAL(share_arrived(&s, t, 2, 0, SECOND), t);
    CU_ASSERT(s.matters);
    CU_ASSERT_EQUAL(share_arrived(&s, 1000, 2, 0, 2 * SECOND), 0);
    CU_ASSERT_EQUAL(s.tenants[0].weight, 1.0);
    CU_ASSERT_EQUAL(share_arrived(&s, 7, 2, 0, 2 * SECOND), 7);
    /* Who waits, or asked within the minute, keeps his place. */
    s.tenants[1].waiting = 1;
    CU_ASSERT_EQUAL(share_arrived(&s, 1000, 2, 0, 61 * SECOND), 2);
    CU_ASSERT_EQUAL(share_arrived(&s, 7, 2, 0, 61 * SECOND), 7);
    CU_ASSERT_EQUAL(share_arrived(&s, 1, 2, 0, 61 * SECOND), 1);
}

/* Random lines against the slow search for the first. */
static void test_line(void)
{
    static struct line_node nodes[200];
    struct line_node *first = NULL;
    bool in[200] = {false};
    struct random_state random;

    random_init(&random, 1);
    for (uint64_t i = 0; i < cases_of(20000); i++) {
        uint32_t at = random_below(&random, 200);
        struct line_node *best = NULL;

        if (in[at]) {
            line_remove(&first, &nodes[at]);
        } else {
            nodes[at].priority = (int32_t)random_below(&random, 4) - 2;
            nodes[at].seq = i;
            line_add(&first, &nodes[at]);
        }
        in[at] = !in[at];
        for (uint32_t n = 0; n < 200; n++)
            if (in[n] && (!best || line_before(&nodes[n], best)))
                best = &nodes[n];
        CU_ASSERT_PTR_EQUAL(first, best);
    }
}

/* Of what it used the larger part of, its share counts; and who waits is not
 * far behind, whatever was given to others. */
static void test_dominant(void)
{
    struct share s;

    share_init(&s);
    for (uint64_t name = 1; name <= 3; name++)
        CU_ASSERT_EQUAL(
            share_arrived(&s, name, name == 3 ? 2.0 : 1.0, 0, SECOND), name);
    share_use(&s, 1, SHARE_PREFILL, 300.0, SECOND);
    share_use(&s, 1, SHARE_DECODE, 20.0, SECOND);
    share_use(&s, 2, SHARE_PREFILL, 50.0, SECOND);
    share_use(&s, 2, SHARE_DECODE, 100.0, SECOND);
    CU_ASSERT_DOUBLE_EQUAL(share_standing(&s, 1, SECOND), 3.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(share_standing(&s, 2, SECOND), 1.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(share_turn(&s, 1), 300.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(share_turn(&s, 2), 100.0, 1e-9);
    share_correct(&s, 2, 2, SHARE_DECODE, 100.0, SECOND, SECOND);
    CU_ASSERT_DOUBLE_EQUAL(share_turn(&s, 2), 200.0, 1e-9);
    s.tenants[2].waiting = s.tenants[3].waiting = 1;
    share_forgive(&s, 1, 150.0);
    CU_ASSERT_DOUBLE_EQUAL(share_turn(&s, 2), 200.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(share_turn(&s, 3), 225.0, 1e-9);
    share_forgive(&s, 1, 50.0);
    CU_ASSERT_DOUBLE_EQUAL(share_turn(&s, 2), 250.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(s.tenants[2].turn_us[SHARE_PREFILL], 50.0, 1e-9);
    s.tenants[2].waiting = 0;
    share_forgive(&s, 1, 0.0);
    CU_ASSERT_DOUBLE_EQUAL(share_turn(&s, 2), 250.0, 1e-9);
}

static const struct suite_test tests[] = {
    {"greedy", test_greedy},
    {"slo", test_slo},
    {"price", test_price},
    {"priority", test_priority},
    {"strangers have no priorities", test_first_place},
    {"corrected", test_correct},
    {"places", test_places},
    {"line", test_line},
    {"dominant", test_dominant},
};
SUITE("share", tests)
