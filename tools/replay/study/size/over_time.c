/* See over_time.h. */
#include "tools/replay/study/size/over_time.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "tools/result_file.h"

void over_time_fini(struct over_time *o)
{
    replay_cases_fini(o->cases, o->n);
    free(o->cases);
    *o = (struct over_time){0};
}

static double mean_ttft_s(const struct replay_interval *at)
{
    return at->answered > 0 ? at->ttft_s / (double)at->answered : 0.0;
}

/* Returns whether split a serves an interval better than b. */
static bool is_better(const struct replay_interval *a,
                      const struct replay_interval *b)
{
    if (a->effective != b->effective)
        return a->effective > b->effective;
    return mean_ttft_s(a) < mean_ttft_s(b);
}

/* Returns the number of intervals, equal for all cases: same requests. */
static size_t n_intervals(const struct over_time *o)
{
    return o->n > 0 ? o->cases[0].n_intervals : 0;
}

static const struct replay_case *best_in(const struct over_time *o, size_t k)
{
    const struct replay_case *best = &o->cases[0];

    for (size_t i = 1; i < o->n; i++)
        if (is_better(&o->cases[i].intervals[k], &best->intervals[k]))
            best = &o->cases[i];
    return best;
}

static struct replay_interval sum_of(const struct replay_case *c)
{
    struct replay_interval sum = {0};

    for (size_t k = 0; k < c->n_intervals; k++) {
        sum.requests += c->intervals[k].requests;
        sum.effective += c->intervals[k].effective;
        sum.answered += c->intervals[k].answered;
        sum.ttft_s += c->intervals[k].ttft_s;
    }
    return sum;
}

static void print_split(const struct replay_case *c,
                        const struct replay_interval *at, FILE *f)
{
    fprintf(f,
            "%3" PRIu32 " + %-3" PRIu32 " %6.2f %% effective, mean TTFT "
            "%.3f s",
            c->cluster.prefill_nodes, c->cluster.decode_nodes,
            100 * replay_ratio(at->effective, at->requests), mean_ttft_s(at));
}

void over_time_print(const struct over_time *o, FILE *file)
{
    struct replay_interval best = {0}, stays, of_all = {0};
    const struct replay_case *fixed = &o->cases[0];

    fputs("from s   requests  best prefill + decode\n", file);
    for (size_t k = 0; k < n_intervals(o); k++) {
        const struct replay_case *c = best_in(o, k);
        const struct replay_interval *at = &c->intervals[k];

        if (at->requests == 0)
            continue;
        fprintf(file, "%-8.6g %8" PRIu64 "  ", (double)k * o->interval_s,
                at->requests);
        print_split(c, at, file);
        fputc('\n', file);
        best.requests += at->requests;
        best.effective += at->effective;
    }
    of_all = sum_of(fixed);
    for (size_t i = 1; i < o->n; i++) {
        stays = sum_of(&o->cases[i]);
        if (is_better(&stays, &of_all)) {
            of_all = stays;
            fixed = &o->cases[i];
        }
    }
    fputs("the best of those that stay: ", file);
    print_split(fixed, &of_all, file);
    fprintf(file, "\nthe best of each interval together: %.2f %% effective\n",
            100 * replay_ratio(best.effective, best.requests));
}

int over_time_csv(const struct over_time *o, const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    fputs("from_s,prefill,decode,requests,effective_ratio,mean_ttft_s\n", f);
    for (size_t k = 0; k < n_intervals(o); k++)
        for (size_t i = 0; i < o->n; i++) {
            const struct replay_case *c = &o->cases[i];
            const struct replay_interval *at = &c->intervals[k];

            fprintf(f, "%.6g,%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",%.6f,%.6f\n",
                    (double)k * o->interval_s, c->cluster.prefill_nodes,
                    c->cluster.decode_nodes, at->requests,
                    replay_ratio(at->effective, at->requests), mean_ttft_s(at));
        }
    return result_close(f);
}
