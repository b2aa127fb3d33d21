/* Batch invariance, the promise that makes reuse of KV exact: bit for bit the
 * same KV and the same answers however the work is cut. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/engine_rig.h"
#include "tests/unit/suite.h"

#define REQUESTS 5
#define MOST_PROMPT 400
#define ANSWERS 6
#define SEED 99

static struct engine *new_engine(uint32_t block_tokens, uint32_t step_tokens)
{
    struct engine_config config = {.kind = "cpu",
                                   .shape = model_find("tiny"),
                                   .seed = SEED,
                                   .block_tokens = block_tokens,
                                   .step_tokens = step_tokens};
    char err[256];
    struct engine *e = engine_new(&config, err, sizeof(err));

    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    return e;
}

static uint32_t random_prompt(uint64_t *state, uint32_t *prompt)
{
    uint32_t n = 1 + rig_random(state, MOST_PROMPT);

    for (uint32_t i = 0; i < n; i++)
        prompt[i] = rig_random(state, 256);
    return n;
}

/* All requests together: every step takes random pieces of random ones, in
 * random order. */
static void run_mixed(struct engine *e, struct rig_request *r, uint64_t *state)
{
    uint32_t room = engine_kv_layout(e)->step_tokens;

    for (;;) {
        struct engine_segment s[REQUESTS];
        size_t of[REQUESTS];
        size_t n = 0;
        uint32_t left = room;
        uint32_t busy = 0;
        uint32_t first = rig_random(state, REQUESTS);

        for (uint32_t i = 0; i < REQUESTS; i++) {
            uint32_t k = (first + i) % REQUESTS;

            if (r[k].n_tokens == r[k].room)
                continue;
            busy++;
            uint32_t most = r[k].n_tokens - r[k].done;
            most = most < left ? most : left;
            if (most == 0 || rig_random(state, 4) == 0)
                continue;
            of[n] = k;
            s[n] = rig_segment(&r[k], 1 + rig_random(state, most));
            left -= s[n++].n_tokens;
        }
        if (busy == 0)
            return;
        if (n == 0)
            continue;
        CU_ASSERT_EQUAL_FATAL(engine_step(e, s, n, NULL, NULL, NULL), 0);
        for (size_t i = 0; i < n; i++)
            rig_take(&r[of[i]], &s[i]);
    }
}

static void test_mixed(void)
{
    uint64_t state = rig_seed("mixed");
    struct engine *plain = new_engine(256, 512);

    for (int round = 0; round < 6; round++) {
        uint32_t bt = 16 * (1 + rig_random(&state, 32));
        struct engine *e = new_engine(bt, 1 + rig_random(&state, 200));
        struct rig_request alone[REQUESTS];
        struct rig_request mixed[REQUESTS];

        for (int k = 0; k < REQUESTS; k++) {
            uint32_t prompt[MOST_PROMPT];
            uint32_t n = random_prompt(&state, prompt);

            rig_init(&alone[k], plain, prompt, n, ANSWERS);
            rig_init(&mixed[k], e, prompt, n, ANSWERS);
            CU_ASSERT_EQUAL(rig_run(plain, &alone[k], 512, ANSWERS), 0);
        }
        run_mixed(e, mixed, &state);
        for (int k = 0; k < REQUESTS; k++) {
            CU_ASSERT_EQUAL(memcmp(alone[k].tokens, mixed[k].tokens,
                                   alone[k].n_tokens * sizeof(uint32_t)),
                            0);
            CU_ASSERT_EQUAL(mixed[k].done, mixed[k].room - 1);
            CU_ASSERT_EQUAL(rig_kv_differs(&alone[k], &mixed[k], mixed[k].done),
                            0);
            rig_fini(&alone[k]);
            rig_fini(&mixed[k]);
        }
        engine_free(e);
    }
    engine_free(plain);
}

/* A prefix that another engine computed, in blocks of another size. */
static void test_prefix(void)
{
    uint64_t state = rig_seed("prefix");
    struct engine *a = new_engine(64, 512);
    struct engine *b = new_engine(256, 100);

    CU_ASSERT_EQUAL(engine_kv_layout(a)->fingerprint,
                    engine_kv_layout(b)->fingerprint);
    for (int round = 0; round < 5; round++) {
        struct rig_request whole;
        struct rig_request reused;
        uint32_t prompt[MOST_PROMPT];
        uint32_t n = random_prompt(&state, prompt);

        rig_init(&whole, a, prompt, n, ANSWERS);
        rig_init(&reused, b, prompt, n, ANSWERS);
        CU_ASSERT_EQUAL(rig_run(a, &whole, 512, ANSWERS), 0);
        rig_copy_kv(&reused, &whole, rig_random(&state, n));
        CU_ASSERT_EQUAL(rig_run(b, &reused, 100, ANSWERS), 0);
        CU_ASSERT_EQUAL(memcmp(whole.tokens, reused.tokens, (n + ANSWERS) * 4),
                        0);
        CU_ASSERT_EQUAL(rig_kv_differs(&whole, &reused, reused.done), 0);
        rig_fini(&whole);
        rig_fini(&reused);
    }
    engine_free(a);
    engine_free(b);
}

/* An answer follows from the whole prompt: one other token early in it shows
 * in the 16 tokens answered. Without this, wrong KV could pass for right. */
static void test_sensitive(void)
{
    uint64_t state = rig_seed("sensitive");
    struct engine *e = new_engine(256, 512);
    int differ = 0;

    for (int round = 0; round < 20; round++) {
        struct rig_request a;
        struct rig_request b;
        uint32_t prompt[MOST_PROMPT];

        for (uint32_t i = 0; i < MOST_PROMPT; i++)
            prompt[i] = rig_random(&state, 256);
        rig_init(&a, e, prompt, MOST_PROMPT, 16);
        prompt[rig_random(&state, MOST_PROMPT / 2)] ^= 1;
        rig_init(&b, e, prompt, MOST_PROMPT, 16);
        CU_ASSERT_EQUAL(rig_run(e, &a, 512, 16), 0);
        CU_ASSERT_EQUAL(rig_run(e, &b, 512, 16), 0);
        differ += memcmp(a.tokens + MOST_PROMPT, b.tokens + MOST_PROMPT,
                         16 * sizeof(uint32_t)) != 0;
        rig_fini(&a);
        rig_fini(&b);
    }
    printf("[%d of 20 differ] ", differ);
    CU_ASSERT(differ >= 14);
    engine_free(e);
}

struct done_log {
    struct engine_segment *s;
    const struct engine_kv_layout *layout;
    uint32_t calls;
    atomic_bool *abort_at_layer_1;
};

/* K and V of the layer must be there, those of the next not yet. */
static void note_done(void *arg, size_t segment, uint32_t layer)
{
    struct done_log *log = arg;
    const struct engine_segment *s = &log->s[segment];
    uint32_t last = s->position + s->n_tokens - 1;
    uint32_t bt = log->layout->block_tokens;

    CU_ASSERT_EQUAL(log->calls, layer * 2 + segment);
    log->calls++;
    for (int w = 0; w < 2; w++) {
        uint32_t bits;

        memcpy(&bits,
               engine_kv_row(log->layout, s->blocks[last / bt], layer,
                             (enum engine_which)w, last % bt),
               sizeof(bits));
        CU_ASSERT_NOT_EQUAL(bits, UINT32_MAX);
        if (layer + 1 < log->layout->layers) {
            memcpy(&bits,
                   engine_kv_row(log->layout, s->blocks[last / bt], layer + 1,
                                 (enum engine_which)w, last % bt),
                   sizeof(bits));
            CU_ASSERT_EQUAL(bits, UINT32_MAX);
        }
    }
    if (log->abort_at_layer_1 && layer == 1)
        atomic_store(log->abort_at_layer_1, true);
}

static const struct engine_step_ops note_ops = {.layer_done = note_done};

static void test_layer_done_and_abort(void)
{
    struct engine *e = new_engine(16, 512);
    struct rig_request r[2];
    struct engine_segment s[2];
    uint32_t prompt[40] = {0};
    atomic_bool stop = false;

    for (int i = 0; i < 2; i++) {
        rig_init(&r[i], e, prompt, 40, 1);
        s[i] = rig_segment(&r[i], 30 + (uint32_t)i);
    }
    struct done_log log = {
        .s = s, .layout = engine_kv_layout(e), .abort_at_layer_1 = &stop};
    CU_ASSERT_EQUAL(engine_step(e, s, 2, &note_ops, &log, &stop), -ECANCELED);
    CU_ASSERT_EQUAL(log.calls, 4);
    CU_ASSERT_EQUAL(engine_step(e, s, 2, &note_ops, &log, &stop), -ECANCELED);
    CU_ASSERT_EQUAL(log.calls, 4);
    for (int i = 0; i < 2; i++) {
        rig_fini(&r[i]);
        rig_init(&r[i], e, prompt, 40, 1);
        s[i] = rig_segment(&r[i], 30 + (uint32_t)i);
    }
    log = (struct done_log){.s = s, .layout = engine_kv_layout(e)};
    CU_ASSERT_EQUAL(engine_step(e, s, 2, &note_ops, &log, NULL), 0);
    CU_ASSERT_EQUAL(log.calls, 8);
    rig_fini(&r[0]);
    rig_fini(&r[1]);
    engine_free(e);
}

static const struct suite_test tests[] = {
    {"random steps and batches", test_mixed},
    {"prefix from another engine", test_prefix},
    {"answers depend on the prompt", test_sensitive},
    {"layer_done and abort", test_layer_done_and_abort},
};
SUITE("engine_invariance", tests)
