/* See noise.h. */
#include "traces/noise.h"

#include <math.h>

#include "traces/random.h"

#define TWO_PI 6.283185307179586

/* Uniform in (0, 1]. */
static double uniform(struct random_state *state)
{
    return (double)((random_u64(state) >> 11) + 1) * 0x1p-53;
}

double noise_factor(uint64_t seed, uint64_t index, enum noise_of of,
                    double sigma)
{
    struct random_state state;

    if (!(sigma > 0.0))
        return 1.0;
    random_init(&state, random_mix(seed) ^ random_mix(2 * index + of));
    /* Box and Muller, 1958. */
    double radius = sqrt(-2.0 * log(uniform(&state)));
    double normal = radius * cos(TWO_PI * uniform(&state));

    return exp(sigma * normal - sigma * sigma / 2.0);
}
