#include "conductor/core/share/limit.h"

#include <math.h>

#define MINUTE_US 60e6
#define ROUNDING 1e-9

double limit_taken(const struct limit *l, int64_t now_us)
{
    double passed_us = now_us > l->at_us ? (double)(now_us - l->at_us) : 0.0;

    return fmax(0.0, l->taken - l->per_minute / MINUTE_US * passed_us);
}

int64_t limit_wait_us(const struct limit *l, double amount, int64_t now_us)
{
    double over =
        limit_taken(l, now_us) + fmin(amount, l->per_minute) - l->per_minute;

    if (l->per_minute <= 0.0 || over <= l->per_minute * ROUNDING)
        return 0;
    return (int64_t)ceil(over / l->per_minute * MINUTE_US);
}

void limit_take(struct limit *l, double amount, int64_t now_us)
{
    /* Without a limit nothing is counted, so a later limit begins at 0. */
    l->taken = l->per_minute > 0.0 ? limit_taken(l, now_us) + amount : 0.0;
    l->at_us = now_us;
}
