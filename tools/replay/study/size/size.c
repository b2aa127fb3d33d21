/* conductor-replay size: how many nodes a trace needs under SLOs. */
#include "tools/replay/study/size/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "conductor/core/schedule/schedule.h"
#include "tools/replay/command.h"
#include "tools/replay/study/study.h"
#include "tools/replay/trace/stream.h"
#include "traces/stats.h"

static const struct option_usage usage = {
    .name = "size",
    .synopsis = "--trace FILE --cluster-template FILE --slo-ttft S --slo-tbt S "
                "[OPTIONS]",
    .text = "Finds the smallest number of prefill and decode nodes, and their "
            "ratio, with which a\nshare of all requests meets both SLOs. The "
            "template describes the nodes; its numbers\nof nodes do not "
            "matter. Every split of 2, 3, 4 ... nodes is simulated, several "
            "at\nonce (--jobs), until one meets the target; a split is given "
            "up once too many\nrequests have missed. Requests ask for the "
            "SLOs: those that no node can meet are\nrejected at arrival, and "
            "count as missed. A template without decode nodes, or "
            "with\ncoupled nodes, is sized by its one number of nodes.",
    .examples =
        "  conductor-replay size --trace conversation.jsonl.gz "
        "--cluster-template \\\n      traces/clusters/paper-16.json "
        "--slo-ttft 10 --slo-tbt 0.1 --plot frontier.svg\n"
        "  conductor-replay size --trace t.jsonl --cluster-template c.json "
        "--slo-ttft 30 \\\n      --slo-tbt 0.2 --target 0.99 --speed 4 "
        "--policy local_cache\n"
        "  conductor-replay size --trace t.jsonl --cluster-template c.json "
        "--slo-ttft 10 \\\n      --slo-tbt 0.1 --interval 300\n",
    REPLAY_POLICY_TOPIC,
};

struct settings {
    struct replay_study study;
    struct replay_case base; /* of all cases */
    struct cluster_changes changes;
    struct replay_policies policies;
    const char *cluster, *csv, *plot;
    double target, interval_s;
    uint64_t max_prefill, max_decode;
};

/* Sizes fully simulated if none meets the target. */
#define FURTHEST 8

/* State for the search's callback. */
struct sizing {
    const struct settings *s;
    struct replay_sizing result;
    struct schedule_rules rules;
    char error[REPLAY_STUDY_ERROR_BYTES];
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        REPLAY_STUDY_SPECS(s->study),
        {"cluster-template", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "description of the nodes (docs/plan/clusters.md)", .required = true},
        {"cluster", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "the same as --cluster-template"},
        {"policy", OPTION_TEXT, &s->base.policy, "NAME", 0, 0,
         "policy:", .choice = sim_policy_name},
        REPLAY_POLICY_SPEC(s->policies),
        {"slo-ttft", OPTION_NUMBER, &s->base.slo_ttft_s, "S", 1e-3, 1e6,
         "TTFT SLO, in seconds", .required = true},
        {"slo-tbt", OPTION_NUMBER, &s->base.slo_tbt_s, "S", 1e-4, 1e6,
         "TBT SLO, in seconds (mean of the longest 10 %)"},
        {"target", OPTION_NUMBER, &s->target, "R", 1e-3, 1,
         "share of requests that must meet both SLOs (default 0.95)"},
        {"speed", OPTION_NUMBER, &s->base.speed, "X", 1e-3, 1e6,
         "speed relative to the trace (default 1)"},
        {"interval", OPTION_NUMBER, &s->interval_s, "S", 1, 1e6,
         "instead: find the best split of the template's nodes for each S "
         "seconds of the trace; --csv lists all, no --plot"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0,
         "write one line per simulated size"},
        {"plot", OPTION_OUTPUT, &s->plot, "FILE", 0, 0,
         "draw the sizes, and the best share over the number of nodes, as SVG"},
        {"max-prefill", OPTION_COUNT, &s->max_prefill, "N", 1, 4096,
         "most prefill nodes to try (default 64)", .section = "search"},
        {"max-decode", OPTION_COUNT, &s->max_decode, "N", 1, 4096,
         "most decode nodes to try (default 64)"},
        {"seed", OPTION_COUNT, &s->base.seed, "S", 0, 9e15,
         "seed of random choices (default 1)"},
        REPLAY_OVERRIDE_SPECS(s->changes),
    };
    return replay_policies_parse(&s->policies, &usage, OPTION_TABLE(specs),
                                 argc, argv, status);
}

static int make_case(struct sizing *z, struct search_size size,
                     struct replay_case *c)
{
    struct cluster_changes changes = CLUSTER_UNCHANGED;

    changes.prefill_nodes = size.prefill;
    if (z->result.template.decode_nodes > 0)
        changes.decode_nodes = size.decode;
    *c = z->s->base;
    c->cluster = z->result.template;
    return cluster_override(&c->cluster, &changes, z->error);
}

static int ask(void *arg, struct search_answer *answers, size_t n)
{
    struct sizing *z = arg;
    const struct settings *s = z->s;
    struct replay_case *cases = calloc(n, sizeof cases[0]);
    int rc = 0;

    if (!cases)
        return error_say(z->error, sizeof z->error, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = make_case(z, answers[i].size, &cases[i]);
        cases[i].gives_up = true;
        cases[i].misses_max = z->result.misses_max;
    }
    if (rc == 0) {
        uint32_t nodes = answers[0].size.prefill + answers[0].size.decode;

        fprintf(stderr, "%" PRIu32 " node%s: %zu split%s\n", nodes,
                nodes == 1 ? "" : "s", n, n == 1 ? "" : "s");
        rc = replay_study_run(&s->study, cases, n, z->error);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        double ratio = cases[i].result.report.effective_ratio;

        answers[i].effective_ratio = cases[i].gave_up ? -1 : ratio;
        answers[i].meets = !cases[i].gave_up && ratio >= s->target - 1e-12;
        answers[i].judged = cases[i].judged;
    }
    replay_cases_fini(cases, n);
    free(cases);
    return rc;
}

/* Lists the answer and all splits of the totals below it. */
static size_t sizes_below(const struct search *search,
                          struct search_size *sizes)
{
    uint32_t nodes = search->best.size.prefill + search->best.size.decode;
    size_t n = 0;

    sizes[n++] = search->best.size;
    for (uint32_t below = 1; below <= SIZE_TOTALS_BELOW && below < nodes;
         below++) {
        n += search_splits(nodes - below, search->prefill_max,
                           search->decode_max, sizes + n);
    }
    return n;
}

static int by_judged(const void *a, const void *b)
{
    const struct search_answer *x = a;
    const struct search_answer *y = b;
    uint32_t x_nodes = x->size.prefill + x->size.decode;
    uint32_t y_nodes = y->size.prefill + y->size.decode;

    if (x->judged != y->judged)
        return x->judged > y->judged ? -1 : 1;
    if (x_nodes != y_nodes)
        return x_nodes < y_nodes ? -1 : 1;
    return x->size.prefill < y->size.prefill ? -1 : 1;
}

/* Lists the sizes that saw most requests before they were given up. */
static size_t furthest(const struct search *search, struct search_size *sizes)
{
    size_t n = search->count < FURTHEST ? search->count : FURTHEST;

    qsort(search->answers, search->count, sizeof search->answers[0], by_judged);
    for (size_t i = 0; i < n; i++)
        sizes[i] = search->answers[i].size;
    return n;
}

/* Fully simulates the sizes to report. */
static int finish(struct sizing *z)
{
    struct replay_sizing *r = &z->result;
    uint32_t nodes = r->search.best.size.prefill + r->search.best.size.decode;
    size_t room = FURTHEST + 1 + (size_t)SIZE_TOTALS_BELOW * nodes;
    struct search_size *sizes = calloc(room, sizeof sizes[0]);

    r->ended = calloc(room, sizeof r->ended[0]);
    if (!sizes || !r->ended) {
        snprintf(z->error, sizeof z->error, "out of memory");
        free(sizes);
        return -ENOMEM;
    }
    r->n_ended = r->search.found ? sizes_below(&r->search, sizes)
                                 : furthest(&r->search, sizes);
    int rc = 0;
    for (size_t i = 0; i < r->n_ended && rc == 0; i++)
        rc = make_case(z, sizes[i], &r->ended[i]);
    if (rc == 0) {
        fprintf(stderr, "%zu sizes to their ends\n", r->n_ended);
        rc = replay_study_run(&z->s->study, r->ended, r->n_ended, z->error);
    }
    free(sizes);
    return rc;
}

/* Returns the policy's rules on lending, if nodes can be lent, and warming. */
static struct schedule_rules rules_of(const struct sizing *z)
{
    const struct replay_case *base = &z->s->base;
    const struct cluster *c = &z->result.template;
    const struct schedule_policy *policy = sim_policy(base->policy);
    struct schedule_rules rules = {.lend.most = 0};
    double options[POLICY_OPTIONS_MAX];

    if (!policy)
        return rules;
    policy_options_init(policy, options);
    if (base->settings)
        policy_options_apply(policy, options, base->settings->at,
                             base->settings->n);
    rules = policy_rules(policy, options);
    if (c->coupled_nodes > 0 || c->pipeline_stages > 1)
        rules.lend.most = 0;
    return rules;
}

static int64_t least_us(const struct sizing *z, uint32_t n, uint32_t cached)
{
    const struct cluster *c = &z->result.template;
    int64_t us = cost_model_prefill_us(&c->cost, n - cached, cached, NULL);

    return schedule_least_us(&z->rules, &c->cost, c->layers, n - cached, cached,
                             us);
}

/* Returns whether a request misses an SLO on an idle cluster of any size: by
 * its prefill alone, with all earlier blocks cached, free loads, and as many
 * lent nodes as allowed; or by its decode step alone. */
static bool is_hopeless(struct sizing *z, const struct trace_request *q,
                        uint64_t reused_tokens)
{
    struct replay_sizing *r = &z->result;
    const struct cluster *c = &r->template;
    uint32_t n = q->input_tokens;
    uint32_t cached = c->prefix_cache ? (uint32_t)reused_tokens : 0;
    int64_t us = least_us(z, n, cached);
    int64_t anew_us = least_us(z, n, 0);
    double ttft_s = (double)(us < anew_us ? us : anew_us) / 1e6 /
                    (double)c->pipeline_stages;
    double tbt_s =
        q->output_tokens > 1 && c->decode_nodes + c->coupled_nodes > 0
            ? (double)cost_model_decode_step_us(&c->cost, 1, n, NULL) / 1e6
            : 0;

    if (ttft_s > z->s->base.slo_ttft_s && ttft_s > r->hopeless_ttft_s)
        r->hopeless_ttft_s = ttft_s;
    return ttft_s > z->s->base.slo_ttft_s ||
           (z->s->base.slo_tbt_s > 0 && tbt_s > z->s->base.slo_tbt_s);
}

/* Counts the requests, so that the search can give a size up, and those that no
 * size can serve in time. */
static int survey(struct sizing *z)
{
    struct replay_stream_options o = z->s->study.source;
    struct replay_stream *stream = NULL;
    struct trace_request request = {0};

    o.block_tokens = z->result.template.block_tokens;
    o.regular_only = true;
    int rc = replay_stream_open(&o, &stream, z->error, sizeof z->error);

    if (rc != 0)
        return rc;
    struct trace_stats *stats =
        trace_stats_new(z->result.template.block_tokens, false);
    while (stats && (rc = replay_stream_next(stream, &request)) > 0) {
        z->result.requests++;
        bool hopeless =
            is_hopeless(z, &request, trace_stats_reusable(stats, &request));

        z->result.hopeless += hopeless;
        /* A rejected request leaves no cached blocks, unless it is warmed. */
        if ((!hopeless || z->rules.warms) &&
            trace_stats_add(stats, &request) != 0)
            break;
    }
    trace_stats_free(stats);
    if (!stats || rc > 0) {
        snprintf(z->error, sizeof z->error, "out of memory");
        rc = -ENOMEM;
    } else if (rc < 0)
        snprintf(z->error, sizeof z->error, "%s", replay_stream_error(stream));
    if (rc == 0 && z->result.requests == 0) {
        snprintf(z->error, sizeof z->error, "%s: holds no such request",
                 o.path);
        rc = -EINVAL;
    }
    z->result.misses_max =
        (uint64_t)((1 - z->s->target) * (double)z->result.requests + 1e-6);
    trace_request_fini(&request);
    replay_stream_free(stream);
    return rc;
}

/* Searches; skipped if too many requests are hopeless for any size, unless the
 * CSV is to have the sizes that got furthest. */
static int search_sizes(struct sizing *z)
{
    z->rules = rules_of(z);
    int rc = survey(z);

    if (rc != 0 || (z->result.hopeless > z->result.misses_max && !z->s->csv))
        return rc;
    snprintf(z->error, sizeof z->error, "out of memory");
    rc = search_run(&z->result.search);
    return rc == 0 ? finish(z) : rc;
}

static int run(struct sizing *z)
{
    const struct settings *s = z->s;
    struct replay_sizing *r = &z->result;
    bool decodes = r->template.decode_nodes > 0;

    r->search =
        (struct search){.prefill_max = (uint32_t)s->max_prefill,
                        .decode_max = decodes ? (uint32_t)s->max_decode : 0,
                        .ask = ask,
                        .arg = z};
    r->base = &s->base;
    r->target = s->target;
    int rc = search_sizes(z);
    if (rc != 0) {
        replay_complain(usage.name, "%s", z->error);
    } else {
        rc = replay_complain_script(usage.name, replay_size_print(r)) |
             !r->search.found;
        rc |= REPLAY_OUTPUT(usage.name, s->csv, replay_size_csv(r, s->csv));
        if (r->search.found)
            rc |= REPLAY_OUTPUT(usage.name, s->plot,
                                replay_size_plot(r, s->plot));
    }
    if (r->ended)
        replay_cases_fini(r->ended, r->n_ended);
    free(r->ended);
    free(r->search.answers);
    return rc != 0 ? 1 : 0;
}

/* Simulates every split of the template's nodes. */
static int simulate_splits(struct sizing *z, struct over_time *o)
{
    uint32_t nodes =
        z->result.template.prefill_nodes + z->result.template.decode_nodes;

    o->interval_s = z->s->interval_s;
    o->cases = calloc(nodes, sizeof o->cases[0]);
    if (!o->cases)
        return error_say(z->error, sizeof z->error, -ENOMEM, "out of memory");
    for (uint32_t p = 1; p < nodes; p++) {
        struct search_size size = {p, nodes - p};
        int rc = make_case(z, size, &o->cases[o->n]);

        if (rc != 0)
            return rc;
        o->cases[o->n++].interval_s = o->interval_s;
    }
    return replay_study_run(&z->s->study, o->cases, o->n, z->error);
}

static int run_over_time(struct sizing *z)
{
    const struct cluster *c = &z->result.template;
    const struct settings *s = z->s;
    struct over_time o = {0};
    int rc;

    if (c->decode_nodes == 0 || c->prefill_nodes + c->decode_nodes < 3) {
        replay_complain(usage.name,
                        "--interval: needs a cluster of at least 3 nodes, some "
                        "to prefill and some to decode; %s has %" PRIu32
                        " and %" PRIu32,
                        c->name, c->prefill_nodes, c->decode_nodes);
        return 1;
    }
    rc = simulate_splits(z, &o);
    if (rc != 0) {
        replay_complain(usage.name, "%s", z->error);
    } else {
        rc = replay_complain_script(usage.name, over_time_print(&o)) |
             REPLAY_OUTPUT(usage.name, s->csv, over_time_csv(&o, s->csv));
    }
    replay_cases_fini(o.cases, o.n);
    free(o.cases);
    return rc != 0 ? 1 : 0;
}

int replay_command_size(int argc, char **argv)
{
    struct settings s = {.study = {.what = "sizes"},
                         .base = REPLAY_CASE_DEFAULT,
                         .changes = CLUSTER_UNCHANGED,
                         .target = 0.95,
                         .max_prefill = 64,
                         .max_decode = 64};
    struct sizing z = {.s = &s};
    const struct cluster *template = &z.result.template;
    int status = 0;

    s.base.policy = POLICY_DEFAULT;
    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (replay_policies_check(&s.policies, usage.name, &s.base.policy, 1) != 0)
        return REPLAY_EXIT_USAGE;
    s.base.settings = &s.policies.settings;
    s.base.effective_ttft_s = s.base.slo_ttft_s;
    s.base.effective_tbt_s = s.base.slo_tbt_s;
    if (replay_load_cluster(usage.name, s.cluster, &s.changes,
                            &z.result.template) != 0)
        return 1;
    if (!(s.base.slo_tbt_s > 0) &&
        template->decode_nodes + template->coupled_nodes > 0) {
        replay_missing(usage.name, "--slo-tbt S");
        return REPLAY_EXIT_USAGE;
    }
    return s.interval_s > 0 ? run_over_time(&z) : run(&z);
}
