/* Fits a cost model to measurements; see model.h. */
#include "tools/fit/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tools/plot/plot.h"
#include "tools/replay/math.h"

static void prefill_basis(double u, double p, double *row)
{
    row[0] = 1.0;
    row[1] = u;
    row[2] = u * u;
    row[3] = u * p;
}

static void decode_basis(double batch, double kv_tokens, double *row)
{
    row[0] = 1.0;
    row[1] = batch;
    row[2] = kv_tokens;
}

static const struct fit_form prefill_form = {
    .name = "prefill",
    .terms = COST_MODEL_PREFILL_TERMS,
    .basis = prefill_basis,
    .term_names = {"1", "uncached", "uncached^2", "uncached*cached"},
};
static const struct fit_form decode_form = {
    .name = "decode",
    .terms = COST_MODEL_DECODE_TERMS,
    .basis = decode_basis,
    .term_names = {"1", "batch", "kv_tokens"},
};

static int compare_rows(const void *a, const void *b)
{
    const struct profile_row *x = a, *y = b;

    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    if (x->b != y->b)
        return x->b < y->b ? -1 : 1;
    return (x->us > y->us) - (x->us < y->us);
}

/* Returns the median of n rows of one point, sorted by time. */
static double median_us(const struct profile_row *row, size_t n)
{
    return (row[(n - 1) / 2].us + row[n / 2].us) / 2.0;
}

/* Makes one point of all repeats. On success part->points is owned. */
static int take_medians(struct fit_part *part, const struct profile_rows *rows)
{
    int rc = -ENOMEM;
    struct profile_row *sorted = calloc(rows->count + 1, sizeof(*sorted));

    part->points = calloc(rows->count + 1, sizeof(*part->points));
    if (!sorted || !part->points)
        goto free_sorted;
    if (rows->count > 0)
        memcpy(sorted, rows->row, rows->count * sizeof(*sorted));
    qsort(sorted, rows->count, sizeof(*sorted), compare_rows);
    part->rows = rows->count;
    part->count = 0;
    for (size_t i = 0, next; i < rows->count; i = next) {
        for (next = i + 1; next < rows->count; next++)
            if (sorted[next].a != sorted[i].a || sorted[next].b != sorted[i].b)
                break;
        part->points[part->count++] =
            (struct fit_point){sorted[i].a, sorted[i].b,
                               median_us(sorted + i, next - i), next - i};
    }
    rc = 0;
free_sorted:
    free(sorted);
    if (rc != 0) {
        free(part->points);
        part->points = NULL;
    }
    return rc;
}

/* Sets the model's range to the measured one. */
static void take_range(struct cost_model_range *range,
                       const struct fit_report *report)
{
    *range = (struct cost_model_range){.uncached_min_tokens = INT64_MAX};
    for (size_t i = 0; i < report->prefill.count; i++) {
        const struct fit_point *p = &report->prefill.points[i];

        if (p->a < range->uncached_min_tokens)
            range->uncached_min_tokens = p->a;
        if (p->a > range->uncached_max_tokens)
            range->uncached_max_tokens = p->a;
        if (p->b > range->cached_max_tokens)
            range->cached_max_tokens = p->b;
    }
    for (size_t i = 0; i < report->decode.count; i++) {
        const struct fit_point *p = &report->decode.points[i];

        if (p->a > range->batch_max)
            range->batch_max = p->a;
        if (p->b > range->kv_tokens_max)
            range->kv_tokens_max = p->b;
    }
}

/* Returns whether the polynomial stays above 0 and rises with the work. */
static bool makes_sense(const struct fit_form *form,
                        const struct fit_result *result,
                        const struct cost_model_range *range)
{
    struct cost_model m = {.range = *range};

    if (form == &prefill_form) {
        memcpy(m.prefill, result->coefficient, sizeof(m.prefill));
        return cost_model_prefill_least_us(&m) >= 0.0 &&
               cost_model_prefill_least_slope_us(&m) >= 0.0;
    }
    memcpy(m.decode, result->coefficient, sizeof(m.decode));
    return cost_model_decode_least_us(&m) >= 0.0 && m.decode[1] >= 0.0 &&
           m.decode[2] >= 0.0;
}

/* Tries every set of terms, at most 15. If a set that makes sense contains
 * another, the smaller one never has less chi2: no useful term is lost. */
static int choose_terms(struct fit_part *part,
                        const struct cost_model_range *range)
{
    const struct fit_form *form = part->form;
    bool found = false;

    for (unsigned set = 1; set < 1U << form->terms; set++) {
        bool used[FIT_MAX_TERMS] = {false};
        struct fit_result result;

        for (size_t j = 0; j < form->terms; j++)
            used[j] = (set >> j & 1U) != 0;
        int rc = fit_regress(form, part->points, part->count, used, &result);
        if (rc != 0)
            return rc;
        if (!makes_sense(form, &result, range))
            continue;
        if (!found || result.chi2 < part->result.chi2)
            part->result = result;
        found = true;
    }
    /* The constant alone always makes sense: it is a mean of positive times. */
    return found ? 0 : -EIO;
}

/* Returns the number of distinct values of a, or of b. */
static size_t count_distinct(const struct fit_part *part, bool of_b)
{
    size_t distinct = 0;
    double *values = calloc(part->count, sizeof(*values));

    if (!values)
        return 0;
    for (size_t i = 0; i < part->count; i++)
        values[i] = (double)(of_b ? part->points[i].b : part->points[i].a);
    replay_sort(values, part->count);
    for (size_t i = 0; i < part->count; i++)
        distinct += i == 0 || values[i] > values[i - 1];
    free(values);
    return distinct;
}

/* Writes to err why the fit failed. */
static int explain(const struct fit_part *part, int rc, char *err,
                   size_t err_size)
{
    const char *name = part->form->name;
    bool prefill = part->form == &prefill_form;

    if (rc == -EDOM)
        snprintf(
            err, err_size,
            "%s: %zu points with %zu different %s and %zu different %s do not "
            "determine %zu coefficients: measure more combinations",
            name, part->count, count_distinct(part, false),
            prefill ? "uncached_tokens" : "batch", count_distinct(part, true),
            prefill ? "cached_tokens" : "kv_tokens", part->form->terms);
    else
        snprintf(err, err_size, "%s: %s", name, strerror(-rc));
    return rc;
}

static double rel_error(const struct fit_part *part, size_t i)
{
    const struct fit_point *p = &part->points[i];
    double us =
        fit_predict_us(part->form, &part->result, (double)p->a, (double)p->b);

    return fabs(us - p->us) / p->us;
}

static int fit_one(struct fit_part *part, const struct cost_model_range *range,
                   size_t min_points, char *err, size_t err_size)
{
    const bool all[FIT_MAX_TERMS] = {true, true, true, true};

    if (part->count < min_points)
        return error_say(err, err_size, -EINVAL,
                         "%s: %zu different points, at least %zu are needed",
                         part->form->name, part->count, min_points);
    int rc =
        fit_regress(part->form, part->points, part->count, all, &part->full);
    part->result = part->full;
    if (rc == 0 && !makes_sense(part->form, &part->full, range))
        rc = choose_terms(part, range);
    if (rc == 0)
        rc = fit_cross_validate(part->form, part->points, part->count,
                                FIT_FOLDS, part->result.used, &part->errors);
    if (rc != 0)
        return explain(part, rc, err, err_size);
    part->worst = 0;
    for (size_t i = 1; i < part->count; i++)
        if (rel_error(part, i) > rel_error(part, part->worst))
            part->worst = i;
    return 0;
}

static struct cost_model_quality quality(const struct fit_part *part)
{
    return (struct cost_model_quality){part->result.r2, part->errors.median_rel,
                                       part->errors.p95_rel};
}

static void fill_model(struct cost_model *m, const struct profile *profile,
                       const struct fit_report *report)
{
    memset(m, 0, sizeof(*m));
    memcpy(m->engine, profile->engine, sizeof(m->engine));
    memcpy(m->model, profile->model, sizeof(m->model));
    memcpy(m->machine, profile->machine, sizeof(m->machine));
    memcpy(m->date, profile->date, sizeof(m->date));
    m->block_tokens = profile->block_tokens;
    memcpy(m->prefill, report->prefill.result.coefficient, sizeof(m->prefill));
    memcpy(m->decode, report->decode.result.coefficient, sizeof(m->decode));
    take_range(&m->range, report);
    m->prefill_quality = quality(&report->prefill);
    m->decode_quality = quality(&report->decode);
}

int fit_model(const struct profile *profile, struct cost_model *m,
              struct fit_report *report, char *err, size_t err_size)
{
    struct cost_model_range range;

    *report = (struct fit_report){.prefill.form = &prefill_form,
                                  .decode.form = &decode_form};
    int rc = take_medians(&report->prefill, &profile->prefill);
    if (rc == 0)
        rc = take_medians(&report->decode, &profile->decode);
    if (rc != 0) {
        snprintf(err, err_size, "%s", strerror(-rc));
        goto free_report;
    }
    take_range(&range, report);
    rc = fit_one(&report->prefill, &range, FIT_MIN_PREFILL_POINTS, err,
                 err_size);
    if (rc == 0)
        rc = fit_one(&report->decode, &range, FIT_MIN_DECODE_POINTS, err,
                     err_size);
    if (rc != 0)
        goto free_report;
    fill_model(m, profile, report);
    return 0;
free_report:
    fit_report_fini(report);
    return rc;
}

void fit_report_fini(struct fit_report *report)
{
    free(report->prefill.points);
    free(report->decode.points);
    *report = (struct fit_report){0};
}

/* Writes a line for each point. */
static void put_points(FILE *f, const char *name, const struct fit_part *part)
{
    for (size_t i = 0; i < part->count; i++) {
        const struct fit_point *at = &part->points[i];

        fprintf(f, "%s,%.1f,%.1f,%.9g,%.9g\n", name,
                100 * part->errors.median_rel, 100 * part->errors.p95_rel,
                at->us / 1e3,
                fit_predict_us(part->form, &part->result, (double)at->a,
                               (double)at->b) /
                    1e3);
    }
}

int fit_plot_save(const char *path, const struct cost_model *m,
                  const struct fit_report *report, char *err, size_t err_size)
{
    char title[4 * COST_MODEL_NAME_BYTES + sizeof(" on , , ")];
    struct plot plot;
    int rc = plot_begin(&plot);

    snprintf(title, sizeof title, "%s on %s, %s, %s", m->model, m->engine,
             m->machine, m->date);
    if (rc == 0) {
        fputs("part,median_percent,p95_percent,measured_ms,predicted_ms\n",
              plot.file);
        put_points(plot.file, "Prefill", &report->prefill);
        put_points(plot.file, "Decode step", &report->decode);
    }
    rc = plot_end(&plot, rc, "fit", title, path);
    if (rc != 0)
        snprintf(err, err_size, "plot %s: %s", path, plot_error(rc));
    return rc;
}
