/* What the figures of the benches are made with: medians, sheets, the merge
 * without loss. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/cake_run.h"
#include "tests/unit/suite.h"

#define BT CAKE_BLOCK_TOKENS

static void test_median(void)
{
    double odd[] = {5, 1, 3};
    double even[] = {4, 1, 2, 8};
    double one[] = {7};

    CU_ASSERT_DOUBLE_EQUAL(bench_median(odd, 3), 3, 0);
    CU_ASSERT_DOUBLE_EQUAL(bench_median(even, 4), 3, 0);
    CU_ASSERT_DOUBLE_EQUAL(bench_median(one, 1), 7, 0);
}

static void test_sheet(void)
{
    static struct sheet s;
    char *json = NULL;
    char *table = NULL;
    size_t bytes;
    FILE *out = open_memstream(&table, &bytes);

    sheet_fact(&s, "model", "first");
    sheet_fact_number(&s, "layers", 4, 0);
    sheet_fact(&s, "model", "a \"b\"\n");
    for (int i = 0; i < 2; i++) {
        sheet_text(&s, "way", i ? "up" : "down");
        sheet_number(&s, "share", i ? 0.25 : (double)NAN, 3);
        sheet_end_row(&s, out);
    }
    s.left_out = 3;
    fclose(out);
    CU_ASSERT_STRING_EQUAL(table, "      way      share\n"
                                  "     down          -\n"
                                  "       up      0.250\n");
    out = open_memstream(&json, &bytes);
    CU_ASSERT_EQUAL(sheet_write_json(&s, "x", out), 0);
    fclose(out);
    CU_ASSERT_STRING_EQUAL(
        json, "{\"bench\": \"x\",\n \"facts\": {\"model\": \"a \\\"b\\\"\", "
              "\"layers\": 4},\n \"rows\": [\n"
              "  {\"way\": \"down\", \"share\": null},\n"
              "  {\"way\": \"up\", \"share\": 0.250}],\n \"left_out\": 3}\n");
    free(json);
    free(table);
}

/* More rows than fit are counted and spoil nothing. */
static void test_sheet_full(void)
{
    static struct sheet s;
    FILE *out = fopen("/dev/null", "w");

    for (int i = 0; i < SHEET_MAX_ROWS + 2; i++) {
        sheet_number(&s, "i", i, 0);
        sheet_end_row(&s, out);
    }
    fclose(out);
    CU_ASSERT_EQUAL(s.n_rows, SHEET_MAX_ROWS);
    CU_ASSERT_EQUAL(s.left_out, 2);
    CU_ASSERT_STRING_EQUAL(s.cells[SHEET_MAX_ROWS - 1][0].text, "255");
}

/* Steps of 256 tokens that take 100 + 0.01 position us. */
static void test_learn(void)
{
    static struct cake_computed computed;
    struct cake c = {.n_tokens = 8 * 256 + 100, .budget = 256};

    for (uint32_t i = 0; i < 9; i++)
        computed.step_us[i] = 1000 + 0.1 * 256 * i;
    computed.step_us[8] = 5; /* not a whole step: does not count */
    cake_learn(&c, &computed);
    for (uint32_t i = 0; i < 8; i++)
        CU_ASSERT_DOUBLE_EQUAL(
            cost_model_prefill_us(&c.cost, 256, 256 * i, NULL),
            computed.step_us[i], 1);
    /* A run costs what its steps cost. */
    CU_ASSERT_DOUBLE_EQUAL(cost_model_prefill_us(&c.cost, 1024, 256, NULL),
                           computed.step_us[1] + computed.step_us[2] +
                               computed.step_us[3] + computed.step_us[4],
                           1);
}

static void test_learn_little(void)
{
    static struct cake_computed computed = {.us = 300, .step_us = {300}};
    struct cake c = {.n_tokens = 150, .budget = 256};

    cake_learn(&c, &computed);
    CU_ASSERT_DOUBLE_EQUAL(cost_model_prefill_us(&c.cost, 150, 0, NULL), 300,
                           1);
}

/* Four blocks that load in 5 each and compute in 10 each, 10 for the suffix. */
static void test_ideal(void)
{
    static struct cake_computed computed = {.n_steps = 5, .us = 50};
    static struct cake_loaded loaded = {.us = 30, .suffix_us = 10};
    struct cake c = {.n_tokens = 5 * BT, .budget = BT};

    for (uint32_t i = 0; i < 5; i++)
        computed.step_us[i] = 10;
    for (uint32_t i = 0; i < 4; i++)
        loaded.arrived_us[i] = 5 * (i + 1);
    CU_ASSERT_EQUAL(cake_blocks(&c), 4);
    /* One computed, three loaded. */
    CU_ASSERT_DOUBLE_EQUAL(cake_ideal_us(&c, &computed, &loaded), 25, 1e-9);
    /* Two blocks a step: time within it passes evenly. */
    c.budget = 2 * BT;
    computed = (struct cake_computed){.us = 50, .step_us = {20, 20, 10}};
    CU_ASSERT_DOUBLE_EQUAL(cake_ideal_us(&c, &computed, &loaded), 25, 1e-9);
    /* A single resource that is better than any merge. */
    computed.us = 12;
    CU_ASSERT_DOUBLE_EQUAL(cake_ideal_us(&c, &computed, &loaded), 12, 1e-9);
    computed.us = 50;
    loaded.us = 11;
    CU_ASSERT_DOUBLE_EQUAL(cake_ideal_us(&c, &computed, &loaded), 11, 1e-9);
}

/* What was measured is in the file after every row. */
static void test_json_by_row(void)
{
    char name[] = "/tmp/test_gpu_rig-XXXXXX";
    static struct bench b = {.name = "x"};
    char text[400];

    CU_ASSERT_FATAL(close(mkstemp(name)) == 0);
    b.options.json = name;
    for (int i = 1; i < 3; i++) {
        sheet_number(&b.sheet, "n", i, 0);
        bench_end_row(&b);
        FILE *in = fopen(name, "r");
        CU_ASSERT_PTR_NOT_NULL_FATAL(in);
        text[fread(text, 1, sizeof(text) - 1, in)] = '\0';
        fclose(in);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "{\"n\": 1}"));
        CU_ASSERT_EQUAL(!strstr(text, "{\"n\": 2}"), i != 2);
    }
    CU_ASSERT_EQUAL(remove(name), 0);
}

static const struct suite_test tests[] = {
    {"median", test_median},
    {"sheet", test_sheet},
    {"full sheet", test_sheet_full},
    {"JSON by row", test_json_by_row},
    {"learn", test_learn},
    {"learn from less than a step", test_learn_little},
    {"ideal", test_ideal},
};
SUITE("gpu_rig", tests)
