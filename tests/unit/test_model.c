/* Shapes: the table against published numbers, checks and fingerprints. */
#include <errno.h>
#include <string.h>

#include "tests/unit/model_facts.h"
#include "tests/unit/suite.h"
#include "workers/engine/engine.h"
#include "workers/engine/model.h"

/* KV per token of the table in the Cake paper, 2 bytes a number. */
static void test_kv_bytes(void)
{
    CU_ASSERT_EQUAL(model_kv_bytes_per_token(model_find("llama3-8b"), 2),
                    128 * 1024);
    CU_ASSERT_EQUAL(model_kv_bytes_per_token(model_find("llama3-70b"), 2),
                    320 * 1024);
    CU_ASSERT_EQUAL(model_kv_bytes_per_token(model_find("longalpaca-7b"), 2),
                    512 * 1024);
    CU_ASSERT_EQUAL(model_kv_bytes_per_token(model_find("longalpaca-13b"), 2),
                    819200);
    CU_ASSERT_EQUAL(model_kv_bytes_per_token(model_find("tiny"), 4), 2048);
}

static void test_table(void)
{
    char names[128];
    char err[128];
    char cut[8];

    for (size_t i = 0; model_at(i); i++) {
        const struct model_shape *s = model_at(i);

        CU_ASSERT_PTR_EQUAL(model_find(s->name), s);
        CU_ASSERT_EQUAL(model_check(s, err, sizeof(err)), 0);
        CU_ASSERT_PTR_NOT_NULL(
            strstr(model_names(names, sizeof(names)), s->name));
    }
    CU_ASSERT_PTR_NULL(model_find("tin"));
    CU_ASSERT_STRING_EQUAL(model_names(cut, sizeof(cut)), "tiny, l");
}

static void test_check(void)
{
    char err[128];
    struct model_shape s = *model_find("tiny");

    s.kv_heads = 3;
    CU_ASSERT_EQUAL(model_check(&s, err, sizeof(err)), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "model: kv_heads is 3: must divide heads, 4");
    s = *model_find("tiny");
    s.head_dim = 31;
    CU_ASSERT_EQUAL(model_check(&s, err, sizeof(err)), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "model: head_dim is 31: must be even");
    s = *model_find("tiny");
    s.layers = 0;
    CU_ASSERT_EQUAL(model_check(&s, err, sizeof(err)), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "model: layers is 0: must be 1 to 2^24");
    s = *model_find("tiny");
    s.vocab = 126;
    CU_ASSERT_EQUAL(model_check(&s, err, sizeof(err)), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "model: vocab is 126: must be above 126");
}

/* 2 x 8.03 G less the embeddings (2 x 128256 x 4096), as published; attention
 * apart by the difference between two places. */
static void test_work(void)
{
    const struct model_shape *s = model_find("llama3-8b");
    double weights = model_weights(s, 32);
    double first = model_prefill_flops(s, 32, 0, 1);
    double later = model_prefill_flops(s, 32, 1000, 1001);

    CU_ASSERT_DOUBLE_EQUAL(weights, 8.03e9 - 2 * 128256.0 * 4096, 0.01e9);
    CU_ASSERT_DOUBLE_EQUAL(later - first, 32 * 4 * 4096.0 * 1000, 1);
    CU_ASSERT_DOUBLE_EQUAL(first, 2 * (weights - 4096 * 95.0) + 32 * 4 * 4096.0,
                           1);
    CU_ASSERT_DOUBLE_EQUAL(model_prefill_flops(s, 32, 0, 100) +
                               model_prefill_flops(s, 32, 100, 300),
                           model_prefill_flops(s, 32, 0, 300), 1e3);
}

static void test_fingerprint(void)
{
    struct model_shape s = *model_find("tiny");
    uint64_t base = model_fingerprint(&s, 4, 7, MODEL_FLOAT32);

    s.name = "other";
    CU_ASSERT_EQUAL(model_fingerprint(&s, 4, 7, MODEL_FLOAT32), base);
    CU_ASSERT_NOT_EQUAL(model_fingerprint(&s, 3, 7, MODEL_FLOAT32), base);
    CU_ASSERT_NOT_EQUAL(model_fingerprint(&s, 4, 8, MODEL_FLOAT32), base);
    CU_ASSERT_NOT_EQUAL(
        model_fingerprint(&s, 4, 7 + (UINT64_C(1) << 40), MODEL_FLOAT32), base);
    CU_ASSERT_NOT_EQUAL(model_fingerprint(&s, 4, 7, MODEL_HASH64), base);
    s.ffn++;
    CU_ASSERT_NOT_EQUAL(model_fingerprint(&s, 4, 7, MODEL_FLOAT32), base);
}

static void test_kv_row(void)
{
    const struct engine_kv_layout l = {
        .layers = 3, .block_tokens = 16, .kv_row_bytes = 8};
    char block[3 * 2 * 16 * 8];

    CU_ASSERT_PTR_EQUAL(engine_kv_row(&l, block, 0, ENGINE_K, 0), block);
    CU_ASSERT_PTR_EQUAL(engine_kv_row(&l, block, 0, ENGINE_K, 1), block + 8);
    CU_ASSERT_PTR_EQUAL(engine_kv_row(&l, block, 0, ENGINE_V, 0),
                        block + 16 * 8);
    CU_ASSERT_PTR_EQUAL(engine_kv_row(&l, block, 2, ENGINE_V, 15),
                        block + sizeof(block) - 8);
}

static const struct suite_test tests[] = {
    {"KV bytes as published", test_kv_bytes},
    {"table", test_table},
    {"check", test_check},
    {"weights and operations", test_work},
    {"fingerprint", test_fingerprint},
    {"KV row addresses", test_kv_row},
};
SUITE("model", tests)
