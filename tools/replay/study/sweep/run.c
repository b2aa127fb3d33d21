/* Runs the cases of a sweep; see sweep.h. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/study/study.h"
#include "tools/replay/study/sweep/sweep.h"
#include "tools/replay/ticker.h"

/* Simulations in memory at once. */
#define WAVE 256
/* Values for variants of a case without a feature. */
#define FAST_LINKS_GBPS 800.0
#define SLOW_LINKS_GBPS 400.0
#define LOW_LOAD 0.6
/* p99 comes from some tens of requests: smaller losses are chance. */
#define P99_THRESHOLDS 5.0
/* Highest load at which p99 counts. */
#define P99_LOAD_MAX 1.0

/* One simulation of a case, and where its result goes. */
struct job {
    const struct sweep_case *one;
    uint64_t seed; /* index of the seed */
    bool asks;     /* with the SLO */
    size_t policy;
    struct sweep_values *values;
};

/* Jobs queued for the next wave. */
struct runner {
    const struct sweep *sweep;
    struct job jobs[WAVE];
    size_t n;
    struct replay_case *cases;             /* (WAVE) */
    struct replay_stream_options *sources; /* (WAVE) */
    char *error;
};

double sweep_worse_by(enum sweep_metric metric, double value, double other)
{
    if (isnan(value) || isnan(other) || !(other > 0.0))
        return 0.0;
    return sweep_metric_is_share(metric) ? other - value : value / other - 1.0;
}

size_t sweep_worst(enum sweep_metric metric, const struct sweep_values *values,
                   size_t n, double *loss)
{
    size_t worst = 0;

    for (size_t p = 1; p < n; p++) {
        double by =
            sweep_worse_by(metric, values[0].at[metric], values[p].at[metric]);

        if (p == 1 || by > *loss) {
            *loss = by;
            worst = p;
        }
    }
    return worst;
}

unsigned sweep_causes_of(const struct sweep_draw *draw)
{
    return (unsigned)(draw->prefill_error_sigma > 0 ||
                      draw->decode_error_sigma > 0)
               << SWEEP_ERRORS |
           (unsigned)(draw->link_gbps < SLOW_LINKS_GBPS) << SWEEP_LINKS |
           (unsigned)(draw->slow_nodes > 0) << SWEEP_UNEQUAL |
           (unsigned)draw->disks << SWEEP_DISKS |
           (unsigned)(draw->load > LOW_LOAD) << SWEEP_OVERLOAD |
           (unsigned)draw->aggregated << SWEEP_AGGREGATED |
           (unsigned)(draw->mixed_nodes > 0) << SWEEP_MIXED |
           (unsigned)(draw->max_tokens > 0) << SWEEP_ASKS |
           (unsigned)(draw->cache > 0) << SWEEP_CACHES;
}

static struct replay_case case_of(const struct sweep *sweep,
                                  const struct job *job,
                                  const struct replay_stream_options *source)
{
    const struct sweep_draw *draw = &job->one->draw;
    struct replay_case c = REPLAY_CASE_DEFAULT;

    c.cluster = job->one->cluster;
    c.policy = sweep->policies.names[job->policy];
    c.settings = sweep->settings;
    c.source = source;
    c.speed = job->one->speed;
    c.seed = draw->seed + job->seed;
    c.slo_ttft_s = job->asks ? draw->slo_ttft_s : 0.0;
    c.slo_tbt_s = job->asks ? draw->slo_tbt_s : 0.0;
    c.effective_ttft_s = draw->slo_ttft_s;
    c.effective_tbt_s = draw->slo_tbt_s;
    return c;
}

/* Takes a simulation's values for its policy. */
static void take_values(const struct job *job, const struct replay_report *r)
{
    struct sweep_values *v = job->values;
    bool any = r->ttft_s.count > 0;

    if (job->asks) {
        v->at[SWEEP_EFFECTIVE] = r->effective_ratio;
        v->at[SWEEP_TOKENS] = r->effective_token_ratio;
        v->promised = r->promised;
        v->late = r->late_s.count;
        v->latest_s = r->late_s.max;
    } else {
        v->at[SWEEP_TTFT] = any ? r->ttft_s.mean : (double)NAN;
        v->at[SWEEP_P99] = any ? r->ttft_s.p99 : (double)NAN;
        v->predicted_ratio =
            r->prediction_error.count > 0 ? r->predicted_ratio : (double)NAN;
        v->p90_held_ratio = r->p90_told > 0
                                ? replay_ratio(r->p90_held, r->p90_told)
                                : (double)NAN;
    }
}

/* Prefixes the error with the number of its case. */
static int fail(const struct runner *r, const struct sweep_case *one,
                const char *why, int rc)
{
    snprintf(r->error, SWEEP_ERROR_BYTES, "case %llu: %.900s",
             (unsigned long long)one->draw.number, why);
    return rc;
}

/* Runs the queued jobs. */
static int flush(struct runner *r)
{
    const struct replay_study study = {.jobs = r->sweep->jobs, .quiet = true};
    char why[REPLAY_STUDY_ERROR_BYTES];
    int rc;

    for (size_t i = 0; i < r->n; i++) {
        const struct job *job = &r->jobs[i];

        r->sources[i] =
            sweep_source(&job->one->draw, job->seed, job->one->rate);
        r->cases[i] = case_of(r->sweep, job, &r->sources[i]);
    }
    rc = replay_study_run(&study, r->cases, r->n, why);
    for (size_t i = 0; i < r->n; i++)
        if (rc == 0)
            take_values(&r->jobs[i], &r->cases[i].result.report);
        else if (r->cases[i].failed)
            fail(r, r->jobs[i].one, why, rc);
    replay_cases_fini(r->cases, r->n);
    r->n = 0;
    return rc;
}

static int ask(struct runner *r, struct job job)
{
    int rc = r->n == WAVE ? flush(r) : 0;

    if (rc == 0)
        r->jobs[r->n++] = job;
    return rc;
}

/* Queues all policies with a case's i-th seed, without and with the SLO. */
static int ask_all(struct runner *r, const struct sweep_case *one,
                   uint64_t seed, struct sweep_values *values)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < 2 * r->sweep->policies.count; i++)
        rc = ask(r, (struct job){one, seed, i % 2 == 1, i / 2, &values[i / 2]});
    return rc;
}

/* Runs every case with its own seed. */
static int run_cases(struct runner *r, struct sweep_result *results)
{
    const struct sweep *s = r->sweep;
    struct replay_ticker ticker;
    char why[SWEEP_ERROR_BYTES];
    int rc = 0;

    replay_ticker_init(&ticker, "cases", s->n_cases);
    for (size_t i = 0; rc == 0 && i < s->n_cases; i++) {
        struct sweep_result *result = &results[i];
        struct sweep_draw draw;

        memset(result, 0, sizeof(*result));
        result->seeds = 1;
        sweep_draw(s->description, s->seed, s->first + i, &draw);
        rc = sweep_case_make(&draw, &result->one, why);
        if (rc != 0)
            return fail(r, &result->one, why, rc);
        rc = ask_all(r, &result->one, 0, result->own);
        if (!s->quiet)
            replay_ticker_show(&ticker, i + 1);
    }
    if (rc == 0)
        rc = flush(r);
    replay_ticker_end(&ticker);
    return rc;
}

bool sweep_loses(const struct sweep *sweep, const struct sweep_result *result,
                 enum sweep_metric metric)
{
    bool p99 = metric == SWEEP_P99;

    return result->loss[metric].loss >
               sweep->threshold * (p99 ? P99_THRESHOLDS : 1.0) &&
           !(p99 && result->one.draw.load > P99_LOAD_MAX);
}

static bool loses(const struct sweep *s, const struct sweep_result *result)
{
    bool any = false;

    for (int m = 0; m < SWEEP_METRICS; m++)
        any = any || sweep_loses(s, result, (enum sweep_metric)m);
    return any;
}

/* Computes the losses from the values summed so far. */
static void judge(const struct sweep *s, struct sweep_result *result)
{
    for (int m = 0; m < SWEEP_METRICS; m++) {
        struct sweep_loss *loss = &result->loss[m];

        loss->other = sweep_worst((enum sweep_metric)m, result->all,
                                  s->policies.count, &loss->loss);
        if (sweep_metric_is_share((enum sweep_metric)m))
            loss->loss /= (double)result->seeds;
    }
}

/* Adds the values of another seed. */
static void add_values(struct sweep_values *sum, const struct sweep_values *v)
{
    for (int m = 0; m < SWEEP_METRICS; m++)
        sum->at[m] += v->at[m];
    sum->promised += v->promised;
    sum->late += v->late;
    sum->latest_s = fmax(sum->latest_s, v->latest_s);
}

/* Runs the lost cases again with other seeds. */
static int confirm(struct runner *r, struct sweep_result *results)
{
    const struct sweep *s = r->sweep;
    size_t width = SWEEP_POLICIES_MAX * (s->seeds - 1);
    struct sweep_values *values =
        calloc(s->n_cases * width + 1, sizeof(*values));
    int rc = values ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < s->n_cases; i++)
        for (uint64_t k = 1; rc == 0 && k < s->seeds && loses(s, &results[i]);
             k++)
            rc = ask_all(r, &results[i].one, k,
                         values + i * width + (k - 1) * SWEEP_POLICIES_MAX);
    if (rc == 0)
        rc = flush(r);
    for (size_t i = 0; rc == 0 && i < s->n_cases; i++) {
        if (!loses(s, &results[i]) || s->seeds == 1)
            continue;
        for (size_t v = 0; v < width; v++)
            add_values(&results[i].all[v % SWEEP_POLICIES_MAX],
                       &values[i * width + v]);
        results[i].seeds = s->seeds;
        judge(s, &results[i]);
    }
    free(values);
    return rc;
}

/* Makes a case without one feature: same trace speed, unless load or node roles
 * are the feature removed. */
static int make_variant(const struct sweep_case *one, enum sweep_cause without,
                        struct sweep_case *variant,
                        char error[SWEEP_ERROR_BYTES])
{
    struct sweep_draw draw = one->draw;
    int rc;

    switch (without) {
    case SWEEP_ERRORS:
        draw.prefill_error_sigma = draw.decode_error_sigma = 0;
        break;
    case SWEEP_LINKS:
        draw.link_gbps = FAST_LINKS_GBPS;
        break;
    case SWEEP_UNEQUAL:
        draw.slow_nodes = 0;
        break;
    case SWEEP_DISKS:
        draw.disks = false;
        break;
    case SWEEP_OVERLOAD:
        draw.load = LOW_LOAD;
        break;
    case SWEEP_AGGREGATED:
        draw.aggregated = false;
        break;
    case SWEEP_MIXED:
        draw.mixed_nodes = 0;
        break;
    case SWEEP_ASKS:
        draw.max_tokens = 0;
        break;
    case SWEEP_CACHES:
        draw.cache = 0;
        break;
    }
    rc = sweep_case_make(&draw, variant, error);
    if (without != SWEEP_AGGREGATED && without != SWEEP_OVERLOAD) {
        variant->speed = one->speed;
        variant->rate = one->rate;
    }
    return rc;
}

/* A loss, simulated without each feature of its case. */
struct variants {
    struct sweep_case at[SWEEP_CAUSES];
    struct sweep_values values[SWEEP_CAUSES][2];
};

static int find_causes_of(struct runner *r, struct sweep_result *result,
                          enum sweep_metric metric, struct variants *v)
{
    struct sweep_loss *loss = &result->loss[metric];
    int rc = 0;

    loss->tried = sweep_causes_of(&result->one.draw);
    for (int c = 0; rc == 0 && c < SWEEP_CAUSES; c++) {
        if ((loss->tried >> c & 1) == 0)
            continue;
        rc = make_variant(&result->one, (enum sweep_cause)c, &v->at[c],
                          r->error);
        for (size_t p = 0; rc == 0 && p < 2; p++)
            rc = ask(r,
                     (struct job){&v->at[c], 0, sweep_metric_is_share(metric),
                                  p == 0 ? 0 : loss->other, &v->values[c][p]});
    }
    if (rc == 0)
        rc = flush(r);
    for (int c = 0; rc == 0 && c < SWEEP_CAUSES; c++)
        if ((loss->tried >> c & 1) != 0 &&
            sweep_worse_by(metric, v->values[c][0].at[metric],
                           v->values[c][1].at[metric]) < loss->loss / 2)
            loss->causes |= 1u << c;
    return rc;
}

static int find_causes(struct runner *r, struct sweep_result *results)
{
    const struct sweep *s = r->sweep;
    struct variants *v = calloc(1, sizeof(*v));
    struct replay_ticker ticker;
    int rc = v ? 0 : -ENOMEM;

    replay_ticker_init(&ticker, "cases looked at for causes", s->n_cases);
    for (size_t i = 0; rc == 0 && i < s->n_cases; i++) {
        for (int m = 0; rc == 0 && m < SWEEP_METRICS; m++)
            if (sweep_loses(s, &results[i], (enum sweep_metric)m))
                rc = find_causes_of(r, &results[i], (enum sweep_metric)m, v);
        if (!s->quiet)
            replay_ticker_show(&ticker, i + 1);
    }
    replay_ticker_end(&ticker);
    free(v);
    return rc;
}

int sweep_run(const struct sweep *sweep, struct sweep_result *results,
              char error[SWEEP_ERROR_BYTES])
{
    struct runner *r = calloc(1, sizeof(*r));
    int rc = -ENOMEM;

    snprintf(error, SWEEP_ERROR_BYTES, "out of memory");
    if (!r)
        return rc;
    r->sweep = sweep;
    r->error = error;
    r->cases = calloc(WAVE, sizeof(*r->cases));
    r->sources = calloc(WAVE, sizeof(*r->sources));
    if (r->cases && r->sources)
        rc = run_cases(r, results);
    for (size_t i = 0; rc == 0 && i < sweep->n_cases; i++) {
        memcpy(results[i].all, results[i].own, sizeof(results[i].all));
        judge(sweep, &results[i]);
        for (int m = 0; m < SWEEP_METRICS; m++)
            results[i].loss[m].first = results[i].loss[m].loss;
    }
    if (rc == 0)
        rc = confirm(r, results);
    if (rc == 0 && sweep->causes)
        rc = find_causes(r, results);
    free(r->sources);
    free(r->cases);
    free(r);
    return rc;
}
