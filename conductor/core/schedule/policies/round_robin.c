/* round_robin: one instance after the other, a baseline. */
#include "conductor/core/schedule/policy.h"

struct turn {
    uint32_t slots; /* all lower slots have had their turn */
};

static size_t choose(const struct policy_choice *choice)
{
    struct turn *turn = choice->state;
    size_t best = choice->n;

    for (size_t i = 0; i < choice->n; i++) {
        const struct prefill_estimate *c = &choice->candidates[i];

        if (!policy_may_take(c))
            continue;
        if (best == choice->n)
            best = i; /* the first of all, unless another follows */
        if (turn->slots > 0 && c->slot >= turn->slots) {
            best = i;
            break;
        }
    }
    if (best < choice->n)
        turn->slots = choice->candidates[best].slot + 1;
    return best;
}

const struct schedule_policy policy_round_robin = {
    .name = "round_robin",
    .help = "one instance after the other",
    .state_bytes = sizeof(struct turn),
    .without_cost_model = true,
    .choose = choose,
};
