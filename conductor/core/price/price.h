/*
 * Admission by price: under overload the requests are refused that cost most
 * engine time for what their KV will save later ones.
 *
 * A request's x is the time of the blocks that it must compute, on an instance
 * of the reference's speed, each divided by 1 + how often it will be asked for
 * again (asked.h). The x of all arrivals of the last minute are kept, refused
 * ones too. Twice a second the limit is set anew: the largest x such that the
 * work of all with a smaller one fits into the time that the instances had,
 * more if their queues are shorter than wanted, less if longer. A request above
 * the limit is refused. Of those at it, whose x is that of others to the bit,
 * the share is admitted that fits, one by one.
 *
 * A long queue absorbs a burst. In an overload that goes on it only makes all
 * wait: what it could absorb is in it. So what is aimed at falls while the
 * limit has been finite for more than ten windows without a break, in inverse
 * proportion to that time, down to 0.35 of the SLO.
 *
 * A pure module: time is an argument. Memory is fixed: `max_blocks` counts and
 * PRICE_WINDOW_MAX arrivals.
 */
#ifndef CONDUCTOR_CORE_PRICE_PRICE_H
#define CONDUCTOR_CORE_PRICE_PRICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "predictor/cost_model.h"

#define PRICE_WINDOW_MAX 2000u
#define PRICE_CLASSES 5u
/* Prompts are priced in pieces of about so many tokens: small blocks are
 * counted together. */
#define PRICE_PIECE_TOKENS 512u

struct price_config {
    double rho;          /* the mean queue to aim at, as a share of the SLO */
    bool eases;          /* less is aimed at while an overload lasts */
    double floor;        /* share of each class of lengths that is admitted
                            whatever it costs, if feasible; 0: none */
    uint64_t max_blocks; /* whose asks are counted */
    int64_t window_us;   /* of arrivals, above 0 */
    int64_t renew_us;    /* between two limits */
    uint64_t seed;
};

/* rho 0.7 that eases, no floor, 1 << 20 blocks (8 MiB), 60 s, 0.5 s. */
extern const struct price_config price_config_default;

struct price;

/* Makes it, without arrivals: the limit is infinite. Returns it, owned by the
 * caller, or NULL: out of memory. */
[[nodiscard]] struct price *price_new(const struct price_config *config);

/* Frees it. NULL is a no-op. */
void price_free(struct price *price);

/* What a request must compute: tokens [from, split) of its prompt, those
 * behind `from` cached ones, and [cached, n_tokens). */
struct price_work {
    const uint64_t *keys; /* (n_keys), borrowed: of its blocks; tokens behind
                             them are never asked for again */
    size_t n_keys;
    uint32_t block_tokens;
    int64_t n_tokens;
    int64_t from, split, cached;
    double us; /* of all that, predicted */
};

/*
 * Counts that a request asks for its blocks.
 * Returns its x, in microseconds of an instance: at most work->us.
 * Cost: a probe for each PRICE_PIECE_TOKENS.
 */
double price_ask(struct price *price, const struct price_work *work,
                 const struct cost_model *cost);

/* The instances that take prefills. */
struct price_load {
    uint32_t n_instances;
    double speed; /* sum over them: n_instances if they are equal; twice the
                     speed of the cost model that x is by counts 2 */
    double backlog_us; /* sum over them: work accepted and not done */
};

/* Whether the next price_arrived() sets the limit anew, and needs the load. */
bool price_due(const struct price *price, int64_t now_us);

/* One arrival. */
struct price_arrival {
    double x;
    double work_us; /* at least 0: what it must compute, in the same time */
    int64_t n_tokens;
    int64_t slo_ttft_us; /* above 0 */
    bool feasible;       /* it would be accepted but for its price */
    int64_t now_us;
};

/*
 * Enters an arrival, and decides on it.
 *   load   at that time; read only if price_due().
 *   limit  written: the limit that applied; INFINITY: none.
 * Returns whether its price admits it.
 * Cost: O(PRICE_WINDOW_MAX) additions twice a second, else a move of the
 * sorted window's tail.
 */
bool price_arrived(struct price *price, const struct price_arrival *arrival,
                   const struct price_load *load, double *limit);

/*
 * By how much the instances' queues must be shorter than at the last limit for
 * it to admit an arrival's x, and all that equal it, if what comes stays so.
 *   queue_us  written: their mean then.
 * Returns microseconds of each instance, at least 0: nothing is missing; -1:
 * not even without queues.
 */
int64_t price_late_us(const struct price *price, double x, int64_t *queue_us);

/* The mean queue that the last limit aimed at, as a share of the SLO. */
double price_aim(const struct price *price);

/* When the next limit may be set, from now, at least 1. */
int64_t price_renewed_in_us(const struct price *price, int64_t now_us);

#endif
