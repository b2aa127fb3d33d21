/* What a load asked for and what came, against a plain table: random sources
 * that take what comes next, bring it in any order, fail, and blocks that are
 * given to the engine meanwhile. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "workers/load/units.h"

#define CASES 3000
#define STEPS 200
#define MOST_BLOCKS 80u
#define MOST_LAYERS 5u

/* One unit in the table, in the order in which they are asked for. */
struct plain_unit {
    uint32_t b;
    uint32_t layer;
    enum load_unit state;
};

struct plain {
    struct load_units u;
    struct plain_unit units[MOST_BLOCKS * MOST_LAYERS];
    uint32_t n;
    uint32_t first, end; /* blocks */
    uint32_t layers;     /* by layers; else 1 */
    uint64_t rng;
};

static uint32_t any(struct plain *p, uint32_t below)
{
    return draw_below(&p->rng, below);
}

static void begin(struct plain *p)
{
    bool by_layer = any(p, 2);
    uint32_t n = 1 + any(p, MOST_BLOCKS);
    uint32_t layers = 1 + any(p, MOST_LAYERS);

    p->first = any(p, n);
    p->end = n;
    p->layers = by_layer ? layers : 1;
    p->n = 0;
    CU_ASSERT_EQUAL_FATAL(load_units_init(&p->u, n, layers, by_layer), 0);
    load_units_begin(&p->u, p->first);
    for (uint32_t layer = 0; layer < p->layers; layer++)
        for (uint32_t i = p->first; i < n; i++)
            p->units[p->n++] = (struct plain_unit){
                .b = by_layer ? i : n - 1 - (i - p->first), .layer = layer};
}

static uint32_t plain_next(const struct plain *p, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->units[i].state == UNIT_WANTED && p->units[i].b >= from &&
            p->units[i].b < to)
            return i;
    return LOAD_UNIT_NONE;
}

static uint32_t plain_count(const struct plain *p, uint32_t b,
                            enum load_unit state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n; i++)
        n += p->units[i].b == b && p->units[i].state == state;
    return n;
}

static uint32_t plain_gate(const struct plain *p, uint32_t end)
{
    uint32_t gate = p->layers;

    for (uint32_t i = 0; i < p->n; i++)
        if (p->units[i].b < end && p->units[i].state != UNIT_CAME &&
            p->units[i].layer < gate)
            gate = p->units[i].layer;
    return gate;
}

static void check(struct plain *p)
{
    uint32_t n[3] = {0, 0, 0};

    for (uint32_t i = 0; i < p->n; i++) {
        CU_ASSERT_EQUAL(load_units_block(&p->u, i), p->units[i].b);
        n[p->units[i].state]++;
    }
    CU_ASSERT_EQUAL(p->u.n_came, n[UNIT_CAME]);
    CU_ASSERT_EQUAL(p->u.n_asked, n[UNIT_ASKED] + n[UNIT_CAME]);
    uint32_t b = p->first + any(p, p->end - p->first);
    for (int s = UNIT_WANTED; s <= UNIT_CAME; s++)
        CU_ASSERT_EQUAL(load_units_count(&p->u, b, (enum load_unit)s),
                        plain_count(p, b, (enum load_unit)s));
    uint32_t from = any(p, p->end + 1);
    uint32_t to = any(p, p->end + 2);
    CU_ASSERT_EQUAL(load_units_next(&p->u, from, to), plain_next(p, from, to));
    CU_ASSERT_EQUAL(load_units_gate(&p->u, p->end), plain_gate(p, p->end));
}

/* Asks for what is next, or lets something happen to what was asked for. */
static void step(struct plain *p)
{
    uint32_t unit = load_units_next(&p->u, p->first, p->end);

    if (unit == LOAD_UNIT_NONE || any(p, 2)) {
        unit = any(p, p->n);
        if (p->units[unit].state != UNIT_ASKED)
            return;
        p->units[unit].state = any(p, 6) ? UNIT_CAME : UNIT_WANTED;
    } else {
        p->units[unit].state = UNIT_ASKED;
    }
    load_units_set(&p->u, unit, p->units[unit].state);
}

/* A block gets other memory. */
static void replace(struct plain *p)
{
    uint32_t b = p->first + any(p, p->end - p->first);

    load_units_forget(&p->u, b);
    for (uint32_t i = 0; i < p->n; i++)
        if (p->units[i].b == b)
            p->units[i].state = UNIT_WANTED;
}

static void test_random(void)
{
    struct plain p = {.rng = cases_seed((uint64_t)time(NULL))};

    for (uint32_t i = 0; i < cases_of(CASES); i++) {
        begin(&p);
        for (uint32_t k = any(&p, STEPS); k > 0; k--) {
            step(&p);
            if (any(&p, 20) == 0)
                replace(&p);
            check(&p);
        }
        load_units_fini(&p.u);
    }
}

/* The end is cut off: a layer is there when the blocks in front have it. */
static void test_cut(void)
{
    struct load_units u;

    CU_ASSERT_EQUAL_FATAL(load_units_init(&u, 4, 2, true), 0);
    load_units_begin(&u, 1);
    load_units_set(&u, 0, UNIT_CAME);
    CU_ASSERT_EQUAL(load_units_gate(&u, 4), 0);
    CU_ASSERT_EQUAL(load_units_gate(&u, 2), 1);
    load_units_set(&u, 3, UNIT_CAME);
    CU_ASSERT_EQUAL(load_units_gate(&u, 2), 2);
    load_units_fini(&u);
}

static const struct suite_test tests[] = {
    {"random", test_random},
    {"cut", test_cut},
};
SUITE("load_units", tests)
