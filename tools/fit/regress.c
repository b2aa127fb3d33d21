/* Weighted polynomial regression and cross-validation. See model.h. */
#include <errno.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#include "tools/fit/model.h"
#include "tools/replay/math.h"
#include "traces/random.h"

/* Columns are scaled to 1: this share of a column must not be a combination of
 * the others. */
#define RANK_TOLERANCE 1e-8

#define SPLITMIX_STEP UINT64_C(0x9e3779b97f4a7c15)

/* The vectors and matrices of one fit; all owned. */
struct system {
    gsl_matrix *x;
    gsl_vector *w;
    gsl_vector *y;
    gsl_vector *c;
    gsl_matrix *covariance;
    gsl_multifit_linear_workspace *work;
    double scale[FIT_MAX_TERMS];
};

static void system_fini(struct system *s)
{
    gsl_multifit_linear_free(s->work);
    gsl_matrix_free(s->covariance);
    gsl_vector_free(s->c);
    gsl_vector_free(s->y);
    gsl_vector_free(s->w);
    gsl_matrix_free(s->x);
}

static int system_init(struct system *s, size_t points, size_t terms)
{
    *s = (struct system){
        .x = gsl_matrix_alloc(points, terms),
        .w = gsl_vector_alloc(points),
        .y = gsl_vector_alloc(points),
        .c = gsl_vector_alloc(terms),
        .covariance = gsl_matrix_alloc(terms, terms),
        .work = gsl_multifit_linear_alloc(points, terms),
    };
    if (!s->x || !s->w || !s->y || !s->c || !s->covariance || !s->work) {
        system_fini(s);
        return -ENOMEM;
    }
    return 0;
}

/* Fills in the points and scales each column to a largest value of 1.
 * Returns -EDOM for a column of zeros. */
static int system_fill(struct system *s, const struct fit_form *form,
                       const struct fit_point *points, size_t count,
                       const bool *used)
{
    for (size_t i = 0; i < count; i++) {
        double row[FIT_MAX_TERMS];

        form->basis((double)points[i].a, (double)points[i].b, row);
        for (size_t j = 0, column = 0; j < form->terms; j++)
            if (used[j])
                gsl_matrix_set(s->x, i, column++, row[j]);
        gsl_vector_set(s->w, i, 1.0 / (points[i].us * points[i].us));
        gsl_vector_set(s->y, i, points[i].us);
    }
    for (size_t column = 0; column < s->x->size2; column++) {
        gsl_vector_view view = gsl_matrix_column(s->x, column);
        double high = gsl_vector_max(&view.vector);

        if (!(high > 0.0))
            return -EDOM;
        s->scale[column] = high;
        gsl_vector_scale(&view.vector, 1.0 / high);
    }
    return 0;
}

/* Solves the system, and undoes the scaling. */
static int system_solve(struct system *s, const bool *used,
                        struct fit_result *result)
{
    const size_t count = s->y->size, terms = s->c->size;
    double chi2 = 0.0;

    if (gsl_multifit_wlinear(s->x, s->w, s->y, s->c, s->covariance, &chi2,
                             s->work) != GSL_SUCCESS)
        return -EIO;
    if (gsl_multifit_linear_rank(RANK_TOLERANCE, s->work) < terms)
        return -EDOM;
    double total = gsl_stats_wtss(s->w->data, s->w->stride, s->y->data,
                                  s->y->stride, count);
    /* The weights are relative: the residuals give their scale. */
    double variance = chi2 / (double)(count - terms);
    *result = (struct fit_result){.r2 = total > 0.0 ? 1.0 - chi2 / total : 0.0,
                                  .chi2 = chi2};
    for (size_t j = 0, column = 0; column < terms; j++) {
        result->used[j] = used[j];
        if (!used[j])
            continue;
        double unscale = 1.0 / s->scale[column];
        result->coefficient[j] = gsl_vector_get(s->c, column) * unscale;
        result->std_error[j] =
            sqrt(variance * gsl_matrix_get(s->covariance, column, column)) *
            unscale;
        column++;
    }
    return 0;
}

int fit_regress(const struct fit_form *form, const struct fit_point *points,
                size_t count, const bool used[FIT_MAX_TERMS],
                struct fit_result *result)
{
    size_t terms = 0;

    for (size_t j = 0; j < form->terms; j++)
        terms += used[j];
    if (terms == 0 || count <= terms)
        return -EDOM;
    /* GSL's default handler ends the program. */
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    struct system s;
    int rc = system_init(&s, count, terms);
    if (rc != 0)
        goto restore_handler;
    rc = system_fill(&s, form, points, count, used);
    if (rc == 0)
        rc = system_solve(&s, used, result);
    system_fini(&s);
restore_handler:
    gsl_set_error_handler(handler);
    return rc;
}

double fit_predict_us(const struct fit_form *form,
                      const struct fit_result *result, double a, double b)
{
    double row[FIT_MAX_TERMS], us = 0.0;

    form->basis(a, b, row);
    for (size_t j = 0; j < form->terms; j++)
        us += result->coefficient[j] * row[j];
    return us;
}

/* Returns a shuffled copy of the points, owned. In grid order, a fold could be
 * a row of the grid. */
static struct fit_point *shuffled(const struct fit_point *points, size_t count)
{
    struct fit_point *copy = calloc(count, sizeof(*copy));

    if (!copy)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t j = (size_t)(random_mix(1 + i * SPLITMIX_STEP) % (i + 1));

        copy[i] = copy[j];
        copy[j] = points[i];
    }
    return copy;
}

/* Fits to all points outside one fold, and writes the relative errors of the
 * fold's points. `others` has room for all points. */
static int validate_fold(const struct fit_form *form,
                         const struct fit_point *points, size_t count,
                         size_t folds, size_t fold, const bool *used,
                         struct fit_point *others, double *rel)
{
    struct fit_result result;
    size_t other_count = 0;

    for (size_t i = 0; i < count; i++)
        if (i % folds != fold)
            others[other_count++] = points[i];
    int rc = fit_regress(form, others, other_count, used, &result);
    if (rc != 0)
        return rc;
    for (size_t i = fold; i < count; i += folds) {
        double us = fit_predict_us(form, &result, (double)points[i].a,
                                   (double)points[i].b);

        rel[i] = fabs(us - points[i].us) / points[i].us;
    }
    return 0;
}

int fit_cross_validate(const struct fit_form *form,
                       const struct fit_point *points, size_t count,
                       size_t folds, const bool used[FIT_MAX_TERMS],
                       struct fit_errors *errors)
{
    if (count < 2)
        return -EDOM;
    if (folds > count)
        folds = count;
    int rc = -ENOMEM;
    struct fit_point *order = shuffled(points, count);
    struct fit_point *others = calloc(count, sizeof(*others));
    double *rel = calloc(count, sizeof(*rel));
    if (!order || !others || !rel)
        goto free_all;
    rc = 0;
    for (size_t fold = 0; rc == 0 && fold < folds; fold++)
        rc = validate_fold(form, order, count, folds, fold, used, others, rel);
    if (rc != 0)
        goto free_all;
    replay_sort(rel, count);
    errors->median_rel = replay_percentile(rel, count, 0.5);
    errors->p95_rel = replay_percentile(rel, count, 0.95);
free_all:
    free(rel);
    free(others);
    free(order);
    return rc;
}
