/* What an engine asks and tells layer by layer, for every kind that needs no
 * card: it waits for the rows in front of a segment before it reads them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "predictor/cost_model.h"
#include "tests/unit/engine_rig.h"
#include "tests/unit/invented_clock.h"
#include "tests/unit/suite.h"

#define PROMPT 100u
#define PREFIX 64u

/* A step of 36 tokens takes 40 ms. */
static const struct cost_model cost = {
    .engine = "test",
    .prefill = {40e3, 0, 0, 0},
    .decode = {100, 0, 0},
};

static struct engine *new_engine(const char *kind)
{
    struct engine_config c = {.kind = kind,
                              .shape = model_find("tiny"),
                              .seed = 3,
                              .block_tokens = 16,
                              .cost = &cost};
    char err[200];
    struct engine *e = engine_new(&c, err, sizeof(err));

    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    return e;
}

/* A prompt that was computed, and the same whose prefix is on its way: a wait
 * for a layer brings this layer of the prefix and no other. */
struct late {
    struct rig_request whole;
    struct rig_request part;
    uint32_t waits;
    uint32_t dones;
    uint32_t fail_at; /* the wait for this layer fails; UINT32_MAX: none */
    int64_t start_us; /* layer l is there at start + (l + 1) x each */
    int64_t each_us;
};

static int bring_layer(void *arg, size_t segment, uint32_t layer)
{
    struct late *late = arg;
    const struct engine_kv_layout *l = late->part.layout;
    size_t bytes = 2 * (size_t)l->block_tokens * l->kv_row_bytes;

    CU_ASSERT_EQUAL(segment, 0);
    CU_ASSERT_EQUAL(layer, late->waits);
    CU_ASSERT(late->dones <= layer + 1);
    late->waits++;
    if (layer == late->fail_at)
        return -ENOENT;
    invented_clock_pass(late->start_us + (layer + 1) * late->each_us);
    for (uint32_t b = 0; b < PREFIX / l->block_tokens; b++)
        memcpy(engine_kv_row(l, late->part.blocks[b], layer, ENGINE_K, 0),
               engine_kv_row(l, late->whole.blocks[b], layer, ENGINE_K, 0),
               bytes);
    return 0;
}

static void note_done(void *arg, size_t segment, uint32_t layer)
{
    struct late *late = arg;

    CU_ASSERT_EQUAL(segment, 0);
    CU_ASSERT_EQUAL(layer, late->dones);
    late->dones++;
}

static const struct engine_step_ops late_ops = {bring_layer, note_done};

static void late_init(struct late *late, struct engine *e)
{
    uint64_t state = rig_seed(engine_kind(e));
    uint32_t prompt[PROMPT];

    memset(late, 0, sizeof(*late));
    late->fail_at = UINT32_MAX;
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = rig_random(&state, 256);
    rig_init(&late->whole, e, prompt, PROMPT, 4);
    CU_ASSERT_EQUAL(rig_run(e, &late->whole, 512, 4), 0);
    rig_init(&late->part, e, prompt, PROMPT, 4);
    late->part.done = PREFIX;
}

static void late_fini(struct late *late)
{
    rig_fini(&late->whole);
    rig_fini(&late->part);
}

static struct engine_segment rest(const struct late *late)
{
    struct engine_segment s = rig_segment(&late->part, PROMPT - PREFIX);

    s.cached_tokens = PREFIX;
    return s;
}

/* Layers that come one by one give what the whole prompt gave. */
static void check_in_order(const char *kind)
{
    struct engine *e = new_engine(kind);
    struct late late;

    late_init(&late, e);
    struct engine_segment s = rest(&late);
    CU_ASSERT_EQUAL(engine_step(e, &s, 1, &late_ops, &late, NULL), 0);
    CU_ASSERT_EQUAL(late.waits, 4);
    CU_ASSERT_EQUAL(late.dones, 4);
    rig_take(&late.part, &s);
    CU_ASSERT_EQUAL(rig_kv_differs(&late.whole, &late.part, PROMPT), 0);
    CU_ASSERT_EQUAL(rig_run(e, &late.part, 512, 4), 0);
    CU_ASSERT_EQUAL(memcmp(late.whole.tokens, late.part.tokens,
                           late.whole.n_tokens * sizeof(uint32_t)),
                    0);
    late_fini(&late);
    engine_free(e);
}

/* Copies of the blocks in front of the step. */
static void *copy_prefix(const struct late *late)
{
    size_t bytes = late->part.layout->block_bytes;
    uint32_t n = PREFIX / late->part.layout->block_tokens;
    char *copy = malloc(n * bytes);

    CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
    for (uint32_t b = 0; b < n; b++)
        memcpy(copy + b * bytes, late->part.blocks[b], bytes);
    return copy;
}

static void check_failure(const char *kind)
{
    struct engine *e = new_engine(kind);
    struct late late;

    late_init(&late, e);
    rig_copy_kv(&late.part, &late.whole, PREFIX);
    void *before = copy_prefix(&late);
    for (uint32_t layer = 0; layer < 4; layer++) {
        struct engine_segment s = rest(&late);

        late.waits = 0;
        late.dones = 0;
        late.fail_at = layer;
        CU_ASSERT_EQUAL(engine_step(e, &s, 1, &late_ops, &late, NULL), -EIO);
        CU_ASSERT_EQUAL(late.waits, layer + 1);
        CU_ASSERT(late.dones <= layer + 1);
    }
    void *after = copy_prefix(&late);
    CU_ASSERT_EQUAL(
        memcmp(before, after, PREFIX / 16 * late.part.layout->block_bytes), 0);
    /* The step can be repeated. */
    CU_ASSERT_EQUAL(rig_run(e, &late.part, 512, 4), 0);
    CU_ASSERT_EQUAL(rig_kv_differs(&late.whole, &late.part, PROMPT), 0);
    free(before);
    free(after);
    late_fini(&late);
    engine_free(e);
}

static void test_cpu(void)
{
    check_in_order("cpu");
    check_failure("cpu");
}

static void test_timed(void)
{
    check_in_order("timed");
    check_failure("timed");
}

/* Layers of 10 ms, of which one comes every 30 ms: the last is computed 10 ms
 * after it came, and the three before beside the loads; with loads of 5 ms
 * only the first is waited for. */
static void check_overlap(struct engine *e, int64_t each_us, int64_t want_us)
{
    struct late late;

    late_init(&late, e);
    late.each_us = each_us;
    struct engine_segment s = rest(&late);
    late.start_us = clock_now_us();
    CU_ASSERT_EQUAL(engine_step(e, &s, 1, &late_ops, &late, NULL), 0);
    CU_ASSERT_EQUAL(clock_now_us() - late.start_us, want_us);
    late_fini(&late);
}

static void test_timed_overlap(void)
{
    struct engine *e = new_engine("timed");

    check_overlap(e, 30000, 4 * 30000 + 10000);
    check_overlap(e, 5000, 5000 + 4 * 10000);
    engine_free(e);
}

/* Host blocks: page-aligned memory, and nothing to upload. */
static void check_host_blocks(const char *kind)
{
    struct engine *e = new_engine(kind);
    uint64_t ticket = 7;
    void *blocks[1] = {engine_kv_alloc(e, 5000)};

    CU_ASSERT_PTR_NOT_NULL_FATAL(blocks[0]);
    CU_ASSERT_EQUAL((uintptr_t)blocks[0] % 4096, 0);
    memset(blocks[0], 1, 5000);
    engine_kv_forget(e, blocks[0]);
    CU_ASSERT_EQUAL(engine_kv_upload(e, blocks, 1, 0, 4, &ticket), 0);
    CU_ASSERT_EQUAL(engine_kv_upload_done(e, ticket, false), 1);
    CU_ASSERT_EQUAL(engine_kv_upload_done(e, ticket, true), 1);
    CU_ASSERT_EQUAL(engine_kv_upload(e, blocks, 1, 3, 5, &ticket), -EINVAL);
    CU_ASSERT_EQUAL(engine_kv_upload(e, blocks, 1, 2, 1, &ticket), -EINVAL);
    CU_ASSERT_PTR_NULL(engine_kv_alloc(e, SIZE_MAX));
    engine_kv_free(e, blocks[0]);
    engine_kv_free(e, NULL);
    engine_free(e);
}

static void test_host_blocks(void)
{
    check_host_blocks("cpu");
    check_host_blocks("timed");
}

static const struct suite_test tests[] = {
    {"cpu: waits for layers", test_cpu},
    {"timed: waits for layers", test_timed},
    {"timed: late layers take time", test_timed_overlap},
    {"host blocks", test_host_blocks},
};
SUITE("engine_layers", tests)
