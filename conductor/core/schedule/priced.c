/* Prices an arrived request: the work that its decision needs, and whether the
 * price is admitted. */
#include <math.h>

#include "conductor/core/price/price.h"
#include "conductor/core/schedule/internal.h"

int schedule_price_init(struct scheduler *s, int64_t slower)
{
    struct price_config config = price_config_default;

    if (!s->rules.price.on)
        return 0;
    config.rho = s->rules.price.rho;
    config.eases = s->rules.price.eases;
    config.floor = s->rules.price.floor;
    config.seed = pool_config(s->pool)->seed;
    if (slower > 0) {
        config.window_us *= slower;
        config.renew_us *= slower;
    }
    s->price = price_new(&config);
    return s->price ? 0 : -1;
}

/* Load of all prefill instances, whichever of them the request may use. */
static struct price_load load_of(const struct scheduler *s, int64_t n_tokens,
                                 int64_t now_us)
{
    struct price_load load = {.n_instances = 0};
    const struct schedule_request any = {
        .n_tokens = n_tokens, .only = POOL_NO_INSTANCE, .now_us = now_us};

    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);

        if (!schedule_takes_work(&any, i, ROLE_PREFILL))
            continue;
        load.n_instances++;
        load.speed += schedule_speed_of(s, i);
        load.backlog_us +=
            (double)(pool_running_left_us(i, now_us) + i->load.cost_us);
    }
    return load;
}

double schedule_work_us(const struct scheduler *s, int64_t tokens)
{
    const struct cost_model *cost = s->model.cost;
    int64_t whole = tokens / SCHEDULE_PIECE_TOKENS;
    int64_t rest = tokens % SCHEDULE_PIECE_TOKENS;
    double us = 0.0;

    if (whole > 0)
        us = (double)whole * (double)cost_model_prefill_us(
                                 cost, SCHEDULE_PIECE_TOKENS, 0, NULL);
    if (rest > 0)
        us += (double)cost_model_prefill_us(cost, rest, 0, NULL);
    return us;
}

/* Time of a request's work by a cost model. */
static double by_cost_us(const struct cost_model *cost,
                         const struct price_work *work)
{
    int64_t us = 0;

    if (work->split > work->from)
        us = cost_model_prefill_us(cost, work->split - work->from, work->from,
                                   NULL);
    if (work->n_tokens > work->cached)
        us += cost_model_prefill_us(cost, work->n_tokens - work->cached,
                                    work->cached, NULL);
    return us > 0 ? (double)us : 1.0;
}

/* The work of the chosen instance and those lent to it, in time of the model's
 * cost model: a request has the same price on every instance. */
static struct price_work work_of(const struct scheduler *s,
                                 const struct schedule_request *request,
                                 const struct schedule_decision *decision)
{
    const struct prefill_estimate *e = &decision->chosen;
    const struct pool_instance *i = pool_get(s->pool, e->instance);
    int64_t block = s->model.block_tokens;
    struct price_work work = {
        .keys = request->keys,
        .n_keys = request->n_keys,
        .block_tokens = s->model.block_tokens,
        .n_tokens = request->n_tokens,
        .from = e->local_blocks * block,
        .split = (e->planned ? e->split_block : e->local_blocks) * block,
        .cached = e->used_blocks * block,
        .us = (double)schedule_spent_us(decision) /
              correction_factor(&i->correction),
    };

    if (i->cost)
        work.us *=
            by_cost_us(s->model.cost, &work) / by_cost_us(i->cost, &work);
    return work;
}

/* The factor on a request's price. On an idle instance a greedy tenant pays no
 * more than others: shares divide only scarce time. */
static double times_of(const struct schedule_request *request,
                       const struct schedule_decision *decision)
{
    return decision->chosen.queue_us > 0 ? request->price_times
                                         : fmin(request->price_times, 1.0);
}

bool schedule_asked(const struct scheduler *s,
                    const struct schedule_request *request,
                    const struct schedule_decision *decision,
                    struct schedule_asked *out)
{
    if (!s->price || decision->chosen.instance == POOL_NO_INSTANCE)
        return false;
    *out = (struct schedule_asked){
        .work = work_of(s, request, decision),
        .times = times_of(request, decision),
        /* A request late even on idle instances is no sign of load. */
        .slo_ttft_us = decision->never ? 0 : request->slo_ttft_us,
        .feasible = decision->verdict == SCHEDULE_ACCEPT ||
                    decision->verdict == SCHEDULE_REJECT_PRICE ||
                    decision->verdict == SCHEDULE_DECODE_FULL ||
                    decision->verdict == SCHEDULE_LINK_BUSY,
    };
    return true;
}

/* Writes the price to *x. Returns whether the request is admitted. */
static bool arrive(struct scheduler *s, const struct schedule_asked *a,
                   int64_t now_us, double *x, double *limit_us)
{
    struct price_load load = {.n_instances = 0};

    *limit_us = INFINITY;
    *x = price_ask(s->price, &a->work, s->model.cost) * a->times;
    if (a->slo_ttft_us <= 0)
        return true;
    if (price_due(s->price, now_us))
        load = load_of(s, a->work.n_tokens, now_us);
    return price_arrived(s->price,
                         &(struct price_arrival){
                             .x = *x,
                             .work_us = a->work.us,
                             .n_tokens = a->work.n_tokens,
                             .slo_ttft_us = a->slo_ttft_us,
                             .feasible = a->feasible,
                             .now_us = now_us,
                         },
                         &load, limit_us);
}

void schedule_price(struct scheduler *s, const struct schedule_request *request,
                    struct schedule_decision *decision)
{
    struct schedule_asked asked;
    double limit_us;

    if (!schedule_asked(s, request, decision, &asked))
        return;
    if (!arrive(s, &asked, request->now_us, &decision->price_us, &limit_us) &&
        asked.feasible) {
        int64_t queue_us, late_us;

        late_us = price_late_us(s->price, decision->price_us, &queue_us);
        decision->verdict = SCHEDULE_REJECT_PRICE;
        decision->retry_after_us =
            late_us == 0
                ? price_renewed_in_us(s->price, request->now_us)
                : schedule_pace_in_us(s, queue_us, late_us, request->now_us);
    }
    decision->price_limit_us = isinf(limit_us) ? 0.0 : limit_us;
}

void schedule_heard(struct scheduler *s, const struct schedule_asked *asked,
                    int64_t now_us)
{
    struct schedule_asked here = *asked;
    double x, limit_us;

    here.work.block_tokens = s->model.block_tokens;
    if (s->price)
        arrive(s, &here, now_us, &x, &limit_us);
}
