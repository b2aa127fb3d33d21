/* random: any instance that takes work, a baseline. */
#include "conductor/core/schedule/policy.h"

static const struct policy_option options[] = {
    {"seed", NULL, 0, 9e15, true, 1, "seed of the random choices"},
};

struct random_state {
    uint64_t rng; /* splitmix64 */
};

static void init(void *state, const double *values)
{
    struct random_state *s = state;

    s->rng = (uint64_t)values[0];
}

static uint64_t next(struct random_state *s)
{
    uint64_t z = s->rng += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t choose(const struct policy_choice *choice)
{
    uint64_t count = 0;
    uint64_t skip;

    for (size_t i = 0; i < choice->n; i++)
        count += policy_may_take(&choice->candidates[i]);
    if (count == 0)
        return choice->n;
    skip = ((next(choice->state) >> 32) * count) >> 32;
    for (size_t i = 0; i < choice->n; i++)
        if (policy_may_take(&choice->candidates[i]) && skip-- == 0)
            return i;
    return choice->n;
}

const struct schedule_policy policy_random = {
    .name = "random",
    .help = "any instance",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .state_bytes = sizeof(struct random_state),
    .without_cost_model = true,
    .init = init,
    .choose = choose,
};
