/* Predictions of a whole table and their errors, as text, JSON, CSV and figure;
 * see result.h. */
#include "tools/replay/paper/cake/result.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "tools/plot/plot.h"
#include "tools/replay/math.h"
#include "tools/result_file.h"

static int predict(const struct cake_row *row,
                   const struct cake_calibration *calibration,
                   struct cake_line *line, char error[CAKE_ERROR_BYTES])
{
    struct cake_engine engine;
    int rc = cake_engine_init(&engine, calibration, &row->setup, error);

    if (rc != 0)
        return rc;
    rc = cake_engine_predict(&engine, &line->predicted);
    if (rc != 0)
        return error_say(error, CAKE_ERROR_BYTES, rc,
                         "seq_len: %lld tokens take too long to compute",
                         (long long)engine.n_tokens);
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

/* Returns the fastest of the three, as the paper names it. */
static const char *best_name(const struct cake_line *line)
{
    switch (line->predicted.best) {
    case LOAD_MODE_COMPUTE:
        return "compute";
    case LOAD_MODE_LOAD:
        return "load";
    default:
        return "both";
    }
}

void cake_result_print(const struct cake_result *r, FILE *file)
{
    fprintf(file, "%70s%-24s  %s\n", "", "speed-up over loading",
            "over computing");
    fprintf(file,
            "%-8s %5s %6s  %-15s %7s %6s %4s  %8s  %7s %9s %6s  %7s %9s %6s  "
            "%s\n",
            "hardware", "util", "Gbit/s", "model", "tokens", "chunk", "bits",
            "TTFT (s)", "paper", "predicted", "error", "paper", "predicted",
            "error", "fastest");
    for (size_t i = 0; i < r->n_lines; i++) {
        const struct cake_line *line = &r->lines[i];
        const struct cake_setup *s = &line->row->setup;
        const struct cake_prediction *p = &line->predicted;

        fprintf(file,
                "%-8s %4g%% %6g  %-15s %7lld %6lld %4u  %8.3f  %7.2f %9.2f "
                "%5.1f%%  %7.2f %9.2f %5.1f%%  %s\n",
                s->hardware, 100 * s->utilisation, s->bandwidth_gbps, s->model,
                (long long)s->n_tokens, (long long)s->chunk_tokens,
                (unsigned)s->kv_bits, p->cake_s, line->row->speedup_io,
                p->speedup_io, 100 * line->error_io, line->row->speedup_compute,
                p->speedup_compute, 100 * line->error_compute, best_name(line));
    }
    fprintf(file,
            "\n%zu row%s. Relative error over loading: median %.2f %%, largest "
            "%.2f %%;\nover computing: median %.2f %%, largest %.2f %%.\n",
            r->n_lines, r->n_lines == 1 ? "" : "s", 100 * r->io.median,
            100 * r->io.largest, 100 * r->compute.median,
            100 * r->compute.largest);
    if (r->n_skipped > 0) {
        fprintf(file, "%zu row%s skipped that the calibration does not know.\n",
                r->n_skipped, r->n_skipped == 1 ? "" : "s");
    }
}

static json_t *line_json(const struct cake_line *line)
{
    const struct cake_setup *s = &line->row->setup;
    const struct cake_prediction *p = &line->predicted;

    return json_pack(
        "{s:s, s:f, s:f, s:s, s:I, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:f,"
        " s:f, s:f, s:f, s:I, s:s}",
        "hardware", s->hardware, "util_pct", 100 * s->utilisation,
        "bandwidth_gbps", s->bandwidth_gbps, "model", s->model, "seq_len",
        (json_int_t)s->n_tokens, "chunk", (json_int_t)s->chunk_tokens,
        "kv_bits", (int)s->kv_bits, "speedup_io", line->row->speedup_io,
        "speedup_compute", line->row->speedup_compute, "predicted_speedup_io",
        p->speedup_io, "predicted_speedup_compute", p->speedup_compute,
        "rel_error_io", line->error_io, "rel_error_compute",
        line->error_compute, "predicted_cake_s", p->cake_s, "predicted_load_s",
        p->load_s, "predicted_compute_s", p->compute_s, "split_tokens",
        (json_int_t)p->split_tokens, "fastest", best_name(line));
}

json_t *cake_result_json(const struct cake_result *r)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < r->n_lines; i++) {
        if (json_array_append_new(rows, line_json(&r->lines[i])) != 0) {
            json_decref(rows);
            return NULL;
        }
    }
    /* Takes over `rows`; NULL rows give NULL. */
    return json_pack("{s:{s:f, s:f}, s:{s:f, s:f}, s:I, s:o}",
                     "median_rel_error", "speedup_io", r->io.median,
                     "speedup_compute", r->compute.median, "largest_rel_error",
                     "speedup_io", r->io.largest, "speedup_compute",
                     r->compute.largest, "skipped_rows",
                     (json_int_t)r->n_skipped, "rows", rows);
}

int cake_result_csv(const struct cake_result *r, const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    fputs("hardware,util_pct,bandwidth_gbps,model,seq_len,chunk,kv_bits,"
          "speedup_io,speedup_compute,predicted_speedup_io,"
          "predicted_speedup_compute,predicted_cake_s,predicted_load_s,"
          "predicted_compute_s,split_tokens,fastest\n",
          f);
    for (size_t i = 0; i < r->n_lines; i++) {
        const struct cake_line *line = &r->lines[i];
        const struct cake_setup *s = &line->row->setup;
        const struct cake_prediction *p = &line->predicted;

        fprintf(f,
                "%s,%g,%g,%s,%lld,%lld,%u,%g,%g,%.4f,%.4f,%.6f,%.6f,%.6f,"
                "%lld,%s\n",
                s->hardware, 100 * s->utilisation, s->bandwidth_gbps, s->model,
                (long long)s->n_tokens, (long long)s->chunk_tokens,
                (unsigned)s->kv_bits, line->row->speedup_io,
                line->row->speedup_compute, p->speedup_io, p->speedup_compute,
                p->cake_s, p->load_s, p->compute_s, (long long)p->split_tokens,
                best_name(line));
    }
    return result_close(f);
}

int cake_result_plot(const struct cake_result *r, const char *path)
{
    struct plot plot;
    int rc = plot_begin(&plot);

    if (rc == 0)
        rc = cake_result_csv(r, plot.data);
    return plot_end(&plot, rc, "cake",
                    "Cake's speed-ups: published and predicted", path);
}
