/* The one place where the time is read. Nothing in conductor/core uses it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* clock_now_us(): monotonic time in microseconds, from an arbitrary start. */
int64_t clock_now_us(void);

#endif
