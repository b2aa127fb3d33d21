/* See grid.h. The shares are those of workers/engine/profile.c. */
#include "tools/replay/live/grid.h"

#include <stdlib.h>

#include "tools/replay/math.h"

struct plan {
    struct grid_point *points;
    size_t count;
};

/* Shares of a small maximum overlap. */
static void add(struct plan *plan, bool decode, uint32_t a, uint32_t b)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct grid_point *p = &plan->points[i];

        if (p->decode == decode && p->a == a && p->b == b)
            return;
    }
    if (plan->count < GRID_MAX)
        plan->points[plan->count++] = (struct grid_point){decode, a, b};
}

static void plan_prefill(struct plan *plan, const struct grid_limits *l)
{
    const uint32_t m = l->max_tokens;
    const uint32_t uncached[] = {
        1, 16, 48, 128, m / 16, m / 8, m / 4, m / 8 * 3, m / 2, m / 4 * 3, m};
    const uint32_t cached[] = {0, m / 16, m / 4, m / 2, m / 4 * 3};

    for (size_t i = 0; i < sizeof uncached / sizeof uncached[0]; i++)
        for (size_t j = 0; j < sizeof cached / sizeof cached[0]; j++) {
            uint32_t prefix = cached[j] - cached[j] % l->block_tokens;

            if (uncached[i] <= m - prefix)
                add(plan, false, uncached[i], prefix);
        }
}

static void plan_decode(struct plan *plan, const struct grid_limits *l)
{
    const uint32_t m = l->max_tokens;
    const uint32_t kv[] = {m / 16, m / 4, m};

    for (uint32_t batch = 1; batch <= l->max_batch; batch *= 2)
        for (size_t i = 0; i < sizeof kv / sizeof kv[0]; i++) {
            uint32_t each =
                kv[i] < GRID_DECODE_TOKENS ? GRID_DECODE_TOKENS : kv[i];

            if ((uint64_t)batch * each <= l->max_kv)
                add(plan, true, batch, each);
        }
}

size_t grid_plan(const struct grid_limits *limits,
                 struct grid_point points[GRID_MAX])
{
    struct plan plan = {.points = points};

    plan_prefill(&plan, limits);
    plan_decode(&plan, limits);
    return plan.count;
}

uint32_t grid_random(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}

void grid_shuffle(struct grid_point *points, size_t n, uint64_t *state)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = grid_random(state, (uint32_t)i);
        struct grid_point p = points[i - 1];

        points[i - 1] = points[j];
        points[j] = p;
    }
}

bool grid_take_cached(struct grid_point *point,
                      const struct replay_record *record, uint32_t block_tokens)
{
    if (!record->tells_reused)
        return true;
    int64_t less = (int64_t)point->b - record->reused_tokens;
    uint32_t n = point->a + point->b;

    if (llabs(less) >= block_tokens || record->reused_tokens >= n)
        return false;
    point->b = record->reused_tokens;
    point->a = n - point->b;
    return true;
}

double grid_step_us(const struct replay_record *records, size_t n)
{
    double steps_us[GRID_BATCH_MAX];
    int64_t from_us = INT64_MAX, all_us = 0, any_us = INT64_MAX, to_us = 0;

    for (size_t i = 0; i < n; i++) {
        const struct replay_record *r = &records[i];

        if (r->generated_tokens < 2)
            return -1;
        steps_us[i] =
            (double)(r->end_us - r->first_token_us) / (r->generated_tokens - 1);
        from_us = r->first_token_us < from_us ? r->first_token_us : from_us;
        all_us = r->first_token_us > all_us ? r->first_token_us : all_us;
        any_us = r->end_us < any_us ? r->end_us : any_us;
        to_us = r->end_us > to_us ? r->end_us : to_us;
    }
    replay_sort(steps_us, n);
    return 2 * (any_us - all_us) < to_us - from_us
               ? -1
               : (steps_us[(n - 1) / 2] + steps_us[n / 2]) / 2;
}
