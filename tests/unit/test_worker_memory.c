/* Weights and KV together against the memory of a machine. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/model_facts.h"
#include "tests/unit/suite.h"
#include "workers/memory.h"

#define GIB (1ull << 30)

/* llama3-8b with 4 layers on engine "cpu", as the options say. */
struct asked {
    struct worker_options o;
    struct engine_kv_layout layout;
    struct engine_needs needs;
    char err[512];
};

static void ask(struct asked *a, const char *engine, uint32_t layers)
{
    *a = (struct asked){.o = {.model = "llama3-8b", .layers = layers}};
    const struct engine_config c = {
        .kind = engine, .shape = model_find("llama3-8b"), .layers = layers};

    CU_ASSERT_EQUAL_FATAL(
        engine_plan(&c, &a->layout, &a->needs, a->err, sizeof(a->err)), 0);
}

static int check(struct asked *a, uint64_t machine_bytes)
{
    a->err[0] = '\0';
    return worker_memory_check(&a->o, &a->layout, &a->needs, machine_bytes,
                               a->err, sizeof(a->err));
}

static void says(const struct asked *a, const char *what)
{
    CU_ASSERT_PTR_NOT_NULL(strstr(a->err, what));
    if (!strstr(a->err, what))
        printf("\n    %s\n    has no %s\n", a->err, what);
}

/* The plan counts the numbers that a step reads, 4 bytes each. */
static void test_plan(void)
{
    struct asked a;

    ask(&a, "cpu", 4);
    CU_ASSERT_EQUAL(a.needs.weights_bytes,
                    (uint64_t)(4 * model_weights(model_find("llama3-8b"), 4)));
    CU_ASSERT(a.needs.step_bytes > 0);
    CU_ASSERT_EQUAL(a.layout.layers, 4);
    CU_ASSERT_EQUAL(a.layout.block_bytes, 4ull * 2 * 256 * 8 * 128 * 4);
    ask(&a, "timed", 0);
    CU_ASSERT_EQUAL(a.needs.weights_bytes + a.needs.step_bytes, 0);
    CU_ASSERT_EQUAL(a.layout.layers, 32);
}

/* Each fits alone, together they do not. */
static void test_sum(void)
{
    struct asked a;

    ask(&a, "cpu", 4);
    a.o.kv_mib = 23000;
    uint64_t rest = a.needs.weights_bytes + a.needs.step_bytes;
    CU_ASSERT(rest < 23 * GIB && 23000ull << 20 < 23 * GIB);
    CU_ASSERT_EQUAL(check(&a, 23 * GIB), -ENOMEM);
    says(&a, "model llama3-8b with 4 layers needs 3.3 GiB for weights");
    says(&a, "22.5 GiB for KV blocks");
    says(&a, "this machine has 23.0 GiB");
    says(&a, "--kv-mib of at most");
    says(&a, "--layers N");
    CU_ASSERT_EQUAL(check(&a, 0), 0);
    CU_ASSERT_EQUAL(check(&a, rest + (23000ull << 20)), 0);
    CU_ASSERT_EQUAL(check(&a, rest + (23000ull << 20) - 1), -ENOMEM);
    says(&a, "--kv-mib of at most 22999,");
}

static void test_blocks(void)
{
    struct asked a;

    ask(&a, "cpu", 4);
    a.o.kv_blocks = 1000;
    uint64_t rest = a.needs.weights_bytes + a.needs.step_bytes;
    CU_ASSERT_EQUAL(worker_memory_blocks(&a.o, &a.layout), 1000);
    CU_ASSERT_EQUAL(check(&a, rest + 1000 * a.layout.block_bytes), 0);
    CU_ASSERT_EQUAL(check(&a, rest + 999 * a.layout.block_bytes), -ENOMEM);
    says(&a, "--kv-blocks of at most 999,");
    /* No size of the KV would help. */
    CU_ASSERT_EQUAL(check(&a, rest), -ENOMEM);
    says(&a, "take fewer --layers N, or a smaller --model");
    a.o.profile = "file";
    CU_ASSERT_EQUAL(check(&a, rest), 0);
    CU_ASSERT_EQUAL(check(&a, rest - 1), -ENOMEM);
}

static void test_one_block(void)
{
    struct asked a;

    ask(&a, "cpu", 4);
    a.o.kv_mib = 7;
    CU_ASSERT_EQUAL(check(&a, 23 * GIB), -EINVAL);
    says(&a, "--kv-mib 7: one block of 256 tokens needs 8.0 MiB");
    ask(&a, "cpu", 32);
    a.o.kv_mib = 512;
    /* One of 64 MiB is longer than a frame, and moves in parts. */
    CU_ASSERT_EQUAL(check(&a, 100 * GIB), 0);
}

static const struct suite_test tests[] = {
    {"plan", test_plan},
    {"sum", test_sum},
    {"blocks", test_blocks},
    {"one block", test_one_block},
};
SUITE("worker_memory", tests)
