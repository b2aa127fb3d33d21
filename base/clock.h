/* The only reader of the machine's clocks. conductor/core does not use it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* clock_now_us(): returns monotonic time in us, from an arbitrary start. */
int64_t clock_now_us(void);

/* clock_wall_us(): returns the time of day in us since 1970, in UTC. It may
 * jump. */
int64_t clock_wall_us(void);

#endif
