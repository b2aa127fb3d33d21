/* conductor-replay size: what cluster a trace needs under SLOs. size.py beside
 * this file, copied to tools/plot, searches and reports; it asks size-run, also
 * here, to simulate clusters. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "conductor/core/schedule/schedule.h"
#include "tools/replay/command.h"
#include "tools/replay/study/study.h"
#include "traces/stats.h"

/* Kinds of nodes in one cluster, and simulations of one question. */
#define KINDS_MAX 8
#define CASES_MAX (1 << 16)

static const struct option_usage usage = {
    .name = "size",
    .synopsis = "--trace FILE --nodes FILE|DIR --slo-ttft S --slo-tbt S "
                "[OPTIONS]",
    .text = "Finds the cheapest cluster with which a share of all requests, "
            "and of their input\ntokens, meets both SLOs: how many nodes of "
            "which kind prefill, and how many decode.\nA kind of node is a "
            "cluster file, with price_per_hour if there are several. Requests\n"
            "that no node can serve in time are rejected, and count as missed. "
            "Also tells what is\nleft when a node is lost, and, with --report, "
            "at which load the cluster breaks.",
    .examples =
        "  conductor-replay size --trace conversation.jsonl.gz --nodes "
        "traces/clusters/nodes \\\n      --slo-ttft 10 --slo-tbt 0.1 --target "
        "0.95 --token-target 0.9 --spare \\\n      --report size.html\n"
        "  conductor-replay size --trace t.jsonl --nodes "
        "traces/clusters/paper-16.json \\\n      --slo-ttft 30 --slo-tbt 0.2 "
        "--target 0.99 --speed 4 --plot frontier.svg\n"
        "  conductor-replay size --trace t.jsonl --nodes c.json --slo-ttft 10 "
        "\\\n      --slo-tbt 0.1 --interval 300\n",
    .topic = POLICY_OPTION_TOPIC,
    .explain = replay_policies_explain,
};

struct settings {
    struct replay_study study;
    struct replay_case base; /* of all cases */
    struct cluster_changes changes;
    struct replay_policies policies;
    const char *nodes, *kinds, *loads, *csv, *json, *plot, *capacity, *report;
    double target, token_target, interval_s;
    uint64_t max_prefill, max_decode, subsets;
    bool spare, fixed;
    struct option_list files; /* of size-run: one for each kind */
};

struct sizing {
    struct settings s;
    struct cluster kinds[KINDS_MAX];
    size_t n_kinds;
    uint64_t requests, tokens, longest_tokens;
    /* Most that may miss an SLO before a case is given up. */
    uint64_t misses_max, miss_tokens_max;
    /* Requests that miss an SLO alone, on an idle cluster of any size, their
     * tokens, and the longest TTFT among them; 0 = none. */
    uint64_t hopeless, hopeless_tokens;
    double hopeless_ttft_s;
    /* The same of clusters of one kind. */
    struct {
        uint64_t requests, tokens;
    } hopeless_of[KINDS_MAX];
    struct schedule_rules rules;
    char error[REPLAY_STUDY_ERROR_BYTES];
};

#define SIZING_DEFAULT                         \
    {                                          \
        .s = {                                 \
            .study = {.what = "simulations"},  \
            .base = REPLAY_CASE_DEFAULT,       \
            .changes = CLUSTER_UNCHANGED,      \
            .target = 0.95,                    \
            .max_prefill = 64,                 \
            .max_decode = 64,                  \
            .subsets = 4,                      \
            .loads = "0.5,0.75,1,1.25,1.5,2,3" \
        }                                      \
    }

/* Options of both commands. */
#define COMMON_SPECS(s)                                                        \
    REPLAY_STUDY_SPECS((s)->study),                                            \
        OPTION_SPEC("policy", OPTION_TEXT, &(s)->base.policy, "NAME", 0, 0,    \
                    "policy:", .choice = sim_policy_name),                     \
        REPLAY_POLICY_SPEC((s)->policies),                                     \
        OPTION_SPEC("slo-ttft", OPTION_NUMBER, &(s)->base.slo_ttft_s, "S",     \
                    1e-3, 1e6, "TTFT SLO, in seconds", .required = true),      \
        OPTION_SPEC("slo-tbt", OPTION_NUMBER, &(s)->base.slo_tbt_s, "S", 1e-4, \
                    1e6, "TBT SLO, in seconds (mean of the longest 10 %)"),    \
        OPTION_SPEC("target", OPTION_NUMBER, &(s)->target, "R", 1e-3, 1,       \
                    "share of requests that must meet both SLOs (default "     \
                    "0.95)"),                                                  \
        OPTION_SPEC("token-target", OPTION_NUMBER, &(s)->token_target, "R", 0, \
                    1,                                                         \
                    "share of input tokens whose requests must meet both "     \
                    "SLOs (default 0: any)")

#define RARE_SPECS(s)                                                         \
    REPLAY_OVERRIDE_SPECS((s)->changes),                                      \
        OPTION_SPEC("interval", OPTION_NUMBER, &(s)->interval_s, "S", 1, 1e6, \
                    "instead: find the best split of the file's nodes for "   \
                    "each S seconds of the trace; --csv lists all"),          \
        OPTION_SPEC("seed", OPTION_COUNT, &(s)->base.seed, "S", 0, 9e15,      \
                    "seed of random choices (default 1)")

int replay_command_size(int argc, char **argv)
{
    struct sizing z = SIZING_DEFAULT;
    struct settings *s = &z.s;
    struct replay_numbers loads;
    char error[REPLAY_LIST_ERROR_BYTES];
    int status = 0;

    s->base.policy = POLICY_DEFAULT;
    s->policies.texts.items = calloc((size_t)argc, sizeof(const char *));
    if (!s->policies.texts.items)
        return replay_complain(usage.name, "out of memory");
    const struct option_spec specs[] = {
        COMMON_SPECS(s),
        {"nodes", OPTION_TEXT, &s->nodes, "FILE|DIR", 0, 0,
         "a cluster file, or a folder with one for each kind of node "
         "(docs/plan/size.md)",
         .required = true},
        {"kinds", OPTION_TEXT, &s->kinds, "LIST", 0, 0,
         "of a folder, only these: file names without .json"},
        {"speed", OPTION_NUMBER, &s->base.speed, "X", 1e-3, 1e6,
         "speed relative to the trace (default 1)"},
        {"spare", OPTION_FLAG, &s->spare, NULL, 0, 0,
         "also find the cheapest cluster that meets the target with any one "
         "node lost"},
        {"csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0,
         "write one line per simulated cluster"},
        {"report", OPTION_OUTPUT, &s->report, "FILE", 0, 0,
         "write a report with pictures as one HTML file"},
        {"max-prefill", OPTION_COUNT, &s->max_prefill, "N", 1, 4096,
         "most prefill (or coupled) nodes to try (default 64)",
         .section = "search"},
        {"max-decode", OPTION_COUNT, &s->max_decode, "N", 1, 4096,
         "most decode nodes to try (default 64)"},
        {"fixed", OPTION_FLAG, &s->fixed, NULL, 0, 0,
         "no search: judge the file's own numbers of nodes"},
        {"loads", OPTION_TEXT, &s->loads, "LIST", 0, 0,
         "loads of the capacity curve, relative to --speed (default "
         "0.5,0.75,1,1.25,1.5,2,3)"},
        {"subsets", OPTION_COUNT, &s->subsets, "N", 0, 64,
         "random subsets of the trace's sessions that make the curve's band "
         "(default 4)"},
        {"capacity", OPTION_OUTPUT, &s->capacity, "FILE", 0, 0,
         "write the capacity curve as CSV: load against TTFT and shares"},
        {"json", OPTION_OUTPUT, &s->json, "FILE", 0, 0,
         "write all that was found as JSON"},
        {"plot", OPTION_OUTPUT, &s->plot, "FILE", 0, 0,
         "draw the clusters, and the best share over the price, as SVG"},
        {"cluster-template", OPTION_TEXT, &s->nodes, "FILE", 0, 0,
         "the same as --nodes"},
        {"cluster", OPTION_TEXT, &s->nodes, "FILE", 0, 0,
         "the same as --nodes"},
        RARE_SPECS(s),
    };
    if (replay_parse(&usage, OPTION_TABLE(specs), argc, argv, &status) == 0)
        status = replay_list_numbers("loads", s->loads, 1e-3, 1e3, &loads,
                                     error) != 0
                     ? replay_refuse(usage.name, "%s", error)
                     : replay_script_parsed("size.py", usage.name,
                                            OPTION_TABLE(specs));
    free(s->policies.texts.items);
    return status;
}

/* Returns the policy's rules on lending, if nodes can be lent, and warming. */
static struct schedule_rules rules_of(const struct sizing *z)
{
    const struct replay_case *base = &z->s.base;
    const struct cluster *c = &z->kinds[0];
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

static int64_t least_us(const struct sizing *z, const struct cluster *c,
                        uint32_t n, uint32_t cached)
{
    int64_t us = cost_model_prefill_us(&c->cost, n - cached, cached, NULL);

    return schedule_least_us(&z->rules, &c->cost, c->layers, n - cached, cached,
                             us);
}

static bool misses(const struct sizing *z, double ttft_s, double tbt_s)
{
    return ttft_s > z->s.base.slo_ttft_s ||
           (z->s.base.slo_tbt_s > 0 && tbt_s > z->s.base.slo_tbt_s);
}

/* Returns whether a request misses an SLO on an idle cluster of any size and
 * any kinds: by its prefill alone, with all earlier blocks cached, free loads,
 * and as many lent nodes as allowed; or by its decode step alone. Counts it for
 * each kind that misses by itself. */
static bool is_hopeless(struct sizing *z, const struct trace_request *q,
                        uint64_t reused_tokens)
{
    uint32_t n = q->input_tokens;
    double ttft_s = HUGE_VAL, tbt_s = HUGE_VAL;

    for (size_t k = 0; k < z->n_kinds; k++) {
        const struct cluster *c = &z->kinds[k];
        uint32_t cached = c->prefix_cache ? (uint32_t)reused_tokens : 0;
        int64_t us = least_us(z, c, n, cached);
        int64_t anew_us = least_us(z, c, n, 0);
        bool decodes =
            q->output_tokens > 1 && c->decode_nodes + c->coupled_nodes > 0;

        double its_ttft_s = (double)(us < anew_us ? us : anew_us) / 1e6 /
                            (double)c->pipeline_stages;
        double its_tbt_s =
            decodes
                ? (double)cost_model_decode_step_us(&c->cost, 1, n, NULL) / 1e6
                : 0;

        ttft_s = fmin(ttft_s, its_ttft_s);
        tbt_s = fmin(tbt_s, its_tbt_s);
        if (misses(z, its_ttft_s, its_tbt_s)) {
            z->hopeless_of[k].requests++;
            z->hopeless_of[k].tokens += n;
        }
    }
    if (ttft_s > z->s.base.slo_ttft_s)
        z->hopeless_ttft_s = fmax(z->hopeless_ttft_s, ttft_s);
    return misses(z, ttft_s, tbt_s);
}

/* Counts the requests and tokens, so that a case can be given up, and those
 * that no cluster can serve in time. */
static int survey(struct sizing *z)
{
    struct replay_stream_options o = z->s.study.source;
    struct replay_stream *stream = NULL;
    struct trace_request request = {0};
    uint32_t block_tokens = z->kinds[0].block_tokens;

    z->rules = rules_of(z);
    o.block_tokens = block_tokens;
    o.regular_only = true;
    int rc = replay_stream_open(&o, &stream, z->error, sizeof z->error);

    if (rc != 0)
        return rc;
    struct trace_stats *stats = trace_stats_new(block_tokens, false);
    while (stats && (rc = replay_stream_next(stream, &request)) > 0) {
        bool hopeless =
            is_hopeless(z, &request, trace_stats_reusable(stats, &request));

        z->requests++;
        z->tokens += request.input_tokens;
        if (request.input_tokens > z->longest_tokens)
            z->longest_tokens = request.input_tokens;
        z->hopeless += hopeless;
        z->hopeless_tokens += hopeless ? request.input_tokens : 0;
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
    if (rc == 0 && z->requests == 0) {
        snprintf(z->error, sizeof z->error, "%s: holds no such request",
                 o.path);
        rc = -EINVAL;
    }
    z->misses_max = (uint64_t)((1 - z->s.target) * (double)z->requests + 1e-6);
    z->miss_tokens_max =
        (uint64_t)((1 - z->s.token_target) * (double)z->tokens + 1e-6);
    trace_request_fini(&request);
    replay_stream_free(stream);
    return rc;
}

/* Adds `nodes` nodes of a kind to the groups of a role. */
static void add_group(struct cluster *c, const struct cluster *kind,
                      bool decodes, uint32_t first, uint32_t nodes)
{
    struct cluster_group *g = &c->groups[c->n_groups++];

    *g =
        (struct cluster_group){.decodes = decodes,
                               .first = first,
                               .nodes = nodes,
                               .has_prefill = !decodes,
                               .has_decode = decodes || kind->coupled_nodes > 0,
                               .decode_kv_tokens = kind->decode_kv_tokens,
                               .decode_max_batch = kind->decode_max_batch};
    memcpy(g->prefill_us, kind->cost.prefill, sizeof g->prefill_us);
    memcpy(g->decode_us, kind->cost.decode, sizeof g->decode_us);
    memcpy(g->tiers, kind->tiers, sizeof g->tiers);
    for (size_t t = 0; t < BLOCK_TIERS; t++)
        g->has_tier[t] = !decodes;
}

/* Makes a cluster of nodes of all kinds. nodes: [[prefill, decode], ...], one
 * pair for each kind. */
static int compose(struct sizing *z, const json_t *nodes, struct cluster *c)
{
    struct cluster_changes changes = CLUSTER_UNCHANGED;
    uint32_t totals[2] = {0, 0};

    *c = z->kinds[0];
    for (size_t k = 0; k < z->n_kinds; k++)
        for (size_t role = 0; role < 2; role++) {
            json_int_t n = json_integer_value(
                json_array_get(json_array_get(nodes, k), role));

            if (n < 0 || n > CLUSTER_NODES_MAX)
                return error_say(z->error, sizeof z->error, -EINVAL,
                                 "more than %d nodes", CLUSTER_NODES_MAX);
            if (k > 0 && n > 0)
                add_group(c, &z->kinds[k], role == 1, totals[role],
                          (uint32_t)n);
            /* The first kind's nodes follow the groups. */
            totals[role] += k > 0 ? (uint32_t)n : 0;
        }
    for (size_t role = 0; role < 2; role++)
        totals[role] += (uint32_t)json_integer_value(
            json_array_get(json_array_get(nodes, 0), role));
    changes.prefill_nodes = totals[0];
    if (z->kinds[0].decode_nodes > 0)
        changes.decode_nodes = totals[1];
    return cluster_override(c, &changes, z->error);
}

/* A case of a question, and the part of the trace that it replays. */
struct asked {
    struct replay_case *cases; /* (n) */
    struct replay_stream_options *sources;
    size_t n;
};

/* Reads an object: nodes, speed, seed, trace, gives_up; all but the first may
 * be missing. */
static int read_case(struct sizing *z, const json_t *from, struct asked *a,
                     size_t i)
{
    struct replay_case *c = &a->cases[i];
    const json_t *speed = json_object_get(from, "speed");
    const char *trace = json_string_value(json_object_get(from, "trace"));

    *c = z->s.base;
    c->speed = speed ? json_number_value(speed) : 1;
    c->gives_up = json_is_true(json_object_get(from, "gives_up"));
    c->misses_max = z->misses_max;
    c->miss_tokens_max = z->miss_tokens_max;
    c->interval_s = z->s.interval_s;
    if (trace) {
        a->sources[i] = z->s.study.source;
        a->sources[i].path = trace;
        a->sources[i].from = a->sources[i].requests = 0;
        c->source = &a->sources[i];
    }
    return compose(z, json_object_get(from, "nodes"), &c->cluster);
}

static json_t *summary_json(const struct replay_summary *s)
{
    return s->count == 0
               ? json_null()
               : json_pack("{s:f, s:f, s:f, s:f}", "mean", s->mean, "p50",
                           s->p50, "p90", s->p90, "p99", s->p99);
}

/* Returns the reasons of rejections and failures as text. */
static json_t *reasons_json(const struct replay_report *r)
{
    char *reasons = NULL;
    size_t size;
    FILE *file = open_memstream(&reasons, &size);

    if (file) {
        replay_report_reasons(r, file);
        if (fclose(file) != 0)
            file = NULL;
    }
    json_t *json = json_string(file ? reasons : "");
    free(reasons);
    return json;
}

static json_t *intervals_json(const struct replay_case *c)
{
    json_t *intervals = json_array();

    for (size_t k = 0; k < c->n_intervals; k++) {
        const struct replay_interval *at = &c->intervals[k];

        json_array_append_new(
            intervals, json_pack("[I, I, I, f]", (json_int_t)at->requests,
                                 (json_int_t)at->effective,
                                 (json_int_t)at->answered, at->ttft_s));
    }
    return intervals;
}

static json_t *case_json(const struct replay_case *c)
{
    const struct replay_report *r = &c->result.report;

    if (c->gave_up)
        return json_pack("{s:b, s:I}", "gave_up", 1, "judged",
                         (json_int_t)c->judged);
    return json_pack(
        "{s:b, s:I, s:f, s:f, s:I, s:I, s:I, s:o, s:I, s:I, s:f, s:o, s:o, "
        "s:o}",
        "gave_up", 0, "judged", (json_int_t)c->judged, "effective_ratio",
        r->effective_ratio, "effective_token_ratio", r->effective_token_ratio,
        "rejected", (json_int_t)r->rejected, "failed", (json_int_t)r->failed,
        "late", (json_int_t)(r->completed - r->effective), "reasons",
        reasons_json(r), "input_tokens", (json_int_t)r->input_tokens,
        "offered_tokens", (json_int_t)r->offered_tokens, "prefix_hit_ratio",
        r->prefix_hit_ratio, "ttft_s", summary_json(&r->ttft_s), "tbt_s",
        summary_json(&r->tbt_s), "intervals", intervals_json(c));
}

/* Answers a question, an array of cases, with an array of results. */
static int answer(struct sizing *z, const json_t *question)
{
    struct asked a = {.n = json_array_size(question)};
    int rc = 0;

    if (a.n == 0 || a.n > CASES_MAX)
        return error_say(z->error, sizeof z->error, -EINVAL,
                         "size-run: a question must have 1 to %d cases",
                         CASES_MAX);
    a.cases = calloc(a.n, sizeof a.cases[0]);
    a.sources = calloc(a.n, sizeof a.sources[0]);
    if (!a.cases || !a.sources)
        rc = error_say(z->error, sizeof z->error, -ENOMEM, "out of memory");
    for (size_t i = 0; i < a.n && rc == 0; i++)
        rc = read_case(z, json_array_get(question, i), &a, i);
    if (rc == 0)
        rc = replay_study_run(&z->s.study, a.cases, a.n, z->error);
    json_t *results = json_array();
    for (size_t i = 0; i < a.n && rc == 0; i++)
        json_array_append_new(results, case_json(&a.cases[i]));
    if (rc == 0 && json_array_size(results) == a.n) {
        json_dumpf(results, stdout, JSON_COMPACT);
        putchar('\n');
    }
    json_decref(results);
    if (a.cases)
        replay_cases_fini(a.cases, a.n);
    free(a.cases);
    free(a.sources);
    return rc;
}

/* Says what the trace and the kinds of nodes are. */
static void introduce(const struct sizing *z)
{
    const struct replay_case *base = &z->s.base;
    json_t *kinds = json_array();

    for (size_t k = 0; k < z->n_kinds; k++) {
        const struct cluster *c = &z->kinds[k];

        json_array_append_new(
            kinds,
            json_pack("{s:s, s:I, s:I, s:b, s:f, s:I, s:I}", "name", c->name,
                      "prefill",
                      (json_int_t)(c->prefill_nodes + c->coupled_nodes),
                      "decode", (json_int_t)c->decode_nodes, "coupled",
                      c->coupled_nodes > 0, "link_gbps",
                      c->link_bytes_per_s * 8 / 1e9, "hopeless",
                      (json_int_t)z->hopeless_of[k].requests, "hopeless_tokens",
                      (json_int_t)z->hopeless_of[k].tokens));
    }
    json_t *json = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:f, s:f, s:f, s:f, "
        "s:o}",
        "requests", (json_int_t)z->requests, "tokens", (json_int_t)z->tokens,
        "longest_tokens", (json_int_t)z->longest_tokens, "misses_max",
        (json_int_t)z->misses_max, "miss_tokens_max",
        (json_int_t)z->miss_tokens_max, "hopeless", (json_int_t)z->hopeless,
        "hopeless_tokens", (json_int_t)z->hopeless_tokens, "hopeless_ttft_s",
        z->hopeless_ttft_s, "policy", base->policy, "slo_ttft_s",
        base->slo_ttft_s, "slo_tbt_s", base->slo_tbt_s, "target", z->s.target,
        "token_target", z->s.token_target, "kinds", kinds);

    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(json);
}

/* Answers questions, a line each, until there are no more. */
static int serve(struct sizing *z)
{
    char *line = NULL;
    size_t size = 0;
    int rc = survey(z);

    if (rc == 0)
        introduce(z);
    while (rc == 0 && fflush(stdout) == 0 && getline(&line, &size, stdin) > 0) {
        json_t *question = json_loads(line, 0, NULL);

        rc = answer(z, question);
        json_decref(question);
    }
    free(line);
    return rc == 0 ? 0 : replay_complain(usage.name, "%s", z->error);
}

static int load_kinds(struct sizing *z)
{
    const struct option_list *files = &z->s.files;

    if (files->count == 0 || files->count > KINDS_MAX)
        return replay_complain(usage.name,
                               "%zu kinds of nodes: must be 1 to %d; --kinds "
                               "names some",
                               files->count, KINDS_MAX);
    for (z->n_kinds = 0; z->n_kinds < files->count; z->n_kinds++)
        if (replay_load_cluster(usage.name, files->items[z->n_kinds],
                                &z->s.changes, &z->kinds[z->n_kinds]) != 0)
            return -1;
    return 0;
}

int replay_command_size_run(int argc, char **argv)
{
    static const struct option_usage run = {
        .name = "size",
        .synopsis = "[OPTIONS] FILE... < QUESTIONS",
        .text = "Simulates clusters for size.py, the script of size.",
        .examples = "",
    };
    struct sizing *z = calloc(1, sizeof *z);
    int status = 0, rc = -1;

    if (!z)
        return replay_complain(usage.name, "out of memory");
    *z = (struct sizing)SIZING_DEFAULT;
    struct settings *s = &z->s;
    const struct option_spec specs[] = {
        COMMON_SPECS(s),
        RARE_SPECS(s),
        {"", OPTION_LIST, &s->files, "FILE", 0, 0,
         "one cluster file for each kind of node"},
    };
    s->base.policy = POLICY_DEFAULT;
    s->files.items = calloc((size_t)argc, sizeof s->files.items[0]);
    if (!s->files.items) {
        replay_complain(usage.name, "out of memory");
        goto end;
    }
    if (replay_policies_parse(&s->policies, &run, OPTION_TABLE(specs), argc,
                              argv, &status) != 0) {
        rc = status;
        goto end;
    }
    rc = REPLAY_EXIT_USAGE;
    if (replay_policies_check(&s->policies, usage.name, &s->base.policy, 1) !=
        0)
        goto end;
    s->base.settings = &s->policies.settings;
    s->base.effective_ttft_s = s->base.slo_ttft_s;
    s->base.effective_tbt_s = s->base.slo_tbt_s;
    rc = load_kinds(z);
    if (rc != 0)
        goto end;
    if (!(s->base.slo_tbt_s > 0) &&
        z->kinds[0].decode_nodes + z->kinds[0].coupled_nodes > 0) {
        replay_missing(usage.name, "--slo-tbt S");
        rc = REPLAY_EXIT_USAGE;
        goto end;
    }
    rc = serve(z);

end:
    free(s->files.items);
    free(z);
    return rc < 0 ? 1 : rc;
}
