/* Forming steps: budgets, turns, starts, and prefills that come last. */
#include <stdlib.h>

#include "conductor/core/step/step.h"
#include "tests/unit/suite.h"

static struct step_config config(const char *order)
{
    return (struct step_config){.order = queue_order_by_name(order),
                                .tokens = 100,
                                .max_prefills = 2,
                                .max_segments = 10};
}

#define NEXT_IS(step, active, n_active, waiting, n_waiting, what, at)    \
    do {                                                                 \
        struct step_choice got =                                         \
            step_next(step, active, n_active, waiting, n_waiting, 1000); \
        CU_ASSERT_EQUAL(got.kind, what);                                 \
        CU_ASSERT_EQUAL(got.index, at);                                  \
    } while (0)

static void test_decodes(void)
{
    struct step_config c = config("fifo");
    struct step_prefill active[] = {{.loading = false}};
    struct step s;

    CU_ASSERT_EQUAL(step_begin(&s, &c, 3), 3);
    CU_ASSERT_EQUAL(s.budget, 97);
    CU_ASSERT(step_has_room(&s));
    /* No more than the segments; than the budget. */
    CU_ASSERT_EQUAL(step_begin(&s, &c, 11), 10);
    CU_ASSERT(!step_has_room(&s));
    NEXT_IS(&s, active, 1, NULL, 0, STEP_FORMED, 0);
    c.tokens = 5;
    CU_ASSERT_EQUAL(step_begin(&s, &c, 9), 5);
    NEXT_IS(&s, active, 1, NULL, 0, STEP_FORMED, 0);
    c.tokens = 0;
    CU_ASSERT_EQUAL(step_begin(&s, &c, 1), 1);
    CU_ASSERT_EQUAL(s.budget, UINT32_MAX - 1);
}

/* Those under way as they were started, then the oldest that wait. */
static void test_turns(void)
{
    struct step_config c = config("fifo");
    struct step_prefill active[3] = {{.in_step = false}, {.held_back = true}};
    struct queue_item waiting[] = {
        {.arrival_seq = 8},
        {.arrival_seq = 7, .ready_at_us = QUEUE_NOT_READY},
        {.arrival_seq = 9}};
    struct step s;

    (void)step_begin(&s, &c, 0);
    NEXT_IS(&s, active, 2, waiting, 3, STEP_CONTINUE, 0);
    active[0].in_step = true;
    step_take(&s, 40, 0);
    /* A prefill that is held back takes no place. */
    NEXT_IS(&s, active, 2, waiting, 3, STEP_START, 0);
    active[2].in_step = true;
    step_take(&s, 0, 0);
    CU_ASSERT_EQUAL(s.n_segments, 1);
    CU_ASSERT(!step_may_start(&s, active, 3));
    NEXT_IS(&s, active, 3, waiting + 1, 2, STEP_FORMED, 0);
    s.config.max_prefills = 3;
    NEXT_IS(&s, active, 3, waiting + 1, 2, STEP_START, 1);
    step_take(&s, 60, 0);
    NEXT_IS(&s, active, 3, waiting + 1, 2, STEP_FORMED, 0);
}

/* What is in the step comes before what begins in it: the one that is due does
 * not let a shorter one pass that would only have fitted in front of that. */
static void test_due_in_a_step(void)
{
    struct step_config c = config("shortest_first");
    struct step_prefill active[1] = {{.in_step = true}};
    struct queue_item waiting[] = {{.arrival_seq = 1,
                                    .cost_us = 5000,
                                    .deadline_us = 6500,
                                    .has_slo = true},
                                   {.arrival_seq = 2,
                                    .cost_us = 400,
                                    .deadline_us = 90000,
                                    .has_slo = true}};
    struct step s;

    (void)step_begin(&s, &c, 0);
    NEXT_IS(&s, active, 0, waiting, 2, STEP_START, 1);
    step_take(&s, 10, step_part_us(400, 10, 10));
    NEXT_IS(&s, active, 1, waiting, 1, STEP_START, 0);
    s.taken_us = 300;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_START, 0);
    /* Nobody is refused for being late there. */
    waiting[0].has_slo = waiting[1].has_slo = false;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_START, 1);
    CU_ASSERT_EQUAL(step_part_us(900, 1, 3), 300);
    CU_ASSERT_EQUAL(step_part_us(900, 0, 0), 0);
}

/* What is loading: behind all others, or as they come. */
static void test_loading(void)
{
    struct step_config c = config("uncached_first");
    struct step_prefill active[] = {{.loading = true}, {.loading = false}};
    struct queue_item waiting[] = {
        {.arrival_seq = 1, .loading_until_us = 1001},
        {.arrival_seq = 2, .loading_until_us = 1000}};
    struct step s;

    c.max_prefills = 3;
    (void)step_begin(&s, &c, 0);
    NEXT_IS(&s, active, 2, waiting, 2, STEP_CONTINUE, 1);
    active[1].in_step = true;
    NEXT_IS(&s, active, 2, waiting, 2, STEP_START, 1);
    NEXT_IS(&s, active, 2, waiting, 1, STEP_CONTINUE, 0);
    active[0].in_step = true;
    NEXT_IS(&s, active, 2, waiting, 1, STEP_START, 0);
    /* It takes no place of others, but needs one to start. */
    s.config.max_prefills = 1;
    CU_ASSERT(!step_may_start(&s, active, 2));
    CU_ASSERT(step_may_start(&s, active, 1));

    c = config("fifo");
    active[0].in_step = active[1].in_step = false;
    (void)step_begin(&s, &c, 0);
    NEXT_IS(&s, active, 2, waiting, 2, STEP_CONTINUE, 0);
    active[0].in_step = active[1].in_step = true;
    NEXT_IS(&s, active, 2, waiting, 2, STEP_FORMED, 0);
    NEXT_IS(&s, active, 1, waiting, 2, STEP_START, 0);
}

/* The last one to begin goes on, or yields to one of at most a third of what it
 * has left; so do those below, none for longer than its own work. */
static void test_yielding(void)
{
    struct step_config c = config("shortest_first_yield");
    struct step_prefill active[2] = {
        {.item = {.cost_us = 9000, .deadline_us = 100000},
         .begun = {.cost_us = 9000, .left_us = 6000}}};
    struct queue_item waiting[4] = {{.arrival_seq = 2, .deadline_us = 99999},
                                    {.arrival_seq = 3, .deadline_us = 99999}};
    struct step s;

    c.max_prefills = 1;
    c.patience_us = 30000;
    (void)step_begin(&s, &c, 0);
    waiting[0].cost_us = 2001;
    waiting[1].cost_us = 2500;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_CONTINUE, 0);
    waiting[1].cost_us = 2000;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_START, 1);
    /* Not if it is not ready, or if the one at work would get late; */
    waiting[1].ready_at_us = QUEUE_NOT_READY;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_CONTINUE, 0);
    waiting[1].ready_at_us = 0;
    active[0].item.deadline_us = 1000 + 6000 + 1999;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_CONTINUE, 0);
    active[0].item.deadline_us++;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_START, 1);
    /* if it has stood for as long as it takes; */
    active[0].begun.stood_us = 7001;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_CONTINUE, 0);
    active[0].begun.stood_us = 7000;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_START, 1);
    /* if there is too much to do. */
    s.config.patience_us = 3 * (6000 + 2001 + 2000) / 2 - 3;
    NEXT_IS(&s, active, 1, waiting, 2, STEP_CONTINUE, 0);
    s.config.patience_us = 30000;
    /* The one below counts what is left of the one at work, too. */
    active[1] =
        (struct step_prefill){.item = {.cost_us = 1500, .deadline_us = 100000},
                              .begun = {.cost_us = 1500, .left_us = 1500}};
    waiting[1].cost_us = 500;
    NEXT_IS(&s, active, 2, waiting, 2, STEP_START, 1);
    active[0].begun.stood_us = 7001;
    NEXT_IS(&s, active, 2, waiting, 2, STEP_CONTINUE, 1);
    /* The one at work is done before the one below it is due; */
    active[0].begun.stood_us = 0;
    active[0].item.has_slo = true;
    active[0].item.deadline_us = 1000 + 6000 + 1500 + 499;
    NEXT_IS(&s, active, 2, waiting, 2, STEP_CONTINUE, 1);
    active[0].item.deadline_us++;
    NEXT_IS(&s, active, 2, waiting, 2, STEP_START, 1);
    /* and both before one that waits for them has to begin. */
    waiting[0].has_slo = true;
    waiting[0].deadline_us = 1000 + 6000 + 1500 + 2001 + 499;
    active[0].item.deadline_us = 99999;
    NEXT_IS(&s, active, 2, waiting, 2, STEP_CONTINUE, 1);
    waiting[0].deadline_us++;
    NEXT_IS(&s, active, 2, waiting, 2, STEP_START, 1);
    /* One that waits for its load lets others begin; one prompt a step. */
    active[0].held_back = active[1].held_back = true;
    NEXT_IS(&s, active, 2, waiting, 2, STEP_START, 1);
    active[1] = (struct step_prefill){.in_step = true};
    NEXT_IS(&s, active, 2, waiting, 2, STEP_FORMED, 0);
}

/* The prefill above one that is held back does not wait for that one: it can be
 * in time, and so the one on top of it is due before. */
static void test_above_held_back(void)
{
    struct step_config c = config("shortest_first_yield");
    struct step_prefill active[3] = {
        {.held_back = true, .begun = {.cost_us = 9000, .left_us = 6000}},
        {.item = {.arrival_seq = 1, .has_slo = true},
         .begun = {.cost_us = 1500, .left_us = 1500}},
        {.item = {.arrival_seq = 2, .deadline_us = 99999},
         .begun = {.cost_us = 900, .left_us = 900}}};
    struct queue_item waiting[4] = {
        {.arrival_seq = 3, .cost_us = 300, .deadline_us = 99999}};
    struct step s;

    c.max_prefills = 1;
    c.patience_us = 30000;
    (void)step_begin(&s, &c, 0);
    active[1].item.deadline_us = 1000 + 1500 + 900 + 299;
    NEXT_IS(&s, active, 3, waiting, 1, STEP_CONTINUE, 2);
    active[1].item.deadline_us++;
    NEXT_IS(&s, active, 3, waiting, 1, STEP_START, 0);
}

enum { CHUNK_US = 100, MOST = 64 };

/* An instance in simulated time. */
struct served {
    struct step_config config;
    struct step_prefill active[MOST];
    struct queue_item waiting[MOST + MOST];
    uint32_t n_active, n_waiting, interrupted;
    int64_t now_us;
};

static int64_t to_do_us(const struct served *e)
{
    int64_t us = 0;

    for (uint32_t i = 0; i < e->n_active; i++)
        us += e->active[i].begun.left_us;
    for (uint32_t i = 0; i < e->n_waiting; i++)
        us += e->waiting[i].cost_us;
    return us;
}

/* One that all accepted work leaves time for is accepted. */
static void arrive(struct served *e, uint64_t seq)
{
    int64_t cost_us = 1 + (rand() % 10 == 0 ? rand() % 9000 : rand() % 900);
    int64_t due_us = e->now_us + 10000 + rand() % 20000;
    bool has_slo = rand() % 4 > 0;

    if (e->n_active + e->n_waiting == MOST ||
        (has_slo && e->now_us + to_do_us(e) + cost_us > due_us))
        return;
    e->waiting[e->n_waiting++] = (struct queue_item){.arrival_seq = seq,
                                                     .cost_us = cost_us,
                                                     .arrived_us = e->now_us,
                                                     .deadline_us = due_us,
                                                     .has_slo = has_slo};
}

/* One step. Returns whether nobody with an SLO got late in it. */
static bool serve(struct served *e)
{
    struct step s;
    struct step_choice next;
    struct step_prefill *top;
    int64_t us;

    (void)step_begin(&s, &e->config, 0);
    next = step_next(&s, e->active, e->n_active, e->waiting, e->n_waiting,
                     e->now_us);
    if (next.kind == STEP_FORMED)
        return true;
    if (next.kind == STEP_START) {
        const struct queue_item *w = &e->waiting[next.index];

        e->interrupted += e->n_active > 0;
        e->active[e->n_active++] = (struct step_prefill){
            .item = *w,
            .begun = {.cost_us = w->cost_us, .left_us = w->cost_us}};
        e->waiting[next.index] = e->waiting[--e->n_waiting];
    }
    top = &e->active[e->n_active - 1];
    us = top->begun.left_us < CHUNK_US ? top->begun.left_us : CHUNK_US;
    e->now_us += us;
    top->begun.left_us -= us;
    for (uint32_t i = 0; i + 1 < e->n_active; i++)
        e->active[i].begun.stood_us += us;
    e->n_active -= top->begun.left_us == 0;
    return top->begun.left_us > 0 || !top->item.has_slo ||
           e->now_us <= top->item.deadline_us;
}

/* Where costs are as predicted, whoever was accepted for his SLO is in time,
 * whatever comes later and interrupts. */
static void test_promises(void)
{
    uint32_t interrupted = 0, late = 0;

    srand(1);
    for (int round = 0; round < 100; round++) {
        struct served e = {.config = config("shortest_first_yield")};

        e.config.max_prefills = 1;
        e.config.patience_us = 30000;
        for (uint64_t seq = 0; seq < 500; seq++) {
            int64_t until_us = e.now_us + rand() % 800;

            arrive(&e, seq);
            while (e.now_us < until_us && e.n_active + e.n_waiting > 0)
                late += !serve(&e);
            if (e.now_us < until_us)
                e.now_us = until_us;
        }
        interrupted += e.interrupted;
    }
    CU_ASSERT_EQUAL(late, 0);
    CU_ASSERT(interrupted > 1000);
}

static const struct suite_test tests[] = {
    {"decodes", test_decodes},
    {"turns", test_turns},
    {"due in a step", test_due_in_a_step},
    {"loading", test_loading},
    {"yielding", test_yielding},
    {"above one held back", test_above_held_back},
    {"promises", test_promises},
};
SUITE("step", tests)
