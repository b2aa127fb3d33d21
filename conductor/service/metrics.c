/* See metrics.h. */
#include "conductor/service/metrics.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "conductor/json/text_buf.h"

static const double time_bounds_s[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                       0.1,   0.2,   0.5,   1,    2,    5,
                                       10,    20,    30,    60,   120};
static const double error_bounds[] = {0.01, 0.02, 0.05, 0.1, 0.2,
                                      0.3,  0.5,  1,    2,   5};
static const double ratio_bounds[] = {0.1, 0.2,  0.35, 0.5,  0.7, 0.8,
                                      0.9, 0.95, 1,    1.05, 1.1, 1.25,
                                      1.5, 2,    3,    5,    10};
static const double transfer_bounds_s[] = {
    1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
    0.1,  0.2,  0.5,  1,     2,     5,     10,   30};
static const double lag_bounds_s[] = {
    1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5};
static const double decision_bounds_s[] = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5,
                                           1e-4, 2e-4, 5e-4, 1e-3, 1e-2};

/* Error codes that are counted, in the order of metrics.failures. */
#define FAILURES(of)                                                       \
    of(no_prefill_instance) of(no_decode_instance)                         \
        of(prompt_exceeds_kv_capacity) of(worker_failed) of(engine_status) \
            of(gateway_failed) of(shutting_down) of(internal_error) of(other)
#define FAILURE(code) FAILURE_##code,
#define FAILURE_CODE(code) #code,
enum failure { FAILURES(FAILURE) };
static const char *const failures[METRICS_FAILURES] = {FAILURES(FAILURE_CODE)};

#define BOUNDS(a) a, sizeof(a) / sizeof((a)[0])
#define AT(field) offsetof(struct metrics, field)
#define FAILED(code)                                       \
    {"conductor_failures_total", "{reason=\"" #code "\"}", \
     "Failed requests, by error code.", AT(failures[FAILURE_##code])},
#define REJECTIONS(reason, metric, ...)                        \
    {"conductor_rejections_total", "{reason=\"" #metric "\"}", \
     "Requests answered 429, by reason.", AT(rejected_##metric)},

static const struct counter_def {
    const char *name, *labels, *help;
    size_t offset;
} counters[] = {
    {"conductor_requests_total", "{outcome=\"completed\"}",
     "Requests by outcome.", AT(requests[METRICS_COMPLETED])},
    {"conductor_requests_total", "{outcome=\"rejected\"}", NULL,
     AT(requests[METRICS_REJECTED])},
    {"conductor_requests_total", "{outcome=\"failed\"}", NULL,
     AT(requests[METRICS_FAILED])},
    {"conductor_requests_total", "{outcome=\"cancelled\"}", NULL,
     AT(requests[METRICS_CANCELLED])},
    {"conductor_requests_total", "{outcome=\"invalid\"}", NULL,
     AT(requests[METRICS_INVALID])},
    /* clang-format off */
    REFUSALS(REJECTIONS, REFUSALS_NONE, REFUSALS_NONE, REJECTIONS)
    FAILURES(FAILED)
    /* clang-format on */
    {"conductor_promises_total", "",
     "First tokens of requests accepted with a TTFT limit.", AT(promises)},
    {"conductor_ttft_p90_total", "{held=\"true\"}",
     "First tokens, by whether they met the predicted 90th percentile.",
     AT(p90_held)},
    {"conductor_ttft_p90_total", "{held=\"false\"}", NULL, AT(p90_broken)},
    {"conductor_promises_broken_total", "{cause=\"retried\"}",
     "First tokens that missed the request's TTFT limit, by cause.",
     AT(broken_retried)},
    {"conductor_promises_broken_total", "{cause=\"other\"}", NULL,
     AT(broken_other)},
    {"conductor_effective_requests_total", "",
     "Requests completed within their limits, or without limits.",
     AT(effective)},
    {"conductor_effective_tokens_total", "",
     "Prompt tokens of requests completed within their limits, or without "
     "limits.",
     AT(effective_tokens)},
    {"conductor_offered_tokens_total", "",
     "Prompt tokens of all ended requests, refused ones included, cancelled "
     "ones not.",
     AT(offered_tokens)},
    {"conductor_retries_total", "", "Requests scheduled again after a failure.",
     AT(retries)},
    {"conductor_prompt_tokens_total", "",
     "Prompt tokens of requests whose prefill finished.", AT(prompt_tokens)},
    {"conductor_cached_tokens_total", "{source=\"local\"}",
     "Prompt tokens whose KV was reused, by location of the KV.",
     AT(local_tokens)},
    {"conductor_cached_tokens_total", "{source=\"fetched\"}", NULL,
     AT(fetched_tokens)},
    {"conductor_cached_tokens_total", "{source=\"disk\"}", NULL,
     AT(disk_tokens)},
    {"conductor_cached_tokens_total", "{source=\"shared\"}", NULL,
     AT(shared_tokens)},
    {"conductor_computed_tokens_total", "",
     "Prompt tokens that were computed, not reused.", AT(computed_tokens)},
    {"conductor_guessed_prompt_tokens_total", "{part=\"length\"}",
     "Tokens of prompts whose length is estimated from their bytes, and of "
     "prompts whose cached part was taken from the index because no engine "
     "reported it.",
     AT(guessed_length_tokens)},
    {"conductor_guessed_prompt_tokens_total", "{part=\"cached\"}", NULL,
     AT(guessed_cached_tokens)},
    {"conductor_fetched_blocks_total", "",
     "KV blocks reused after a fetch from another worker.", AT(fetched_blocks)},
    {"conductor_fetched_bytes_total", "",
     "Bytes of KV blocks reused after a fetch from another worker.",
     AT(fetched_bytes)},
    {"conductor_disk_bytes_total", "",
     "Bytes that workers read from their own disks.", AT(disk_bytes)},
    {"conductor_shared_bytes_total", "",
     "Bytes that workers read from the shared store.", AT(shared_bytes)},
    {"conductor_pushed_tokens_total", "",
     "Prompt tokens whose KV was sent to a decode worker.", AT(pushed_tokens)},
    {"conductor_prefills_total", "{load=\"compute\"}",
     "Finished prefills, by how cached blocks were loaded.", AT(load_modes[0])},
    {"conductor_prefills_total", "{load=\"load\"}", NULL, AT(load_modes[1])},
    {"conductor_prefills_total", "{load=\"both\"}", NULL, AT(load_modes[2])},
    {"conductor_prefills_total", "{load=\"layerwise\"}", NULL,
     AT(load_modes[3])},
    {"conductor_output_tokens_total", "", "Tokens sent to clients.",
     AT(output_tokens)},
    {"conductor_block_events_total", "{event=\"stored\"}",
     "Blocks that workers reported as stored or removed.",
     AT(block_events_stored)},
    {"conductor_block_events_total", "{event=\"removed\"}", NULL,
     AT(block_events_removed)},
    {"conductor_index_inventories_total", "{event=\"asked\"}",
     "Block inventories requested again from workers (asked), and inventories "
     "after which all blocks were indexed (healed).",
     AT(inventories_asked)},
    {"conductor_index_inventories_total", "{event=\"healed\"}", NULL,
     AT(inventories_healed)},
    {"conductor_tokenized_total", "{result=\"tokens\"}",
     "Text prompts, by the source of their tokens.", AT(tokenized)},
    {"conductor_tokenized_total", "{result=\"cached\"}", NULL,
     AT(tokenize_cached)},
    {"conductor_tokenized_total", "{result=\"failed\"}", NULL,
     AT(tokenize_failed)},
    {"conductor_pair_legs_total", "{result=\"prefill\"}",
     "Prefill legs sent to prefill engines, and legs whose reply named no KV "
     "to fetch.",
     AT(pairs)},
    {"conductor_pair_legs_total", "{result=\"no_kv\"}", NULL, AT(pairs_alone)},
    {"conductor_pair_releases_total", "{result=\"released\"}",
     "KV of prefill legs whose request ended before the KV was fetched: "
     "released by a fetch, or left to the engine's time limit.",
     AT(pairs_released)},
    {"conductor_pair_releases_total", "{result=\"stranded\"}", NULL,
     AT(pairs_stranded)},
    {"conductor_extrapolated_predictions_total", "",
     "Predictions outside the range for which the cost model was fitted.",
     AT(extrapolated_predictions)},
    {"conductor_tickets_total", "{event=\"granted\"}",
     "Tickets of requests that other gateways send, by event.", AT(tickets)},
    {"conductor_tickets_total", "{event=\"refused\"}", NULL,
     AT(tickets_refused)},
    {"conductor_tickets_total", "{event=\"expired\"}", NULL,
     AT(tickets_expired)},
    {"conductor_warm_jobs_total", "{result=\"done\"}",
     "Refused prompts kept for computing in the background, by result.",
     AT(warm.done)},
    {"conductor_warm_jobs_total", "{result=\"late\"}", NULL, AT(warm.late)},
    {"conductor_warm_jobs_total", "{result=\"dropped\"}", NULL,
     AT(warm.dropped)},
    {"conductor_warm_joined_total", "",
     "Refused prompts merged with a kept prompt, because one begins with the "
     "other.",
     AT(warm.joined)},
    {"conductor_warm_crowded_total", "",
     "Refused prompts not kept for the background: too many, or too long.",
     AT(warm.crowded)},
    {"conductor_warm_pieces_total", "",
     "Background prefills, of 512 tokens each.", AT(warm.pieces)},
    {"conductor_warm_tokens_total", "",
     "Prompt tokens computed in the background.", AT(warm.tokens)},
    {"conductor_replication_passes_total", "",
     "Passes that look for hot blocks to copy ahead of demand.",
     AT(replication.passes)},
    {"conductor_replication_wanted_total", "",
     "Copies of hot blocks to further instances that passes found worthwhile.",
     AT(replication.wanted)},
    {"conductor_replication_pieces_total", "{result=\"begun\"}",
     "Pieces of copies that workers were told to fetch, and pieces that "
     "failed.",
     AT(replication.pieces)},
    {"conductor_replication_pieces_total", "{result=\"failed\"}", NULL,
     AT(replication.failed)},
    {"conductor_replication_blocks_total", "", "Blocks copied ahead of demand.",
     AT(replication.blocks)},
    {"conductor_replication_drops_total", "",
     "Cold copies that workers were told to drop.", AT(replication.dropped)},
    {"conductor_role_switches_total", "{to=\"prefill\",why=\"command\"}",
     "Workers told to switch their role, by new role and reason.",
     AT(roles.begun[1][0])},
    {"conductor_role_switches_total", "{to=\"decode\",why=\"command\"}", NULL,
     AT(roles.begun[1][1])},
    {"conductor_role_switches_total", "{to=\"prefill\",why=\"load\"}", NULL,
     AT(roles.begun[0][0])},
    {"conductor_role_switches_total", "{to=\"decode\",why=\"load\"}", NULL,
     AT(roles.begun[0][1])},
    {"conductor_role_switches_taken_total", "",
     "Workers that switched their role when told to.", AT(roles.taken)},
    {"conductor_workers_refused_total", "", "Workers refused at registration.",
     AT(workers_refused)},
    {"conductor_workers_lost_total", "", "Registered workers that were lost.",
     AT(workers_lost)},
    {"conductor_bad_frames_total", "",
     "Invalid frames from workers; each ends the connection.", AT(bad_frames)},
};

static const struct histogram_def {
    const char *name, *help;
    size_t offset;
    const double *bounds;
    unsigned n_bounds;
    const char *label; /* NULL = none. help NULL: the line before has it */
} histograms[] = {
    {"conductor_time_to_first_token_seconds",
     "Time from a request's arrival to its first token.", AT(ttft_s),
     BOUNDS(time_bounds_s), NULL},
    {"conductor_promise_late_seconds",
     "Lateness of first tokens that missed their request's TTFT limit.",
     AT(late_s), BOUNDS(time_bounds_s), NULL},
    {"conductor_inter_token_latency_seconds",
     "Time between two consecutive tokens of a request.", AT(tbt_s),
     BOUNDS(time_bounds_s), NULL},
    {"conductor_queue_seconds",
     "Time that a prefill waited for its turn on its instance, without time in "
     "which it waited for a load only.",
     AT(queue_s), BOUNDS(time_bounds_s), NULL},
    {"conductor_prefill_seconds",
     "Time from the start of a prefill to its first token.", AT(prefill_s),
     BOUNDS(time_bounds_s), NULL},
    {"conductor_ttft_prediction_error_ratio",
     "Absolute error of the predicted TTFT, divided by the observed TTFT.",
     AT(ttft_error_ratio), BOUNDS(error_bounds), NULL},
    {"conductor_prefill_prediction_error_ratio",
     "Absolute error of the predicted prefill time, divided by the observed "
     "time.",
     AT(prefill_error_ratio), BOUNDS(error_bounds), NULL},
    {"conductor_queue_prediction_error_seconds",
     "Absolute error of the predicted queue time.", AT(queue_error_s),
     BOUNDS(time_bounds_s), NULL},
    {"conductor_transfer_prediction_error_ratio",
     "Absolute error of the predicted load time, divided by the observed time.",
     AT(transfer_error_ratio), BOUNDS(error_bounds), NULL},
    {"conductor_tbt_prediction_error_ratio",
     "Absolute error of the predicted TBT, divided by the request's mean TBT.",
     AT(tbt_error_ratio), BOUNDS(error_bounds), NULL},
    {"conductor_ttft_predicted_over_measured_ratio",
     "Predicted TTFT divided by the observed TTFT; below 1 = slower than "
     "predicted.",
     AT(ttft_ratio), BOUNDS(ratio_bounds), NULL},
    {"conductor_tbt_predicted_over_measured_ratio",
     "Predicted TBT divided by the request's mean TBT; below 1 = slower than "
     "predicted.",
     AT(tbt_ratio), BOUNDS(ratio_bounds), NULL},
    {"conductor_transfer_seconds",
     "Time of KV transfers by path. peer, disk, shared and both (peer and disk "
     "at once): from the request for the first block to the last block. push: "
     "from the end of the prefill to the decode worker's first token.",
     AT(transfer_s[METRICS_PEER]), BOUNDS(transfer_bounds_s), "path=\"peer\""},
    {"conductor_transfer_seconds", NULL, AT(transfer_s[METRICS_DISK]),
     BOUNDS(transfer_bounds_s), "path=\"disk\""},
    {"conductor_transfer_seconds", NULL, AT(transfer_s[METRICS_BOTH]),
     BOUNDS(transfer_bounds_s), "path=\"both\""},
    {"conductor_transfer_seconds", NULL, AT(transfer_s[METRICS_SHARED]),
     BOUNDS(transfer_bounds_s), "path=\"shared\""},
    {"conductor_transfer_seconds", NULL, AT(transfer_s[METRICS_PUSH]),
     BOUNDS(transfer_bounds_s), "path=\"push\""},
    {"conductor_decision_seconds",
     "Time to match, estimate and choose instances, per request.",
     AT(decision_s), BOUNDS(decision_bounds_s), NULL},
    {"conductor_loop_lag_seconds",
     "Delay of the event loop's timers, measured ten times a second; all other "
     "work is delayed as much.",
     AT(loop_lag_s), BOUNDS(lag_bounds_s), NULL},
};

#define N_COUNTERS (sizeof(counters) / sizeof(counters[0]))
#define N_HISTOGRAMS (sizeof(histograms) / sizeof(histograms[0]))

#define HOLDS(a) (sizeof(a) / sizeof(double) <= HISTOGRAM_BUCKETS_MAX)
static_assert(HOLDS(time_bounds_s) && HOLDS(ratio_bounds) &&
                  HOLDS(transfer_bounds_s) && HOLDS(lag_bounds_s),
              "a histogram holds its bounds");

static void *field_at(const struct metrics *m, size_t offset)
{
    return (char *)(uintptr_t)m + offset;
}

void metrics_init(struct metrics *m)
{
    memset(m, 0, sizeof(*m));
    for (size_t i = 0; i < N_HISTOGRAMS; i++) {
        struct histogram *h = field_at(m, histograms[i].offset);

        h->bounds = histograms[i].bounds;
        h->n_bounds = histograms[i].n_bounds;
    }
}

void metrics_escape(const char *from, char *to)
{
    for (; *from; from++) {
        if (strchr("\"\\", *from))
            *to++ = '\\';
        *to++ = *from;
    }
    *to = '\0';
}

void metrics_add(struct metrics *into, const struct metrics *m)
{
    for (size_t i = 0; i < N_COUNTERS; i++)
        *(uint64_t *)field_at(into, counters[i].offset) +=
            *(const uint64_t *)field_at(m, counters[i].offset);
    for (size_t i = 0; i < N_HISTOGRAMS; i++) {
        struct histogram *sum = field_at(into, histograms[i].offset);
        const struct histogram *h = field_at(m, histograms[i].offset);

        for (unsigned b = 0; b <= h->n_bounds; b++)
            sum->counts[b] += h->counts[b];
        sum->sum += h->sum;
    }
}

void histogram_observe(struct histogram *h, double value)
{
    unsigned i = 0;

    if (isnan(value))
        return;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    h->counts[i]++;
    h->sum += value;
}

void metrics_ratio_error(struct histogram *h, int64_t predicted,
                         int64_t observed)
{
    if (observed > 0)
        histogram_observe(h, fabs((double)(predicted - observed)) /
                                 (double)observed);
}

void metrics_predicted(struct histogram *error, struct histogram *ratio,
                       int64_t predicted, int64_t observed)
{
    metrics_ratio_error(error, predicted, observed);
    if (observed > 0)
        histogram_observe(ratio, (double)predicted / (double)observed);
}

void metrics_ttft_predicted(struct metrics *m, const struct forecast *forecast,
                            int64_t ttft_us)
{
    metrics_predicted(&m->ttft_error_ratio, &m->ttft_ratio, forecast->ttft_us,
                      ttft_us);
    if (forecast->p90_us == 0)
        return;
    if (ttft_us <= forecast->p90_us)
        m->p90_held++;
    else
        m->p90_broken++;
}

void metrics_first_token(struct metrics *m, int64_t ttft_us, int64_t slo_us,
                         bool retried)
{
    histogram_observe(&m->ttft_s, (double)ttft_us / 1e6);
    if (slo_us == 0)
        return;
    m->promises++;
    if (ttft_us <= slo_us)
        return;
    if (retried)
        m->broken_retried++;
    else
        m->broken_other++;
    histogram_observe(&m->late_s, (double)(ttft_us - slo_us) / 1e6);
}

void metrics_count_failure(struct metrics *m, const char *code)
{
    size_t i = 0;

    while (i < METRICS_FAILURES - 1 && strcmp(code, failures[i]) != 0)
        i++;
    m->failures[i]++;
}

static int write_histogram(const struct histogram_def *d,
                           const struct histogram *h, struct text_buf *out)
{
    const char *label = d->label ? d->label : "", *comma = d->label ? "," : "";
    char own[64] = "";
    uint64_t cumulated = 0;
    int bad = 0;

    if (d->label)
        snprintf(own, sizeof(own), "{%s}", d->label);
    if (d->help)
        bad |= text_buf_printf(out, "# HELP %s %s\n# TYPE %s histogram\n",
                               d->name, d->help, d->name) < 0;
    for (unsigned i = 0; i < h->n_bounds; i++) {
        cumulated += h->counts[i];
        bad |= text_buf_printf(out, "%s_bucket{%s%sle=\"%g\"} %llu\n", d->name,
                               label, comma, h->bounds[i],
                               (unsigned long long)cumulated) < 0;
    }
    cumulated += h->counts[h->n_bounds];
    bad |= text_buf_printf(out,
                           "%s_bucket{%s%sle=\"+Inf\"} %llu\n"
                           "%s_sum%s %.9g\n%s_count%s %llu\n",
                           d->name, label, comma, (unsigned long long)cumulated,
                           d->name, own, h->sum, d->name, own,
                           (unsigned long long)cumulated) < 0;
    return bad ? -ENOMEM : 0;
}

int metrics_write(const struct metrics *m, struct text_buf *out)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < N_COUNTERS; i++) {
        const struct counter_def *d = &counters[i];
        const uint64_t *value = field_at(m, d->offset);

        if (d->help && (i == 0 || strcmp(d->name, d[-1].name) != 0) &&
            text_buf_printf(out, "# HELP %s %s\n# TYPE %s counter\n", d->name,
                            d->help, d->name) < 0)
            rc = -ENOMEM;
        if (text_buf_printf(out, "%s%s %llu\n", d->name, d->labels,
                            (unsigned long long)*value) < 0)
            rc = -ENOMEM;
    }
    for (size_t i = 0; rc == 0 && i < N_HISTOGRAMS; i++)
        rc = write_histogram(&histograms[i], field_at(m, histograms[i].offset),
                             out);
    return rc;
}
