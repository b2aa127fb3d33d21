/* conductor-replay cake-fluctuation: budget and bandwidth that change. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "tools/plot/plot.h"
#include "tools/replay/command.h"
#include "tools/replay/paper/cake/options.h"
#include "tools/replay/paper/cake/process.h"
#include "tools/result_file.h"

static const struct option_usage usage = {
    .name = "cake-fluctuation",
    .synopsis = "[OPTIONS]",
    .text =
        "Simulates the Cake paper's fluctuation experiment: a cached prompt "
        "for which the\nengine has a budget drawn anew before every step "
        "(uniform in 0 to 512 tokens) and\nthe link a bandwidth drawn anew "
        "every period (uniform in 0 to 25 Gbit/s). Time to\nthe first token "
        "if it is computed alone, loaded alone, split where the load plan\n"
        "says from the means, and if computing and loading go on until they "
        "meet. Ideal is\nthe same meeting without steps, pieces and a last "
        "step. Nothing is measured here:\ncosts as in conductor-replay cake.",
    .examples =
        "  conductor-replay cake-fluctuation --plot f.svg --csv f.csv\n"
        "  conductor-replay cake-fluctuation --hardware H100 --tokens 8192 "
        "--runs 100\n",
};

struct settings {
    struct cake_options common;
    uint64_t budget_tokens;
    double gbps, period_ms;
    const char *csv, *plot;
};

/* All runs, one per seed. */
struct study {
    const struct settings *settings;
    struct cake_prediction planned; /* from the means */
    struct cake_fluctuated *runs;   /* (settings->common.runs), owned */
};

/* The ways compared: columns of the table, CSV and figure. */
static const struct way {
    const char *name;
    const char *column;
    size_t offset;
} ways[] = {
    {"computed", "compute_s", offsetof(struct cake_fluctuated, compute_s)},
    {"loaded", "load_s", offsetof(struct cake_fluctuated, load_s)},
    {"split as planned", "split_s", offsetof(struct cake_fluctuated, split_s)},
    {"both until met", "cake_s", offsetof(struct cake_fluctuated, cake_s)},
    {"ideal", "ideal_s", offsetof(struct cake_fluctuated, ideal_s)},
};

#define WAYS (sizeof ways / sizeof ways[0])

static double time_of(const struct cake_fluctuated *r, size_t way)
{
    return *(const double *)((const char *)r + ways[way].offset);
}

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        CAKE_OPTIONS_SPECS(s->common),
        {"budget", OPTION_COUNT, &s->budget_tokens, "N", 1, 1e6,
         "largest token budget of a step (default 512)"},
        {"gbps", OPTION_NUMBER, &s->gbps, "X", 1e-3, 1e6,
         "largest bandwidth, in Gbit/s (default 25)"},
        {"period-ms", OPTION_NUMBER, &s->period_ms, "X", 1, 1e6,
         "time between changes of bandwidth, in ms (default 100)"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0, "a line a run"},
        {"plot", OPTION_OUTPUT, &s->plot, "FILE", 0, 0,
         "draw all runs, and the first run's pointers, as SVG"},
    };
    return replay_parse(&usage, OPTION_TABLE(specs), argc, argv, status);
}

/* Plans with the means: half the budget, half the bandwidth. */
static int plan(struct study *study, const struct cake_calibration *calibration,
                char error[CAKE_ERROR_BYTES])
{
    const struct settings *s = study->settings;
    double mean =
        (double)s->budget_tokens / 2 / (double)calibration->chunk_tokens;
    struct cake_engine engine;

    if (mean > 1)
        return error_say(
            error, CAKE_ERROR_BYTES, -EINVAL,
            "--budget %llu: its mean is more than a step's %lld tokens",
            (unsigned long long)s->budget_tokens,
            (long long)calibration->chunk_tokens);
    int rc = cake_options_engine(&s->common, calibration, mean, s->gbps / 2,
                                 &engine, error);
    if (rc == 0) {
        rc = cake_engine_predict(&engine, &study->planned);
        snprintf(error, CAKE_ERROR_BYTES,
                 "--tokens %llu: take too long to compute",
                 (unsigned long long)s->common.setup.n_tokens);
    }
    return rc;
}

static int simulate(struct study *study, char error[CAKE_ERROR_BYTES])
{
    const struct settings *s = study->settings;
    struct cake_calibration calibration;
    struct cake_engine engine;
    int rc =
        cake_calibration_read_file(s->common.calibration, &calibration, error);

    if (rc == 0)
        rc = plan(study, &calibration, error);
    if (rc == 0) {
        rc = cake_options_engine(&s->common, &calibration, 1, s->gbps, &engine,
                                 error);
    }
    for (uint64_t i = 0; i < s->common.runs && rc == 0; i++) {
        const struct cake_fluctuation f = {
            .engine = &engine,
            .budget_max_tokens = (int64_t)s->budget_tokens,
            .gbps_max = s->gbps,
            .period_s = s->period_ms / 1e3,
            .seed = s->common.seed + i,
            .split_tokens = study->planned.split_tokens,
        };
        rc = cake_fluctuate(&f, &study->runs[i]);
        if (rc != 0) {
            snprintf(error, CAKE_ERROR_BYTES,
                     "seed %llu: the prompt takes more than a day",
                     (unsigned long long)f.seed);
        }
    }
    return rc;
}

/* Returns the mean over the runs of way a's time / way b's time. */
static double mean_ratio(const struct study *study, size_t a, size_t b)
{
    double sum = 0;

    for (uint64_t i = 0; i < study->settings->common.runs; i++)
        sum += time_of(&study->runs[i], a) / time_of(&study->runs[i], b);
    return sum / (double)study->settings->common.runs;
}

/* Returns the largest ratio of the combined time to the better single one. */
static double worst_ratio(const struct study *study)
{
    double worst = 0;

    for (uint64_t i = 0; i < study->settings->common.runs; i++) {
        const struct cake_fluctuated *r = &study->runs[i];

        worst = fmax(worst, r->cake_s / fmin(r->compute_s, r->load_s));
    }
    return worst;
}

static void print(const struct study *study)
{
    const struct settings *s = study->settings;
    double sums[WAYS] = {0};

    printf("simulated: %llu cached tokens of %s on %s, budget 0 to %llu tokens "
           "a step,\nbandwidth 0 to %g Gbit/s anew every %g ms; seconds to the "
           "first token\n\n%6s",
           (unsigned long long)s->common.setup.n_tokens, s->common.setup.model,
           s->common.setup.hardware, (unsigned long long)s->budget_tokens,
           s->gbps, s->period_ms, "seed");
    for (size_t w = 0; w < WAYS; w++)
        printf("  %16s", ways[w].name);
    putchar('\n');
    for (uint64_t i = 0; i < s->common.runs; i++) {
        printf("%6llu", (unsigned long long)(s->common.seed + i));
        for (size_t w = 0; w < WAYS; w++) {
            sums[w] += time_of(&study->runs[i], w);
            printf("  %16.3f", time_of(&study->runs[i], w));
        }
        putchar('\n');
    }
    printf("%6s", "mean");
    for (size_t w = 0; w < WAYS; w++)
        printf("  %16.3f", sums[w] / (double)s->common.runs);
    printf("\n\nTime to the first token over that of both until they meet, "
           "means of the runs:\ncomputed %.2f, loaded %.2f, split as planned "
           "%.3f, ideal %.3f. Both took at most\n%.2f times the better of "
           "computed and loaded. From the mean budget and bandwidth\nthe load "
           "plan expects %.3f s and %lld computed tokens.\n",
           mean_ratio(study, 0, 3), mean_ratio(study, 1, 3),
           mean_ratio(study, 2, 3), mean_ratio(study, 4, 3), worst_ratio(study),
           study->planned.cake_s, (long long)study->planned.split_tokens);
}

static int write_csv(const struct study *study, const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    fputs("seed", f);
    for (size_t w = 0; w < WAYS; w++)
        fprintf(f, ",%s", ways[w].column);
    fputs(",met_tokens,planned_s,planned_tokens\n", f);
    for (uint64_t i = 0; i < study->settings->common.runs; i++) {
        const struct cake_fluctuated *r = &study->runs[i];

        fprintf(f, "%llu",
                (unsigned long long)(study->settings->common.seed + i));
        for (size_t w = 0; w < WAYS; w++)
            fprintf(f, ",%.6f", time_of(r, w));
        fprintf(f, ",%lld,%.6f,%lld\n", (long long)r->met_tokens,
                study->planned.cake_s, (long long)study->planned.split_tokens);
    }
    return result_close(f);
}

static int write_plot(const struct study *study, const char *path)
{
    const struct cake_fluctuated *first = &study->runs[0];
    struct plot plot;
    int rc = plot_begin(&plot);

    if (rc == 0)
        rc = write_csv(study, plot.data);
    if (rc == 0)
        fputs("\nat_s,computed_tokens,loaded_tokens\n", plot.file);
    for (size_t i = 0; rc == 0 && i < first->n_course; i++) {
        fprintf(plot.file, "%.9g,%.9g,%.9g\n", first->course_s[i],
                first->computed_tokens[i], first->unloaded_tokens[i]);
    }
    return plot_end(&plot, rc, "cake_fluctuation",
                    "Budget and bandwidth that change (simulated)", path);
}

static int report(const struct study *study)
{
    const struct settings *s = study->settings;

    print(study);
    return REPLAY_OUTPUT(usage.name, s->csv, write_csv(study, s->csv)) |
           REPLAY_OUTPUT(usage.name, s->plot, write_plot(study, s->plot));
}

int replay_command_cake_fluctuation(int argc, char **argv)
{
    struct settings s = {.common = CAKE_OPTIONS_DEFAULT,
                         .budget_tokens = 512,
                         .gbps = 25,
                         .period_ms = 100};
    struct study study = {.settings = &s};
    char error[CAKE_ERROR_BYTES] = "out of memory";
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    study.runs = calloc(s.common.runs, sizeof study.runs[0]);
    if (!study.runs || simulate(&study, error) != 0)
        status = replay_complain(usage.name, "%s", error);
    else
        status = report(&study);
    free(study.runs);
    return status;
}
