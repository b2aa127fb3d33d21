/* The fit: known coefficients come back, within the
 * standard errors that are claimed for them. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "tools/fit/model.h"
#include "tools/replay/math.h"

static const double true_prefill[4] = {1000.0, 40.0, 0.01, 0.02};
static const double true_decode[3] = {500.0, 60.0, 0.05};

static double uniform(uint64_t *state)
{
    return ((double)(draw_u64(state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    double r = sqrt(-2.0 * log(uniform(state)));

    return r * cos(2.0 * 3.14159265358979323846 * uniform(state));
}

static void add_row(struct profile_rows *rows, int64_t a, int64_t b, double us)
{
    if (rows->count == rows->capacity) {
        rows->capacity = rows->capacity * 2 + 64;
        rows->row = realloc(rows->row, rows->capacity * sizeof(*rows->row));
        CU_ASSERT_PTR_NOT_NULL_FATAL(rows->row);
    }
    rows->row[rows->count++] = (struct profile_row){a, b, us};
}

/* A grid of `repeats` measurements each, with relative noise. Owned. */
static struct profile make_profile(const double *c, const double *d,
                                   int repeats, double noise, uint64_t *seed)
{
    static const int64_t uncached[] = {16, 64, 256, 1024, 2048, 4096};
    static const int64_t cached[] = {0, 256, 1024, 4096};
    struct profile p = {.engine = "cpu",
                        .model = "tiny",
                        .machine = "<m&m>",
                        .date = "2025-01-31"};

    for (size_t i = 0; i < 6 * 4; i++)
        for (int r = 0; r < repeats; r++) {
            double u = (double)uncached[i / 4], q = (double)cached[i % 4];
            double us = c[0] + c[1] * u + c[2] * u * u + c[3] * u * q;

            add_row(&p.prefill, uncached[i / 4], cached[i % 4],
                    us * (1.0 + noise * normal(seed)));
        }
    for (int64_t batch = 1; batch <= 32; batch *= 2)
        for (int64_t kv = 128; kv <= 8192; kv *= 4)
            for (int r = 0; r < repeats; r++) {
                double us =
                    d[0] + d[1] * (double)batch + d[2] * (double)(kv * batch);

                add_row(&p.decode, batch, kv * batch,
                        us * (1.0 + noise * normal(seed)));
            }
    return p;
}

static void fit_ok(const struct profile *p, struct cost_model *m,
                   struct fit_report *report)
{
    char err[256] = "";
    int rc = fit_model(p, m, report, err, sizeof(err));

    if (rc != 0)
        printf("\n  %s\n", err);
    CU_ASSERT_EQUAL_FATAL(rc, 0);
}

/* A profile of the true costs with noise, and what was fitted to it. */
struct fitted {
    struct profile p;
    struct cost_model m;
    struct fit_report report;
};

static void fitted_init(struct fitted *f, int repeats, double noise,
                        uint64_t seed)
{
    f->p = make_profile(true_prefill, true_decode, repeats, noise, &seed);
    fit_ok(&f->p, &f->m, &f->report);
}

#define FITTED_TEST(test, repeats, noise, seed)                              \
    SUITE_TEST(test, struct fitted, f, fitted_init(f, repeats, noise, seed), \
               (fit_report_fini(&f->report), profile_fini(&f->p)))

FITTED_TEST(test_exact, 1, 0.0, 1)
{
    for (int i = 0; i < 4; i++)
        CU_ASSERT_DOUBLE_EQUAL(f->m.prefill[i], true_prefill[i],
                               1e-9 * true_prefill[i]);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_DOUBLE_EQUAL(f->m.decode[i], true_decode[i],
                               1e-9 * true_decode[i]);
    CU_ASSERT_DOUBLE_EQUAL(f->m.prefill_quality.r2, 1.0, 1e-12);
    CU_ASSERT(f->m.prefill_quality.p95_rel_error < 1e-9);
    CU_ASSERT_EQUAL(f->m.range.uncached_min_tokens, 16);
    CU_ASSERT_EQUAL(f->m.range.uncached_max_tokens, 4096);
    CU_ASSERT_EQUAL(f->m.range.cached_max_tokens, 4096);
    CU_ASSERT_EQUAL(f->m.range.batch_max, 32);
    CU_ASSERT_EQUAL(f->m.range.kv_tokens_max, 8192 * 32);
    CU_ASSERT_STRING_EQUAL(f->m.machine, "<m&m>");
}

/* Over many noisy profiles the errors, in units of the standard errors that
 * the fit claims, have a mean square of nu / (nu - 2): 1.11 for the 20 degrees
 * of freedom of prefill, 1.13 for the 17 of decode (Student's t). */
static void test_standard_errors(void)
{
    enum { ROUNDS = 200 };
    uint64_t seed = cases_seed(1);
    double squares[7] = {0.0}, most = 0.0;
    for (int round = 0; round < ROUNDS; round++) {
        struct profile p =
            make_profile(true_prefill, true_decode, 1, 0.02, &seed);
        struct cost_model m;
        struct fit_report report;

        fit_ok(&p, &m, &report);
        for (int i = 0; i < 7; i++) {
            const struct fit_result *r =
                i < 4 ? &report.prefill.result : &report.decode.result;
            int j = i < 4 ? i : i - 4;
            double truth = i < 4 ? true_prefill[j] : true_decode[j];
            double t = (r->coefficient[j] - truth) / r->std_error[j];

            squares[i] += t * t / ROUNDS;
            most = fmax(most, fabs(t));
        }
        fit_report_fini(&report);
        profile_fini(&p);
    }
    for (int i = 0; i < 7; i++)
        CU_ASSERT(squares[i] > 0.7 && squares[i] < 1.7);
    CU_ASSERT(most < 6.5);
}

/* The constant alone, where all formulas are short: a weighted mean. */
FITTED_TEST(test_one_term, 1, 0.0, 1)
{
    static const struct fit_point points[4] = {
        {1, 0, 10.0, 1}, {2, 0, 20.0, 1}, {3, 0, 25.0, 1}, {4, 0, 12.0, 1}};
    const bool constant[4] = {true, false, false, false};
    struct fit_result r;
    double w = 0.0, wy = 0.0, chi2 = 0.0;

    CU_ASSERT_EQUAL_FATAL(
        fit_regress(f->report.prefill.form, points, 4, constant, &r), 0);
    for (int i = 0; i < 4; i++) {
        w += 1.0 / (points[i].us * points[i].us);
        wy += 1.0 / points[i].us;
    }
    for (int i = 0; i < 4; i++)
        chi2 += pow((points[i].us - wy / w) / points[i].us, 2.0);
    CU_ASSERT_DOUBLE_EQUAL(r.coefficient[0], wy / w, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(r.std_error[0], sqrt(chi2 / 3.0 / w), 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(r.chi2, chi2, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(r.r2, 0.0, 1e-9);
    CU_ASSERT_EQUAL(
        fit_regress(f->report.prefill.form, points, 1, constant, &r), -EDOM);
}

/* 5 % of the longest time is 33 times the constant: without weights it would
 * drown. */
FITTED_TEST(test_weights, 3, 0.05, cases_seed(1))
{
    CU_ASSERT_DOUBLE_EQUAL(f->m.prefill[0], 1000.0, 150.0);
    CU_ASSERT_DOUBLE_EQUAL(f->m.decode[0], 500.0, 60.0);
    CU_ASSERT(f->m.prefill_quality.p95_rel_error < 0.15);
    CU_ASSERT(f->m.prefill_quality.median_rel_error > 0.01);
}

static void test_median_of_repeats(void)
{
    uint64_t seed = 1;
    struct profile p = make_profile(true_prefill, true_decode, 3, 0.0, &seed);
    struct cost_model m;
    struct fit_report report;

    for (size_t i = 1; i < p.prefill.count; i += 3)
        p.prefill.row[i].us *= i % 2 == 0 ? 50.0 : 0.1;
    fit_ok(&p, &m, &report);
    CU_ASSERT_EQUAL(report.prefill.count, 24);
    CU_ASSERT_EQUAL(report.prefill.rows, 72);
    CU_ASSERT_EQUAL(report.prefill.points[5].repeats, 3);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_DOUBLE_EQUAL(m.prefill[i], true_prefill[i],
                               1e-9 * true_prefill[i]);
    fit_report_fini(&report);
    profile_fini(&p);
}

/* Two repeats: their mean. */
static void test_even_repeats(void)
{
    uint64_t seed = 1;
    struct profile p = make_profile(true_prefill, true_decode, 2, 0.0, &seed);
    struct cost_model m;
    struct fit_report report;

    /* The point (256, 1024), which costs 17138 us. */
    p.prefill.row[20].us = 30000.0;
    p.prefill.row[21].us = 20000.0;
    fit_ok(&p, &m, &report);
    CU_ASSERT_EQUAL(report.prefill.points[10].a, 256);
    CU_ASSERT_DOUBLE_EQUAL(report.prefill.points[10].us, 25000.0, 1e-9);
    CU_ASSERT_EQUAL(report.prefill.worst, 10);
    fit_report_fini(&report);
    profile_fini(&p);
}

FITTED_TEST(test_long_contexts, 1, 0.0, 1)
{
    static const double c[4] = {3000.0, 25.0, 4e-4, 8e-4};
    struct fit_point points[12];

    for (int i = 0; i < 12; i++) {
        double u = pow(10.0, 1 + i % 6), q = i < 6 ? 0.0 : 1e6;

        points[i] = (struct fit_point){
            (int64_t)u, (int64_t)q,
            c[0] + c[1] * u + c[2] * u * u + c[3] * u * q, 1};
    }
    const bool all[4] = {true, true, true, true};
    struct fit_result r;
    CU_ASSERT_EQUAL_FATAL(
        fit_regress(f->report.prefill.form, points, 12, all, &r), 0);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_DOUBLE_EQUAL(r.coefficient[i], c[i], 1e-6 * c[i]);
}

/* With as many folds as points, against the plain loop that leaves each point
 * out once. */
FITTED_TEST(test_cross_validation, 1, 0.1, cases_seed(1))
{
    const bool all[4] = {true, true, true, true};

    const struct fit_part *part = &f->report.decode;
    double rel[64];
    CU_ASSERT_FATAL(part->count <= 64);
    for (size_t i = 0; i < part->count; i++) {
        struct fit_point others[64];
        struct fit_result r;

        memcpy(others, part->points, part->count * sizeof(*others));
        others[i] = others[part->count - 1];
        CU_ASSERT_EQUAL_FATAL(
            fit_regress(part->form, others, part->count - 1, all, &r), 0);
        const struct fit_point *out = &part->points[i];
        rel[i] = fabs(fit_predict_us(part->form, &r, (double)out->a,
                                     (double)out->b) -
                      out->us) /
                 out->us;
    }
    replay_sort(rel, part->count);
    struct fit_errors errors;
    CU_ASSERT_EQUAL_FATAL(fit_cross_validate(part->form, part->points,
                                             part->count, 1000, all, &errors),
                          0);
    CU_ASSERT_DOUBLE_EQUAL(errors.median_rel,
                           replay_percentile(rel, part->count, 0.5), 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(errors.p95_rel,
                           replay_percentile(rel, part->count, 0.95), 1e-9);
}

static void test_quantile(void)
{
    const double x[] = {1.0, 2.0, 4.0};

    CU_ASSERT_DOUBLE_EQUAL(replay_percentile(x, 3, 0.0), 1.0, 0.0);
    CU_ASSERT_DOUBLE_EQUAL(replay_percentile(x, 3, 0.25), 1.5, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(replay_percentile(x, 3, 0.5), 2.0, 0.0);
    CU_ASSERT_DOUBLE_EQUAL(replay_percentile(x, 3, 0.75), 3.0, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(replay_percentile(x, 3, 1.0), 4.0, 0.0);
    CU_ASSERT_DOUBLE_EQUAL(replay_percentile(x, 1, 0.95), 1.0, 0.0);
}

/* Costs that fall with the cached tokens and with the batch. */
static void test_terms_left_out(void)
{
    static const double c[4] = {1000.0, 400.0, 0.05, -0.001};
    static const double d[3] = {500.0, -4.0, 0.05};
    uint64_t seed = 1;
    struct profile p = make_profile(c, d, 1, 0.0, &seed);
    struct cost_model m;
    struct fit_report report;

    fit_ok(&p, &m, &report);
    CU_ASSERT_DOUBLE_EQUAL(report.prefill.full.coefficient[3], -0.001, 1e-9);
    CU_ASSERT(report.prefill.result.used[0] && report.prefill.result.used[1] &&
              report.prefill.result.used[2]);
    CU_ASSERT_FALSE(report.prefill.result.used[3]);
    CU_ASSERT_DOUBLE_EQUAL(m.prefill[3], 0.0, 0.0);
    CU_ASSERT_FALSE(report.decode.result.used[1]);
    CU_ASSERT_DOUBLE_EQUAL(m.decode[1], 0.0, 0.0);
    CU_ASSERT(m.decode[0] > 0.0 && m.decode[2] > 0.0);
    CU_ASSERT(cost_model_prefill_least_slope_us(&m) >= 0.0);
    fit_report_fini(&report);
    profile_fini(&p);
}

/* A negative coefficient which does no harm in the range stays. */
static void test_harmless_negative(void)
{
    static const double c[4] = {-300.0, 40.0, -0.001, 0.02};
    uint64_t seed = 1;
    struct profile p = make_profile(c, true_decode, 1, 0.0, &seed);
    struct cost_model m;
    struct fit_report report;

    fit_ok(&p, &m, &report);
    CU_ASSERT_DOUBLE_EQUAL(m.prefill[0], -300.0, 1e-5);
    CU_ASSERT_DOUBLE_EQUAL(m.prefill[2], -0.001, 1e-9);
    fit_report_fini(&report);
    profile_fini(&p);
}

static void refused(const struct profile *p, int rc, const char *message)
{
    char err[256] = "";
    struct cost_model m;
    struct fit_report report;

    CU_ASSERT_EQUAL(fit_model(p, &m, &report, err, sizeof(err)), rc);
    if (strcmp(err, message) != 0)
        printf("\n  %s\n", err);
    CU_ASSERT_STRING_EQUAL(err, message);
}

static void test_refused(void)
{
    struct profile p = {.engine = "cpu"};

    refused(&p, -EINVAL, "prefill: 0 different points, at least 8 are needed");
    for (int i = 0; i < 20; i++)
        add_row(&p.prefill, 1 + i % 7, 0, 100.0 + i);
    refused(&p, -EINVAL, "prefill: 7 different points, at least 8 are needed");
    add_row(&p.prefill, 8, 0, 100.0);
    /* Decode rows never were looked at: prefill is first. */
    refused(&p, -EDOM,
            "prefill: 8 points with 8 different uncached_tokens and 1 "
            "different cached_tokens do not determine 4 coefficients: measure "
            "more combinations");
    for (int i = 0; i < 8; i++)
        add_row(&p.prefill, 1 + i, 16 * i * (i % 3), 100.0 + i);
    refused(&p, -EINVAL, "decode: 0 different points, at least 6 are needed");
    /* kv_tokens always 100 times the batch. */
    for (int i = 1; i <= 8; i++)
        add_row(&p.decode, i, 100 * i, 100.0 + i * i);
    refused(&p, -EDOM,
            "decode: 8 points with 8 different batch and 8 different "
            "kv_tokens do not determine 3 coefficients: measure more "
            "combinations");
    profile_fini(&p);
}

static const struct suite_test tests[] = {
    {"exact data", test_exact},
    {"standard errors", test_standard_errors},
    {"one term", test_one_term},
    {"weights", test_weights},
    {"median of repeats", test_median_of_repeats},
    {"even repeats", test_even_repeats},
    {"long contexts", test_long_contexts},
    {"cross-validation", test_cross_validation},
    {"quantile", test_quantile},
    {"terms left out", test_terms_left_out},
    {"harmless negative", test_harmless_negative},
    {"refused", test_refused},
};
SUITE("fit", tests)
