/* See range.h. */
#include "tools/plot/range.h"

#include <math.h>

/* What is less does not widen a logarithmic axis. */
#define LOG_FLOOR 1e-6

void range_widen(struct range *r, double value, bool log)
{
    if (!isfinite(value) || (log && value < LOG_FLOOR))
        return;
    r->min = fmin(r->min, value);
    r->max = fmax(r->max, value);
}

double range_step(double x)
{
    double power = pow(10, floor(log10(x) + 1e-9));
    double digit = x / power + 1e-9;

    return power * (digit >= 5 ? 5 : digit >= 2 ? 2 : 1);
}

void range_round(struct range *r, bool log)
{
    if (r->min > r->max)
        *r = (struct range){log ? 1 : 0, log ? 10 : 1};
    if (log) {
        double low = range_step(r->max);

        r->min = range_step(r->min);
        r->max = low >= r->max * (1 - 1e-9) ? low : range_step(low * 2.5);
        r->max = r->max > r->min ? r->max : 10 * r->min;
        return;
    }
    if (r->max - r->min < 1e-12)
        r->max = r->min + 1;
    double step = range_step((r->max - r->min) / 4);
    r->min = floor(r->min / step + 1e-9) * step;
    r->max = ceil(r->max / step - 1e-9) * step;
}
