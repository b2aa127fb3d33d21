/* The times of a simulation: their bounds, and the time that means never. */
#ifndef SIM_TIME_H
#define SIM_TIME_H

#include <stdint.h>

/* No event is later than SIM_LAST_US. Longer times become SIM_NEVER_US; the sum
 * of four SIM_NEVER_US still fits. */
#define SIM_LAST_US INT64_C(1000000000000000000)
#define SIM_NEVER_US (2 * SIM_LAST_US)

/* Bounds a time so that it fits an int64_t; NaN becomes SIM_NEVER_US. */
static inline double sim_bounded_us(double us)
{
    return us < (double)SIM_NEVER_US ? us : (double)SIM_NEVER_US;
}

/* Returns the sum of two times, each at most SIM_NEVER_US, bounded by it. */
static inline int64_t sim_sum_us(int64_t a_us, int64_t b_us)
{
    return a_us + b_us < SIM_NEVER_US ? a_us + b_us : SIM_NEVER_US;
}

#endif
