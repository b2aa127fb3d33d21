/* What an axis shows: from the data, moved outward to round numbers. Pure. */
#ifndef TOOLS_PLOT_RANGE_H
#define TOOLS_PLOT_RANGE_H

#include <math.h>
#include <stdbool.h>

struct range {
    double min, max;
};

/* Holds nothing yet. */
#define RANGE_EMPTY ((struct range){INFINITY, -INFINITY})

/* Includes a value, unless it is not finite, or a logarithmic axis cannot show
 * it (below 1e-6). */
void range_widen(struct range *range, double value, bool log);

/* The largest of 1, 2 and 5 times a power of ten that is at most x (above 0).
 */
double range_step(double x);

/* Moves both ends outward: to multiples of a round step, or with `log` to such
 * numbers as range_step() gives. Never empty afterwards. */
void range_round(struct range *range, bool log);

#endif
