/*
 * Limits that several conductors keep together, over a book that answers late,
 * not at all, or has forgotten: against a record of all that was let in.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conductor/core/share/joint.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

#define SEED 20261123
#define SECOND_US 1000000
#define MOST 8
#define LEASE_US (3 * SECOND_US)
#define POLL_US (LEASE_US / 12)
#define PATIENCE_US (LEASE_US / 2)

/* The book, as the script of conductor/cluster/limits.c keeps it. */
struct entry {
    bool known;
    double own;
    uint32_t open;
    int64_t until_us;
};

struct book {
    struct limit all;
    struct entry of[MOST];
};

struct conductor {
    struct joint_key key;
    bool asking;
    bool answered; /* the report will be */
    int64_t enters_us, told_us, heard_us, polled_us;
    double sent_seen, sent_own, sent_told; /* what the report says */
    uint32_t sent_open;
    bool entered;
    double asks;   /* what the answer says */
    uint32_t open; /* likewise */
    bool cut;      /* from the book */
};

struct run {
    struct random_state r;
    unsigned n;
    double per_minute;
    uint32_t max_open;
    int64_t now_us, trip_us; /* the longest way to the book */
    struct book book;
    struct conductor of[MOST];
    struct limit record; /* all that was let in */
    double highest;      /* of it */
    uint32_t most_open;
    uint64_t let_in;
};

static double fraction(struct run *x)
{
    return random_below(&x->r, 1000001) / 1e6;
}

static void begin(struct run *x, unsigned i)
{
    struct conductor *c = &x->of[i];

    *c = (struct conductor){
        .key = {.number = 1,
                .asks = {.per_minute = x->per_minute},
                .max_open = x->max_open,
                .conductors = x->n},
        .heard_us = x->now_us,
    };
}

static void start(struct run *x, uint64_t seed)
{
    memset(x, 0, sizeof(*x));
    random_init(&x->r, seed);
    x->n = 1 + random_below(&x->r, MOST);
    x->per_minute = exp(fraction(x) * log(20000.0));
    x->max_open = 1 + random_below(&x->r, 100);
    x->now_us = SECOND_US;
    x->trip_us = 200 + random_below(&x->r, 50000);
    x->record.per_minute = x->book.all.per_minute = x->per_minute;
    for (unsigned i = 0; i < x->n; i++)
        begin(x, i);
}

static void enter(struct run *x, unsigned i)
{
    struct conductor *c = &x->of[i];
    struct entry *e = &x->book.of[i];
    double in_book = e->known ? e->own : -1.0;

    limit_take(&x->book.all, 0.0, x->now_us);
    if (in_book < c->sent_told)
        x->book.all.taken = fmax(x->book.all.taken, c->sent_seen);
    if (in_book < c->sent_told || in_book > c->sent_own)
        in_book = c->sent_told;
    x->book.all.taken += c->sent_own - in_book;
    *e = (struct entry){true, c->sent_own, c->sent_open, x->now_us + LEASE_US};
    c->asks = x->book.all.taken;
    c->open = 0;
    for (unsigned k = 0; k < MOST; k++)
        if (x->book.of[k].until_us >= x->now_us)
            c->open += x->book.of[k].open;
        else
            x->book.of[k].known = false;
}

static void report(struct run *x, unsigned i)
{
    struct conductor *c = &x->of[i];
    int64_t now_us = x->now_us;

    c->polled_us = now_us;
    c->sent_seen = joint_seen(&c->key.asks, now_us);
    c->sent_own = c->key.asks.own;
    c->sent_told = c->key.asks.told;
    c->sent_open = c->key.open;
    joint_sent(&c->key, now_us);
    c->asking = true;
    c->entered = false;
    c->enters_us = now_us + random_below(&x->r, (uint32_t)x->trip_us / 2);
    c->told_us = c->enters_us + random_below(&x->r, (uint32_t)x->trip_us / 2);
}

/* What the way to the book does by itself. */
static void turn(struct run *x, unsigned i)
{
    struct conductor *c = &x->of[i];

    if (c->asking && !c->entered && x->now_us >= c->enters_us && !c->cut) {
        enter(x, i);
        c->entered = true;
    }
    if (c->asking && x->now_us >= c->told_us) {
        c->asking = false;
        if (c->entered && !c->cut) {
            joint_told(&c->key, c->asks, 0.0, c->open);
            c->heard_us = x->now_us;
        }
    }
    if (x->now_us - c->heard_us >= PATIENCE_US)
        joint_part(&c->key, x->now_us);
    if (!c->asking && (c->key.due || x->now_us - c->polled_us >= POLL_US))
        report(x, i);
}

static void count(struct run *x)
{
    uint32_t open = 0;

    for (unsigned i = 0; i < x->n; i++)
        open += x->of[i].key.open;
    if (open > x->most_open)
        x->most_open = open;
}

/* As service/tenant asks and enters. */
static bool ask(struct run *x, unsigned i)
{
    struct joint_key *k = &x->of[i].key;

    if (joint_asks_us(k, x->now_us))
        return false;
    joint_ask(k, x->now_us);
    limit_take(&x->record, 1.0, x->now_us);
    x->highest = fmax(x->highest, x->record.taken);
    x->let_in++;
    return true;
}

static void open_or_close(struct run *x, unsigned i)
{
    struct joint_key *k = &x->of[i].key;

    if (k->open > 0 && random_below(&x->r, 3) == 0)
        joint_open(k, k->open - 1);
    else if (joint_room(k) > 0)
        joint_open(k, k->open + 1);
    count(x);
}

/* So much may be in the record above the limit. */
static double slack(const struct run *x)
{
    double each = fmax(JOINT_FEW, x->per_minute / (4.0 * x->n));

    return x->n * each + x->per_minute * (double)x->trip_us / 60e6 + 1.0;
}

static double open_slack(const struct run *x)
{
    return x->n * fmax(JOINT_FEW, x->max_open / (4.0 * x->n));
}

/* Requests come at one conductor, at all in turn, or in bursts at some. */
static void traffic(struct run *x, unsigned kind, uint64_t step)
{
    unsigned tries = kind == 2 ? (random_below(&x->r, 400) ? 0 : 300) : 3;

    for (unsigned t = 0; t < tries; t++) {
        unsigned i = kind == 0   ? 0
                     : kind == 1 ? (unsigned)((step + t) % x->n)
                                 : random_below(&x->r, x->n);

        (void)ask(x, i);
        open_or_close(x, i);
    }
}

static void step(struct run *x, unsigned kind, uint64_t number)
{
    x->now_us += 1 + random_below(&x->r, 20000);
    for (unsigned i = 0; i < x->n; i++)
        turn(x, i);
    traffic(x, kind, number);
}

/* Whatever the order, with a book that only takes its time. */
static void test_never_above(void)
{
    static struct run x;

    for (uint32_t c = 0; c < cases_of(60); c++) {
        unsigned kind = c % 3;

        start(&x, SEED + c);
        for (uint64_t s = 0; s < 20000; s++)
            step(&x, kind, s);
        CU_ASSERT(x.highest <= x.per_minute + slack(&x));
        CU_ASSERT(x.most_open <= x.max_open + open_slack(&x));
    }
    printf("seed %d ", SEED);
}

/* One of several that gets all has nearly all of the limit, and not a client
 * that keeps to it is refused because others are there. */
static void test_one_has_all(void)
{
    static struct run x;

    for (uint32_t c = 0; c < cases_of(40); c++) {
        int64_t begun_us;
        double could;

        start(&x, SEED + c);
        begun_us = x.now_us;
        while (x.now_us - begun_us < 180 * (int64_t)SECOND_US)
            step(&x, 0, 0);
        could = x.per_minute * (1.0 + (double)(x.now_us - begun_us) / 60e6);
        /* No more than three a step were asked for. */
        could = fmin(could, 3.0 * 180e6 / 10000.0);
        CU_ASSERT((double)x.let_in >= 0.97 * could - 1.0);
    }
}

/* Conductors die, the book forgets, and nobody reaches it for a while. */
static void disturb(struct run *x, int64_t *back_us, unsigned *events)
{
    unsigned what = random_below(&x->r, 4000);

    if (*back_us && x->now_us >= *back_us) {
        for (unsigned i = 0; i < x->n; i++)
            x->of[i].cut = false;
        *back_us = 0;
    }
    if (what == 0) {
        begin(x, random_below(&x->r, x->n));
        (*events)++;
    } else if (what == 1) {
        x->book = (struct book){.all = {.per_minute = x->per_minute}};
        (*events)++;
    } else if (what == 2 && !*back_us) {
        for (unsigned i = 0; i < x->n; i++)
            x->of[i].cut = true;
        *back_us = x->now_us + 1 + random_below(&x->r, 20 * SECOND_US);
        (*events)++;
    }
}

static void test_losses(void)
{
    static struct run x;

    for (uint32_t c = 0; c < cases_of(60); c++) {
        unsigned kind = c % 3, events = 0;
        int64_t back_us = 0;

        start(&x, SEED + 1000 + c);
        for (uint64_t s = 0; s < 20000; s++) {
            disturb(&x, &back_us, &events);
            step(&x, kind, s);
        }
        /* Each loses at most what was ahead of the book. */
        CU_ASSERT(x.highest <= x.per_minute + (1 + events) * slack(&x));
    }
}

/* Without the book, all together have the limit, and one alone its share. */
static void test_alone(void)
{
    static struct run x;

    for (uint32_t c = 0; c < cases_of(30); c++) {
        int64_t begun_us;

        start(&x, SEED + c);
        begun_us = x.now_us;
        for (unsigned i = 0; i < x.n; i++)
            x.of[i].cut = true;
        while (x.now_us - begun_us < 180 * (int64_t)SECOND_US)
            step(&x, 1, 0);
        CU_ASSERT(x.highest <= x.per_minute + slack(&x));
        for (unsigned i = 0; i < x.n; i++)
            CU_ASSERT(x.of[i].key.alone);
    }
}

static void test_literal(void)
{
    struct joint_key k = {.number = 1,
                          .asks = {.per_minute = 60},
                          .tokens = {.per_minute = 600},
                          .max_open = 10,
                          .conductors = 3};

    CU_ASSERT(joint_has(&k));
    CU_ASSERT_EQUAL(joint_advance(60, 3), 5);
    CU_ASSERT_EQUAL(joint_advance(6, 3), 4);
    CU_ASSERT_EQUAL(joint_advance(2, 3), 4.0 / 3);
    CU_ASSERT_EQUAL(joint_advance(0.5, 3), 0.5);
    CU_ASSERT_EQUAL(joint_advance(-2, 3), -2);
    CU_ASSERT_EQUAL(joint_advance(60, 1), 60);
    for (int i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(joint_asks_us(&k, 0), 0);
        joint_ask(&k, 0);
    }
    CU_ASSERT_EQUAL(joint_asks_us(&k, 0), 20000);
    /* The book says that others have taken, too: 60 in all. */
    joint_sent(&k, 0);
    joint_told(&k, 60, 1200, 12);
    CU_ASSERT_EQUAL(joint_asks_us(&k, 0), 1000000);
    CU_ASSERT_EQUAL(joint_asks_us(&k, 1000000), 0);
    CU_ASSERT_EQUAL(joint_tokens_us(&k, 0), 60100000);
    CU_ASSERT_EQUAL(joint_room(&k), 0);
    joint_told(&k, 60, 0, 3);
    CU_ASSERT_EQUAL(joint_room(&k), 7);
    joint_open(&k, 1);
    CU_ASSERT_EQUAL(joint_room(&k), 3);
    /* A third of what is left: 30 of 60, of which it took 5 at once. */
    joint_part(&k, 30000000);
    for (int i = 0; i < 10; i++) {
        CU_ASSERT_EQUAL(joint_asks_us(&k, 30000000), 0);
        joint_ask(&k, 30000000);
    }
    CU_ASSERT_EQUAL(joint_asks_us(&k, 30000000), 3000000);
    CU_ASSERT_EQUAL(joint_room(&k), 3);
}

/* Another file: what was taken stays, the limits are its own. */
static void test_move(void)
{
    struct joint_key from = {
        .number = 1, .asks = {.per_minute = 60}, .conductors = 2};
    struct joint_key to = {.number = 1, .asks = {.per_minute = 6}};

    for (int i = 0; i < 6; i++)
        joint_ask(&from, 0);
    joint_move(&to, &from);
    CU_ASSERT_EQUAL(to.asks.own, 6);
    CU_ASSERT_EQUAL(to.conductors, 2);
    CU_ASSERT_EQUAL(joint_asks_us(&to, 0), 10000000);
}

static const struct suite_test tests[] = {
    {"literal", test_literal},         {"another file", test_move},
    {"never above", test_never_above}, {"one has all", test_one_has_all},
    {"losses", test_losses},           {"alone", test_alone},
};
SUITE("joint", tests)
