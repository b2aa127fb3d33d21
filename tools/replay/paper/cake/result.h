/* A table of the Cake paper beside what the model says of each row. */
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
    size_t n_skipped; /* the calibration does not know them */
    struct cake_errors io;
    struct cake_errors compute;
};

/*
 * Predicts every row of `table`, which is borrowed as long as the result is
 * used and called `name` in messages. Rows that the calibration does not know
 * are counted if `skip_unknown`, or else an error. Returns 0, -ENOENT (unknown,
 * or no row is left), -EINVAL (a row that no step can be made of) or -ENOMEM,
 * with "NAME:LINE: FIELD: what" in `error`. O(rows log rows).
 */
[[nodiscard]] int
cake_result_make(const struct cake_table *table, const char *name,
                 const struct cake_calibration *calibration, bool skip_unknown,
                 struct cake_result *result, char error[CAKE_ERROR_BYTES]);

/* Frees the lines. */
void cake_result_fini(struct cake_result *result);

/* Prints one line a row, published beside predicted, and the errors. */
void cake_result_print(const struct cake_result *result, FILE *file);

/* {"median_rel_error": {"speedup_io", "speedup_compute"}, "rows": [...]} as a
 * new reference, or NULL without memory. */
[[nodiscard]] json_t *cake_result_json(const struct cake_result *result);

/* Writes one line a row. Returns 0 or a negative errno. */
[[nodiscard]] int cake_result_csv(const struct cake_result *result,
                                  const char *path);

/* Writes predicted over published speed-ups as an SVG. 0 or a negative errno.
 */
[[nodiscard]] int cake_result_plot(const struct cake_result *result,
                                   const char *path);

#endif
