/* The result of `size` as text, CSV and picture; see size.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "tools/plot/plot.h"
#include "tools/replay/study/size/size.h"
#include "tools/result_file.h"

static uint32_t prefill_of(const struct replay_case *c)
{
    return c->cluster.prefill_nodes + c->cluster.coupled_nodes;
}

static uint32_t nodes_of(const struct replay_case *c)
{
    return cluster_nodes(&c->cluster);
}

static void print_nodes(const struct replay_case *c, FILE *f)
{
    uint32_t p = prefill_of(c);
    uint32_t d = c->cluster.decode_nodes;

    if (d > 0) {
        fprintf(f,
                "%" PRIu32 " nodes: %" PRIu32 " prefill and %" PRIu32
                " decode (P/D %.2f)",
                p + d, p, d, (double)p / d);
    } else {
        fprintf(f, "%" PRIu32 " %s nodes", p,
                c->cluster.coupled_nodes > 0 ? "coupled" : "prefill");
    }
}

/* Prints the rejected and failed requests by reason, and the late ones. */
static void print_misses(const struct replay_case *c, FILE *f)
{
    const struct replay_report *r = &c->result.report;

    fprintf(f,
            "  not effective: %" PRIu64 " rejected, %" PRIu64
            " failed, %" PRIu64 " completed too late\n",
            r->rejected, r->failed, r->completed - r->effective);
    replay_report_reasons(r, f);
}

static void print_served(const struct replay_case *c, FILE *f)
{
    const struct replay_report *r = &c->result.report;

    print_misses(c, f);
    fprintf(f, "  input tokens served: %.1f %% of those offered\n",
            100 * replay_ratio(r->input_tokens, r->offered_tokens));
    if (r->ttft_s.count > 0) {
        fprintf(f, "  p90 of completed requests: TTFT %.3f s", r->ttft_s.p90);
        if (r->tbt_s.count > 0)
            fprintf(f, ", TBT %.4f s", r->tbt_s.p90);
        fputc('\n', f);
    }
}

static void print_share(const struct replay_case *c, FILE *f)
{
    const struct replay_report *r = &c->result.report;

    fprintf(f, ", %.2f %% effective (of the input tokens %.2f %%)\n",
            100 * r->effective_ratio, 100 * r->effective_token_ratio);
}

/* Returns the best of ended[from .. to). */
static const struct replay_case *best_of(const struct replay_sizing *z,
                                         size_t from, size_t to)
{
    const struct replay_case *best = &z->ended[from];

    for (size_t i = from + 1; i < to; i++)
        if (z->ended[i].result.report.effective_ratio >
            best->result.report.effective_ratio)
            best = &z->ended[i];
    return best;
}

/* Returns the index after the cases with as many nodes as ended[from]. */
static size_t same_total(const struct replay_sizing *z, size_t from)
{
    size_t to = from + 1;

    while (to < z->n_ended &&
           nodes_of(&z->ended[to]) == nodes_of(&z->ended[from]))
        to++;
    return to;
}

static void print_found(const struct replay_sizing *z, FILE *f)
{
    const struct replay_case *best = &z->ended[0];

    fputs("smallest cluster: ", f);
    print_nodes(best, f);
    print_share(best, f);
    print_served(best, f);
    if (z->n_ended > 1)
        fprintf(f,
                "%zu sizes simulated: every split of every smaller number of "
                "nodes; none meets the target\n",
                z->search.count);
    for (size_t i = 1; i < z->n_ended;) {
        size_t to = same_total(z, i);
        const struct replay_case *c = best_of(z, i, to);

        fputs("  best with ", f);
        print_nodes(c, f);
        fprintf(f, ", %.2f %%\n", 100 * c->result.report.effective_ratio);
        i = to;
    }
}

/* Prints the requests that no number of nodes can serve in time. */
static void print_hopeless(const struct replay_sizing *z, FILE *f)
{
    if (z->hopeless == 0)
        return;
    fprintf(f,
            "%" PRIu64 " of %" PRIu64
            " requests miss an SLO on any number of nodes: they do alone on "
            "idle ones, with\nall cached that came before",
            z->hopeless, z->requests);
    if (z->hopeless_ttft_s > 0)
        fprintf(f, " (TTFT up to %.3g s)", z->hopeless_ttft_s);
    fprintf(f, "; the target allows %" PRIu64 "\n", z->misses_max);
}

static void print_not_found(const struct replay_sizing *z, FILE *f)
{
    if (z->n_ended == 0) {
        fputs("no number of nodes will do, so none was simulated\n", f);
        print_hopeless(z, f);
        return;
    }
    const struct replay_case *best = best_of(z, 0, z->n_ended);
    fprintf(f, "none of the %zu sizes up to %" PRIu32 " prefill%s nodes",
            z->search.count, z->search.prefill_max,
            z->search.decode_max > 0 ? "" : " (or coupled)");
    if (z->search.decode_max > 0)
        fprintf(f, " and %" PRIu32 " decode nodes", z->search.decode_max);
    fputs(" will do\n", f);
    print_hopeless(z, f);
    fprintf(f,
            "the %zu that got furthest were simulated to their "
            "ends; best of them: ",
            z->n_ended);
    print_nodes(best, f);
    print_share(best, f);
    print_served(best, f);
}

void replay_size_print(const struct replay_sizing *z, FILE *f)
{
    fprintf(f,
            "%" PRIu64 " requests at speed %g on nodes of %s, links of %g "
            "Gbit/s, policy %s;\nTTFT within %g s",
            z->requests, z->base->speed, z->template.name,
            z->template.link_bytes_per_s * 8 / 1e9, z->base->policy,
            z->base->slo_ttft_s);
    if (z->base->slo_tbt_s > 0)
        fprintf(f, ", TBT within %g s", z->base->slo_tbt_s);
    fprintf(f, "; target %.4g %%\n", 100 * z->target);
    if (z->search.found)
        print_found(z, f);
    else
        print_not_found(z, f);
}

int replay_size_csv(const struct replay_sizing *z, const char *path)
{
    FILE *f = result_open(path);

    if (!f)
        return -errno;
    fputs("prefill,decode,nodes,meets,effective_ratio,requests_judged\n", f);
    for (size_t i = 0; i < z->search.count; i++) {
        const struct search_answer *a = &z->search.answers[i];

        fprintf(f, "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%d,", a->size.prefill,
                a->size.decode, a->size.prefill + a->size.decode, a->meets);
        if (a->effective_ratio >= 0)
            fprintf(f, "%.6f", a->effective_ratio);
        fprintf(f, ",%" PRIu64 "\n", a->judged);
    }
    return result_close(f);
}

int replay_size_plot(const struct replay_sizing *z, const char *path)
{
    char title[160];
    struct plot plot;
    int rc = plot_begin(&plot);

    snprintf(title, sizeof title,
             "%.4g %% of requests within TTFT %g s and TBT %g s, %s",
             100 * z->target, z->base->slo_ttft_s, z->base->slo_tbt_s,
             z->template.name);
    if (rc == 0)
        rc = replay_size_csv(z, plot.data);
    if (rc == 0) {
        fputs("\nprefill,decode,nodes,effective_ratio,target\n", plot.file);
        for (size_t i = 0; i < z->n_ended; i++) {
            const struct replay_case *c = &z->ended[i];

            fprintf(plot.file,
                    "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%.6f,%.9g\n",
                    prefill_of(c), c->cluster.decode_nodes, nodes_of(c),
                    c->result.report.effective_ratio, z->target);
        }
    }
    return plot_end(&plot, rc, "size", title, path);
}

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
