/* See tail_mean.h. */
#include "base/tail_mean.h"

/* Partitions x[from .. to): values of at most `most` first. Returns where the
 * others begin. Branch-free, because the order is random. */
static size_t at_most_first(int64_t *x, size_t from, size_t to, int64_t most)
{
    size_t others = from;

    for (size_t i = from; i < to; i++) {
        int64_t value = x[i];

        x[i] = x[others];
        x[others] = value;
        others += value <= most;
    }
    return others;
}

/* Moves the n - k longest to the end of x, unordered. Quickselect. */
static void select_longest(int64_t *x, size_t n, size_t k)
{
    size_t low = 0, high = n;

    while (high - low > 1) {
        int64_t pivot = x[low + (high - low) / 2];
        size_t more = at_most_first(x, low, high, pivot);

        if (k >= more) {
            low = more;
            continue;
        }
        /* Of these, values equal to the pivot come last. */
        high = at_most_first(x, low, more, pivot - 1);
        if (k >= high)
            return;
    }
}

int64_t tail_mean(int64_t *x, size_t n)
{
    size_t longest = (n + 9) / 10;
    int64_t sum = 0;

    if (n == 0)
        return -1;
    select_longest(x, n, n - longest);
    for (size_t i = n - longest; i < n; i++)
        sum += x[i];
    return sum / (int64_t)longest;
}
