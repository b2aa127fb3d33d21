/* conductor-replay cake-adaptive: a cached prompt among short ones. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/plot/plot.h"
#include "tools/replay/command.h"
#include "tools/replay/list.h"
#include "tools/replay/paper/cake/options.h"
#include "tools/replay/paper/cake/process.h"
#include "tools/result_file.h"
#include "traces/random.h"

static const struct option_usage usage = {
    .name = "cake-adaptive",
    .synopsis = "[OPTIONS]",
    .text =
        "Simulates the Cake paper's adaptive-scheduling experiment: one cached "
        "prompt, followed\nby short uncached prompts of 32 to 448 tokens "
        "(drawn), in steps of 512 tokens. Two\norders: first come, first "
        "served (fifo), and uncached prompts first\n(uncached_first), so that "
        "the cached prompt loads meanwhile. Nothing is measured\nhere: costs "
        "as in conductor-replay cake, and there are no decode steps.",
    .examples =
        "  conductor-replay cake-adaptive --plot a.svg --csv a.csv\n"
        "  conductor-replay cake-adaptive --bandwidths 56 --short 50 --runs "
        "100\n",
};

static const char *const orders[] = {"fifo", "uncached_first"};

#define ORDERS (sizeof orders / sizeof orders[0])

struct settings {
    struct cake_options common;
    struct replay_numbers gbps;
    uint64_t n_short, least_tokens, most_tokens;
    const char *bandwidths, *csv, *plot;
};

/* Means over the runs at one bandwidth, by order. */
struct point {
    struct cake_mixed of[ORDERS];
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        CAKE_OPTIONS_SPECS(s->common),
        {"bandwidths", OPTION_TEXT, &s->bandwidths, "LIST", 0, 0,
         "bandwidths for loading, in Gbit/s (default 7,25,32,56,100)"},
        {"short", OPTION_COUNT, &s->n_short, "N", 1, CAKE_SHORT_MAX,
         "number of uncached prompts (default 22)"},
        {"short-min", OPTION_COUNT, &s->least_tokens, "N", 1, 1e6,
         "shortest uncached prompt, in tokens (default 32)"},
        {"short-max", OPTION_COUNT, &s->most_tokens, "N", 1, 1e6,
         "longest uncached prompt, in tokens (default 448)"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0,
         "write one line per bandwidth and order"},
        {"plot", OPTION_OUTPUT, &s->plot, "FILE", 0, 0, "SVG"},
    };
    char error[REPLAY_LIST_ERROR_BYTES];
    if (replay_parse(&usage, OPTION_TABLE(specs), argc, argv, status) != 0)
        return -1;
    *status = REPLAY_EXIT_USAGE;
    if (replay_list_numbers("bandwidths", s->bandwidths, 1e-3, 1e6, &s->gbps,
                            error) != 0)
        return replay_complain(usage.name, "%s", error);
    if (s->most_tokens < s->least_tokens)
        return replay_complain(usage.name,
                               "--short-max %llu: less than --short-min",
                               (unsigned long long)s->most_tokens);
    return 0;
}

static void add(struct cake_mixed *sum, const struct cake_mixed *one,
                double share)
{
    sum->done_s += one->done_s * share;
    sum->cached_s += one->cached_s * share;
    sum->short_mean_s += one->short_mean_s * share;
    sum->computed_tokens += one->computed_tokens * share;
    sum->tokens_per_s += one->tokens_per_s * share;
}

/* Runs both orders with the short prompts of one seed. */
static int run(const struct settings *s, const struct cake_engine *engine,
               uint64_t seed, struct point *point)
{
    int64_t tokens[CAKE_SHORT_MAX];
    struct random_state dice;

    random_init(&dice, seed);
    for (uint64_t i = 0; i < s->n_short; i++) {
        uint32_t span = (uint32_t)(s->most_tokens - s->least_tokens + 1);

        tokens[i] = (int64_t)s->least_tokens + random_below(&dice, span);
    }
    for (size_t o = 0; o < ORDERS; o++) {
        const struct cake_mix mix = {.engine = engine,
                                     .short_tokens = tokens,
                                     .n_short = s->n_short,
                                     .order = orders[o]};
        struct cake_mixed one;
        int rc = cake_mix_run(&mix, &one);

        if (rc != 0)
            return rc;
        add(&point->of[o], &one, 1 / (double)s->common.runs);
    }
    return 0;
}

static int simulate(const struct settings *s, struct point *points,
                    char error[CAKE_ERROR_BYTES])
{
    struct cake_calibration calibration;
    int rc =
        cake_calibration_read_file(s->common.calibration, &calibration, error);

    for (size_t b = 0; b < s->gbps.count && rc == 0; b++) {
        struct cake_engine engine;

        rc = cake_options_engine(&s->common, &calibration, 1, s->gbps.values[b],
                                 &engine, error);
        for (uint64_t i = 0; i < s->common.runs && rc == 0; i++) {
            rc = run(s, &engine, s->common.seed + i, &points[b]);
            snprintf(error, CAKE_ERROR_BYTES, "%s", strerror(-rc));
        }
    }
    return rc;
}

static void print(const struct settings *s, const struct point *points)
{
    printf("simulated: %llu cached tokens of %s on %s, then %llu prompts of "
           "%llu to %llu\ntokens; means of %llu runs\n\n%7s %-14s %9s %12s "
           "%12s %12s %10s %8s\n",
           (unsigned long long)s->common.setup.n_tokens, s->common.setup.model,
           s->common.setup.hardware, (unsigned long long)s->n_short,
           (unsigned long long)s->least_tokens,
           (unsigned long long)s->most_tokens,
           (unsigned long long)s->common.runs, "Gbit/s", "order", "all (s)",
           "cached TTFT", "short TTFT", "tokens/s", "computed", "gain");
    for (size_t b = 0; b < s->gbps.count; b++) {
        for (size_t o = 0; o < ORDERS; o++) {
            const struct cake_mixed *m = &points[b].of[o];

            printf("%7g %-14s %9.3f %12.3f %12.3f %12.0f %10.0f",
                   s->gbps.values[b], orders[o], m->done_s, m->cached_s,
                   m->short_mean_s, m->tokens_per_s, m->computed_tokens);
            if (o > 0) {
                printf(" %+6.1f %%",
                       100 * (points[b].of[0].done_s / m->done_s - 1));
            }
            putchar('\n');
        }
    }
}

static int write_csv(const struct settings *s, const struct point *points,
                     const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    fputs("bandwidth_gbps,order,runs,done_s,cached_ttft_s,short_ttft_mean_s,"
          "tokens_per_s,computed_tokens\n",
          f);
    for (size_t b = 0; b < s->gbps.count; b++) {
        for (size_t o = 0; o < ORDERS; o++) {
            const struct cake_mixed *m = &points[b].of[o];

            fprintf(f, "%g,%s,%llu,%.6f,%.6f,%.6f,%.3f,%.1f\n",
                    s->gbps.values[b], orders[o],
                    (unsigned long long)s->common.runs, m->done_s, m->cached_s,
                    m->short_mean_s, m->tokens_per_s, m->computed_tokens);
        }
    }
    return result_close(f);
}

static int write_plot(const struct settings *s, const struct point *points,
                      const char *path)
{
    struct plot plot;
    int rc = plot_begin(&plot);

    if (rc == 0)
        rc = write_csv(s, points, plot.data);
    return plot_end(&plot, rc, "cake_adaptive",
                    "A cached prompt among short ones (simulated)", path);
}

static int report(const struct settings *s, const struct point *points)
{
    print(s, points);
    return REPLAY_OUTPUT(usage.name, s->csv, write_csv(s, points, s->csv)) |
           REPLAY_OUTPUT(usage.name, s->plot, write_plot(s, points, s->plot));
}

int replay_command_cake_adaptive(int argc, char **argv)
{
    struct settings s = {.common = CAKE_OPTIONS_DEFAULT,
                         .bandwidths = "7,25,32,56,100",
                         .n_short = 22,
                         .least_tokens = 32,
                         .most_tokens = 448};
    struct point points[REPLAY_LIST_MAX];
    char error[CAKE_ERROR_BYTES];
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    memset(points, 0, sizeof points);
    if (simulate(&s, points, error) != 0)
        return replay_complain(usage.name, "%s", error);
    return report(&s, points);
}
