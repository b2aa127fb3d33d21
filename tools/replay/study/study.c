/* See study.h. */
#include "tools/replay/study/study.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "conductor/core/schedule/admission.h"
#include "tools/replay/ticker.h"

#define JOBS_MAX 1024

/* Shared by the threads of a study. */
struct crew {
    const struct replay_study *study;
    struct replay_case *cases;
    size_t n;
    atomic_size_t next;
    pthread_mutex_t lock; /* guards the members below */
    size_t done;
    int rc;
    char *error;
    struct replay_ticker ticker;
};

int replay_load_cluster(const char *name, const char *path,
                        const struct cluster_changes *changes,
                        struct cluster *cluster)
{
    char error[CLUSTER_ERROR_BYTES];

    if (cluster_load_file(path, cluster, error) == 0 &&
        cluster_override(cluster, changes, error) == 0)
        return 0;
    return replay_complain(name, "%s", error);
}

int replay_check_admission(const char *name, const char *admission)
{
    if (admission_policy_by_name(admission))
        return 0;
    return replay_complain(name, "--admission %s: must be plain, none",
                           admission);
}

/* Adds a setting; refuses a name given twice. */
static int add_setting(struct policy_settings *s, const char *text, char *error,
                       size_t size)
{
    int rc = policy_settings_add(s, text, error, size);

    for (size_t i = 0; rc == 0 && i + 1 < s->n; i++) {
        if (strcmp(s->at[i].name, s->at[s->n - 1].name) == 0) {
            snprintf(error, size, "%.100s: %s comes twice", text,
                     s->at[i].name);
            rc = -1;
        }
    }
    return rc;
}

void replay_policies_explain(FILE *out)
{
    policy_options_list(POLICY_SET_BY_SIMULATION, out);
}

int replay_policies_parse(struct replay_policies *p,
                          const struct option_usage *usage,
                          const struct option_table *table, int argc,
                          char **argv, int *status)
{
    char error[512];

    p->texts.items = calloc((size_t)argc, sizeof(*p->texts.items));
    if (!p->texts.items)
        return replay_complain(usage->name, "out of memory");
    int rc = replay_parse(usage, table, argc, argv, status);
    if (rc == 0)
        *status = REPLAY_EXIT_USAGE;
    for (size_t i = 0; rc == 0 && i < p->texts.count; i++) {
        rc = add_setting(&p->settings, p->texts.items[i], error, sizeof(error));
        if (rc != 0)
            replay_complain(usage->name, "--policy-option %s", error);
    }
    free(p->texts.items);
    p->texts = (struct option_list){NULL, 0};
    return rc;
}

int replay_policies_check(const struct replay_policies *p, const char *name,
                          const char *const *policies, size_t n)
{
    const struct schedule_policy *of[REPLAY_LIST_MAX];
    char error[POLICY_TEXT_BYTES];

    for (size_t i = 0; i < n; i++)
        of[i] = sim_policy(policies[i]);
    return policy_settings_check(&p->settings, of, n, POLICY_SET_BY_SIMULATION,
                                 error, sizeof(error)) == 0
               ? 0
               : replay_complain(name, "--policy-option %s", error);
}

/* Counts a request in its interval. ttft_s below 0 = no answer. */
static int keep_interval(struct replay_case *c, double arrived_s, double ttft_s,
                         bool effective)
{
    double at = arrived_s / c->interval_s;
    size_t k =
        at < REPLAY_INTERVALS_MAX ? (size_t)at : REPLAY_INTERVALS_MAX - 1;

    if (array_reserve(c->intervals, c->intervals_room, k + 1) != 0)
        return -ENOMEM;
    while (c->n_intervals <= k)
        c->intervals[c->n_intervals++] = (struct replay_interval){0};
    c->intervals[k].requests++;
    c->intervals[k].effective += effective;
    c->intervals[k].answered += ttft_s >= 0;
    c->intervals[k].ttft_s += ttft_s >= 0 ? ttft_s : 0;
    return 0;
}

static int observe(void *arg, const struct replay_record *r)
{
    struct replay_case *c = arg;
    bool answered = r->outcome == REPLAY_COMPLETED && r->first_token_us >= 0;
    double ttft_s =
        answered ? replay_seconds(r->first_token_us - r->intended_us) : -1.0;
    double tbt_s =
        answered && r->tbt_us >= 0 ? replay_seconds(r->tbt_us) : -1.0;
    bool missed =
        !answered || ttft_s > c->effective_ttft_s || tbt_s > c->effective_tbt_s;
    int rc = 0;

    c->judged++;
    c->arrivals_s = fmax(c->arrivals_s, replay_seconds(r->intended_us));
    if (answered) {
        c->prefill_s += replay_seconds(r->prefill_us);
        if (r->predicted_ttft_us >= 0)
            rc = replay_distribution_add(
                &c->errors_s,
                fabs(ttft_s - replay_seconds(r->predicted_ttft_us)));
    }
    if (rc == 0 && c->interval_s > 0)
        rc = keep_interval(c, replay_seconds(r->intended_us), ttft_s, !missed);
    if (missed) {
        c->misses++;
        c->miss_tokens += r->input_tokens;
        if (c->gives_up &&
            (c->misses > c->misses_max || c->miss_tokens > c->miss_tokens_max))
            return -ECANCELED;
    }
    return rc;
}

static int run_case(const struct replay_study *study, struct replay_case *c,
                    char error[REPLAY_STUDY_ERROR_BYTES])
{
    struct replay_sim_params params = {
        .sim = {.cluster = &c->cluster,
                .policy = c->policy,
                .settings = c->settings ? c->settings->at : NULL,
                .n_settings = c->settings ? c->settings->n : 0,
                .admission = c->admission,
                .speed = c->speed,
                .slo_ttft_us = llround(c->slo_ttft_s * 1e6),
                .slo_tbt_us = llround(c->slo_tbt_s * 1e6),
                .seed = c->seed},
        .source = c->source ? *c->source : study->source,
        .loop = c->loop,
        .csv = c->csv,
        .observe = observe,
        .observe_arg = c};

    if (params.source.block_tokens == 0)
        params.source.block_tokens = c->cluster.block_tokens;
    if (params.source.length_scale == 0)
        params.source.length_scale = 1;
    if (!(c->effective_tbt_s > 0))
        c->effective_tbt_s = INFINITY;
    params.slo_ttft_s = c->effective_ttft_s;
    params.slo_tbt_s = c->effective_tbt_s;
    int rc =
        replay_sim_run(&params, &c->result, error, REPLAY_STUDY_ERROR_BYTES);
    if (rc == -ECANCELED) {
        c->gave_up = true;
        rc = 0;
    }
    c->error_s = replay_distribution_summary(&c->errors_s);
    replay_distribution_fini(&c->errors_s);
    return rc;
}

static void *work(void *arg)
{
    struct crew *crew = arg;
    char error[REPLAY_STUDY_ERROR_BYTES];
    size_t i;

    while ((i = atomic_fetch_add(&crew->next, 1)) < crew->n) {
        int rc = run_case(crew->study, &crew->cases[i], error);

        pthread_mutex_lock(&crew->lock);
        crew->done++;
        if (rc != 0 && crew->rc == 0) {
            crew->rc = rc;
            crew->cases[i].failed = true;
            snprintf(crew->error, REPLAY_STUDY_ERROR_BYTES, "%s", error);
            atomic_store(&crew->next, crew->n);
        }
        if (!crew->study->quiet)
            replay_ticker_show(&crew->ticker, crew->done);
        pthread_mutex_unlock(&crew->lock);
    }
    return NULL;
}

/* Returns the number of threads, this one included: the study also runs if no
 * other can be created. */
static size_t jobs_of(const struct replay_study *study, size_t n)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t jobs = study->jobs > 0 ? study->jobs : cores > 0 ? (size_t)cores : 1;

    jobs = jobs < n ? jobs : n;
    return jobs < JOBS_MAX ? jobs : JOBS_MAX;
}

int replay_study_run(const struct replay_study *study,
                     struct replay_case *cases, size_t n,
                     char error[REPLAY_STUDY_ERROR_BYTES])
{
    struct crew crew = {.study = study, .cases = cases, .n = n, .error = error};
    pthread_t threads[JOBS_MAX];
    size_t started = 0;
    int rc = pthread_mutex_init(&crew.lock, NULL);

    if (rc != 0)
        return error_say(error, REPLAY_STUDY_ERROR_BYTES, -rc, "out of memory");
    replay_ticker_init(&crew.ticker, "simulations", n);
    for (size_t jobs = jobs_of(study, n); started + 1 < jobs; started++)
        if (pthread_create(&threads[started], NULL, work, &crew) != 0)
            break;
    work(&crew);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    replay_ticker_end(&crew.ticker);
    pthread_mutex_destroy(&crew.lock);
    return crew.rc;
}

void replay_cases_fini(struct replay_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        replay_sim_result_fini(&cases[i].result);
        free(cases[i].intervals);
        cases[i].intervals = NULL;
        cases[i].n_intervals = cases[i].intervals_room = 0;
    }
}
