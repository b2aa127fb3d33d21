/* From measurements to a cost model: medians of repeats, the two regressions,
 * and the choice of terms. Part of conductor-fit.
 */
#ifndef TOOLS_FIT_MODEL_H
#define TOOLS_FIT_MODEL_H

#include "predictor/profile_csv.h"
#include "tools/fit/regress.h"

/* Different points that each form needs: twice as many as it has terms, so
 * that the residuals and the cross-validation mean something. */
#define FIT_MIN_PREFILL_POINTS 8
#define FIT_MIN_DECODE_POINTS 6
#define FIT_FOLDS 10

/* One polynomial and how it was found. `points` is owned, ordered by (a, b).
 * `full` is the fit with all terms; `result` the one that was taken. */
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

/* Fits both polynomials to the profile.
 * Repeats of a point count as one, their median: an interrupted measurement
 * then moves nothing. If the fit with all terms falls below 0, or falls where
 * the work rises, anywhere in the measured range, it is replaced by the fit
 * with the least chi2 among those with fewer terms that do neither; result.used
 * then differs from full.used.
 * Borrows the profile. Returns 0 with `m` and `report` filled in (the caller
 * owns the report's points: fit_report_fini()); or a negative errno with a
 * message in err (err_size bytes), nothing to free and `m` untouched: -EINVAL
 * for too few points, -EDOM for points that do not determine the coefficients,
 * -ENOMEM, -EIO. */
[[nodiscard]] int fit_model(const struct profile *profile, struct cost_model *m,
                            struct fit_report *report, char *err,
                            size_t err_size);

/* Frees what the report owns. */
void fit_report_fini(struct fit_report *report);

/* Writes the file `path`: a frame for prefill and one for decode, both axes
 * logarithmic, one dot a point, the diagonal, and 10 % to either side of it.
 * Borrows everything.
 * Returns 0, or what chart_write() does with a message in err (err_size
 * bytes). */
[[nodiscard]] int fit_plot_save(const char *path, const struct cost_model *m,
                                const struct fit_report *report, char *err,
                                size_t err_size);

#endif
