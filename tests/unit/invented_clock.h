/* The time of a test's program, which takes the place of the machine's: it
 * passes where somebody sleeps, and where the test says so. So tests of what
 * takes time are exact, however busy the machine is. */
#ifndef TESTS_UNIT_INVENTED_CLOCK_H
#define TESTS_UNIT_INVENTED_CLOCK_H

#include <stdint.h>

/* invented_clock_pass(until_us): time passes until then, as clock_now_us() says
 * it; not backwards. */
void invented_clock_pass(int64_t until_us);

/* invented_clock_oversleep(us): who sleeps wakes up so much late from now on.
 */
void invented_clock_oversleep(int64_t us);

#endif
