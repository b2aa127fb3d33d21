/* See invented_clock.h. */
#include "tests/unit/invented_clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

static atomic_llong now_us = 1000000, late_us;

void invented_clock_pass(int64_t until_us)
{
    if (until_us > now_us)
        now_us = until_us;
}

void invented_clock_oversleep(int64_t us)
{
    late_us = us;
}

/* In place of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int64_t us = now_us;

    (void)clock;
    *now = (struct timespec){.tv_sec = us / 1000000,
                             .tv_nsec = us % 1000000 * 1000};
    return 0;
}

/* Likewise, for who names the time at which to wake up. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wake,
                    struct timespec *left)
{
    (void)clock;
    (void)left;
    if (flags != TIMER_ABSTIME)
        return EINVAL;
    invented_clock_pass((int64_t)wake->tv_sec * 1000000 + wake->tv_nsec / 1000 +
                        late_us);
    return 0;
}
