/* Stages of a pipeline: each engine computes some of the layers, in blocks of
 * its own, and passes on what comes out of them. However layers and prompt are
 * cut, rows and answers are those of one engine, bit for bit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "predictor/cost_model.h"
#include "tests/unit/engine_rig.h"
#include "tests/unit/suite.h"

#define LAYERS 4u
#define MOST_PROMPT 700u
#define ANSWERS 5u

static const struct cost_model cost = {
    .engine = "test",
    .prefill = {0, 1, 0, 0},
    .decode = {1, 0, 0},
};

static struct engine *new_engine(const char *kind, uint32_t block_tokens)
{
    struct engine_config c = {.kind = kind,
                              .shape = model_find("tiny"),
                              .seed = 7,
                              .block_tokens = block_tokens,
                              .cost = &cost,
                              .speed = 10};
    char err[200];
    struct engine *e = engine_new(&c, err, sizeof(err));

    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    return e;
}

/* Cuts [0, LAYERS) at random: ends[n]. Returns n. */
static uint32_t cut_layers(uint64_t *state, uint32_t ends[LAYERS])
{
    uint32_t n = 0;

    for (uint32_t l = 1; l < LAYERS; l++)
        if (rig_random(state, 2) == 0)
            ends[n++] = l;
    ends[n++] = LAYERS;
    return n;
}

/* Takes the rows of layers [from, to) of all tokens over. */
static void take_layers(struct rig_request *to, const struct rig_request *from,
                        uint32_t from_layer, uint32_t to_layer)
{
    const struct engine_kv_layout *l = to->layout;
    size_t bytes =
        (size_t)(to_layer - from_layer) * 2 * l->block_tokens * l->kv_row_bytes;

    for (uint32_t b = 0; b * l->block_tokens < to->n_prompt; b++)
        memcpy(engine_kv_row(l, to->blocks[b], from_layer, ENGINE_K, 0),
               engine_kv_row(l, from->blocks[b], from_layer, ENGINE_K, 0),
               bytes);
}

/* Chunk after chunk through all stages; each has its own request `parts`. */
static void run_stages(struct engine *e, struct rig_request *parts,
                       const uint32_t *ends, uint32_t n_stages, uint64_t *state)
{
    size_t bytes = engine_kv_layout(e)->activation_bytes;
    char *in = malloc(512 * bytes), *out = malloc(512 * bytes);

    while (parts[n_stages - 1].done < parts[0].n_prompt) {
        uint32_t left = parts[0].n_prompt - parts[n_stages - 1].done;
        uint32_t most = left < 512 ? left : 512;
        uint32_t n = 1 + rig_random(state, most);

        for (uint32_t i = 0; i < n_stages; i++) {
            struct engine_segment s = rig_segment(&parts[i], n);
            struct engine_stage stage = {i > 0 ? ends[i - 1] : 0, ends[i], in,
                                         out};

            s.want_token &= i + 1 == n_stages;
            if (i > 0)
                s.tokens = NULL;
            CU_ASSERT_EQUAL_FATAL(
                engine_step_stage(e, &s, &stage, NULL, NULL, NULL), 0);
            if (s.want_token)
                rig_take(&parts[i], &s);
            else
                parts[i].done += n;
            char *swap = in;
            in = out;
            out = swap;
        }
    }
    free(in);
    free(out);
}

static void check_split(const char *kind, uint64_t *state)
{
    struct engine *e = new_engine(kind, 16 * (1 + rig_random(state, 16)));
    uint32_t prompt[MOST_PROMPT];
    uint32_t n = 1 + rig_random(state, MOST_PROMPT);
    struct rig_request whole, parts[LAYERS];
    uint32_t ends[LAYERS];
    uint32_t n_stages = cut_layers(state, ends);

    for (uint32_t i = 0; i < n; i++)
        prompt[i] = rig_random(state, 256);
    rig_init(&whole, e, prompt, n, ANSWERS);
    CU_ASSERT_EQUAL(rig_run(e, &whole, 512, ANSWERS), 0);
    for (uint32_t i = 0; i < n_stages; i++)
        rig_init(&parts[i], e, prompt, n, ANSWERS);
    run_stages(e, parts, ends, n_stages, state);
    struct rig_request *last = &parts[n_stages - 1];
    for (uint32_t i = 0; i + 1 < n_stages; i++)
        take_layers(last, &parts[i], i > 0 ? ends[i - 1] : 0, ends[i]);
    CU_ASSERT_EQUAL(rig_kv_differs(&whole, last, n), 0);
    CU_ASSERT_EQUAL(rig_run(e, last, 512, ANSWERS), 0);
    CU_ASSERT_EQUAL(
        memcmp(whole.tokens, last->tokens, whole.n_tokens * sizeof(uint32_t)),
        0);
    rig_fini(&whole);
    for (uint32_t i = 0; i < n_stages; i++)
        rig_fini(&parts[i]);
    engine_free(e);
}

static void test_cpu(void)
{
    uint64_t state = rig_seed("cpu");

    for (int round = 0; round < 20; round++)
        check_split("cpu", &state);
}

static void test_timed(void)
{
    uint64_t state = rig_seed("timed");

    for (int round = 0; round < 20; round++)
        check_split("timed", &state);
}

/* What passes between stages matters: another one gives another answer. */
static void check_damage(const char *kind)
{
    struct engine *e = new_engine(kind, 64);
    size_t bytes = engine_kv_layout(e)->activation_bytes;
    uint32_t prompt[100] = {1, 2, 3};
    char *middle = calloc(100, bytes);
    uint32_t answers[2];
    struct rig_request r;

    for (int i = 0; i < 2; i++) {
        rig_init(&r, e, prompt, 100, 1);
        struct engine_segment s = rig_segment(&r, 100);
        struct engine_stage front = {.to_layer = 2, .out = middle};
        struct engine_stage back = {
            .from_layer = 2, .to_layer = 4, .in = middle};

        s.want_token = false;
        CU_ASSERT_EQUAL(engine_step_stage(e, &s, &front, NULL, NULL, NULL), 0);
        if (i == 1)
            memset(middle, 0, 100 * bytes);
        s.want_token = true;
        s.tokens = NULL;
        CU_ASSERT_EQUAL(engine_step_stage(e, &s, &back, NULL, NULL, NULL), 0);
        answers[i] = s.token_out;
        rig_fini(&r);
    }
    CU_ASSERT_NOT_EQUAL(answers[0], answers[1]);
    free(middle);
    engine_free(e);
}

static void test_damage(void)
{
    check_damage("cpu");
    check_damage("timed");
}

static void test_refused(void)
{
    struct engine *e = new_engine("cpu", 64);
    uint32_t prompt[10] = {0};
    float x[10 * 128];
    struct rig_request r;

    rig_init(&r, e, prompt, 10, 1);
    const struct {
        struct engine_stage stage;
        bool tokens, want_token, decode;
    } cases[] = {
        {{0, 0, x, x}, true, false, false},       /* no layer */
        {{3, 2, x, x}, false, false, false},      /* backward */
        {{2, 5, x, x}, false, false, false},      /* beyond the last */
        {{1, 2, NULL, x}, false, false, false},   /* nothing to begin with */
        {{0, 2, NULL, NULL}, true, false, false}, /* nowhere to put it */
        {{0, 2, NULL, x}, false, false, false},   /* no tokens */
        {{1, 2, x, x}, true, false, false},       /* tokens behind layer 0 */
        {{0, 2, NULL, x}, true, true, false},     /* an answer too early */
        {{0, 4, NULL, x}, true, false, true},     /* a decode */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct engine_segment s = rig_segment(&r, 10);

        s.want_token = cases[i].want_token;
        s.decode = cases[i].decode;
        if (!cases[i].tokens)
            s.tokens = NULL;
        CU_ASSERT_EQUAL(
            engine_step_stage(e, &s, &cases[i].stage, NULL, NULL, NULL),
            -EINVAL);
    }
    struct engine_segment s = rig_segment(&r, 10);
    s.tokens = NULL;
    CU_ASSERT_EQUAL(engine_step(e, &s, 1, NULL, NULL, NULL), -EINVAL);
    rig_fini(&r);
    engine_free(e);
}

static const struct suite_test tests[] = {
    {"cpu: random layers and chunks", test_cpu},
    {"timed: random layers and chunks", test_timed},
    {"damaged on the way", test_damage},
    {"refused", test_refused},
};
SUITE("engine stages", tests)
