/* A table of the Cake paper beside the model's predictions. */
#ifndef TOOLS_REPLAY_PAPER_CAKE_RESULT_H
#define TOOLS_REPLAY_PAPER_CAKE_RESULT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "tools/replay/paper/cake/model.h"

/* A row and its prediction. */
struct cake_line {
    const struct cake_row *row; /* borrowed from the table */
    struct cake_prediction predicted;
    double error_io; /* abs(predicted / published - 1) */
    double error_compute;
};

struct cake_errors {
    double median;
    double largest;
};

/* Owned lines, in the order of the table. */
struct cake_result {
    struct cake_line *lines;
    size_t n_lines;
    size_t n_skipped; /* rows unknown to the calibration */
    struct cake_errors io;
    struct cake_errors compute;
};

/*
 * Predicts every row of `table`, which must outlive the result; `name` stands
 * for the table in messages. Rows unknown to the calibration are skipped and
 * counted if `skip_unknown`, else an error. Returns 0, -ENOENT (unknown row, or
 * no row left), -EINVAL (a row without a valid step) or -ENOMEM, with
 * "NAME:LINE: FIELD: what" in `error`. O(rows log rows).
 */
[[nodiscard]] int
cake_result_make(const struct cake_table *table, const char *name,
                 const struct cake_calibration *calibration, bool skip_unknown,
                 struct cake_result *result, char error[CAKE_ERROR_BYTES]);

/* Frees the lines. */
void cake_result_fini(struct cake_result *result);

/* Prints one line per row, published beside predicted, and the errors. */
void cake_result_print(const struct cake_result *result, FILE *file);

/* Returns {"median_rel_error": {"speedup_io", "speedup_compute"}, "rows":
 * [...]} as a new reference, or NULL when out of memory. */
[[nodiscard]] json_t *cake_result_json(const struct cake_result *result);

/* Writes one line per row. Returns 0 or a negative errno. */
[[nodiscard]] int cake_result_csv(const struct cake_result *result,
                                  const char *path);

/* Draws predicted over published speed-ups as an SVG. Returns 0 or a negative
 * errno. */
[[nodiscard]] int cake_result_plot(const struct cake_result *result,
                                   const char *path);

#endif
