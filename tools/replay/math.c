/* See math.h. */
#include "tools/replay/math.h"

#include <stdlib.h>

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
