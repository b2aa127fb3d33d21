/* The mean length of answers. See lengths.h. */
#include "conductor/core/observation/lengths.h"

#include <stdbool.h>

#define MEDIAN_PARTS 50

static double at_most(double tokens, double most)
{
    return tokens < most ? tokens : most;
}

static void smooth(double *mean, double seen, double weight)
{
    *mean += (seen - *mean) / weight;
}

/* Half of the answers push the median up, half down. */
static void move_median(struct lengths_mean *mean, double tokens)
{
    double parts = (double)(mean->n < MEDIAN_PARTS ? mean->n : MEDIAN_PARTS);

    if (mean->n == 1)
        mean->median = tokens;
    else if (tokens > mean->median)
        mean->median += mean->median / parts;
    else if (tokens < mean->median)
        mean->median -= mean->median / parts;
}

static double off(double a, double b)
{
    return a < b ? b - a : a - b;
}

static void observe(struct lengths_mean *mean, double tokens, double max_tokens)
{
    double weight =
        (double)(++mean->n < LENGTHS_MEMORY ? mean->n : LENGTHS_MEMORY);

    smooth(&mean->tokens_off, off(at_most(mean->tokens, max_tokens), tokens),
           weight);
    smooth(&mean->share_off, off(mean->share * max_tokens, tokens), weight);
    smooth(&mean->tokens, tokens, weight);
    smooth(&mean->share, tokens / max_tokens, weight);
    move_median(mean, tokens);
}

static bool knows_share(const struct lengths_mean *mean)
{
    return mean->share_off < mean->tokens_off;
}

static double expected(const struct lengths_mean *mean, double max_tokens)
{
    return knows_share(mean) ? mean->share * max_tokens
                             : at_most(mean->tokens, max_tokens);
}

/* Index of a key's entry; n_entries = none. */
static size_t find(const struct lengths *lengths, uint64_t key)
{
    size_t i = 0;

    while (i < lengths->n_entries && lengths->entries[i].key != key)
        i++;
    return i;
}

/* Returns a free entry, else the entry of the key that was seen longest ago. */
static size_t make_room(struct lengths *lengths)
{
    size_t oldest = 0;

    if (lengths->n_entries < LENGTHS_KEYS)
        return lengths->n_entries++;
    for (size_t i = 1; i < LENGTHS_KEYS; i++)
        if (lengths->entries[i].seen < lengths->entries[oldest].seen)
            oldest = i;
    return oldest;
}

void lengths_observe(struct lengths *lengths, uint64_t key, int64_t tokens,
                     int64_t max_tokens)
{
    size_t i = find(lengths, key);

    if (tokens < 1 || max_tokens < tokens)
        return;
    if (i == lengths->n_entries) {
        i = make_room(lengths);
        lengths->entries[i] = (struct lengths_entry){.key = key};
    }
    observe(&lengths->all, (double)tokens, (double)max_tokens);
    observe(&lengths->entries[i].mean, (double)tokens, (double)max_tokens);
    lengths->entries[i].seen = lengths->all.n;
}

/* Weighs a key's prediction by `of` against the prediction of all keys
 * together. */
static int64_t
predict(const struct lengths *lengths, uint64_t key, int64_t max_tokens,
        double (*of)(const struct lengths_mean *mean, double max_tokens))
{
    size_t i = find(lengths, key);
    double most = (double)max_tokens;
    double tokens = of(&lengths->all, most);
    double n;

    if (lengths->all.n < LENGTHS_LEAST)
        return max_tokens;
    if (i < lengths->n_entries) {
        n = (double)lengths->entries[i].mean.n;
        tokens =
            (n * of(&lengths->entries[i].mean, most) + LENGTHS_LEAST * tokens) /
            (n + LENGTHS_LEAST);
    }
    if (tokens + 0.5 >= most)
        return max_tokens;
    return tokens < 1.0 ? 1 : (int64_t)(tokens + 0.5);
}

int64_t lengths_expected(const struct lengths *lengths, uint64_t key,
                         int64_t max_tokens)
{
    return predict(lengths, key, max_tokens, expected);
}

static double median(const struct lengths_mean *mean, double max_tokens)
{
    return knows_share(mean) ? expected(mean, max_tokens) : mean->median;
}

int64_t lengths_median(const struct lengths *lengths, uint64_t key,
                       int64_t max_tokens)
{
    return predict(lengths, key, max_tokens, median);
}
