/* Fits a cost model to measurements: medians of repeats, the two regressions,
 * the choice of terms. Part of conductor-fit. */
#ifndef TOOLS_FIT_MODEL_H
#define TOOLS_FIT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "predictor/profile_csv.h"

#define FIT_MAX_TERMS 4

/* One point of the grid: the median time of its repeats. a, b: uncached and
 * cached tokens, or batch size and KV tokens. */
struct fit_point {
    int64_t a;
    int64_t b;
    double us;
    size_t repeats;
};

/* The basis functions of (a, b): basis() writes `terms` values to row. */
struct fit_form {
    const char *name; /* "prefill" or "decode" */
    size_t terms;     /* at most FIT_MAX_TERMS */
    void (*basis)(double a, double b, double *row);
    const char *term_names[FIT_MAX_TERMS];
};

/* coefficient and std_error are in us per unit of the term, 0 for an unused
 * term. r2 is the weighted one. */
struct fit_result {
    bool used[FIT_MAX_TERMS];
    double coefficient[FIT_MAX_TERMS];
    double std_error[FIT_MAX_TERMS];
    double r2;
    double chi2; /* sum of squared relative errors */
};

struct fit_errors {
    double median_rel;
    double p95_rel;
};

/* Minimises the sum of ((us - sum_j c_j basis_j(a, b)) / us)^2 over the terms
 * with used[j]: least squares with weights 1 / us^2, so that a relative error
 * counts alike for short and long measurements. First scales each column to a
 * largest value of 1. Standard errors come from the residuals: chi2 / (points -
 * terms used) times the inverse of X'WX.
 * Borrows everything. Returns 0; -EDOM if the points do not determine the
 * coefficients (their matrix is rank deficient, or there are no more points
 * than terms); -ENOMEM; -EIO if GSL reports another error. O(points). */
[[nodiscard]] int fit_regress(const struct fit_form *form,
                              const struct fit_point *points, size_t count,
                              const bool used[FIT_MAX_TERMS],
                              struct fit_result *result);

/* Returns the prediction of `result` at (a, b), in us, unclamped. */
double fit_predict_us(const struct fit_form *form,
                      const struct fit_result *result, double a, double b);

/* Cross-validates with at most `folds` folds (fewer if there are fewer points):
 * predicts each point by a fit to the points of the other folds. A fixed
 * shuffle assigns points to folds, so every run is the same. Sets the median
 * and the 95th percentile of the relative errors |predicted - us| / us. Errors
 * as for fit_regress(): -EDOM means that the points without one fold do not
 * determine the coefficients. */
[[nodiscard]] int fit_cross_validate(const struct fit_form *form,
                                     const struct fit_point *points,
                                     size_t count, size_t folds,
                                     const bool used[FIT_MAX_TERMS],
                                     struct fit_errors *errors);

/* Different points that each form needs: twice its number of terms, so that
 * residuals and cross-validation mean something. */
#define FIT_MIN_PREFILL_POINTS 8
#define FIT_MIN_DECODE_POINTS 6
#define FIT_FOLDS 10

/* One polynomial and its fit. `points` is owned, ordered by (a, b). `full` is
 * the fit with all terms, `result` the fit taken. */
struct fit_part {
    const struct fit_form *form;
    struct fit_point *points;
    size_t count;
    size_t rows; /* measurements, repeats included */
    struct fit_result full;
    struct fit_result result;
    struct fit_errors errors; /* cross-validated */
    size_t worst;             /* the point with the largest relative error */
};

struct fit_report {
    struct fit_part prefill;
    struct fit_part decode;
};

/* Fits both polynomials to the profile (borrowed).
 * Repeats of a point count as one point, their median, so that an interrupted
 * measurement changes nothing. If the fit with all terms is negative, or falls
 * while the work rises, anywhere in the measured range, the fit with fewer
 * terms and the least chi2 that does neither replaces it; result.used then
 * differs from full.used.
 * Returns 0 with `m` and `report` filled in (free with fit_report_fini()); or a
 * negative errno with a message in err (err_size bytes), nothing to free and
 * `m` untouched: -EINVAL for too few points, -EDOM for points that do not
 * determine the coefficients, -ENOMEM, -EIO. */
[[nodiscard]] int fit_model(const struct profile *profile, struct cost_model *m,
                            struct fit_report *report, char *err,
                            size_t err_size);

/* Frees the report's points. */
void fit_report_fini(struct fit_report *report);

/* Writes a picture to `path`: one frame each for prefill and decode,
 * logarithmic axes, one dot per point, the diagonal, and lines 10 % above and
 * below it. Borrows everything.
 * Returns 0, or an error of plot_end() with a message in err (err_size
 * bytes). */
[[nodiscard]] int fit_plot_save(const char *path, const struct cost_model *m,
                                const struct fit_report *report, char *err,
                                size_t err_size);

#endif
