/* See math.h. */
#include "tools/replay/math.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

void replay_sort(double *values, size_t count)
{
    if (count > 1)
        qsort(values, count, sizeof values[0], compare_doubles);
}

double replay_percentile(const double *sorted, size_t count, double share)
{
    if (count == 0)
        return 0.0;
    double rank = share * (double)(count - 1);
    size_t low = (size_t)rank;
    if (low + 1 >= count)
        return sorted[count - 1];
    return sorted[low] + (rank - (double)low) * (sorted[low + 1] - sorted[low]);
}

struct replay_summary replay_summarise(double *values, size_t count)
{
    struct replay_summary s = {.count = count};

    if (count == 0)
        return s;
    replay_sort(values, count);
    for (size_t i = 0; i < count; i++)
        s.mean += values[i];
    s.mean /= (double)count;
    s.p50 = replay_percentile(values, count, 0.50);
    s.p90 = replay_percentile(values, count, 0.90);
    s.p95 = replay_percentile(values, count, 0.95);
    s.p99 = replay_percentile(values, count, 0.99);
    s.max = values[count - 1];
    return s;
}

double replay_ratio(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0.0 : (double)part / (double)whole;
}

/* Bin 0 holds numbers below 2^-30; bin 1 + 512 (e + 30) + s holds numbers in
 * 2^e (1 + s / 512) .. 2^e (1 + (s + 1) / 512), e < 34; the last bin also holds
 * all larger numbers. */
#define SUB_BINS 512
#define EXPONENT_MIN (-30)
#define EXPONENT_END 34
#define BINS (1 + SUB_BINS * (EXPONENT_END - EXPONENT_MIN))

void replay_distribution_fini(struct replay_distribution *d)
{
    free(d->values);
    free(d->bins);
    memset(d, 0, sizeof *d);
}

static size_t bin_of(double x)
{
    int e = 0;
    double m = frexp(x, &e); /* x = m 2^e, m in 0.5 .. 1 */

    if (!(x >= ldexp(1.0, EXPONENT_MIN)))
        return 0;
    if (e - 1 >= EXPONENT_END)
        return BINS - 1;
    return 1 + (size_t)(e - 1 - EXPONENT_MIN) * SUB_BINS +
           (size_t)((2 * m - 1) * SUB_BINS);
}

static double bin_middle(size_t bin)
{
    if (bin == 0)
        return 0.0;
    size_t i = bin - 1;
    return ldexp(1.0 + ((double)(i % SUB_BINS) + 0.5) / SUB_BINS,
                 EXPONENT_MIN + (int)(i / SUB_BINS));
}

static int make_bins(struct replay_distribution *d)
{
    d->bins = calloc(BINS, sizeof d->bins[0]);
    if (!d->bins)
        return -ENOMEM;
    for (size_t i = 0; i < d->count; i++)
        d->bins[bin_of(d->values[i])]++;
    free(d->values);
    d->values = NULL;
    d->capacity = 0;
    return 0;
}

int replay_distribution_add(struct replay_distribution *d, double x)
{
    int rc = 0;

    if (!d->bins && d->count == REPLAY_EXACT_MAX)
        rc = make_bins(d);
    else if (!d->bins)
        rc = array_reserve(d->values, d->capacity, d->count + 1);
    if (rc != 0)
        return rc;
    if (d->bins)
        d->bins[bin_of(x)]++;
    else
        d->values[d->count] = x;
    d->count++;
    d->sum += x;
    d->max = x > d->max ? x : d->max;
    return 0;
}

/* Returns the middle of the bin that holds the number of this rank. */
static double at_share(const struct replay_distribution *d, double share)
{
    uint64_t rank = (uint64_t)(share * (double)(d->count - 1));
    uint64_t seen = 0;

    for (size_t i = 0; i < BINS; i++) {
        seen += d->bins[i];
        if (seen > rank) {
            double x = bin_middle(i);

            return x < d->max ? x : d->max;
        }
    }
    return d->max;
}

struct replay_summary replay_distribution_summary(struct replay_distribution *d)
{
    if (!d->bins)
        return replay_summarise(d->values, d->count);
    return (struct replay_summary){.count = d->count,
                                   .mean = d->sum / (double)d->count,
                                   .p50 = at_share(d, 0.50),
                                   .p90 = at_share(d, 0.90),
                                   .p95 = at_share(d, 0.95),
                                   .p99 = at_share(d, 0.99),
                                   .max = d->max};
}
