/* The cost model: values, clamps, range, correction, and its JSON file. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "predictor/correction.h"
#include "predictor/cost_model.h"
#include "predictor/cost_model_json.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"

static const struct cost_model example = {
    .engine = "cpu",
    .model = "tiny",
    .machine = "two \"cores\"",
    .date = "2025-01-31",
    .prefill = {1000.0, 10.0, 0.001, 0.002},
    .decode = {500.0, 20.0, 0.01},
    .range = {16, 4096, 8192, 32, 65536},
    .prefill_quality = {0.999, 0.01, 0.1},
    .decode_quality = {0.75, 0.02, 0.3},
};

static void test_values(void)
{
    bool far = true;

    /* 1000 + 10 * 1000 + 0.001 * 1e6 + 0.002 * 1000 * 2000 */
    CU_ASSERT_EQUAL(cost_model_prefill_us(&example, 1000, 2000, &far), 16000);
    CU_ASSERT_FALSE(far);
    /* 500 + 20 * 4 + 0.01 * 10000 */
    CU_ASSERT_EQUAL(cost_model_decode_step_us(&example, 4, 10000, NULL), 680);
    /* Chunks add up to the whole. */
    CU_ASSERT_EQUAL(cost_model_chunk_us(&example, 400, 0, 2000) +
                        cost_model_chunk_us(&example, 600, 400, 2000),
                    16000);
    CU_ASSERT_EQUAL(cost_model_chunk_us(&example, 0, 0, 2000), 0);
    /* A chunk hides the 500 of its step's decodes, or as much as it takes. */
    CU_ASSERT_EQUAL(cost_model_mixed_saves_us(&example, 16000), 500);
    CU_ASSERT_EQUAL(cost_model_mixed_saves_us(&example, 300), 300);
    CU_ASSERT_EQUAL(cost_model_mixed_saves_us(&example, 0), 0);
    /* That read hidden, they add 20 * 4 + 0.01 * 10000. */
    CU_ASSERT_EQUAL(cost_model_decodes_add_us(&example, 4, 10000), 180.0);
    CU_ASSERT_EQUAL(cost_model_decodes_add_us(&example, 0, 0), 0.0);
    /* 16000 + 90 + 0.5 * 1000 */
    CU_ASSERT_EQUAL(cost_model_prefill_beside_us(&example, 1000, 2000, 90, 0.5),
                    16590);
    /* Rounded to nearest: 1000 + 160 + 0.256 + 0.512 */
    CU_ASSERT_EQUAL(cost_model_prefill_us(&example, 16, 16, NULL), 1161);
}

static bool prefill_far(int64_t u, int64_t p)
{
    bool far = false;

    (void)cost_model_prefill_us(&example, u, p, &far);
    return far;
}

static bool decode_far(int64_t batch, int64_t kv)
{
    bool far = false;

    (void)cost_model_decode_step_us(&example, batch, kv, &far);
    return far;
}

static void test_extrapolation(void)
{
    CU_ASSERT_FALSE(prefill_far(16, 0));
    CU_ASSERT_FALSE(prefill_far(4096, 8192));
    CU_ASSERT_TRUE(prefill_far(15, 0));
    CU_ASSERT_TRUE(prefill_far(4097, 0));
    CU_ASSERT_TRUE(prefill_far(16, 8193));
    CU_ASSERT_TRUE(prefill_far(16, -1));
    CU_ASSERT_FALSE(decode_far(1, 0));
    CU_ASSERT_FALSE(decode_far(32, 65536));
    CU_ASSERT_TRUE(decode_far(0, 0));
    CU_ASSERT_TRUE(decode_far(33, 0));
    CU_ASSERT_TRUE(decode_far(1, 65537));
    CU_ASSERT_TRUE(decode_far(1, -1));
}

static void test_clamps(void)
{
    struct cost_model m = example;

    m.prefill[0] = -1e6;
    CU_ASSERT_EQUAL(cost_model_prefill_us(&m, 16, 0, NULL), 1);
    CU_ASSERT_EQUAL(cost_model_prefill_us(&m, INT64_MAX, INT64_MAX, NULL),
                    COST_MODEL_MAX_US);
    CU_ASSERT_EQUAL(cost_model_prefill_us(&example, -5, -7, NULL), 1000);
    m.decode[0] = 0.0;
    m.decode[1] = 0.2;
    CU_ASSERT_EQUAL(cost_model_decode_step_us(&m, 1, 0, NULL), 1);
    CU_ASSERT_EQUAL(
        cost_model_decode_step_us(&example, INT64_MIN, INT64_MIN, NULL), 500);
    m.decode[1] = (double)NAN;
    CU_ASSERT_EQUAL(cost_model_decode_step_us(&m, 1, 1, NULL),
                    COST_MODEL_MAX_US);
}

static double random_in(uint64_t *state, double low, double high)
{
    return low + (high - low) * (double)(draw_u64(state) >> 11) * 0x1p-53;
}

static double plain_prefill(const double *c, double u, double p)
{
    return c[0] + c[1] * u + c[2] * u * u + c[3] * u * p;
}

/* The closed forms against every point of a small range. */
static void test_least(void)
{
    uint64_t seed = cases_seed(1);

    for (int round = 0; round < 300; round++) {
        struct cost_model m = example;

        m.range = (struct cost_model_range){3, 40, 30, 9, 20};
        m.prefill[0] = random_in(&seed, -100.0, 100.0);
        m.prefill[1] = random_in(&seed, -10.0, 10.0);
        m.prefill[2] = random_in(&seed, -0.3, 0.3);
        m.prefill[3] = random_in(&seed, -0.3, 0.3);
        for (int i = 0; i < COST_MODEL_DECODE_TERMS; i++)
            m.decode[i] = random_in(&seed, -5.0, 5.0);
        double least = INFINITY, slope = INFINITY, step = INFINITY;
        for (int u = 3; u <= 40; u++)
            for (int p = 0; p <= 30; p++) {
                least = fmin(least, plain_prefill(m.prefill, u, p));
                slope = fmin(slope, m.prefill[1] + 2.0 * m.prefill[2] * u +
                                        m.prefill[3] * p);
                slope = fmin(slope, m.prefill[3] * u);
            }
        for (int b = 1; b <= 9; b++)
            for (int k = 0; k <= 20; k++)
                step =
                    fmin(step, m.decode[0] + m.decode[1] * b + m.decode[2] * k);
        double got = cost_model_prefill_least_us(&m);
        /* A vertex between two whole tokens is lower by c2 / 4 at most. */
        CU_ASSERT(got <= least + 1e-9 && got >= least - 0.3 / 4.0 - 1e-9);
        CU_ASSERT_DOUBLE_EQUAL(cost_model_prefill_least_slope_us(&m), slope,
                               1e-9);
        CU_ASSERT_DOUBLE_EQUAL(cost_model_decode_least_us(&m), step, 1e-9);
    }
}

static void test_least_of_nan(void)
{
    struct cost_model m = example;

    m.prefill[3] = (double)NAN;
    m.decode[0] = (double)NAN;
    CU_ASSERT(isnan(cost_model_prefill_least_us(&m)));
    /* 0 * infinity at one corner only, infinity at the last. */
    m.prefill[3] = INFINITY;
    CU_ASSERT(isnan(cost_model_prefill_least_us(&m)));
    CU_ASSERT(isnan(cost_model_decode_least_us(&m)));
}

#define TAU_US 60000000

static void test_correction(void)
{
    struct correction c;

    CU_ASSERT_EQUAL_FATAL(correction_init(&c, TAU_US, 0.5, 4.0), 0);
    CU_ASSERT_EQUAL(correction_apply_us(&c, 1000), 1000);
    /* A minute that took two: 1 + (1 - 1/e). */
    correction_observe(&c, 60000000, 120000000);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 1.632120558829, 1e-12);
    CU_ASSERT_EQUAL(correction_apply_us(&c, 1000), 1632);
    /* 6 s as predicted: e^-0.1 of the difference is left. */
    correction_observe(&c, 6000000, 6000000);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 1.571966334338, 1e-12);
    /* A millisecond says next to nothing. */
    correction_observe(&c, 1000, 4000);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 1.572006801228, 1e-12);
    /* A day instead of a minute counts as four times. */
    correction_observe(&c, 60000000, INT64_C(86400000000));
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 3.106791218868, 1e-9);
    for (int i = 0; i < 200; i++)
        correction_observe(&c, 10000000, 0);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 0.5, 1e-9);
    CU_ASSERT(c.ratio >= 0.5);
}

/* Prompts of 3 s that take 20 % more or less are off by 20 %; those of 0.1 s
 * aren't: what one takes more the next takes less. */
static void test_correction_spread(void)
{
    struct correction c;

    CU_ASSERT_EQUAL_FATAL(correction_init(&c, TAU_US, 0.5, 4.0), 0);
    CU_ASSERT_EQUAL(correction_spread(&c), 0.0);
    correction_observe(&c, 1900000, 1900000 * 2);
    CU_ASSERT_EQUAL(correction_spread(&c), 0.0); /* the sum is under way */
    for (int i = 0; i < 200; i++)
        correction_observe(&c, 3000000, i % 2 ? 3600000 : 2400000);
    CU_ASSERT_DOUBLE_EQUAL(correction_spread(&c), 0.2, 0.02);
    for (int i = 0; i < 6000; i++)
        correction_observe(&c, 100000, i % 2 ? 120000 : 80000);
    CU_ASSERT(correction_spread(&c) < 0.02);
}

/* The spread has its full value after a fifth of what can be learned. Before,
 * it is smaller: the first sum of prefills alone says little. */
static void test_correction_spread_begins(void)
{
    struct correction c;

    CU_ASSERT_EQUAL_FATAL(correction_init(&c, TAU_US, 0.5, 4.0), 0);
    correction_observe(&c, 3000000, 3600000);
    CU_ASSERT_DOUBLE_EQUAL(correction_spread(&c), 0.1, 0.01);
    for (int i = 1; i < 5; i++)
        correction_observe(&c, 3000000, i % 2 ? 2400000 : 3600000);
    CU_ASSERT_DOUBLE_EQUAL(correction_spread(&c), 0.2, 0.01);
}

/* Half as fast as it learns, and towards 1. */
static void test_correction_forget(void)
{
    struct correction c;

    CU_ASSERT_EQUAL_FATAL(correction_init(&c, TAU_US, 0.5, 4.0), 0);
    correction_observe(&c, 60000000, 120000000);
    correction_forget(&c, 0);
    correction_forget(&c, -5);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 1.632120558829, 1e-12);
    correction_forget(&c, 60000000);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 1.432332358382, 1e-12);
    for (int i = 0; i < 100; i++)
        correction_forget(&c, 60000000);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 1.0, 1e-9);
}

/* Some per cent of one completion make no instance differ from its equals. */
static void test_correction_noise(void)
{
    struct correction c;

    CU_ASSERT_EQUAL_FATAL(correction_init(&c, TAU_US, 0.5, 4.0), 0);
    correction_observe(&c, 20000000, 22000000);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 1.028346868943, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(correction_factor(&c), 1.0, 0.0);
    CU_ASSERT_EQUAL(correction_apply_us(&c, 100000), 100000);
    correction_observe(&c, 20000000, 22000000);
    CU_ASSERT_DOUBLE_EQUAL(correction_factor(&c), c.ratio, 0.0);
    CU_ASSERT_EQUAL(correction_apply_us(&c, 100000), 104866);
    for (int i = 0; i < 20; i++)
        correction_observe(&c, 20000000, 19600000);
    CU_ASSERT_DOUBLE_EQUAL(correction_factor(&c), 1.0, 0.0);
    for (int i = 0; i < 20; i++)
        correction_observe(&c, 20000000, 18000000);
    CU_ASSERT_DOUBLE_EQUAL(correction_factor(&c), c.ratio, 0.0);
}

/* A card that turns 1.3 or 2 times slower is found within three minutes of
 * predicted work, however that is cut into prompts and however noisy: 5 % of
 * the difference are left, and the noise of about tau of work. */
static void test_correction_finds_slow_card(void)
{
    const double slower[] = {1.3, 2.0};
    uint64_t state = 4711;

    for (int round = 0; round < 2000; round++) {
        double factor = slower[round % 2];
        int64_t longest_us = 20000 << (round / 2 % 8); /* to 2.6 s */
        int64_t work_us = 0;
        struct correction c;

        CU_ASSERT_EQUAL_FATAL(correction_init(&c, TAU_US, 0.25, 4.0), 0);
        while (work_us < 3 * TAU_US) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int64_t us = 1 + (int64_t)((state >> 33) % (uint64_t)longest_us);
            state = state * 6364136223846793005u + 1442695040888963407u;
            /* Evenly between 0.5 and 1.5 times. */
            double noise = 0.5 + (double)(state >> 33) / 2147483648.0;

            correction_observe(&c, us, (int64_t)((double)us * factor * noise));
            work_us += us;
        }
        double left = (factor - 1.0) * exp(-3.0);
        CU_ASSERT(fabs(c.ratio - (factor - left)) < 0.18 * factor);
        CU_ASSERT(correction_factor(&c) > 1.0 + 0.5 * (factor - 1.0));
    }
}

static void test_correction_edges(void)
{
    struct correction c;

    CU_ASSERT_EQUAL_FATAL(correction_init(&c, 1, 2.0, 3.0), 0);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 2.0, 0.0);
    correction_observe(&c, 0, 100);
    correction_observe(&c, -1, 100);
    correction_observe(&c, 100, -1);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 2.0, 0.0);
    CU_ASSERT_EQUAL(correction_apply_us(&c, -10), 0);
    CU_ASSERT_EQUAL(correction_apply_us(&c, INT64_MAX), INT64_MAX / 4);
    correction_observe(&c, INT64_MAX, INT64_MAX);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 2.0, 0.0);
    CU_ASSERT_NOT_EQUAL(correction_init(&c, 0, 1.0, 1.0), 0);
    CU_ASSERT_NOT_EQUAL(correction_init(&c, 5, 0.0, 1.0), 0);
    CU_ASSERT_NOT_EQUAL(correction_init(&c, 5, 2.0, 1.0), 0);
    CU_ASSERT_NOT_EQUAL(correction_init(&c, 5, 1.0, INFINITY), 0);
    CU_ASSERT_NOT_EQUAL(correction_init(&c, 5, (double)NAN, 1.0), 0);
    CU_ASSERT_DOUBLE_EQUAL(c.ratio, 2.0, 0.0);
}

/* Saves `m` into a new file and reads its text back, into text. */
static void save_text(const struct cost_model *m, char *path, char *text,
                      size_t size)
{
    char err[256] = "";
    int fd = mkstemp(path);

    CU_ASSERT_FATAL(fd >= 0);
    (void)close(fd);
    CU_ASSERT_EQUAL_FATAL(cost_model_save_file(m, path, err, sizeof(err)), 0);
    FILE *file = fopen(path, "re");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    size_t length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    (void)fclose(file);
}

static void test_round_trip(void)
{
    char path[] = "/tmp/test_cost_model_XXXXXX";
    char text[8192], err[256] = "";
    struct cost_model m = example, back;

    m.prefill[1] = 1.0 / 3.0;
    m.decode[2] = 4.9e-324;
    m.prefill_quality.r2 = -2.5;
    m.block_tokens = 32;
    save_text(&m, path, text, sizeof(text));
    memset(&back, 0xff, sizeof(back));
    CU_ASSERT_EQUAL(cost_model_load_file(path, &back, err, sizeof(err)), 0);
    CU_ASSERT_EQUAL(memcmp(&m, &back, sizeof(m)), 0);
    (void)unlink(path);
}

struct broken {
    const char *from;
    const char *to;
    const char *message; /* what the error must contain */
};

#define FIFTY "01234567890123456789012345678901234567890123456789"

static const struct broken broken_files[] = {
    {"\"conductor-cost-model\"", "\"other\"",
     "format: \"other\": must be \"conductor-cost-model\""},
    {"\"version\": 1", "\"version\": 2", "version: 2: must be 1"},
    {"\"version\": 1", "\"version\": \"1\"", "version: \"1\": must be 1"},
    {"\"engine\": \"cpu\"", "\"engine\": 7",
     "engine: 7: must be a text of 1 to 255 printable bytes"},
    {"\"engine\": \"cpu\"", "\"engine\": \"\"", "engine: \"\": must be a text"},
    {"\"engine\": \"cpu\"", "\"engine\": \"a\\nb\"",
     "engine: \"a\\nb\": must be a text"},
    {"\"model\": \"tiny\"",
     "\"model\": \"" FIFTY FIFTY FIFTY FIFTY FIFTY "012345\"",
     "model: \"01234567890123456789"},
    {"\"date\": \"2025-01-31\",", "", "date: missing: must be a text"},
    {"\"machine\"", "\"machin\"", "machin: no such field"},
    {"\"time\": \"us\"", "\"time\": \"ms\"",
     "units.time: \"ms\": must be \"us\""},
    {"\"length\": \"tokens\"", "\"length\": null",
     "units.length: null: must be \"tokens\""},
    {"\"uncached_tokens^2\"", "\"uncached_tokens^3\"",
     "prefill.basis: [\"1\","},
    {"0.001,", "\"x\",", "prefill.coefficients_us[2]: \"x\": must be a number"},
    {"0.001,", "", "must be an array of 4 numbers"},
    {"0.001,", "1e999,", "real number overflow"},
    {"0.001,", "NaN,", "expected a number: JSON has no NaN"},
    {"500.0,", "false,", "decode.coefficients_us[0]: false: must be a number"},
    {"1000.0,", "-5000.0,",
     "prefill.coefficients_us: -4839.74 us within valid_range"},
    {"0.002", "-0.002",
     "prefill.coefficients_us: -9188.86 us within valid_range"},
    {"500.0,", "-600.0,", "decode.coefficients_us: -580 us within valid_range"},
    {"\"r2\": 0.75", "\"r2\": 1.5", "decode.r2: 1.5: must be a number up to 1"},
    {"\"median_rel_error\": 0.01", "\"median_rel_error\": -0.5",
     "prefill.median_rel_error: -0.5: must be a number from 0"},
    {"\"p95_rel_error\"", "\"p96\"", "prefill.p96: no such field"},
    {"\"uncached_min_tokens\": 16", "\"uncached_min_tokens\": 1.5",
     "valid_range.uncached_min_tokens: 1.5: must be an integer of 0 to "
     "1000000000"},
    {"\"uncached_max_tokens\": 4096", "\"uncached_max_tokens\": 15",
     "valid_range.uncached_max_tokens: 15: must be an integer of 16 to "
     "1000000000"},
    {"\"cached_max_tokens\": 8192", "\"cached_max_tokens\": -1",
     "valid_range.cached_max_tokens: -1: must"},
    {"\"batch_max\": 32", "\"batch_max\": 0", "valid_range.batch_max: 0: must"},
    {"\"kv_tokens_max\": 65536", "\"kv_tokens_max\": 1000000001",
     "valid_range.kv_tokens_max: 1000000001: must"},
    {"\"valid_range\": {", "\"valid_range\": [], \"engine\": {",
     "line 44, column 29: duplicate object key near"},
    {"{", "[{", "line "},
};

/* The first `from` in `text` replaced by `to`. */
static void replace(char *out, size_t size, const char *text,
                    const struct broken *b)
{
    const char *at = strstr(text, b->from);

    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    (void)snprintf(out, size, "%.*s%s%s", (int)(at - text), text, b->to,
                   at + strlen(b->from));
}

static void test_broken_files(void)
{
    char path[] = "/tmp/test_cost_model_XXXXXX";
    char text[4096], changed[8192], err[512];

    save_text(&example, path, text, sizeof(text));
    (void)unlink(path);
    for (size_t i = 0; i < sizeof(broken_files) / sizeof(*broken_files); i++) {
        const struct broken *b = &broken_files[i];
        struct cost_model m = example;

        replace(changed, sizeof(changed), text, b);
        int rc = cost_model_load_buffer(changed, strlen(changed), "m.json", &m,
                                        err, sizeof(err));
        bool said = strstr(err, b->message) &&
                    strncmp(err, "cost model m.json: ", 19) == 0;
        if (rc != -EINVAL || !said)
            printf("\n  %s -> %s: %d, %s\n", b->from, b->to, rc, err);
        CU_ASSERT_EQUAL(rc, -EINVAL);
        CU_ASSERT(said);
        CU_ASSERT_EQUAL(memcmp(&m, &example, sizeof(m)), 0);
    }
}

static void load_whole(const char *text, const char *message)
{
    char err[256];
    struct cost_model m;

    CU_ASSERT_EQUAL(cost_model_load_buffer(text, strlen(text), "m.json", &m,
                                           err, sizeof(err)),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, message);
}

static void test_not_a_model(void)
{
    load_whole("[1,2]", "cost model m.json: [1,2]: must be an object");
    load_whole("{}", "cost model m.json: format: missing: must be "
                     "\"conductor-cost-model\"");
    load_whole("{\"format\":", "cost model m.json: line 1, column 10: "
                               "unexpected token near end of file");
    load_whole("{\"a\\\n\": 1}", "cost model m.json: line 2, column 0: "
                                 "invalid escape near '\"a\\?'");
}

static void test_file_errors(void)
{
    char path[] = "/tmp/test_cost_model_XXXXXX";
    char err[256];
    struct cost_model m = example;

    CU_ASSERT_EQUAL(cost_model_load_file("/nowhere/m.json", &m, err, 256),
                    -ENOENT);
    CU_ASSERT_STRING_EQUAL(
        err, "cost model /nowhere/m.json: No such file or directory");
    CU_ASSERT_EQUAL(cost_model_load_file("/tmp", &m, err, 256), -EMEDIUMTYPE);
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, COST_MODEL_JSON_MAX_BYTES + 1), 0);
    (void)close(fd);
    CU_ASSERT_EQUAL(cost_model_load_file(path, &m, err, 256), -EFBIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "larger than 65536 bytes"));
    (void)unlink(path);
    CU_ASSERT_EQUAL(cost_model_save_file(&m, "/nowhere/m.json", err, 256),
                    -ENOENT);
    m.prefill[0] = -1e9;
    CU_ASSERT_EQUAL(cost_model_save_file(&m, path, err, 256), -EINVAL);
    m.prefill[0] = (double)NAN;
    CU_ASSERT_EQUAL(cost_model_save_file(&m, path, err, 256), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "not finite"));
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
}

static const struct suite_test tests[] = {
    {"values", test_values},
    {"extrapolation", test_extrapolation},
    {"clamps", test_clamps},
    {"least values", test_least},
    {"least of NaN", test_least_of_nan},
    {"correction", test_correction},
    {"correction spread", test_correction_spread},
    {"correction spread begins", test_correction_spread_begins},
    {"correction noise", test_correction_noise},
    {"correction edges", test_correction_edges},
    {"correction forgets", test_correction_forget},
    {"correction finds a slow card", test_correction_finds_slow_card},
    {"round trip", test_round_trip},
    {"broken files", test_broken_files},
    {"not a model", test_not_a_model},
    {"file errors", test_file_errors},
};
SUITE("cost_model", tests)
