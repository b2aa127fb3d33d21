/* Surveys a trace for kinds of nodes, before any is simulated. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "conductor/core/schedule/schedule.h"
#include "tools/replay/study/run.h"
#include "traces/stats.h"

/* Kinds of nodes in one cluster. */
#define KINDS_MAX 8

struct survey {
    struct runner *runner;
    struct cluster kinds[KINDS_MAX];
    size_t n_kinds;
    const char *policy;
    double slo_ttft_s, slo_tbt_s; /* 0 = none */
    struct schedule_rules rules;
    uint64_t requests, tokens, longest_tokens;
    /* Requests that miss an SLO alone, on an idle cluster of any size, their
     * tokens, and the longest TTFT among them; 0 = none. */
    uint64_t hopeless, hopeless_tokens;
    double hopeless_ttft_s;
    /* The same counts for clusters of one kind. */
    struct {
        uint64_t requests, tokens;
    } hopeless_of[KINDS_MAX];
};

/* Returns the policy's rules on lending, if nodes can be lent, and warming. */
static struct schedule_rules rules_of(const struct survey *s)
{
    const struct policy_settings *settings = &s->runner->numbers.settings;
    const struct cluster *c = &s->kinds[0];
    const struct schedule_policy *policy = sim_policy(s->policy);
    struct schedule_rules rules = {.lend.most = 0};
    double options[POLICY_OPTIONS_MAX];

    if (!policy)
        return rules;
    policy_options_init(policy, options);
    policy_options_apply(policy, options, settings->at, settings->n);
    rules = policy_rules(policy, options);
    if (c->coupled_nodes > 0 || c->pipeline_stages > 1)
        rules.lend.most = 0;
    return rules;
}

static int64_t least_us(const struct survey *s, const struct cluster *c,
                        uint32_t n, uint32_t cached)
{
    int64_t us = cost_model_prefill_us(&c->cost, n - cached, cached, NULL);

    return schedule_least_us(&s->rules, &c->cost, c->layers, n - cached, cached,
                             us);
}

static bool misses(const struct survey *s, double ttft_s, double tbt_s)
{
    return ttft_s > s->slo_ttft_s || (s->slo_tbt_s > 0 && tbt_s > s->slo_tbt_s);
}

/* Returns whether a request misses an SLO on an idle cluster of any size and
 * any kinds: by its prefill alone, with all earlier blocks cached, free loads,
 * and as many lent nodes as allowed; or by its decode step alone. Counts it for
 * each kind that misses by itself. */
static bool is_hopeless(struct survey *s, const struct trace_request *q,
                        uint64_t reused_tokens)
{
    uint32_t n = q->input_tokens;
    double ttft_s = HUGE_VAL, tbt_s = HUGE_VAL;

    for (size_t k = 0; k < s->n_kinds; k++) {
        const struct cluster *c = &s->kinds[k];
        uint32_t cached = c->prefix_cache ? (uint32_t)reused_tokens : 0;
        int64_t us = least_us(s, c, n, cached);
        int64_t anew_us = least_us(s, c, n, 0);
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
        if (misses(s, its_ttft_s, its_tbt_s)) {
            s->hopeless_of[k].requests++;
            s->hopeless_of[k].tokens += n;
        }
    }
    if (ttft_s > s->slo_ttft_s)
        s->hopeless_ttft_s = fmax(s->hopeless_ttft_s, ttft_s);
    return misses(s, ttft_s, tbt_s);
}

/* Counts the requests and tokens, and those that no cluster can serve in time.
 */
static int read_trace(struct survey *s)
{
    struct runner *r = s->runner;
    struct replay_stream_options o = r->study.source;
    struct replay_stream *stream = NULL;
    struct trace_request request = {0};

    o.block_tokens = s->kinds[0].block_tokens;
    o.regular_only = true;
    int rc = replay_stream_open(&o, &stream, r->error, sizeof r->error);

    if (rc != 0)
        return rc;
    struct trace_stats *stats = trace_stats_new(o.block_tokens, false);
    while (stats && (rc = replay_stream_next(stream, &request)) > 0) {
        bool hopeless =
            is_hopeless(s, &request, trace_stats_reusable(stats, &request));

        s->requests++;
        s->tokens += request.input_tokens;
        if (request.input_tokens > s->longest_tokens)
            s->longest_tokens = request.input_tokens;
        s->hopeless += hopeless;
        s->hopeless_tokens += hopeless ? request.input_tokens : 0;
        /* A rejected request leaves no cached blocks, unless it is warmed. */
        if ((!hopeless || s->rules.warms) &&
            trace_stats_add(stats, &request) != 0)
            break;
    }
    trace_stats_free(stats);
    if (!stats || rc > 0)
        rc = error_say(r->error, sizeof r->error, -ENOMEM, "out of memory");
    else if (rc < 0)
        snprintf(r->error, sizeof r->error, "%s", replay_stream_error(stream));
    else if (s->requests == 0)
        rc = error_say(r->error, sizeof r->error, -EINVAL,
                       "%s: holds no such request", o.path);
    trace_request_fini(&request);
    replay_stream_free(stream);
    return rc;
}

/* Loads the kinds: [{cluster, changes}]. */
static int load_kinds(struct survey *s, const json_t *kinds)
{
    struct runner *r = s->runner;
    size_t n = json_array_size(kinds);
    int rc = 0;

    if (n == 0 || n > KINDS_MAX)
        return error_say(r->error, sizeof r->error, -EINVAL,
                         "%zu kinds of nodes: must be 1 to %d; --kinds names "
                         "some",
                         n, KINDS_MAX);
    for (; rc == 0 && s->n_kinds < n; s->n_kinds++)
        rc = run_read_cluster(r, json_array_get(kinds, s->n_kinds),
                              &s->kinds[s->n_kinds]);
    return rc;
}

static json_t *facts_json(const struct survey *s)
{
    json_t *kinds = json_array();

    for (size_t k = 0; k < s->n_kinds; k++) {
        const struct cluster *c = &s->kinds[k];

        json_array_append_new(
            kinds,
            json_pack("{s:s, s:I, s:I, s:b, s:f, s:I, s:I}", "name", c->name,
                      "prefill",
                      (json_int_t)(c->prefill_nodes + c->coupled_nodes),
                      "decode", (json_int_t)c->decode_nodes, "coupled",
                      c->coupled_nodes > 0, "link_gbps",
                      c->link_bytes_per_s * 8 / 1e9, "hopeless",
                      (json_int_t)s->hopeless_of[k].requests, "hopeless_tokens",
                      (json_int_t)s->hopeless_of[k].tokens));
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:o}", "requests",
                     (json_int_t)s->requests, "tokens", (json_int_t)s->tokens,
                     "longest_tokens", (json_int_t)s->longest_tokens,
                     "hopeless", (json_int_t)s->hopeless, "hopeless_tokens",
                     (json_int_t)s->hopeless_tokens, "hopeless_ttft_s",
                     s->hopeless_ttft_s, "kinds", kinds);
}

json_t *run_survey(struct runner *r, const json_t *question)
{
    struct survey *s = calloc(1, sizeof *s);
    json_t *facts = NULL;
    int rc;

    if (!s)
        return NULL;
    *s = (struct survey){.runner = r,
                         .policy = run_text(question, "policy"),
                         .slo_ttft_s = run_number(question, "slo_ttft_s"),
                         .slo_tbt_s = run_number(question, "slo_tbt_s")};
    rc = load_kinds(s, json_object_get(question, "kinds"));
    if (rc == 0 && !(s->slo_tbt_s > 0) &&
        s->kinds[0].decode_nodes + s->kinds[0].coupled_nodes > 0) {
        replay_missing(r->name, "--slo-tbt S");
        r->status = REPLAY_EXIT_USAGE;
    } else if (rc == 0) {
        s->rules = rules_of(s);
        rc = read_trace(s);
    }
    if (r->status == 0)
        facts = rc == 0 ? facts_json(s) : json_pack("{s:s}", "error", r->error);
    free(s);
    return facts;
}
