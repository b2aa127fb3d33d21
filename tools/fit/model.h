/* Fits a cost model to measurements: medians of repeats, the two regressions,
 * the choice of terms. Part of conductor-fit. */
#ifndef TOOLS_FIT_MODEL_H
#define TOOLS_FIT_MODEL_H

#include "predictor/profile_csv.h"
#include "tools/fit/regress.h"

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
