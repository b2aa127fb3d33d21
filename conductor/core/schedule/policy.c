/* The policies. All reuse what the chosen instance has; which blocks are
 * fetched from elsewhere is settled before they choose. */
#include "conductor/core/schedule/policy.h"

#include <string.h>

static bool eligible(const struct prefill_estimate *c)
{
    return !c->queue_full && !c->too_long;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t choose_random(struct policy_state *state,
                            const struct prefill_estimate *candidates, size_t n)
{
    uint64_t count = 0;
    uint64_t skip;

    for (size_t i = 0; i < n; i++)
        count += eligible(&candidates[i]);
    if (count == 0)
        return n;
    skip = ((next_random(&state->rng) >> 32) * count) >> 32;
    for (size_t i = 0; i < n; i++)
        if (eligible(&candidates[i]) && skip-- == 0)
            return i;
    return n;
}

static size_t choose_round_robin(struct policy_state *state,
                                 const struct prefill_estimate *candidates,
                                 size_t n)
{
    size_t best = n;

    for (size_t i = 0; i < n; i++) {
        if (!eligible(&candidates[i]))
            continue;
        if (best == n)
            best = i; /* the first of all, unless one behind the last is */
        if (state->turn != UINT32_MAX && candidates[i].slot > state->turn) {
            best = i;
            break;
        }
    }
    if (best < n)
        state->turn = candidates[best].slot;
    return best;
}

/* The first eligible one of those for which cost_us is lowest. */
static size_t
choose_lowest(const struct prefill_estimate *candidates, size_t n,
              int64_t (*cost_us)(const struct prefill_estimate *candidate))
{
    size_t best = n;

    for (size_t i = 0; i < n; i++)
        if (eligible(&candidates[i]) &&
            (best == n || cost_us(&candidates[i]) < cost_us(&candidates[best])))
            best = i;
    return best;
}

static int64_t queue_of(const struct prefill_estimate *candidate)
{
    return candidate->queue_us;
}

static int64_t score_of(const struct prefill_estimate *candidate)
{
    return candidate->score_us;
}

static size_t choose_least_loaded(struct policy_state *state,
                                  const struct prefill_estimate *candidates,
                                  size_t n)
{
    (void)state;
    return choose_lowest(candidates, n, queue_of);
}

static size_t choose_shortest(struct policy_state *state,
                              const struct prefill_estimate *candidates,
                              size_t n)
{
    (void)state;
    return choose_lowest(candidates, n, score_of);
}

bool schedule_plan_before(const struct prefill_estimate *a,
                          const struct prefill_estimate *b)
{
    int64_t end_a = a->late ? a->ttft_us : a->score_us;
    int64_t end_b = b->late ? b->ttft_us : b->score_us;

    if (a->late != b->late)
        return b->late;
    if (end_a != end_b)
        return end_a < end_b;
    if (a->queue_us != b->queue_us)
        return a->queue_us < b->queue_us;
    if (a->last_prefill != b->last_prefill)
        return a->last_prefill < b->last_prefill;
    return a->slot < b->slot;
}

/* What is only known to be at least so long has lost to another one. */
static size_t choose_planned(struct policy_state *state,
                             const struct prefill_estimate *candidates,
                             size_t n)
{
    size_t best = n;

    (void)state;
    for (size_t i = 0; i < n; i++)
        if (eligible(&candidates[i]) && !candidates[i].at_least &&
            (best == n ||
             schedule_plan_before(&candidates[i], &candidates[best])))
            best = i;
    return best;
}

static const struct schedule_policy policies[] = {
    {"random", false, false, choose_random},
    {"round_robin", false, false, choose_round_robin},
    {"least_loaded", false, false, choose_least_loaded},
    {"local_cache", false, false, choose_shortest},
    {"global_cache", true, false, choose_shortest},
    {"plan", false, true, choose_planned},
};

const struct schedule_policy *schedule_policy_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
        if (strcmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}

const struct schedule_policy *schedule_policy_at(size_t i)
{
    return i < sizeof(policies) / sizeof(policies[0]) ? &policies[i] : NULL;
}
