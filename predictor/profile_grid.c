/* See profile_grid.h. */
#include "predictor/profile_grid.h"

struct plan {
    struct profile_point *points;
    size_t count;
};

/* Adds a point unless it is there: shares of a small maximum coincide. */
static void add(struct plan *plan, bool decode, uint32_t a, uint32_t b)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct profile_point *p = &plan->points[i];

        if (p->decode == decode && p->a == a && p->b == b)
            return;
    }
    if (plan->count < PROFILE_GRID_MAX)
        plan->points[plan->count++] = (struct profile_point){decode, a, b};
}

static void plan_prefill(struct plan *plan, const struct profile_limits *l)
{
    const uint32_t m = l->max_tokens;
    const uint32_t uncached[] = {
        1, 16, 48, 128, m / 16, m / 8, m / 4, m / 8 * 3, m / 2, m / 4 * 3, m};
    const uint32_t cached[] = {0, m / 16, m / 4, m / 2, m / 4 * 3};

    for (size_t i = 0; i < sizeof(uncached) / sizeof(uncached[0]); i++)
        for (size_t j = 0; j < sizeof(cached) / sizeof(cached[0]); j++) {
            uint32_t prefix = cached[j] - cached[j] % l->prefix_of;

            if (uncached[i] <= m - prefix)
                add(plan, false, uncached[i], prefix);
        }
}

static void plan_decode(struct plan *plan, const struct profile_limits *l)
{
    const uint32_t m = l->max_tokens;
    const uint32_t kv[] = {l->short_kv, m / 16, m / 4, m};

    for (uint32_t batch = 1; batch <= l->max_batch; batch *= 2)
        for (size_t i = 0; i < sizeof(kv) / sizeof(kv[0]); i++) {
            uint32_t each = kv[i] < l->min_kv ? l->min_kv : kv[i];
            uint32_t held = (each + l->kv_of - 1) / l->kv_of * l->kv_of;

            if ((i > 0 || kv[0] > 0) && each <= m &&
                (uint64_t)batch * held <= l->max_kv)
                add(plan, true, batch, each);
        }
}

size_t profile_grid(const struct profile_limits *limits,
                    struct profile_point points[PROFILE_GRID_MAX])
{
    struct plan plan = {.points = points};

    plan_prefill(&plan, limits);
    plan_decode(&plan, limits);
    return plan.count;
}

uint32_t profile_random(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}

void profile_shuffle(struct profile_point *points, size_t n, uint64_t *state)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = profile_random(state, (uint32_t)i);
        struct profile_point p = points[i - 1];

        points[i - 1] = points[j];
        points[j] = p;
    }
}
