/*
 * Admission by price: under overload it refuses the requests that cost most
 * engine time for what their KV will save later ones.
 *
 * A request's x is the time of the blocks that it must compute, on an instance
 * of the reference's speed, each divided by 1 + how often it will be asked for
 * again (asked.h). The module keeps the x of all arrivals of the last minute,
 * refused ones too. Twice a second the limit is set anew: the largest x such
 * that the work of all arrivals with a smaller x fits into the time that the
 * instances had, plus or minus a correction toward the wanted queue length. A
 * request above the limit is refused. Of requests exactly at it, as many are
 * admitted as fit, one by one.
 *
 * A long queue absorbs a burst, but in a lasting overload it only makes all
 * requests wait. So the queue to aim at shrinks once the limit has been finite
 * for more than ten windows without a break, in inverse proportion to that
 * time, down to 0.35 of the SLO.
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
/* Prompts are priced in pieces of about this many tokens: small blocks are
 * counted together. */
#define PRICE_PIECE_TOKENS 512u

struct price_config {
    double rho;          /* mean queue to aim at, as a share of the SLO */
    bool eases;          /* rho shrinks in a lasting overload */
    double floor;        /* share of each class of lengths admitted at any
                            price, if feasible; 0 = none */
    uint64_t max_blocks; /* blocks in the table of counts */
    int64_t window_us;   /* of arrivals, above 0 */
    int64_t renew_us;    /* time between two limits */
    uint64_t seed;
};

/* rho 0.7, eases, no floor, 1 << 20 blocks (8 MiB), 60 s, 0.5 s. */
extern const struct price_config price_config_default;

struct price;

/* Makes a price without arrivals, whose limit is infinite. Returns the price,
 * owned by the caller, or NULL: out of memory. */
[[nodiscard]] struct price *price_new(const struct price_config *config);

/* Frees a price. NULL is a no-op. */
void price_free(struct price *price);

/* The work of a request: tokens [from, split) of its prompt behind `from`
 * cached ones, and [cached, n_tokens) behind `cached` ones. */
struct price_work {
    const uint64_t *keys; /* (n_keys), of its blocks, borrowed; later tokens
                             have no key and are never asked for again */
    size_t n_keys;
    uint32_t block_tokens;
    int64_t n_tokens;
    int64_t from, split, cached;
    double us; /* predicted time of this work */
};

/*
 * Counts that a request asks for its blocks.
 * Returns its x, in microseconds of an instance: at most work->us.
 * Cost: a probe for each PRICE_PIECE_TOKENS.
 */
double price_ask(struct price *price, const struct price_work *work,
                 const struct cost_model *cost);

/* Load of the instances that take prefills. */
struct price_load {
    uint32_t n_instances;
    double speed;      /* sum of speeds, as multiples of the cost model */
    double backlog_us; /* sum of work accepted and not done */
};

/* Returns whether the next price_arrived() sets a new limit from the load. */
bool price_due(const struct price *price, int64_t now_us);

/* One arrival. */
struct price_arrival {
    double x;
    double work_us; /* its work, undivided; at least 0 */
    int64_t n_tokens;
    int64_t slo_ttft_us; /* above 0 */
    bool feasible;       /* only its price could refuse it */
    int64_t now_us;
};

/*
 * Adds an arrival and decides whether to admit it.
 *   load   at that time; read only if price_due() is true.
 *   limit  written: the limit that applied; INFINITY: none.
 * Returns whether its price admits it.
 * Cost: O(PRICE_WINDOW_MAX) additions twice a second, else a move of the
 * sorted window's tail.
 */
bool price_arrived(struct price *price, const struct price_arrival *arrival,
                   const struct price_load *load, double *limit);

/*
 * Returns by how much the instances' mean queue must shrink until the limit
 * admits x and all arrivals equal to it, if arrivals stay as they are, in
 * microseconds; 0 = x is admitted now, -1 = not even without queues.
 *   queue_us  written: the mean queue at the last limit.
 */
int64_t price_late_us(const struct price *price, double x, int64_t *queue_us);

/* Returns the mean queue aimed at by the last limit, as a share of the SLO. */
double price_aim(const struct price *price);

/* Returns the time until the next limit may be set, at least 1. */
int64_t price_renewed_in_us(const struct price *price, int64_t now_us);

#endif
