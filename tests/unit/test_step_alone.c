/* The step loop that profiles are measured in: prefixes are reused, new
 * prompts evict old ones, and what a profile says goes through it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "predictor/profile_csv.h"
#include "tests/unit/suite.h"
#include "workers/engine/profile.h"
#include "workers/step/alone.h"

#define BLOCK 64u

static const struct cost_model cost = {
    .prefill = {800, 1.5, 0.0004, 0.0009},
    .decode = {400, 20, 0.01},
};

static struct engine *new_engine(void)
{
    struct engine_config c = {.kind = "timed",
                              .shape = model_find("tiny"),
                              .seed = 5,
                              .block_tokens = BLOCK,
                              .step_tokens = 200,
                              .cost = &cost};
    char err[200];
    struct engine *e = engine_new(&c, err, sizeof(err));

    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    return e;
}

static void test_reuse(void)
{
    struct engine *e = new_engine();
    struct step_alone *s = step_alone_new(e, 10, 4);
    uint32_t tokens[8 * BLOCK], cached = 99;
    double us = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (uint32_t i = 0; i < 8 * BLOCK; i++)
        tokens[i] = MODEL_FIRST_OUTPUT + i % MODEL_OUTPUTS;
    CU_ASSERT_EQUAL(step_alone_prefill(s, tokens, 6 * BLOCK, &cached, &us), 0);
    CU_ASSERT_EQUAL(cached, 0);
    CU_ASSERT(us >= (double)cost_model_prefill_us(&cost, 6 * BLOCK, 0, NULL));
    /* The same again: all but the last block, of which a token is computed. */
    CU_ASSERT_EQUAL(step_alone_prefill(s, tokens, 6 * BLOCK, &cached, &us), 0);
    CU_ASSERT_EQUAL(cached, 5 * BLOCK);
    /* Another behind its front: it evicts, and the front stays. */
    tokens[2 * BLOCK]++;
    CU_ASSERT_EQUAL(step_alone_prefill(s, tokens, 8 * BLOCK, &cached, &us), 0);
    CU_ASSERT_EQUAL(cached, 2 * BLOCK);
    /* More than there is room for fails, and leaves the loop usable. */
    step_alone_free(s);
    s = step_alone_new(e, 4, 4);
    CU_ASSERT_EQUAL(step_alone_prefill(s, tokens, 6 * BLOCK, &cached, &us),
                    -ENOSPC);
    CU_ASSERT_EQUAL(step_alone_prefill(s, tokens, 4 * BLOCK, &cached, &us), 0);
    step_alone_free(s);
    engine_free(e);
}

struct calls {
    struct step_alone *alone;
    uint32_t prefills, steps;
};

static int time_prefill(void *arg, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t *cached_tokens, double *us)
{
    struct calls *c = arg;

    c->prefills++;
    return step_alone_prefill(c->alone, tokens, n_tokens, cached_tokens, us);
}

static int run_step(void *arg, struct engine_segment *segments, uint32_t n)
{
    struct calls *c = arg;

    c->steps++;
    return step_alone_step(c->alone, segments, n);
}

static void test_profile(void)
{
    struct engine *e = new_engine();
    struct calls calls = {.alone = step_alone_new(e, 2 * 512 / BLOCK + 2, 4)};
    const struct profile_way way = {&calls, time_prefill, run_step};
    struct profile_config c = {.model = "tiny",
                               .seed = 5,
                               .max_tokens = 512,
                               .max_batch = 4,
                               .repeats = 1,
                               .way = &way};
    char *text = NULL;
    size_t bytes = 0, reused = 0;
    char err[200] = "";
    struct profile p = {0};
    FILE *out = open_memstream(&text, &bytes);

    CU_ASSERT_PTR_NOT_NULL_FATAL(calls.alone);
    CU_ASSERT_EQUAL_FATAL(profile_run(e, &c, out, NULL, NULL, err, sizeof(err)),
                          0);
    fclose(out);
    CU_ASSERT_EQUAL(profile_add(&p, text, bytes, "memory", err, sizeof(err)),
                    0);
    /* Each, and the prompt whose front the others share. */
    CU_ASSERT_EQUAL(calls.prefills, p.prefill.count + 1);
    CU_ASSERT(calls.steps > p.decode.count);
    for (size_t i = 0; i < p.prefill.count; i++) {
        const struct profile_row *r = &p.prefill.row[i];

        /* Whole blocks, and the time of what was really computed. */
        CU_ASSERT_EQUAL(r->b % BLOCK, 0);
        CU_ASSERT(r->us >=
                  (double)cost_model_prefill_us(&cost, r->a, r->b, NULL) * 0.9);
        reused += r->b > 0;
    }
    CU_ASSERT(reused > p.prefill.count / 4);
    profile_fini(&p);
    free(text);
    step_alone_free(calls.alone);
    engine_free(e);
}

static const struct suite_test tests[] = {
    {"reuse, eviction, no room", test_reuse},
    {"a profile goes through it", test_profile},
};
SUITE("step_alone", tests)
