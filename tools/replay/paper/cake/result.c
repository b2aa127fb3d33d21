/* Predictions of a whole table and their errors; see result.h. */
#include "tools/replay/paper/cake/result.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/math.h"

static int predict(const struct cake_row *row,
                   const struct cake_calibration *calibration,
                   struct cake_line *line, char error[CAKE_ERROR_BYTES])
{
    struct cake_engine engine;
    int rc = cake_engine_init(&engine, calibration, &row->setup, error);

    if (rc != 0)
        return rc;
    rc = cake_engine_predict(&engine, &line->predicted);
    if (rc != 0) {
        snprintf(error, CAKE_ERROR_BYTES,
                 "seq_len: %lld tokens take too long to compute",
                 (long long)engine.n_tokens);
        return rc;
    }
    line->row = row;
    line->error_io = fabs(line->predicted.speedup_io / row->speedup_io - 1);
    line->error_compute =
        fabs(line->predicted.speedup_compute / row->speedup_compute - 1);
    return 0;
}

static int sum_up(struct cake_result *r)
{
    double *values = malloc(2 * r->n_lines * sizeof values[0]);

    if (!values)
        return -ENOMEM;
    double *compute = values + r->n_lines;
    for (size_t i = 0; i < r->n_lines; i++) {
        values[i] = r->lines[i].error_io;
        compute[i] = r->lines[i].error_compute;
    }
    struct replay_summary io = replay_summarise(values, r->n_lines);
    struct replay_summary of_compute = replay_summarise(compute, r->n_lines);
    r->io = (struct cake_errors){io.p50, io.max};
    r->compute = (struct cake_errors){of_compute.p50, of_compute.max};
    free(values);
    return 0;
}

int cake_result_make(const struct cake_table *table, const char *name,
                     const struct cake_calibration *calibration,
                     bool skip_unknown, struct cake_result *result,
                     char error[CAKE_ERROR_BYTES])
{
    struct cake_result r = {.lines = calloc(table->count, sizeof *r.lines)};
    char what[CAKE_ERROR_BYTES] = "";
    int rc = !r.lines ? -ENOMEM : 0;
    size_t line = 0;

    for (size_t i = 0; i < table->count && rc == 0; i++) {
        line = table->rows[i].line;
        rc = predict(&table->rows[i], calibration, &r.lines[r.n_lines], what);
        if (rc == -ENOENT && skip_unknown) {
            rc = 0;
            r.n_skipped++;
        } else if (rc == 0) {
            r.n_lines++;
        }
    }
    if (rc == 0 && r.n_lines == 0) {
        rc = -ENOENT;
        snprintf(what, sizeof what, "no row is known to the calibration");
    }
    if (rc == 0)
        rc = sum_up(&r);
    if (rc == -ENOMEM)
        snprintf(what, sizeof what, "out of memory");
    if (rc != 0) {
        snprintf(error, CAKE_ERROR_BYTES, "%.160s:%zu: %.300s", name, line,
                 what);
        cake_result_fini(&r);
        return rc;
    }
    *result = r;
    return 0;
}

void cake_result_fini(struct cake_result *result)
{
    free(result->lines);
    *result = (struct cake_result){0};
}
