/* The slices of one path over its rails, with rails that the test invents. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "workers/transfer/engine/rdma/spread_internal.h"

/* spread_check.c: asserts the invariants. O(everything). */
void spread_check(const struct spread *s);

#define SLICE 100u

static const struct spread_config config = {.slice_bytes = SLICE,
                                            .credits = 8,
                                            .ops_max = 16,
                                            .slices_max = 32,
                                            .retry_first_us = 1000,
                                            .retry_longest_us = 5000,
                                            .stall_us = 1000000};

static struct spread *make(uint32_t n_rails, bool up)
{
    struct spread *s;

    CU_ASSERT_EQUAL_FATAL(spread_new(&config, n_rails, &s), 0);
    for (uint32_t i = 0; i < n_rails && up; i++)
        spread_rail_up(s, i, 0);
    return s;
}

static int add(struct spread *s, uint64_t id, uint8_t *local, uint64_t bytes)
{
    struct transport_slice slice = {.local = local, .bytes = bytes};

    return spread_add(s, id, 7, false, &slice, 1, 0);
}

static void expect_end(struct spread *s, uint64_t id, int rc)
{
    uint64_t got_id = 0;
    int got_rc = 1;

    CU_ASSERT_TRUE(spread_ended(s, &got_id, &got_rc));
    CU_ASSERT_EQUAL(got_id, id);
    CU_ASSERT_EQUAL(got_rc, rc);
    spread_check(s);
}

static void expect_no_end(struct spread *s)
{
    uint64_t id;
    int rc;

    CU_ASSERT_FALSE(spread_ended(s, &id, &rc));
    spread_check(s);
}

static void test_bad(void)
{
    struct spread_config c = config;
    struct spread *s;
    struct transport_slice none = {.bytes = 0}, one = {.bytes = 1};

    CU_ASSERT_EQUAL(spread_new(&config, 0, &s), -EINVAL);
    CU_ASSERT_EQUAL(spread_new(&config, SPREAD_RAILS_MAX + 1, &s), -EINVAL);
    c.credits = 0;
    CU_ASSERT_EQUAL(spread_new(&c, 1, &s), -EINVAL);
    c = config;
    c.retry_longest_us = 1;
    CU_ASSERT_EQUAL(spread_new(&c, 1, &s), -EINVAL);
    s = make(1, true);
    CU_ASSERT_EQUAL(spread_add(s, 1, 0, false, &none, 1, 0), -EINVAL);
    CU_ASSERT_EQUAL(spread_add(s, 1, 0, false, &one, 0, 0), -EINVAL);
    CU_ASSERT_EQUAL(spread_add(s, 1, 0, false, &one, 33, 0), -EMSGSIZE);
    CU_ASSERT_EQUAL(add(s, 1, NULL, 5), 0);
    CU_ASSERT_EQUAL(add(s, 1, NULL, 5), -EEXIST);
    for (uint64_t id = 2; id <= 16; id++)
        CU_ASSERT_EQUAL(add(s, id, NULL, 5), 0);
    CU_ASSERT_EQUAL(add(s, 17, NULL, 5), -ENOBUFS);
    spread_free(s);
    spread_free(NULL);
}

#define SPREAD_TEST(test, ...) \
    SUITE_TEST_OF(test, struct spread, s, make(__VA_ARGS__), spread_free(s))

/* An op is cut, its last slice is shorter, and it ends with the last one. */
SPREAD_TEST(test_cut, 1, true)
{
    struct spread_slice *got[3];

    CU_ASSERT_EQUAL(add(s, 1, (uint8_t *)1000, 250), 0);
    for (uint32_t i = 0; i < 3; i++) {
        got[i] = spread_next(s, 0);
        CU_ASSERT_PTR_NOT_NULL_FATAL(got[i]);
        CU_ASSERT_PTR_EQUAL(got[i]->local, (uint8_t *)1000 + i * SLICE);
        CU_ASSERT_EQUAL(got[i]->offset, i * SLICE);
        CU_ASSERT_EQUAL(got[i]->bytes, i < 2 ? SLICE : 50);
        CU_ASSERT_PTR_EQUAL(spread_slice_at(s, got[i]->index), got[i]);
    }
    CU_ASSERT_PTR_NULL(spread_next(s, 0));
    spread_moved(s, got[2], 5);
    spread_moved(s, got[0], 6);
    expect_no_end(s);
    spread_moved(s, got[1], 7);
    expect_end(s, 1, 0);
    CU_ASSERT_TRUE(spread_is_idle(s));
    CU_ASSERT_PTR_NULL(spread_slice_at(s, got[0]->index));
    CU_ASSERT_PTR_NULL(spread_slice_at(s, 8));
}

/* Ops take turns: a small one does not wait for the end of a large one. */
SPREAD_TEST(test_turns, 1, true)
{
    CU_ASSERT_EQUAL(add(s, 1, (uint8_t *)1000, 5000), 0);
    CU_ASSERT_EQUAL(add(s, 2, (uint8_t *)9000, 100), 0);
    CU_ASSERT_PTR_EQUAL(spread_next(s, 0)->local, (uint8_t *)1000);
    CU_ASSERT_PTR_EQUAL(spread_next(s, 0)->local, (uint8_t *)9000);
    CU_ASSERT_PTR_EQUAL(spread_next(s, 0)->local, (uint8_t *)1100);
}

/* A rail takes its credits and no more. */
SPREAD_TEST(test_credits, 2, false)
{
    uint32_t n = 0;

    CU_ASSERT_EQUAL(add(s, 1, NULL, 5000), 0);
    CU_ASSERT_PTR_NULL(spread_next(s, 0));
    spread_rail_up(s, 1, 0);
    struct spread_slice *slice, *last = NULL;
    while ((slice = spread_next(s, 0))) {
        CU_ASSERT_EQUAL(slice->rail, 1);
        last = slice;
        n++;
    }
    CU_ASSERT_EQUAL(n, 8);
    CU_ASSERT_EQUAL(s->rails[1].n_slices, 8);
    spread_moved(s, last, 1);
    CU_ASSERT_PTR_NOT_NULL(spread_next(s, 1));
    CU_ASSERT_PTR_NULL(spread_next(s, 1));
    spread_check(s);
}

/* In proportion to the rates: of the twelve that fit, eight and four. */
SPREAD_TEST(test_rates, 2, true)
{
    struct spread_slice *slice;
    uint32_t n[2] = {0};

    spread_rail_set(s, 0, 1e6, 0);
    spread_rail_set(s, 1, 2e6, 0);
    CU_ASSERT_EQUAL(add(s, 1, NULL, 5000), 0);
    while ((slice = spread_next(s, 0)))
        n[slice->rail]++;
    CU_ASSERT_EQUAL(n[0], 4);
    CU_ASSERT_EQUAL(n[1], 8);
}

/* The others are for when the preferred ones have failed. */
SPREAD_TEST(test_classes, 3, true)
{
    struct spread_slice *slice;

    spread_rail_set(s, 0, 1e9, 1);
    spread_rail_set(s, 1, 1e6, 0);
    spread_rail_set(s, 2, 1e9, 1);
    CU_ASSERT_EQUAL(add(s, 1, NULL, 5000), 0);
    slice = spread_next(s, 0);
    CU_ASSERT_EQUAL(slice->rail, 1);
    spread_rail_failed(s, 1, 0);
    spread_lost(s, slice);
    slice = spread_next(s, 0);
    CU_ASSERT_EQUAL(slice->rail, 0);
    CU_ASSERT_PTR_NULL(slice->local); /* the one that was lost comes first */
    /* While a preferred one is in use, nobody tries the others. */
    CU_ASSERT_EQUAL(spread_try(s, false, 1000), 1);
    spread_rail_up(s, 1, 1000);
    spread_rail_failed(s, 2, 1000);
    CU_ASSERT_EQUAL(spread_try(s, false, 9000), SPREAD_NONE);
    CU_ASSERT_EQUAL(spread_next(s, 9000)->rail, 1);
}

/* A rail that fails is left alone for longer and longer, until it works. */
SPREAD_TEST(test_back_off, 1, false)
{
    static const int64_t waits[] = {1000, 2000, 4000, 5000, 5000};
    int64_t now_us = 50;

    CU_ASSERT_EQUAL(spread_try(s, false, now_us), SPREAD_NONE); /* no work */
    CU_ASSERT_EQUAL(spread_due_us(s), INT64_MAX);
    CU_ASSERT_EQUAL(add(s, 1, NULL, 5000), 0);
    CU_ASSERT_EQUAL(spread_try(s, false, now_us), 0);
    CU_ASSERT_EQUAL(spread_try(s, false, now_us), SPREAD_NONE);
    for (int i = 0; i < 5; i++) {
        spread_rail_failed(s, 0, now_us);
        spread_rail_failed(s, 0, now_us); /* is said twice, counts once */
        CU_ASSERT_EQUAL(spread_due_us(s), now_us + waits[i]);
        CU_ASSERT_EQUAL(spread_try(s, false, now_us + waits[i] - 1),
                        SPREAD_NONE);
        now_us += waits[i];
        CU_ASSERT_EQUAL(spread_try(s, false, now_us), 0);
    }
    spread_rail_up(s, 0, now_us);
    spread_rail_failed(s, 0, now_us);
    CU_ASSERT_EQUAL(spread_due_us(s), now_us + 1000);
    spread_rail_renew(s, 0, now_us + 10);
    CU_ASSERT_EQUAL(spread_try(s, false, now_us + 9), SPREAD_NONE);
    CU_ASSERT_EQUAL(spread_try(s, false, now_us + 10), 0);
    spread_rail_renew(s, 0, now_us); /* it is tried already */
    CU_ASSERT_EQUAL(spread_rail_state(s, 0), SPREAD_TRYING);
    spread_rail_up(s, 0, now_us);
    spread_rail_drop(s, 0);
    CU_ASSERT_EQUAL(spread_try(s, false, now_us), 0);
}

/* A rail whose slices have not all come back is not tried. */
SPREAD_TEST(test_try_behind_last, 1, true)
{
    struct spread_slice *slice;

    CU_ASSERT_EQUAL(add(s, 1, NULL, 5000), 0);
    slice = spread_next(s, 0);
    spread_rail_failed(s, 0, 0);
    CU_ASSERT_EQUAL(spread_try(s, false, 1000), SPREAD_NONE);
    spread_lost(s, slice);
    CU_ASSERT_EQUAL(spread_try(s, false, 1000), 0);
}

SPREAD_TEST(test_cancel, 1, true)
{
    struct spread_slice *one, *two;

    spread_cancel(s, 1);
    CU_ASSERT_EQUAL(add(s, 1, NULL, 5000), 0);
    one = spread_next(s, 0);
    two = spread_next(s, 0);
    spread_lost(s, one);
    spread_cancel(s, 1);
    spread_cancel(s, 1);
    expect_no_end(s); /* one is under way */
    CU_ASSERT_PTR_NULL(spread_next(s, 0));
    spread_moved(s, two, 1);
    expect_end(s, 1, -ECANCELED);
    /* With nothing under way it is over at once. */
    CU_ASSERT_EQUAL(add(s, 2, NULL, 5000), 0);
    spread_cancel(s, 2);
    expect_end(s, 2, -ECANCELED);
    /* All that is left to come: it was over. */
    CU_ASSERT_EQUAL(add(s, 3, NULL, 100), 0);
    one = spread_next(s, 0);
    spread_cancel(s, 3);
    spread_lost(s, one);
    expect_end(s, 3, -ECANCELED);
}

SPREAD_TEST(test_grants, 1, true)
{
    struct transport_slice slice = {.bytes = 100};

    for (uint64_t id = 1; id <= 4; id++)
        CU_ASSERT_EQUAL(spread_add(s, id, id % 2, true, &slice, 1, 0), 0);
    CU_ASSERT_PTR_NULL(spread_next(s, 0));
    CU_ASSERT_TRUE(spread_uses(s, 1));
    CU_ASSERT_FALSE(spread_uses(s, 2));
    spread_allow(s, 1);
    struct spread_slice *first = spread_next(s, 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(first);
    spread_deny(s, 0, -EACCES);
    expect_end(s, 2, -EACCES);
    expect_end(s, 4, -EACCES);
    spread_fail(s, -EIO);
    expect_end(s, 3, -EIO);
    expect_no_end(s);
    spread_moved(s, first, 1);
    expect_end(s, 1, -EIO);
    CU_ASSERT_FALSE(spread_uses(s, 1));
}

SPREAD_TEST(test_stall, 1, true)
{
    struct transport_slice slice = {.bytes = 200};

    CU_ASSERT_FALSE(spread_stalled(s, INT64_MAX));
    CU_ASSERT_EQUAL(spread_add(s, 1, 7, false, &slice, 1, 500), 0);
    CU_ASSERT_EQUAL(spread_due_us(s), 1000500);
    CU_ASSERT_FALSE(spread_stalled(s, 1000499));
    CU_ASSERT_TRUE(spread_stalled(s, 1000500));
    spread_moved(s, spread_next(s, 600), 700);
    CU_ASSERT_FALSE(spread_stalled(s, 1000500));
    CU_ASSERT_EQUAL(spread_due_us(s), 1000700);
}

/* --- rails that move bytes --- */

#define RAILS_MAX 6u

/* A rail of the test: slices leave one behind the other. */
struct wire {
    double bytes_per_s;
    double latency_us;
    double free_us; /* it has moved all it was given */
    bool dead;      /* what is posted there is lost */
    struct {
        struct spread_slice *slice;
        double due_us;
        bool lost;
    } queue[8];
    uint32_t n;
    uint64_t moved;
};

struct world {
    struct spread *s;
    uint32_t n_rails;
    struct wire wires[RAILS_MAX];
    double now_us;
    uint8_t *from, *to; /* (bytes): what an op copies */
};

static void post(struct world *w, struct spread_slice *slice)
{
    struct wire *r = &w->wires[slice->rail];

    CU_ASSERT_FATAL(r->n < 8);
    if (r->free_us < w->now_us)
        r->free_us = w->now_us;
    r->free_us += slice->bytes / r->bytes_per_s * 1e6;
    r->queue[r->n].slice = slice;
    r->queue[r->n].due_us = r->free_us + r->latency_us;
    r->queue[r->n++].lost = r->dead;
}

static void post_all(struct world *w)
{
    struct spread_slice *slice;
    uint32_t rail;
    int64_t now_us = (int64_t)w->now_us;

    while ((rail = spread_try(w->s, false, now_us)) != SPREAD_NONE)
        if (w->wires[rail].dead)
            spread_rail_failed(w->s, rail, now_us);
        else
            spread_rail_up(w->s, rail, now_us);
    while ((slice = spread_next(w->s, now_us)))
        post(w, slice);
}

/* The rail whose slice comes back next, or RAILS_MAX: none is under way. */
static uint32_t next_rail(const struct world *w)
{
    uint32_t best = RAILS_MAX;

    for (uint32_t i = 0; i < w->n_rails; i++)
        if (w->wires[i].n > 0 &&
            (best == RAILS_MAX ||
             w->wires[i].queue[0].due_us < w->wires[best].queue[0].due_us))
            best = i;
    return best;
}

static void come_back(struct world *w, struct wire *r)
{
    struct spread_slice *slice = r->queue[0].slice;
    bool lost = r->queue[0].lost || r->dead;

    memmove(r->queue, r->queue + 1, sizeof(r->queue[0]) * --r->n);
    if (w->to && (!lost || rand() % 2))
        memcpy(w->to + (slice->local - w->from), slice->local, slice->bytes);
    if (lost) {
        spread_rail_failed(w->s, slice->rail, (int64_t)w->now_us);
        spread_lost(w->s, slice);
        return;
    }
    r->moved += slice->bytes;
    spread_moved(w->s, slice, (int64_t)w->now_us);
}

/* One thing happens. False: nothing will. */
static bool turn(struct world *w)
{
    post_all(w);
    uint32_t rail = next_rail(w);
    int64_t due_us = spread_due_us(w->s);
    if (rail == RAILS_MAX && due_us == INT64_MAX)
        return false;
    if (rail == RAILS_MAX || (double)due_us < w->wires[rail].queue[0].due_us) {
        w->now_us = (double)due_us > w->now_us ? (double)due_us : w->now_us + 1;
        return true;
    }
    if (w->wires[rail].queue[0].due_us > w->now_us)
        w->now_us = w->wires[rail].queue[0].due_us;
    come_back(w, &w->wires[rail]);
    return true;
}

/* Moves 200 kB over rails of those rates. Returns the time it took. */
static double move(struct world *w, uint32_t n_rails, const double *rates)
{
    uint64_t id;
    int rc;

    *w = (struct world){.s = make(n_rails, true), .n_rails = n_rails};
    for (uint32_t i = 0; i < n_rails; i++) {
        w->wires[i].bytes_per_s = rates[i];
        w->wires[i].latency_us = 5;
        spread_rail_set(w->s, i, 1e9, 0); /* as if all were alike */
    }
    CU_ASSERT_EQUAL(add(w->s, 1, NULL, 200000), 0);
    while (!spread_ended(w->s, &id, &rc))
        CU_ASSERT_FATAL(turn(w));
    CU_ASSERT_EQUAL(rc, 0);
    return w->now_us;
}

/* Two equal rails take half as long as one; unequal ones are all filled. */
static void test_throughput(void)
{
    struct world w;
    double one = move(&w, 1, (double[]){12.5e6});

    spread_free(w.s);
    double two = move(&w, 2, (double[]){12.5e6, 12.5e6});
    spread_free(w.s);
    double four = move(&w, 4, (double[]){12.5e6, 12.5e6, 12.5e6, 12.5e6});
    spread_free(w.s);
    double unequal = move(&w, 2, (double[]){12.5e6, 6.25e6});
    printf("[%.0f, %.0f, %.0f us; unequal %.0f] ", one, two, four, unequal);
    CU_ASSERT(one / two > 1.95);
    CU_ASSERT(one / four > 3.8);
    CU_ASSERT(one / unequal > 1.45);
    CU_ASSERT_DOUBLE_EQUAL(w.s->rails[0].bytes_per_s, 12.5e6, 1.5e6);
    CU_ASSERT_DOUBLE_EQUAL(w.s->rails[1].bytes_per_s, 6.25e6, 1e6);
    spread_free(w.s);
}

static void trouble(struct world *w, const bool *open, uint32_t n_ops)
{
    struct wire *r = &w->wires[(uint32_t)rand() % w->n_rails];
    uint32_t id = (uint32_t)rand() % n_ops;

    switch (rand() % 8) {
    case 0:
        r->dead = !r->dead;
        break;
    case 1:
        r->bytes_per_s = 1e5 * (1 + rand() % 100);
        break;
    case 2:
        if (open[id] && rand() % 4 == 0)
            spread_cancel(w->s, id);
        break;
    case 3:
        spread_rail_renew(w->s, (uint32_t)(r - w->wires), (int64_t)w->now_us);
        break;
    default:
        break;
    }
}

/* What a random case moves: op i is from[start[i]] to from[start[i + 1]]. */
struct load {
    uint8_t from[1 << 14], to[1 << 14];
    uint64_t start[17];
    bool open[16];
    uint32_t n_ops, left;
};

static void add_ops(struct world *w, struct load *l)
{
    struct transport_slice slices[4] = {0};

    for (uint32_t i = 0; i < l->n_ops; i++) {
        l->start[i + 1] = l->start[i];
        for (uint32_t k = 0; k < 4; k++) {
            slices[k].local = l->from + l->start[i + 1];
            slices[k].bytes = 1 + (uint64_t)rand() % 250;
            l->start[i + 1] += slices[k].bytes;
        }
        CU_ASSERT_EQUAL(spread_add(w->s, i, 0, false, slices, 4, 0), 0);
        l->open[i] = true;
    }
}

static void make_case(struct world *w, struct load *l)
{
    *w = (struct world){.n_rails = 1 + (uint32_t)rand() % RAILS_MAX};
    *l = (struct load){.n_ops = 1 + (uint32_t)rand() % 16};
    l->left = l->n_ops;
    w->s = make(w->n_rails, false);
    w->from = l->from;
    w->to = l->to;
    for (uint32_t i = 0; i < sizeof(l->from); i++)
        l->from[i] = (uint8_t)(1 + rand() % 255);
    for (uint32_t i = 0; i < w->n_rails; i++) {
        w->wires[i].bytes_per_s = 1e5 * (1 + rand() % 100);
        w->wires[i].latency_us = rand() % 500;
        spread_rail_set(w->s, i, 1e6, (uint32_t)rand() % 2);
    }
    add_ops(w, l);
}

static void take_ended(struct world *w, struct load *l, unsigned seed)
{
    uint64_t id;
    int rc;

    while (spread_ended(w->s, &id, &rc)) {
        bool good =
            id < l->n_ops && l->open[id] &&
            (rc == -ECANCELED ||
             (rc == 0 && memcmp(l->from + l->start[id], l->to + l->start[id],
                                l->start[id + 1] - l->start[id]) == 0));

        if (!good)
            printf("seed %u: op %lu ended with %d\n", seed, id, rc);
        CU_ASSERT_FATAL(good);
        l->open[id] = false;
        l->left--;
    }
}

/* Each op ends once; what ended well was moved, whatever rails did. At last all
 * are well. */
static void one_case(unsigned seed)
{
    static struct load l;
    struct world w;

    make_case(&w, &l);
    for (uint32_t step = 0; l.left > 0; step++) {
        if (step <= 3000)
            trouble(&w, l.open, l.n_ops);
        for (uint32_t i = 0; i < w.n_rails && step > 3000; i++)
            w.wires[i].dead = false;
        (void)turn(&w);
        spread_check(w.s);
        take_ended(&w, &l, seed);
        if (step > 100000)
            printf("seed %u: %u ops never end\n", seed, l.left);
        CU_ASSERT_FATAL(step <= 100000);
    }
    CU_ASSERT_TRUE(spread_is_idle(w.s));
    spread_free(w.s);
}

static void test_random(void)
{
    for (unsigned seed = 1; seed <= cases_of(500); seed++) {
        srand(seed);
        one_case(seed);
    }
}

static const struct suite_test tests[] = {
    {"bad", test_bad},
    {"cut", test_cut},
    {"turns", test_turns},
    {"credits", test_credits},
    {"rates", test_rates},
    {"classes", test_classes},
    {"back-off", test_back_off},
    {"tried behind its last slice", test_try_behind_last},
    {"cancel", test_cancel},
    {"grants", test_grants},
    {"stall", test_stall},
    {"throughput", test_throughput},
    {"any trouble, random", test_random},
};
SUITE("rdma_spread", tests)
