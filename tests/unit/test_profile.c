/* The profile of a machine that is known: engine "timed". What it writes is
 * read by the reader of conductor-fit and must be the cost model again. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "predictor/profile_csv.h"
#include "tests/unit/suite.h"
#include "workers/engine/profile.h"

/* Steps of some hundred microseconds, so that the whole grid is quick. */
static const struct cost_model cost = {
    .prefill = {800, 1.5, 0.0004, 0.0009},
    .decode = {400, 20, 0.01},
};

static struct engine *new_engine(uint32_t block_tokens)
{
    struct engine_config c = {.kind = "timed",
                              .shape = model_find("tiny"),
                              .seed = 5,
                              .block_tokens = block_tokens,
                              .step_tokens = 200,
                              .cost = &cost};
    char err[200];
    struct engine *e = engine_new(&c, err, sizeof(err));

    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    return e;
}

static void count(void *arg, uint32_t done, uint32_t of)
{
    uint32_t *seen = arg;

    seen[0]++;
    CU_ASSERT_EQUAL(done, seen[0]);
    seen[1] = of;
}

/* The clock is invented: no row is more than a microsecond beside its cost. */
static void check_rows(const struct profile_rows *rows, bool decode)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct profile_row *r = &rows->row[i];
        double want =
            (double)(decode ? cost_model_decode_step_us(&cost, r->a, r->b, NULL)
                            : cost_model_prefill_us(&cost, r->a, r->b, NULL));

        CU_ASSERT_DOUBLE_EQUAL(r->us, want, 1);
    }
}

static void test_profile(void)
{
    struct engine *e = new_engine(64);
    struct profile_config c = {.model = "tiny",
                               .seed = 5,
                               .max_tokens = 1024,
                               .max_batch = 8,
                               .repeats = 3};
    char *text = NULL;
    size_t bytes = 0;
    char err[200] = "";
    uint32_t seen[2] = {0};
    struct profile p = {0};
    FILE *out = open_memstream(&text, &bytes);

    CU_ASSERT_EQUAL_FATAL(
        profile_run(e, &c, out, count, seen, err, sizeof(err)), 0);
    fclose(out);
    CU_ASSERT_EQUAL(profile_add(&p, text, bytes, "memory", err, sizeof(err)),
                    0);
    CU_ASSERT_STRING_EQUAL(err, "");
    CU_ASSERT_STRING_EQUAL(p.engine, "timed");
    CU_ASSERT_STRING_EQUAL(p.model, "tiny");
    CU_ASSERT_EQUAL(p.block_tokens, 64);
    CU_ASSERT_EQUAL(p.seed, 5);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "# note: simulated"));
    CU_ASSERT_EQUAL(seen[0], seen[1]);
    CU_ASSERT_EQUAL(p.prefill.count + p.decode.count, seen[0]);
    CU_ASSERT(p.prefill.count >= 60);
    CU_ASSERT(p.decode.count >= 30);
    check_rows(&p.prefill, false);
    check_rows(&p.decode, true);
    profile_fini(&p);
    free(text);
    engine_free(e);
}

static void test_bad(void)
{
    struct engine *e = new_engine(64);
    struct profile_config c = {.model = "tiny", .max_tokens = 8};
    char err[200] = "";
    atomic_bool stop = true;

    CU_ASSERT_EQUAL(profile_run(e, &c, stderr, NULL, NULL, err, sizeof(err)),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(
        err, "profile: max_tokens is 8: must be 16 to 32768, the window");
    c.max_tokens = 64;
    c.max_batch = 201;
    CU_ASSERT_EQUAL(profile_run(e, &c, stderr, NULL, NULL, err, sizeof(err)),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "profile: max_batch is 201: must be at most "
                                "200, the tokens of a step");
    c.max_batch = 8;
    c.max_kv_bytes = 100;
    CU_ASSERT_EQUAL(profile_run(e, &c, stderr, NULL, NULL, err, sizeof(err)),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(err,
                           "profile: max_kv_bytes is 100: 64 tokens need 4096");
    c.max_kv_bytes = 0;
    c.stop = &stop;
    CU_ASSERT_EQUAL(profile_run(e, &c, stderr, NULL, NULL, err, sizeof(err)),
                    -ECANCELED);
    engine_free(e);
}

static const struct suite_test tests[] = {
    {"a known machine", test_profile},
    {"bad configurations, stop", test_bad},
};
SUITE("profile", tests)
