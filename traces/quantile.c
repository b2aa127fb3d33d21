/* See quantile.h. */
#include "traces/quantile.h"

#include <stddef.h>

uint32_t quantile_at(const struct quantile_table *table, uint32_t u)
{
    uint64_t at = (uint64_t)u * 1000; /* per mille, 32.32 */
    const struct quantile_knot *k = table->knots;
    size_t i = 1;

    while (i < QUANTILE_KNOTS - 1 && at >= (uint64_t)k[i].per_mille << 32)
        i++;
    uint64_t low = (uint64_t)k[i - 1].per_mille << 32;
    uint64_t high = (uint64_t)k[i].per_mille << 32;
    uint64_t rise = k[i].value - k[i - 1].value;
    if (rise == 0)
        return k[i - 1].value;
    return k[i - 1].value + (uint32_t)(rise * (at - low) / (high - low));
}

uint32_t quantile_draw(struct random_state *random,
                       const struct quantile_table *table)
{
    return quantile_at(table, (uint32_t)(random_u64(random) >> 32));
}

uint64_t quantile_mean_milli(const struct quantile_table *table)
{
    const struct quantile_knot *k = table->knots;
    uint64_t sum = 0;

    for (size_t i = 1; i < QUANTILE_KNOTS; i++)
        sum += (uint64_t)(k[i].per_mille - k[i - 1].per_mille) *
               ((uint64_t)k[i].value + k[i - 1].value);
    return sum / 2;
}

static uint32_t rank_weight(uint32_t rank)
{
    return 1000000 / (rank + 1);
}

uint32_t quantile_rank_weights(uint32_t n)
{
    uint32_t sum = 0;

    for (uint32_t rank = 0; rank < n; rank++)
        sum += rank_weight(rank);
    return sum;
}

uint32_t quantile_draw_rank(struct random_state *random, uint32_t weights)
{
    uint32_t at = random_below(random, weights), rank = 0;

    for (; at >= rank_weight(rank); rank++)
        at -= rank_weight(rank);
    return rank;
}
