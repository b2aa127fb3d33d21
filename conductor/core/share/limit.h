/* A limit per minute: the amount taken drains away steadily, and a full
 * minute's worth may be taken at once. */
#ifndef CONDUCTOR_CORE_SHARE_LIMIT_H
#define CONDUCTOR_CORE_SHARE_LIMIT_H

#include <stdint.h>

struct limit {
    double per_minute; /* 0 = no limit */
    double taken;      /* as of at_us */
    int64_t at_us;
};

/* Returns the amount taken that has not drained away. */
double limit_taken(const struct limit *l, int64_t now_us);

/* Returns the time until `amount` more, at most per_minute of it, stays below
 * the limit; 0 = now. */
int64_t limit_wait_us(const struct limit *l, double amount, int64_t now_us);

/* Counts `amount` as taken, below the limit or not. */
void limit_take(struct limit *l, double amount, int64_t now_us);

#endif
