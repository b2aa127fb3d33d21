/* conductor-replay size: how many nodes a trace needs under SLOs. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay_command.h"
#include "tools/replay_plot.h"
#include "tools/replay_search.h"
#include "tools/replay_stream.h"
#include "tools/replay_study.h"

static const struct replay_usage usage = {
    .name = "size",
    .synopsis = "--trace FILE --cluster-template FILE --slo-ttft S --slo-tbt S "
                "[OPTIONS]",
    .text =
        "Finds the smallest number of prefill and decode nodes, and their "
        "ratio, with which a\nshare of all requests meets both SLOs. The "
        "template says what a node is; its numbers\nof nodes don't matter. "
        "Requests ask for the SLOs, so what no choice can meet is\nrejected "
        "at arrival, and counts as missed. A template without decode nodes, "
        "or with\ncoupled ones, is sized in the one number it has.",
    .examples =
        "  conductor-replay size --trace conversation.jsonl.gz "
        "--cluster-template \\\n      traces/clusters/paper-16.json "
        "--slo-ttft 10 --slo-tbt 0.1 --plot frontier.svg\n"
        "  conductor-replay size --trace t.jsonl --cluster-template c.json "
        "--slo-ttft 30 \\\n      --slo-tbt 0.2 --target 0.99 --speed 4 "
        "--policy local_cache\n",
};

struct settings {
    struct replay_study study;
    const char *cluster, *policy, *csv, *plot;
    double slo_ttft_s, slo_tbt_s, target, speed;
    uint64_t max_prefill, max_decode, seed;
};

/* What the search's callback needs. */
struct sizing {
    const struct settings *s;
    struct cluster template;
    uint64_t requests;
    char error[REPLAY_STUDY_ERROR_BYTES];
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        REPLAY_STUDY_SPECS(s->study),
        {"cluster-template", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "a cluster description (sim/DESIGN.md)"},
        {"policy", OPTION_TEXT, &s->policy, "NAME", 0, 0,
         "how requests are placed (default global_cache)"},
        {"slo-ttft", OPTION_NUMBER, &s->slo_ttft_s, "S", 1e-3, 1e6,
         "seconds to the first token"},
        {"slo-tbt", OPTION_NUMBER, &s->slo_tbt_s, "S", 1e-4, 1e6,
         "seconds between tokens (mean of the longest 10 %)"},
        {"target", OPTION_NUMBER, &s->target, "R", 1e-3, 1,
         "share of requests that meet both (default 0.95)"},
        {"speed", OPTION_NUMBER, &s->speed, "X", 1e-3, 1e6,
         "how many times as fast as the trace (default 1)"},
        {"max-prefill", OPTION_COUNT, &s->max_prefill, "N", 1, 4096,
         "look no further (default 64)"},
        {"max-decode", OPTION_COUNT, &s->max_decode, "N", 1, 4096,
         "look no further (default 64)"},
        {"seed", OPTION_COUNT, &s->seed, "S", 0, 9e15,
         "of random choices (default 1)"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0,
         "a line for every size that was simulated"},
        {"plot", OPTION_OUTPUT, &s->plot, "FILE", 0, 0,
         "the border between enough and too few, as SVG"},
    };
    const struct option_table table = {specs, sizeof specs / sizeof specs[0]};
    if (replay_parse(&usage, &table, argc, argv, status) != 0) {
        return -1;
    }
    *status = REPLAY_EXIT_USAGE;
    const char *missing = s->study.source.path == NULL ? "--trace FILE"
                          : s->cluster == NULL   ? "--cluster-template FILE"
                          : !(s->slo_ttft_s > 0) ? "--slo-ttft S"
                                                 : NULL;
    if (missing != NULL) {
        replay_complain(usage.name, "%s is missing", missing);
        return -1;
    }
    return 0;
}

static int ask(void *arg, struct search_answer *answers, size_t n)
{
    struct sizing *z = arg;
    const struct settings *s = z->s;
    struct replay_case *cases = calloc(n, sizeof cases[0]);
    int rc = 0;
    if (cases == NULL) {
        snprintf(z->error, sizeof z->error, "out of memory");
        return -ENOMEM;
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct replay_case *c = &cases[i];
        struct cluster cluster = z->template;
        bool decodes = cluster.decode_nodes > 0;
        rc = cluster_override(&cluster, answers[i].size.prefill,
                              decodes ? (int64_t)answers[i].size.decode : -1,
                              -1, z->error);
        *c = replay_case_make(&cluster, s->policy);
        c->speed = s->speed;
        c->seed = s->seed;
        c->slo_ttft_s = c->effective_ttft_s = s->slo_ttft_s;
        c->slo_tbt_s = c->effective_tbt_s = s->slo_tbt_s;
        c->misses_max =
            (uint64_t)((1 - s->target) * (double)z->requests + 1e-6);
    }
    if (rc == 0) {
        rc = replay_study_run(&s->study, cases, n, z->error);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        double ratio = cases[i].result.report.effective_ratio;
        answers[i].effective_ratio = cases[i].gave_up ? -1 : ratio;
        answers[i].meets = !cases[i].gave_up && ratio >= s->target - 1e-12;
    }
    replay_cases_fini(cases, n);
    free(cases);
    return rc;
}

/* How many requests there are, so that a hopeless size can be given up. */
static int count_requests(struct sizing *z)
{
    const struct replay_source *from = &z->s->study.source;
    struct replay_stream_options o = {.path = from->path,
                                      .from = from->from,
                                      .requests = from->requests,
                                      .block_tokens = z->template.block_tokens,
                                      .skip_bad = from->skip_bad,
                                      .regular_only = true};
    struct replay_stream *stream = NULL;
    struct trace_request request = {0};
    int rc = replay_stream_open(&o, &stream, z->error);
    if (rc != 0) {
        return rc;
    }
    while ((rc = replay_stream_next(stream, &request)) > 0) {
        z->requests++;
    }
    if (rc < 0) {
        snprintf(z->error, sizeof z->error, "%s", replay_stream_error(stream));
    }
    if (rc == 0 && z->requests == 0) {
        snprintf(z->error, sizeof z->error, "%s: holds no such request",
                 from->path);
        rc = -EINVAL;
    }
    trace_request_fini(&request);
    replay_stream_free(stream);
    return rc;
}

static void print_size(const struct sizing *z, struct search_size size)
{
    if (z->template.decode_nodes > 0) {
        printf("%" PRIu32 " nodes: %" PRIu32 " prefill and %" PRIu32
               " decode (P/D %.2f)",
               size.prefill + size.decode, size.prefill, size.decode,
               (double)size.prefill / size.decode);
    } else {
        printf("%" PRIu32 " %s nodes", size.prefill,
               z->template.coupled_nodes > 0 ? "coupled" : "prefill");
    }
}

static void print_result(const struct sizing *z, const struct search *search)
{
    const struct settings *s = z->s;
    printf("%" PRIu64 " requests at speed %g, policy %s; TTFT within %g s",
           z->requests, s->speed, s->policy, s->slo_ttft_s);
    if (s->slo_tbt_s > 0) {
        printf(", TBT within %g s", s->slo_tbt_s);
    }
    printf("; target %.4g %%\n", 100 * s->target);
    if (!search->found) {
        printf("not even ");
        print_size(
            z, (struct search_size){search->prefill_max, search->decode_max});
        printf(" will do\n");
        return;
    }
    printf("smallest cluster: ");
    print_size(z, search->best.size);
    printf(", %.2f %% effective\n", 100 * search->best.effective_ratio);
    printf("%zu sizes simulated; no split of one node fewer will do\n",
           search->count);
}

static int write_csv(const struct search *search, const char *path)
{
    FILE *f = fopen(path, "w");
    if (f == NULL) {
        return -errno;
    }
    fputs("prefill,decode,nodes,meets,effective_ratio\n", f);
    for (size_t i = 0; i < search->count; i++) {
        const struct search_answer *a = &search->answers[i];
        fprintf(f, "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%d,", a->size.prefill,
                a->size.decode, a->size.prefill + a->size.decode, a->meets);
        if (a->effective_ratio >= 0) {
            fprintf(f, "%.6f", a->effective_ratio);
        }
        fputc('\n', f);
    }
    bool failed = ferror(f) != 0;
    return (fclose(f) != 0 || failed) ? -EIO : 0;
}

/* Copies the sizes that meet the target, or those that don't. */
static size_t points(const struct search *search, bool meets, double *x,
                     double *y)
{
    size_t n = 0;
    for (size_t i = 0; i < search->count; i++) {
        if (search->answers[i].meets == meets) {
            x[n] = search->answers[i].size.prefill;
            y[n++] = search->answers[i].size.decode;
        }
    }
    return n;
}

/* The least decode nodes known to do with each number of prefill nodes, which
 * never rises: n points. */
static size_t border(const struct search *search, double *x, double *y,
                     uint32_t prefill_max)
{
    size_t n = 0;
    for (uint32_t p = 1; p <= prefill_max; p++) {
        double least = n > 0 ? y[n - 1] : INFINITY;
        for (size_t i = 0; i < search->count; i++) {
            const struct search_answer *a = &search->answers[i];
            if (a->meets && a->size.prefill == p) {
                least = fmin(least, a->size.decode);
            }
        }
        if (isfinite(least)) {
            x[n] = p;
            y[n++] = least;
        }
    }
    return n;
}

static void draw(struct plot *plot, const struct search *search, double *x,
                 double *y)
{
    struct search_size best = search->best.size;
    double zero = 0;
    double x_max = best.prefill + best.decode + 2;
    double y_max = x_max;
    plot_nice_range(&zero, &x_max, false);
    plot_nice_range(&zero, &y_max, false);
    struct plot_panel panel = {80,
                               80,
                               480,
                               420,
                               0,
                               x_max,
                               0,
                               y_max,
                               false,
                               false,
                               "",
                               "prefill nodes",
                               "decode nodes"};
    double bx = best.prefill;
    double by = best.decode;
    plot_axes(plot, &panel);
    /* Straight up from the first one, to the right behind the last. */
    size_t n = border(search, x + 1, y + 1, (uint32_t)x_max);
    x[0] = n > 0 ? x[1] : 0;
    y[0] = y_max;
    plot_line(plot, &panel, x, y, n + 1, true, plot_colour(0));
    n = points(search, true, x, y);
    plot_points(plot, &panel, x, y, n, PLOT_DOT, plot_colour(0));
    n = points(search, false, x, y);
    plot_points(plot, &panel, x, y, n, PLOT_CROSS, plot_colour(1));
    char text[64];
    snprintf(text, sizeof text, "%" PRIu32 " + %" PRIu32 " is the smallest",
             best.prefill, best.decode);
    plot_points(plot, &panel, &bx, &by, 1, PLOT_CROSS, plot_colour(2));
    plot_points(plot, &panel, &bx, &by, 1, PLOT_DOT, plot_colour(2));
    plot_key(plot, &panel, PLOT_TOP_RIGHT, 0, 3, "meets the target",
             plot_colour(0));
    plot_key(plot, &panel, PLOT_TOP_RIGHT, 1, 3, "too small", plot_colour(1));
    plot_key(plot, &panel, PLOT_TOP_RIGHT, 2, 3, text, plot_colour(2));
}

static int write_plot(const struct sizing *z, const struct search *search,
                      const char *path)
{
    size_t room = search->count + 2 * (search->best.size.prefill +
                                       search->best.size.decode + 8);
    double *x = calloc(room, 2 * sizeof x[0]);
    struct plot *plot = NULL;
    char title[160];
    snprintf(title, sizeof title,
             "%.4g %% of requests within TTFT %g s and TBT %g s, %s",
             100 * z->s->target, z->s->slo_ttft_s, z->s->slo_tbt_s,
             z->template.name);
    int rc = x != NULL ? plot_open(path, 600, 560, title, &plot) : -ENOMEM;
    if (rc == 0) {
        draw(plot, search, x, x + room);
        rc = plot_close(plot);
    }
    free(x);
    return rc;
}

static int complain_file(const char *path, int rc)
{
    if (rc != 0) {
        replay_complain(usage.name, "%s: %s", path, strerror(-rc));
    }
    return rc;
}

static int run(struct sizing *z)
{
    const struct settings *s = z->s;
    bool decodes = z->template.decode_nodes > 0;
    struct search search = {.prefill_max = (uint32_t)s->max_prefill,
                            .decode_max = decodes ? (uint32_t)s->max_decode : 0,
                            .whole_border = s->plot != NULL,
                            .ask = ask,
                            .arg = z};
    int rc = count_requests(z);
    if (rc == 0) {
        snprintf(z->error, sizeof z->error, "out of memory");
        rc = search_run(&search);
    }
    if (rc != 0) {
        replay_complain(usage.name, "%s", z->error);
        free(search.answers);
        return 1;
    }
    print_result(z, &search);
    if (s->csv != NULL) {
        rc |= complain_file(s->csv, write_csv(&search, s->csv));
    }
    if (s->plot != NULL && search.found) {
        rc |= complain_file(s->plot, write_plot(z, &search, s->plot));
    }
    free(search.answers);
    return rc != 0 || !search.found ? 1 : 0;
}

static bool is_policy(const char *name)
{
    const char *known;
    for (size_t i = 0; (known = sim_policy_name(i)) != NULL; i++) {
        if (strcmp(known, name) == 0) {
            return true;
        }
    }
    return false;
}

int replay_command_size(int argc, char **argv)
{
    struct settings s = {.study = {.what = "sizes", .quiet = true},
                         .policy = "global_cache",
                         .target = 0.95,
                         .speed = 1,
                         .max_prefill = 64,
                         .max_decode = 64,
                         .seed = 1};
    struct sizing z = {.s = &s};
    int status = 0;
    if (parse(argc, argv, &s, &status) != 0) {
        return status;
    }
    if (!is_policy(s.policy)) {
        replay_complain(usage.name, "--policy %s: is not a known policy",
                        s.policy);
        return REPLAY_EXIT_USAGE;
    }
    char error[CLUSTER_ERROR_BYTES];
    if (cluster_load_file(s.cluster, &z.template, error) != 0) {
        replay_complain(usage.name, "%s", error);
        return 1;
    }
    if (!(s.slo_tbt_s > 0) &&
        z.template.decode_nodes + z.template.coupled_nodes > 0) {
        replay_complain(usage.name, "--slo-tbt S is missing");
        return REPLAY_EXIT_USAGE;
    }
    return run(&z);
}
