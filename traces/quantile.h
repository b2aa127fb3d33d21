/*
 * Distributions as tables of quantiles; drawing uses integers only. Internal
 * to traces/.
 */
#ifndef TRACES_QUANTILE_H
#define TRACES_QUANTILE_H

#include <stdbool.h>
#include <stdint.h>

#include "traces/random.h"

/* A point of a distribution: per_mille of the draws are at most value. */
struct quantile_knot {
    uint32_t per_mille;
    uint32_t value;
};

/* Knots from per_mille 0 to 1000, linear between them. {0} = always 0. */
#define QUANTILE_KNOTS 10
struct quantile_table {
    struct quantile_knot knots[QUANTILE_KNOTS];
};

/* A table whose draws are always v. */
#define QUANTILE_ALWAYS(v)                                            \
    {                                                                 \
        {                                                             \
            {0, v}, {100, v}, {200, v}, {300, v}, {400, v}, {500, v}, \
                {600, v}, {700, v}, {800, v}, {1000, v},              \
        }                                                             \
    }

/* The quantile at u / 2^32. */
uint32_t quantile_at(const struct quantile_table *table, uint32_t u);

/* Draws a random value of the table. */
uint32_t quantile_draw(struct random_state *random,
                       const struct quantile_table *table);

/* Returns 1,000 times the mean of the table's values. */
uint64_t quantile_mean_milli(const struct quantile_table *table);

/*
 * Returns the i-th point of a golden-ratio sequence with a random start: evenly
 * spread. Prompt lengths are so skewed that independent draws would miss the
 * mean by several per cent in a trace of a few thousand requests.
 */
static inline uint32_t quantile_spread(uint32_t start, uint64_t i)
{
    return start + (uint32_t)i * 0x9e3779b9U;
}

/* Returns the sum of the weights of the first n ranks; rank r, from 0, has the
 * weight 1,000,000 / (r + 1). O(n). */
uint32_t quantile_rank_weights(uint32_t n);

/* Returns a random rank; weights: quantile_rank_weights() of the number of
 * ranks, at least 1. O(ranks). */
uint32_t quantile_draw_rank(struct random_state *random, uint32_t weights);

/* True in per_mille of 1,000 draws. */
static inline bool random_chance(struct random_state *random,
                                 uint32_t per_mille)
{
    return random_below(random, 1000) < per_mille;
}

#endif
