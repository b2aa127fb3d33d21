/* Waits of a request: for room to decode, for the link of its decode instance,
 * and of its first token for its KV. */
#include "conductor/core/plan/traffic.h"
#include "conductor/core/schedule/internal.h"

/* A request waits for a link only while this multiple of its predicted TTFT
 * meets the SLO; and admission counts on no longer delay of the first token. */
#define IN_TIME_TIMES 2
/* Share of the delay that an answer can bear which earlier KV may use up. */
#define BEARS 0.5
/* KV is long if its link needs over 1 / LONG_PARTS of the TTFT SLO. */
#define LONG_PARTS 3

/* The delay that KV on its way to the decode instance causes beyond the limit.
 * Long KV of one prompt would outlast the TTFT SLO: then the request may be
 * sent beside it, as soon as its answer can bear the delay. */
static double too_late_us(const struct scheduler *s,
                          const struct schedule_request *request,
                          const struct schedule_decision *decision)
{
    double bears = (double)decision->n_slowed * BEARS;
    double limits = bears < s->rules.link_wait ? bears : s->rules.link_wait;
    double limit_us = (double)request->slo_tbt_us;
    double late_us = (double)decision->behind_us - limits * limit_us;
    struct traffic_beside beside;

    if (limits * limit_us <= 0.0 || late_us <= 0.0)
        return 0.0;
    beside =
        traffic_beside(pool_get(s->pool, decision->decode),
                       &(struct traffic_push){
                           .n_tokens = request->n_tokens,
                           .kv_bytes_per_token = s->model.kv_bytes_per_token,
                           .due_us = request->now_us + decision->chosen.ttft_us,
                           .now_us = request->now_us,
                       });
    if (beside.longest_us <=
        (request->slo_ttft_us + request->waited_us) / LONG_PARTS)
        return late_us;
    return (double)beside.late_us - bears * limit_us;
}

static void set_link_busy(const struct schedule_request *request,
                          struct schedule_decision *decision, double late_us)
{
    decision->verdict = SCHEDULE_LINK_BUSY;
    decision->retry_after_us = late_us < (double)request->slo_ttft_us
                                   ? (int64_t)late_us
                                   : request->slo_ttft_us;
}

bool schedule_waits_for_link(const struct scheduler *s,
                             const struct schedule_request *request,
                             struct schedule_decision *decision)
{
    double late_us = too_late_us(s, request, decision);

    if (late_us <= 0.0 || request->slo_ttft_us <= 0 ||
        schedule_tested_us(s, &decision->chosen) >
            request->slo_ttft_us / IN_TIME_TIMES)
        return false;
    set_link_busy(request, decision, late_us);
    return true;
}

/* Whether the request's own KV alone makes it miss the TBT SLO. */
static bool late_alone(const struct scheduler *s,
                       const struct schedule_request *request,
                       const struct schedule_decision *decision)
{
    const struct pool_instance *i = pool_get(s->pool, decision->decode);
    double bytes =
        (double)request->n_tokens * (double)s->model.kv_bytes_per_token;

    return i->link_bytes_per_s > 0.0 &&
           bytes * 1e6 / i->link_bytes_per_s -
                   (double)decision->chosen.ttft_us >
               (double)decision->n_slowed * (double)request->slo_tbt_us;
}

void schedule_wait_instead(const struct scheduler *s,
                           const struct schedule_request *request,
                           struct schedule_decision *decision)
{
    if (s->rules.link_last && decision->verdict == SCHEDULE_REJECT_TBT &&
        decision->behind_us > 0 && request->slo_ttft_us > 0 &&
        !late_alone(s, request, decision))
        set_link_busy(request, decision, (double)decision->behind_us);
}

static int64_t within(int64_t us, int64_t most_us)
{
    if (us > most_us)
        us = most_us;
    return us > 0 ? us : 0;
}

int64_t schedule_hold_first(const struct scheduler *s,
                            const struct schedule_request *request,
                            struct schedule_decision *decision)
{
    int64_t ttft_us = schedule_tested_us(s, &decision->chosen);
    int64_t slo_us = request->slo_ttft_us;

    if (!s->rules.holds_first || !request->may_hold || slo_us <= 0 ||
        request->slo_tbt_us <= 0 || decision->decode == POOL_NO_INSTANCE ||
        decision->decode == decision->prefill)
        return 0;
    decision->holds = true;
    decision->hold_us = within(decision->gap_us, slo_us - ttft_us);
    return within(decision->gap_us, slo_us / IN_TIME_TIMES - ttft_us) /
           decision->n_slowed;
}

/* Whether several ready instances decode. */
static bool several_decode(const struct scheduler *s)
{
    const uint8_t *ready = pool_ready_roles(s->pool);
    uint32_t n = 0;

    for (uint32_t slot = 0; n < 2 && slot < pool_slots(s->pool); slot++)
        n += (ready[slot] & ROLE_DECODE) != 0;
    return n > 1;
}

/* The eligible decode instance with the most room; NULL if the pool has only
 * one decode instance. */
static const struct pool_instance *
roomiest(const struct scheduler *s, const struct schedule_decision *decision)
{
    const struct decode_estimate *best = NULL;

    for (size_t k = 0; k < decision->n_decode_candidates; k++) {
        const struct decode_estimate *c = &decision->decode_candidates[k];

        if (!c->too_long && (!best || c->room_tokens > best->room_tokens))
            best = c;
    }
    return best && several_decode(s) ? pool_get(s->pool, best->instance) : NULL;
}

struct schedule_room schedule_room(const struct scheduler *s,
                                   const struct schedule_request *request,
                                   const struct schedule_decision *decision)
{
    const struct pool_instance *i = NULL;
    bool only = false;

    if (s->rules.bypass > 0 && decision->verdict == SCHEDULE_DECODE_FULL) {
        i = pool_get(s->pool, decision->chosen.instance);
        only = i && estimate_decodes_here(&s->model, i);
        if (!only) /* in a pair, any instance that decodes */
            i = roomiest(s, decision);
    }
    if (!i)
        return (struct schedule_room){.instance = POOL_NO_INSTANCE};
    return (struct schedule_room){
        .instance = i->id,
        .only = only,
        .had_tokens = pool_decode_room_tokens(i),
        .needs_tokens =
            pool_kv_tokens(i, request->n_tokens, request->max_output_tokens)};
}

bool schedule_room_came(const struct scheduler *s,
                        const struct schedule_room *room)
{
    const struct pool_instance *i =
        room->only ? pool_get(s->pool, room->instance) : NULL;

    return !i || !pool_takes_work(i) ||
           pool_decode_room_tokens(i) > room->had_tokens;
}

void schedule_await(const struct scheduler *s, const struct schedule_room *room)
{
    pool_await(s->pool, room->instance, room->needs_tokens);
}

void schedule_await_none(const struct scheduler *s)
{
    pool_await_none(s->pool);
}
