/* Whether a predicted decode will have room. See place.h. */
#include "conductor/core/plan/place.h"

/* Equal parts of the time looked at. A place held for some of a part counts for
 * all of it. */
#define PARTS 64

/* Decodes that hold room. */
struct held {
    int64_t n;
    int64_t kv_tokens;
    int64_t reserved_tokens;
};

static int64_t later(int64_t a_us, int64_t b_us)
{
    return a_us > b_us ? a_us : b_us;
}

static int64_t end_us(int64_t begin_us, int64_t tokens, int64_t step_us)
{
    double us = (double)tokens * (double)step_us;

    return us < (double)ESTIMATE_NEVER_US ? begin_us + (int64_t)us
                                          : ESTIMATE_NEVER_US;
}

/* Returns the decode steps of an output; the prefill gives its first token. */
static int64_t steps_of(int64_t output_tokens)
{
    return output_tokens > 1 ? output_tokens - 1 : 0;
}

/* Returns when a decode takes its room. If shorter prefills passed its own,
 * which has not begun in time, it counts as the last on its instance. */
static int64_t comes_us(const struct pool *pool, const struct pool_decode *d,
                        int64_t now_us)
{
    const struct pool_instance *prefill;
    int64_t wait_us;

    if (d->started || d->coming)
        return now_us;
    if (d->comes_us > now_us || d->prefill == POOL_NO_INSTANCE)
        return later(d->comes_us, now_us);
    prefill = pool_get(pool, d->prefill);
    if (!prefill || prefill->order->by_age)
        return now_us;
    wait_us = pool_running_left_us(prefill, now_us) + prefill->load.cost_us;
    return later(now_us, now_us + wait_us - d->prefill_us);
}

static void add(struct held *sum, const struct held *more, int times)
{
    sum->n += times * more->n;
    sum->kv_tokens += times * more->kv_tokens;
    sum->reserved_tokens += times * more->reserved_tokens;
}

static int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the most that is held in any part; part k begins with changes[k]. */
static struct held most_of(const struct held changes[PARTS])
{
    struct held sum = {0}, most = {0};

    for (size_t k = 0; k < PARTS; k++) {
        add(&sum, &changes[k], 1);
        most.n = greater(most.n, sum.n);
        most.kv_tokens = greater(most.kv_tokens, sum.kv_tokens);
        most.reserved_tokens =
            greater(most.reserved_tokens, sum.reserved_tokens);
    }
    return most;
}

/* Returns the most that is held at any time from from_us to before until_us. */
static struct held most_held(const struct pool *pool,
                             const struct pool_instance *instance,
                             int64_t step_us, int64_t from_us, int64_t until_us,
                             int64_t now_us)
{
    struct held changes[PARTS + 1] = {0};
    int64_t part_us = greater(until_us - from_us, 0) / PARTS + 1;

    for (size_t i = 0; i < instance->n_decodes; i++) {
        const struct pool_decode *d = &instance->decodes[i];
        int64_t begins_us = comes_us(pool, d, now_us);
        int64_t left =
            steps_of(d->expected_tokens) - steps_of(d->produced_tokens);
        int64_t ends_us = end_us(begins_us, left > 0 ? left : 0, step_us);
        struct held held = {.n = 1,
                            .kv_tokens = d->prompt_tokens + d->produced_tokens};

        if (begins_us >= until_us || ends_us <= from_us)
            continue;
        held.reserved_tokens =
            pool_kv_tokens(instance, d->prompt_tokens, d->expected_tokens);
        add(&changes[greater(begins_us - from_us, 0) / part_us], &held, 1);
        if (ends_us < until_us)
            add(&changes[(ends_us - 1 - from_us) / part_us + 1], &held, -1);
    }
    return most_of(changes);
}

/* Returns how long (us) a decode may wait for room. */
static int64_t overhang_us(const struct place_request *request, int64_t step_us)
{
    double us = request->overhang_steps * (double)step_us;

    if (request->slo_tbt_us > 0 && us > (double)request->slo_tbt_us)
        return request->slo_tbt_us;
    return us < (double)COST_MODEL_MAX_US ? (int64_t)us : COST_MODEL_MAX_US;
}

static bool keeps_slo(const struct place_request *request,
                      const struct decode_estimate *e)
{
    return request->slo_tbt_us <= 0 || e->tbt_us <= request->slo_tbt_us;
}

void place_estimate(const struct estimate_model *model,
                    const struct pool_instance *instance,
                    const struct place_request *request,
                    struct decode_estimate *out)
{
    const struct cost_model *cost = estimate_cost(model, instance);
    int64_t others = instance->other_decodes;
    int64_t now_us = request->now_us;
    int64_t step_us, until_us;
    struct held beside;

    estimate_decode(model, instance, request->n_tokens,
                    request->expected_tokens, out);
    out->too_long =
        pool_too_long(instance, request->n_tokens, request->max_output_tokens);
    if (out->too_long || (!out->no_room && keeps_slo(request, out)))
        return;
    step_us = cost_model_decode_step_us(
        cost, (int64_t)instance->n_decodes + others,
        instance->decode_kv_tokens + instance->other_kv_tokens, NULL);
    until_us = end_us(later(request->ready_us, now_us),
                      steps_of(request->expected_tokens), out->tbt_us);
    if (!keeps_slo(request, out)) {
        beside = most_held(request->pool, instance, step_us,
                           later(request->ready_us, now_us), until_us, now_us);
        out->batch = beside.n + others + 1;
        out->kv_tokens =
            beside.kv_tokens + instance->other_kv_tokens + request->n_tokens;
        out->tbt_us = cost_model_decode_step_us(
            cost, out->batch, out->kv_tokens, &out->extrapolated);
    }
    if (!out->no_room)
        return;
    beside = most_held(request->pool, instance, step_us,
                       later(request->comes_us, now_us) +
                           overhang_us(request, step_us),
                       until_us, now_us);
    out->room_tokens = instance->kv_capacity_tokens - beside.reserved_tokens -
                       instance->running_kv_tokens;
    out->no_room =
        (size_t)beside.n >= instance->max_decodes ||
        instance->n_decodes >= POOL_DECODES_AHEAD * instance->max_decodes ||
        pool_kv_tokens(instance, request->n_tokens, request->expected_tokens) >
            out->room_tokens;
}
