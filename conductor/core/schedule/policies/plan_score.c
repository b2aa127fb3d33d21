/* Scores a candidate of the policy plan. See plan_score.h. */
#include "conductor/core/schedule/policies/plan_score.h"

#include "conductor/core/plan/traffic.h"

const struct policy_option plan_options[PLAN_OPTIONS] = {
    [PLAN_WAIT_PRICE] = {"wait_price", "", 0, 1e6, false, 1,
                         "seconds to add to the score for each second of "
                         "engine time, while prefills wait or run"},
    [PLAN_QUEUE_PRICE] =
        {"queue_price", "", 0, 1e6, false, 0.25,
         "seconds to add to wait_price for each prefill in the mean queue"},
    [PLAN_LOAD_MODES] = {"load_modes", "", 1, LOAD_MODE_ALL, true,
                         LOAD_MODE_ALL,
                         "sum of the modes that plans may use: 1 compute, 2 "
                         "load, 4 both at once, 8 load layer by layer"},
    [PLAN_SESSION] = {"session_ms", "", 0, 1e6, false, 10,
                      "milliseconds to subtract from the score of the instance "
                      "that served the session's last request"},
    [PLAN_EVICT_PRICE] = {"evict_price", "", 0, 1e6, false, 1,
                          "seconds to add for each second that computing "
                          "evicted blocks again is expected to take"},
    [PLAN_BESIDE_PRICE] = {"beside_price", "", 0, 1e6, false, 0.1,
                           "aggregated pools: seconds to add to wait_price for "
                           "each prefill that waits or runs on the instance"},
    [PLAN_HELD_PRICE] =
        {"held_price", "", 0, 1e6, false, 6,
         "aggregated pools: seconds to add to wait_price for each request that "
         "waits for KV space to decode, divided by the instances"},
    [PLAN_ORDER] = {"order", NULL, 0, 1, true, 1,
                    "1: instances run the shortest prefill first, unless "
                    "another prefill would miss its deadline for it; 0: they "
                    "run prefills in the order of queue_order"},
    [PLAN_PREEMPT] =
        {"preempt", NULL, 0, 1, true, 1,
         "1: between chunks, a long prefill pauses for a prefill that takes at "
         "most a third of its remaining time; 0: it runs to its end"},
    [PLAN_BEHIND_PRICE] = {"behind_price", "order", 0, 1e6, false, 1,
                           "seconds to add to wait_price for each prefill that "
                           "would wait behind this one"},
    [PLAN_CORRECTION] =
        {"correction", "correction_ms", 0, 1, true, 1,
         "1: observed times correct predictions; 0: they do not"},
    [PLAN_LENGTHS] =
        {"lengths", "", 0, 1, true, 1,
         "1: KV space of a decode is reserved from the start of its prefill, "
         "for the usual length of answers; 0: from arrival, for max_tokens"},
    [PLAN_OVERHANG] = {"overhang_steps", "", 0, 1e6, false, 1,
                       "lengths: decode steps that a decode may wait for KV "
                       "space, at most the TBT limit"},
    [PLAN_BYPASS] =
        {"bypass", NULL, 0, 1000, false, 2,
         "KV space that later requests may take past a request without a TTFT "
         "SLO that has waited for KV space for twice its prefill time, as a "
         "multiple of the space that it needs, so that with 1000 it waits for "
         "very long; 0: none"},
    [PLAN_LINKS] = {"links", "", 0, 1, true, 1,
                    "1: fetches and pushes of KV queue on links, and link time "
                    "has a price; 0: links are free"},
    [PLAN_LINK_WAIT] =
        {"link_wait", "hold_first", 0, 1e6, false, 4,
         "links, both SLOs set: a request waits, as long as its TTFT SLO "
         "allows, while KV queued for its decode instance would delay its own "
         "KV by more than this many TBT limits, or by half of the slack of its "
         "answer; 0: it does not wait"},
    [PLAN_LINK_LAST] = {"link_last", "hold_first", 0, 1, true, 1,
                        "link_wait: 1: a request whose TBT SLO other requests' "
                        "KV on the links would break waits as long as its TTFT "
                        "SLO allows; 0: it is refused at once"},
    [PLAN_HOLD_FIRST] =
        {"hold_first", NULL, 0, 1, true, 1,
         "requests with both SLOs: 1: the first token is held back, as long as "
         "the TTFT SLO allows, until the decode instance has the prompt's KV; "
         "0: it is sent at once"},
    [PLAN_LINK_PRICE] = {"link_price", "", 0, 1e6, false, 1,
                         "seconds to add for each second of link time, and as "
                         "many for each transfer that waits for the link"},
    [PLAN_PUSH_PRICE] =
        {"push_price", "", 0, 1, false, 0.1,
         "requests without a TBT SLO: seconds to add for each second that "
         "their KV waits to be sent; above 0 it grows to 1 as the KV space of "
         "decode instances fills. With a TBT SLO it is always 1"},
    [PLAN_SHARES] =
        {"shares", NULL, 0, 1, true, 1,
         "1: tenants get fair shares and priorities count, once a second "
         "tenant or a priority has been seen; 0: all requests count alike"},
    [PLAN_BESIDE_TBT] =
        {"beside_tbt", "", 0, 1, true, 1,
         "aggregated pools: 1: a request with a TBT SLO goes to an instance "
         "where its prefill makes no decode miss its TBT SLO, or is refused; "
         "0: it may go anywhere, and chunks of waiting prompts are cut to meet "
         "TBT SLOs"},
    [PLAN_WARM] = {"warm_on_reject", NULL, 0, 1, true, 1,
                   "1: idle native workers compute prompts that were refused "
                   "for their TTFT or price, in the background, while no "
                   "requests without a TTFT SLO come; 0: they do not"},
    [PLAN_REPLICATE] =
        {"replicate", NULL, 0, 1, false, 0,
         "share of an idle link's rate at which native workers copy hot blocks "
         "before requests ask for them; 0: no copies"},
    [PLAN_SWITCH_ROLES] =
        {"switch_roles", NULL, 0, 86400, false, 0,
         "seconds for which another ratio of prefill to decode workers must "
         "have been better before native workers switch roles; 0: no switches"},
    [PLAN_LEND] = {"lend", NULL, 0, SCHEDULE_LENT_MAX, true, 3,
                   "most idle native workers that may help with one long "
                   "prefill, each computing some layers; at most half of the "
                   "idle workers help; 0: none"},
    [PLAN_LEND_FROM] = {"lend_ms", "lend", 0, 1e6, false, 2000,
                        "lend: shortest prefill that other workers may help "
                        "with, in ms on its own worker alone"},
    [PLAN_LEND_EFFICIENCY] = {"lend_efficiency", "lend", 0.01, 1, false, 0.9,
                              "lend: share of its time that each worker of a "
                              "group spends computing"},
    [PLAN_PRICE] = {POLICY_PRICE(1)},
    [PLAN_RHO] = {POLICY_RHO("price")},
    [PLAN_RHO_EASES] = {POLICY_RHO_EASES("price")},
    [PLAN_PRICE_FLOOR] = {POLICY_PRICE_FLOOR("price")},
};

void plan_rules(const double *o, struct schedule_rules *out)
{
    if (o[PLAN_ORDER] > 0.0) {
        out->queue_order[0] = "shortest_first";
        out->queue_order[1] =
            o[PLAN_PREEMPT] > 0.0 ? "shortest_first_yield" : "shortest_first";
    }
    out->uncorrected = !(o[PLAN_CORRECTION] > 0.0);
    policy_price_rules(&o[PLAN_PRICE], out);
    out->shares = o[PLAN_SHARES] > 0.0;
    out->predicts_decodes = o[PLAN_LENGTHS] > 0.0;
    out->spares_decodes = o[PLAN_BESIDE_TBT] > 0.0;
    out->overhang_steps = o[PLAN_OVERHANG];
    out->bypass = o[PLAN_BYPASS];
    out->weighs_evicted = o[PLAN_EVICT_PRICE] > 0.0;
    out->sees_links = o[PLAN_LINKS] > 0.0;
    out->link_wait = o[PLAN_LINK_WAIT];
    out->link_last = o[PLAN_LINK_LAST] > 0.0;
    out->holds_first = o[PLAN_HOLD_FIRST] > 0.0;
    out->warms = o[PLAN_WARM] > 0.0;
    out->replicates = o[PLAN_REPLICATE];
    out->switch_us = (int64_t)(o[PLAN_SWITCH_ROLES] * 1e6);
    out->lend.most = (uint32_t)o[PLAN_LEND];
    out->lend.from_us = (int64_t)(o[PLAN_LEND_FROM] * 1e3);
    out->lend.efficiency = o[PLAN_LEND_EFFICIENCY];
}

double plan_engine_price(const struct scheduler *s,
                         const struct plan_queues *queues, uint64_t n_held)
{
    double n = (double)queues->n_instances, used = 1.0;
    double others = s->options[PLAN_QUEUE_PRICE] * (double)queues->n_waiting;

    if (queues->n_waiting + queues->n_running == 0)
        return 0.0;
    if (s->model.coupled)
        others += s->options[PLAN_HELD_PRICE] * (double)n_held;
    else
        used = (double)queues->n_busy / n;
    return s->options[PLAN_WAIT_PRICE] * used + others / n;
}

static double left_us(int64_t until_us, int64_t now_us)
{
    return until_us > now_us ? (double)(until_us - now_us) : 0.0;
}

double plan_link_price(const struct scheduler *s,
                       const struct schedule_request *request)
{
    const struct pool_instance *const *instances = pool_instances(s->pool);
    const uint8_t *ready = pool_ready_roles(s->pool);
    uint32_t n_slots = pool_slots(s->pool);
    double bytes =
        (double)request->n_tokens * (double)s->model.kv_bytes_per_token;
    double busy_us = 0.0, own_us = 0.0, rate = 0.0, each_us = 0.0;
    double busy, idle = 1.0;

    if (!s->rules.sees_links)
        return 0.0;
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const struct pool_instance *i = instances[slot];

        if ((ready[slot] & ROLE_PREFILL) == 0 ||
            schedule_excluded(request, i) || !(i->link_bytes_per_s > 0.0))
            continue;
        if (i->link_bytes_per_s != rate) { /* most links have the same rate */
            rate = i->link_bytes_per_s;
            each_us = bytes * 1e6 / rate;
        }
        busy_us += left_us(i->egress_free_us, request->now_us) +
                   left_us(i->ingress_free_us, request->now_us) +
                   traffic_late_us(i, s->model.kv_bytes_per_token);
        own_us += each_us;
    }
    if (own_us <= 0.0)
        return 0.0;
    busy = busy_us / own_us;
    if (s->rules.sees_pushes && request->slo_tbt_us <= 0 && busy < 1.0)
        idle = busy;
    return s->options[PLAN_LINK_PRICE] * (idle + busy);
}

double plan_evicted_us(const struct scheduler *s, double engine_price)
{
    return s->options[PLAN_EVICT_PRICE] * (1.0 + engine_price) *
           schedule_evicted_us(s);
}

/* Seconds of waiting for each second of the engine's time. A second of a fast
 * engine costs more: other requests could have computed more in it. */
static double price_of(const struct scheduler *s,
                       const struct prefill_estimate *e)
{
    const struct plan_state *state = s->state;
    double price = state->engine_price;
    const struct pool_instance *i;

    if (!s->model.coupled && state->mean_speed <= 0.0)
        return price;
    i = pool_get(s->pool, e->instance);
    if (state->mean_speed > 0.0)
        price *= schedule_speed_of(s, i) / state->mean_speed;
    if (!s->model.coupled)
        return price;
    return price + s->options[PLAN_BESIDE_PRICE] *
                       (double)(i->n_waiting + i->n_running);
}

void plan_set_room(struct scheduler *s, const struct schedule_request *request)
{
    const struct pool_instance *const *instances = pool_instances(s->pool);
    const uint8_t *ready = pool_ready_roles(s->pool);
    uint32_t n_slots = pool_slots(s->pool);
    struct plan_state *state = s->state;
    double used = 0.0, all = 0.0, coming = 0.0, receive = 0.0, send = 0.0;
    double share;

    state->room_price = state->anywhere_us = 0.0;
    if (!s->rules.sees_pushes || request->slo_tbt_us > 0 ||
        s->options[PLAN_PUSH_PRICE] <= 0.0)
        return;
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const struct pool_instance *i = instances[slot];

        if (ready[slot] == 0 || schedule_excluded(request, i))
            continue;
        if (ready[slot] & ROLE_PREFILL)
            send += i->link_bytes_per_s;
        if ((ready[slot] & ROLE_DECODE) == 0)
            continue;
        used += (double)(i->decode_reserved_tokens + i->running_kv_tokens);
        all += (double)i->kv_capacity_tokens;
        coming += (double)i->push_in_bytes;
        receive += i->link_bytes_per_s;
    }
    share = used < all ? used / all : (double)(used > 0.0);
    state->room_price = share * share * share * share;
    if (receive > 0.0 && send > receive)
        state->anywhere_us = coming * 1e6 / receive * (1.0 - receive / send);
}

/* The cost of KV that waits for the instance's link: the request's second token
 * comes later, and its room to decode is taken for longer. At most the wait
 * itself: the bound of the score relies on it. */
static double held_up_us(const struct scheduler *s,
                         const struct schedule_request *request,
                         const struct prefill_estimate *e)
{
    const struct pool_instance *i = pool_at(s->pool, e->slot);
    const struct plan_state *state = s->state;
    double price = request->slo_tbt_us > 0 ? 1.0 : s->options[PLAN_PUSH_PRICE];
    double token_us, room_us = 0.0;

    if (!s->rules.sees_pushes || request->max_output_tokens <= 1)
        return 0.0;
    token_us = price * traffic_held_up_us(i, request->n_tokens,
                                          s->model.kv_bytes_per_token,
                                          e->ttft_us, 0.0);
    if (state->room_price > price)
        room_us = state->room_price *
                  traffic_held_up_us(i, request->n_tokens,
                                     s->model.kv_bytes_per_token, e->ttft_us,
                                     state->anywhere_us);
    return token_us > room_us ? token_us : room_us;
}

void plan_set_score(const struct scheduler *s,
                    const struct schedule_request *request,
                    struct prefill_estimate *e)
{
    const struct plan_state *state = s->state;
    double price =
        price_of(s, e) + s->options[PLAN_BEHIND_PRICE] * (double)e->behind;
    double others_us =
        price * (double)e->prefill_us + held_up_us(s, request, e);

    if (e->link_us > 0)
        others_us += state->link_price * (double)e->link_us;
    others_us += state->evicted_us * (double)e->evicted_tokens;

    /* A decode step under way must not make an idle instance preferred. */
    e->score_us = e->ttft_us - e->beside.step_us;
    e->score_us = others_us < (double)(ESTIMATE_NEVER_US - e->score_us)
                      ? e->score_us + (int64_t)others_us
                      : ESTIMATE_NEVER_US;
    if (e->instance == request->session)
        e->score_us -= (int64_t)(s->options[PLAN_SESSION] * 1e3);
    e->late =
        request->slo_ttft_us > 0 && plan_latest_us(e) > request->slo_ttft_us;
}

int64_t plan_equal_us(const struct scheduler *s, int64_t least_us)
{
    const struct plan_state *state = s->state;
    double us =
        2.0 * CORRECTION_NOISE * (1.0 + state->engine_price) * (double)least_us;

    return us < (double)ESTIMATE_NEVER_US ? (int64_t)us : ESTIMATE_NEVER_US;
}

void plan_set_tbt(const struct scheduler *s,
                  const struct schedule_request *request,
                  struct prefill_estimate *e)
{
    e->tbt_late = schedule_beside_tbt_us(s, request, e) > request->slo_tbt_us;
}

unsigned plan_load_modes(const struct scheduler *s)
{
    return (unsigned)s->options[PLAN_LOAD_MODES];
}

/* The time that links of other instances take to send a plan's blocks. */
static int64_t link_us(const struct scheduler *s,
                       const struct schedule_site *site,
                       const struct load_plan *plan)
{
    double us = 0.0;

    for (size_t i = site->n_own; i < site->n; i++) {
        const struct pool_instance *sender =
            pool_get(s->pool, site->sources[i].instance);

        us += plan->of_source[i].n_blocks * (double)s->model.block_tokens *
              (double)s->model.kv_bytes_per_token * 1e6 /
              sender->link_bytes_per_s;
    }
    return us < (double)ESTIMATE_NEVER_US ? (int64_t)us : ESTIMATE_NEVER_US;
}

void plan_work_out(const struct scheduler *s,
                   const struct schedule_request *request,
                   uint32_t usable_blocks, const struct schedule_site *site,
                   unsigned modes, struct load_plan *plan,
                   struct prefill_estimate *e)
{
    estimate_plan(&s->model, pool_get(s->pool, e->instance),
                  &(struct estimate_plan_request){
                      .n_tokens = request->n_tokens,
                      .resident_blocks = site->resident,
                      .usable_blocks = usable_blocks,
                      .queue_us = e->queue_us,
                      .beside = e->beside,
                      .now_us = request->now_us,
                      .sources = site->loads,
                      .n_sources = site->n,
                      .modes = modes,
                  },
                  plan, e);
    if (site->computed_us > e->ready_us)
        e->ready_us = site->computed_us;
    plan_set_tbt(s, request, e);
    e->link_us = s->rules.sees_links ? link_us(s, site, plan) : 0;
    plan_set_score(s, request, e);
}
