/* What every engine refuses, and engine "timed": its times add up and its
 * answers come from the KV. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "predictor/cost_model.h"
#include "tests/unit/engine_rig.h"
#include "tests/unit/invented_clock.h"
#include "tests/unit/model_facts.h"
#include "tests/unit/suite.h"
#include "traces/noise.h"

/* Tiny times: 100 tokens take 0.8 ms. */
static const struct cost_model cost = {
    .engine = "test",
    .prefill = {301.5, 3.1, 0.011, 0.023},
    .decode = {170.2, 11.7, 0.31},
};

static struct engine_config valid(void)
{
    return (struct engine_config){.kind = "timed",
                                  .shape = model_find("tiny"),
                                  .seed = 5,
                                  .block_tokens = 32,
                                  .cost = &cost};
}

static void expect_refused(const struct engine_config *config, const char *what)
{
    char err[200] = "";

    CU_ASSERT_PTR_NULL(engine_new(config, err, sizeof(err)));
    CU_ASSERT_EQUAL(strncmp(err, what, strlen(what)), 0);
}

static void test_config(void)
{
    struct engine_config c = valid();
    struct model_shape shape = *c.shape;

    c.kind = "gpu";
    expect_refused(&c, "engine: kind is gpu: must be cpu");
    c.kind = NULL;
    expect_refused(&c, "engine: kind is missing: must be cpu");
    c = valid();
    c.shape = NULL;
    expect_refused(&c, "engine: shape is missing");
    c = valid();
    c.block_tokens = 8;
    expect_refused(&c, "engine: block_tokens is 8: must be 16 to 512");
    c.block_tokens = 528;
    expect_refused(&c, "engine: block_tokens is 528: must be 16 to 512");
    c.block_tokens = 24;
    expect_refused(&c, "engine: block_tokens is 24: must be a multiple of 16");
    c = valid();
    c.layers = 5;
    expect_refused(&c, "engine: layers is 5: must be 1 to 4");
    c = valid();
    c.step_tokens = 16385;
    expect_refused(&c, "engine: step_tokens is 16385: must be 1 to 16384");
    c = valid();
    c.cost = NULL;
    expect_refused(&c, "timed: cost is missing: this engine takes its times "
                       "from a cost model");
    c = valid();
    c.shape = &shape;
    shape.kv_heads = 3;
    expect_refused(&c, "model: kv_heads is 3: must divide heads, 4");
    shape.kv_heads = 2;
    shape.head_dim = 12;
    c.kind = "cpu";
    expect_refused(&c, "cpu: head_dim is 12: must be a multiple of 8");
}

/* What a model needs is said without making it, however much it is. */
static void test_plan(void)
{
    struct engine_config c = valid();
    struct model_shape huge = *model_find("llama3-70b");
    struct engine_kv_layout layout;
    struct engine_needs needs;
    char err[200] = "";

    huge.layers = 100000;
    c.kind = "cpu";
    c.shape = &huge;
    CU_ASSERT_EQUAL(engine_plan(&c, &layout, &needs, err, sizeof(err)), 0);
    CU_ASSERT_EQUAL(needs.weights_bytes,
                    (uint64_t)(4 * model_weights(&huge, 100000)));
    CU_ASSERT(needs.step_bytes > 0);
    CU_ASSERT_EQUAL(layout.layers, 100000);
    c.block_tokens = 8;
    CU_ASSERT_EQUAL(engine_plan(&c, &layout, &needs, err, sizeof(err)),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "engine: block_tokens is 8: must be 16 to 512");
}

static struct engine *new_engine(const struct engine_config *c)
{
    char err[200];
    struct engine *e = engine_new(c, err, sizeof(err));

    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    return e;
}

static void test_layout(void)
{
    struct engine_config c = valid();
    struct engine *timed = new_engine(&c);

    c.kind = "cpu";
    c.layers = 3;
    c.block_tokens = 0;
    struct engine *cpu = new_engine(&c);
    const struct engine_kv_layout *l = engine_kv_layout(timed);
    CU_ASSERT_EQUAL(l->kv_row_bytes, 8);
    CU_ASSERT_EQUAL(l->block_bytes, 4 * 2 * 32 * 8);
    CU_ASSERT_EQUAL(l->step_tokens, 512);
    CU_ASSERT_NOT_EQUAL(l->fingerprint, engine_kv_layout(cpu)->fingerprint);
    l = engine_kv_layout(cpu);
    CU_ASSERT_EQUAL(l->layers, 3);
    CU_ASSERT_EQUAL(l->kv_row_bytes, 2 * 32 * 4);
    CU_ASSERT_EQUAL(l->block_bytes, 3 * 2 * 256 * 256);
    CU_ASSERT(engine_simulates(timed));
    CU_ASSERT_FALSE(engine_simulates(cpu));
    CU_ASSERT_STRING_EQUAL(engine_kind(timed), "timed");
    engine_free(timed);
    engine_free(cpu);
    engine_free(NULL);
}

static void test_bounds(void)
{
    struct engine_config c = valid();

    c.step_tokens = 20;
    struct engine *e = new_engine(&c);
    struct rig_request r;
    uint32_t prompt[40] = {0};

    rig_init(&r, e, prompt, 40, 1);
    const struct engine_segment good = rig_segment(&r, 15);
    struct engine_segment s[2] = {good, good};
    CU_ASSERT_EQUAL(engine_step(e, s, 0, NULL, NULL, NULL), -EINVAL);
    CU_ASSERT_EQUAL(engine_step(e, s, 2, NULL, NULL, NULL), -EINVAL);
    s[0].n_tokens = 0;
    CU_ASSERT_EQUAL(engine_step(e, s, 1, NULL, NULL, NULL), -EINVAL);
    s[0].n_tokens = 21;
    CU_ASSERT_EQUAL(engine_step(e, s, 1, NULL, NULL, NULL), -EINVAL);
    s[0] = good;
    s[0].position = c.shape->window_tokens - 14;
    CU_ASSERT_EQUAL(engine_step(e, s, 1, NULL, NULL, NULL), -EINVAL);
    s[0].position = UINT32_MAX;
    CU_ASSERT_EQUAL(engine_step(e, s, 1, NULL, NULL, NULL), -EINVAL);
    s[0] = good;
    s[0].cached_tokens = 1;
    CU_ASSERT_EQUAL(engine_step(e, s, 1, NULL, NULL, NULL), -EINVAL);
    r.tokens[14] = 512;
    s[0] = good;
    CU_ASSERT_EQUAL(engine_step(e, s, 1, NULL, NULL, NULL), -EINVAL);
    r.tokens[14] = 511;
    CU_ASSERT_EQUAL(engine_step(e, s, 1, NULL, NULL, NULL), 0);
    rig_fini(&r);
    engine_free(e);
}

/* The chunks of one prompt behind a cached prefix: together T(u, p), which is
 * well below half of what they would cost as prompts of their own (86 times c0
 * is 26 ms), and 86 late wake-ups do not add up. */
static void test_chunks_add_up(void)
{
    enum { LATE_US = 400 };
    struct engine_config c = valid();
    struct engine *e = new_engine(&c);
    struct rig_request r;
    uint32_t prompt[900] = {0};
    const uint32_t cached = 300;
    int64_t want_us = cost_model_prefill_us(&cost, 600, cached, NULL);

    rig_init(&r, e, prompt, 900, 1);
    struct engine_segment s = rig_segment(&r, cached);
    CU_ASSERT_EQUAL(engine_step(e, &s, 1, NULL, NULL, NULL), 0);
    rig_take(&r, &s);
    /* Long enough for the engine to count as idle. */
    invented_clock_pass(clock_now_us() + 2000);
    int64_t start_us = clock_now_us();
    invented_clock_oversleep(LATE_US);
    while (r.done < 900) {
        s = rig_segment(&r, 900 - r.done < 7 ? 900 - r.done : 7);
        s.cached_tokens = cached;
        CU_ASSERT_EQUAL(engine_step(e, &s, 1, NULL, NULL, NULL), 0);
        rig_take(&r, &s);
    }
    invented_clock_oversleep(0);
    int64_t took_us = clock_now_us() - start_us;
    CU_ASSERT(took_us >= want_us && took_us <= want_us + LATE_US);
    rig_fini(&r);
    engine_free(e);
}

/* A step that decodes and computes a chunk reads the weights once. */
static void test_mixed_time(void)
{
    struct engine_config c = valid();
    struct engine *e = new_engine(&c);
    struct rig_request r[2];
    struct engine_segment s[2];
    uint32_t prompt[100] = {0};
    int64_t chunk_us = cost_model_prefill_us(&cost, 100, 0, NULL);
    int64_t alone_us =
        chunk_us + cost_model_decode_step_us(&cost, 1, 100, NULL);
    int64_t want_us = alone_us - cost_model_mixed_saves_us(&cost, chunk_us);

    CU_ASSERT_EQUAL(alone_us - want_us, 170);
    for (int i = 0; i < 2; i++) {
        rig_init(&r[i], e, prompt, 100, 1);
        for (uint32_t b = 0; b < 4; b++)
            memset(r[i].blocks[b], 0, r[i].layout->block_bytes);
    }
    r[0].done = r[0].n_prompt = 99;
    s[0] = rig_segment(&r[0], 1);
    s[1] = rig_segment(&r[1], 100);
    CU_ASSERT(s[0].decode && !s[1].decode);
    int64_t start_us = clock_now_us();
    CU_ASSERT_EQUAL(engine_step(e, s, 2, NULL, NULL, NULL), 0);
    CU_ASSERT_EQUAL(clock_now_us() - start_us, want_us);
    for (int i = 0; i < 2; i++)
        rig_fini(&r[i]);
    engine_free(e);
}

/* A slow engine, and a request that takes longer than the cost model says: the
 * same factor in each of its chunks. */
static void test_errors(void)
{
    struct engine_config c = valid();
    uint32_t prompt[100] = {0};
    uint64_t id = 0;

    c.speed = 0.5;
    c.prefill_sigma = 0.5;
    while (noise_factor(c.seed, id, NOISE_PREFILL, 0.5) < 1.5)
        id++;
    double factor = noise_factor(c.seed, id, NOISE_PREFILL, 0.5) / 0.5;
    struct engine *e = new_engine(&c);
    struct rig_request r;
    int64_t start_us = clock_now_us();

    rig_init(&r, e, prompt, 100, 1);
    for (int chunk = 0; chunk < 2; chunk++) {
        struct engine_segment s = rig_segment(&r, 50);

        s.request_id = id;
        CU_ASSERT_EQUAL(engine_step(e, &s, 1, NULL, NULL, NULL), 0);
        rig_take(&r, &s);
    }
    int64_t took_us = clock_now_us() - start_us;
    CU_ASSERT((double)took_us >=
              factor * (double)cost_model_prefill_us(&cost, 100, 0, NULL) - 2);
    rig_fini(&r);
    engine_free(e);
}

/* Decoding costs once per step, whatever the number of segments says. */
static void test_decode_time(void)
{
    struct engine_config c = valid();
    struct engine *e = new_engine(&c);
    struct rig_request r[8];
    struct engine_segment s[8];
    uint32_t prompt[100] = {0};
    int64_t want_us = 10 * cost_model_decode_step_us(&cost, 8, 8 * 100, NULL);

    for (int i = 0; i < 8; i++) {
        rig_init(&r[i], e, prompt, 100, 1);
        r[i].done = 99;
        r[i].n_prompt = 99;
        for (uint32_t b = 0; b < 4; b++)
            memset(r[i].blocks[b], 0, r[i].layout->block_bytes);
        s[i] = rig_segment(&r[i], 1);
        CU_ASSERT(s[i].decode);
    }
    int64_t start_us = clock_now_us();
    for (int i = 0; i < 10; i++)
        CU_ASSERT_EQUAL(engine_step(e, s, 8, NULL, NULL, NULL), 0);
    CU_ASSERT_EQUAL(clock_now_us() - start_us, want_us);
    for (int i = 0; i < 8; i++)
        rig_fini(&r[i]);
    engine_free(e);
}

/* Wrong KV in the middle shows too, where all rows behind it are right: the
 * last decode steps of `r` again, without the KV of tokens 64 to 127. */
static void check_inner_block(struct engine *e, struct rig_request *r)
{
    uint32_t differ = 0;

    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 6; i++) {
            r->done = 200 + i;
            struct engine_segment s = rig_segment(r, 1);
            s.want_token = true;
            CU_ASSERT_EQUAL(engine_step(e, &s, 1, NULL, NULL, NULL), 0);
            if (round == 0)
                CU_ASSERT_EQUAL(s.token_out, r->tokens[201 + i]);
            differ += s.token_out != r->tokens[201 + i];
        }
        memset(r->blocks[2], 0, r->layout->block_bytes);
        memset(r->blocks[3], 0, r->layout->block_bytes);
    }
    CU_ASSERT(differ >= 4);
}

/* Same KV however it was cut, and another answer from other KV. */
static void test_timed_kv(void)
{
    uint64_t state = rig_seed("timed");
    struct engine_config c = valid();
    struct engine *e = new_engine(&c);
    struct rig_request a;
    struct rig_request b;
    uint32_t prompt[200];
    int differ = 0;

    c.block_tokens = 64;
    struct engine *other = new_engine(&c);
    for (int i = 0; i < 200; i++)
        prompt[i] = rig_random(&state, 256);
    rig_init(&a, e, prompt, 200, 8);
    rig_init(&b, other, prompt, 200, 8);
    CU_ASSERT_EQUAL(rig_run(e, &a, 512, 8), 0);
    CU_ASSERT_EQUAL(rig_run(other, &b, 1 + rig_random(&state, 90), 8), 0);
    CU_ASSERT_EQUAL(rig_kv_differs(&a, &b, b.done), 0);
    CU_ASSERT_EQUAL(memcmp(a.tokens, b.tokens, sizeof(uint32_t) * 208), 0);
    rig_fini(&b);

    for (int round = 0; round < 20; round++) {
        rig_init(&b, other, prompt, 200, 8);
        b.tokens[rig_random(&state, 128)] ^= 1;
        CU_ASSERT_EQUAL(rig_run(other, &b, 512, 1), 0);
        rig_copy_kv(&b, &b, 192);
        b.n_tokens = 200;
        memcpy(b.tokens, prompt, sizeof(prompt));
        CU_ASSERT_EQUAL(rig_run(other, &b, 512, 8), 0);
        for (uint32_t i = 200; i < 208; i++)
            CU_ASSERT(b.tokens[i] >= 32 && b.tokens[i] <= 126);
        differ += memcmp(a.tokens + 200, b.tokens + 200, 32) != 0;
        rig_fini(&b);
    }
    CU_ASSERT_EQUAL(differ, 20);
    check_inner_block(e, &a);
    rig_fini(&a);
    engine_free(e);
    engine_free(other);
}

static void test_timed_abort(void)
{
    static const struct cost_model slow = {.prefill = {3600e6, 0, 0, 0}};
    struct engine_config c = valid();
    atomic_bool stop = true;
    struct rig_request r;
    uint32_t prompt[4] = {0};

    c.cost = &slow;
    struct engine *e = new_engine(&c);
    rig_init(&r, e, prompt, 4, 1);
    struct engine_segment s = rig_segment(&r, 4);
    CU_ASSERT_EQUAL(engine_step(e, &s, 1, NULL, NULL, &stop), -ECANCELED);
    rig_fini(&r);
    engine_free(e);
}

static const struct suite_test tests[] = {
    {"bad configurations", test_config},
    {"plan", test_plan},
    {"layout", test_layout},
    {"bounds of a step", test_bounds},
    {"timed: chunks add up", test_chunks_add_up},
    {"timed: speed and errors", test_errors},
    {"timed: decode steps", test_decode_time},
    {"timed: mixed steps", test_mixed_time},
    {"timed: answers come from KV", test_timed_kv},
    {"timed: abort", test_timed_abort},
};
SUITE("engine", tests)
