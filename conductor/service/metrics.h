/*
 * The daemon's metrics, in Prometheus's text format 0.0.4. Counters only ever
 * rise; they live as long as the process.
 */
#ifndef CONDUCTOR_SERVICE_METRICS_H
#define CONDUCTOR_SERVICE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/observation/forecast.h"
#include "conductor/core/replication/replication.h"
#include "conductor/core/roles/roles.h"
#include "conductor/core/warm/warm.h"
#include "conductor/service/refusals.h"

struct text_buf;

#define HISTOGRAM_BUCKETS_MAX 20

/* counts[i]: values in (bounds[i - 1], bounds[i]]; written cumulated. */
struct histogram {
    const double *bounds; /* ascending; the last bucket is +Inf */
    unsigned n_bounds;
    uint64_t counts[HISTOGRAM_BUCKETS_MAX + 1];
    double sum;
};

/* How a request ended. */
enum metrics_outcome {
    METRICS_COMPLETED,
    METRICS_REJECTED,
    METRICS_FAILED,
    METRICS_CANCELLED,
    METRICS_INVALID, /* an engine answered 4xx: the client is at fault */
    METRICS_OUTCOMES,
};

#define METRICS_LOAD_MODES 4

/* Error codes with a counter each, and "other". */
#define METRICS_FAILURES 9

/* How KV came to the instance that needed it. */
enum metrics_path {
    METRICS_PEER,   /* from other workers, for a prefill */
    METRICS_DISK,   /* from the worker's own disk, for a prefill */
    METRICS_BOTH,   /* from other workers and disk, or with the shared store */
    METRICS_SHARED, /* from the shared store, for a prefill */
    METRICS_PUSH,   /* from the prefill to the decode worker */
    METRICS_PATHS,
};

#define METRICS_REFUSED(reason, metric, ...) uint64_t rejected_##metric;

struct metrics {
    uint64_t requests[METRICS_OUTCOMES];
    REFUSALS(METRICS_REFUSED, REFUSALS_NONE, REFUSALS_NONE, METRICS_REFUSED)
    uint64_t failures[METRICS_FAILURES]; /* see metrics_count_failure() */
    /* First tokens of requests accepted with a TTFT limit; of these, first
     * tokens after the limit, of retried requests and of others. */
    uint64_t promises, broken_retried, broken_other;
    uint64_t p90_held, p90_broken; /* first tokens within the predicted 90th
                                      percentile; after it */
    uint64_t effective, effective_tokens; /* requests completed within their
                                             SLOs; their prompt tokens */
    uint64_t offered_tokens; /* prompt tokens of all requests that ended and
                                were not cancelled */
    uint64_t retries;
    uint64_t prompt_tokens; /* of requests whose prefill finished */
    uint64_t local_tokens, fetched_tokens, disk_tokens, shared_tokens,
        computed_tokens;
    /* Parts of prompt_tokens: tokens of prompts whose length was guessed from
     * their bytes, and of prompts whose cached part was guessed from the index
     * because the engine did not report it. */
    uint64_t guessed_length_tokens, guessed_cached_tokens;
    uint64_t fetched_blocks, fetched_bytes, disk_bytes, shared_bytes;
    uint64_t pushed_tokens; /* prompt tokens sent to another decode worker */
    uint64_t load_modes[METRICS_LOAD_MODES]; /* by enum load_mode */
    uint64_t output_tokens;
    uint64_t block_events_stored, block_events_removed;
    uint64_t inventories_asked, inventories_healed;
    uint64_t extrapolated_predictions;
    uint64_t tokenized, tokenize_cached, tokenize_failed;
    uint64_t pairs, pairs_alone; /* requests with a prefill leg; of these,
                                    replies without KV parameters */
    uint64_t pairs_released, pairs_stranded;
    uint64_t tickets, tickets_refused, tickets_expired;
    struct warm_counts warm; /* refused prompts in the background */
    struct replication_counts replication; /* copies ahead of demand */
    struct roles_counts roles;             /* switched */
    uint64_t workers_refused, workers_lost, bad_frames;
    struct histogram ttft_s, tbt_s, queue_s, prefill_s;
    /* Delay of late first tokens, from the limit. */
    struct histogram late_s;
    struct histogram ttft_error_ratio;    /* |predicted - observed| / observed,
                                             of the TTFT in the daemon */
    struct histogram prefill_error_ratio; /* corrected prediction */
    struct histogram queue_error_s;       /* |predicted - observed| */
    struct histogram transfer_error_ratio;
    struct histogram tbt_error_ratio;
    struct histogram ttft_ratio, tbt_ratio; /* predicted / observed */
    struct histogram transfer_s[METRICS_PATHS];
    struct histogram decision_s; /* match, estimate and choice */
    struct histogram loop_lag_s; /* how late timers of the loop are */
};

/* metrics_init(m): sets all counts to zero, and the buckets. */
void metrics_init(struct metrics *m);

/* histogram_observe(h, value): counts one value; NaN is dropped. */
void histogram_observe(struct histogram *h, double value);

/* metrics_ratio_error(h, predicted, observed): observes the absolute relative
 * error of a prediction; no-op if observed <= 0. */
void metrics_ratio_error(struct histogram *h, int64_t predicted,
                         int64_t observed);

/* metrics_ttft_predicted(m, forecast, ttft_us): compares the TTFT of a request
 * without retries with its forecast. */
void metrics_ttft_predicted(struct metrics *m, const struct forecast *forecast,
                            int64_t ttft_us);

/* metrics_predicted(error, ratio, predicted, observed): as
 * metrics_ratio_error() in *error; observes predicted / observed in *ratio. */
void metrics_predicted(struct histogram *error, struct histogram *ratio,
                       int64_t predicted, int64_t observed);

/* metrics_first_token(m, ttft_us, slo_us, retried): counts a first token.
 * slo_us: TTFT limit of the request; 0 = none. retried: it was scheduled again
 * after a failure. */
void metrics_first_token(struct metrics *m, int64_t ttft_us, int64_t slo_us,
                         bool retried);

/* metrics_count_failure(m, code): counts a failed request by its error code; a
 * code outside the table counts as "other". */
void metrics_count_failure(struct metrics *m, const char *code);

/* metrics_escape(from, to): writes a label's value as it appears between
 * quotes, at most twice as long. Line ends are not escaped: no name has
 * them. */
void metrics_escape(const char *from, char *to);

/* metrics_add(into, m): adds all counts of m to *into. */
void metrics_add(struct metrics *into, const struct metrics *m);

/* metrics_write(m, out): appends all of m in Prometheus's text format. Returns
 * 0 or -ENOMEM. */
[[nodiscard]] int metrics_write(const struct metrics *m, struct text_buf *out);

#endif
