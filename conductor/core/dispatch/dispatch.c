/* The decision about a request now. See dispatch.h. */
#include "conductor/core/dispatch/dispatch.h"

#include <math.h>
#include <string.h>

#include "conductor/core/dispatch/held.h"
#include "conductor/core/dispatch/tenancy.h"

void dispatch_init(struct dispatch *d)
{
    *d = (struct dispatch){.next_expiry_us = INT64_MAX,
                           .limitless_us = INT64_MIN};
    held_init(d);
    share_init(&d->share);
}

/* The TTFT SLO also covers hand-over and transit to the client. */
static void fill_ask(const struct dispatch *d, struct dispatch_request *r,
                     int64_t now_us)
{
    struct schedule_request *ask = &r->ask;
    int64_t left_us = r->arrived_us + r->slo_ttft_us - now_us - d->overhead_us -
                      r->passage_us;

    ask->now_us = now_us;
    ask->waited_us = now_us - r->arrived_us;
    ask->n_held = d->n_waiting;
    ask->expected_tokens =
        lengths_expected(&d->lengths, r->length_key, ask->max_output_tokens);
    ask->median_tokens =
        lengths_median(&d->lengths, r->length_key, ask->max_output_tokens);
    ask->slo_tbt_us = r->accepted ? 0 : r->slo_tbt_us;
    ask->may_hold = r->may_hold;
    ask->slo_ttft_us = ask->due_us = 0;
    if (r->slo_ttft_us && !r->accepted)
        ask->slo_ttft_us = left_us > 1 ? left_us : 1;
    else if (r->slo_ttft_us && left_us > 0)
        ask->due_us = now_us + left_us;
    memcpy(ask->exclude, r->excluded, sizeof(r->excluded));
    ask->n_exclude = r->n_excluded < SCHEDULE_EXCLUDE_MAX
                         ? r->n_excluded
                         : SCHEDULE_EXCLUDE_MAX;
}

static void decide(struct dispatch *d, struct dispatch_request *r,
                   int64_t now_us, struct schedule_decision *decision)
{
    fill_ask(d, r, now_us);
    schedule_decide(d->scheduler, &r->ask, decision);
    d->n_decisions++;
}

/* If every instance has failed a request, any of them may be chosen again; if
 * its only instance is gone, any eligible one. */
static void ask(struct dispatch *d, struct dispatch_request *r, int64_t now_us,
                struct schedule_decision *decision)
{
    decide(d, r, now_us, decision);
    if ((r->n_excluded || r->ask.only != POOL_NO_INSTANCE) &&
        (decision->verdict == SCHEDULE_NO_PREFILL_INSTANCE ||
         decision->verdict == SCHEDULE_NO_DECODE_INSTANCE)) {
        r->n_excluded = 0;
        r->ask.only = POOL_NO_INSTANCE;
        held_reaches(d, r);
        decide(d, r, now_us, decision);
    }
    if (!r->priced && !d->unpredicted)
        schedule_price(d->scheduler, &r->ask, decision);
    r->priced = true;
    if (d->unpredicted && decision->retry_after_us > 0)
        decision->retry_after_us = 0;
}

/* Whether a request without room may wait: without a TTFT SLO always, with one
 * if room is due in time. */
static bool may_wait(const struct dispatch_request *r, int64_t retry_after_us,
                     int64_t now_us)
{
    int64_t left_us = r->arrived_us + r->slo_ttft_us - now_us;

    return !r->slo_ttft_us || r->accepted ||
           (retry_after_us >= 0 && retry_after_us <= left_us);
}

const struct dispatch_refusal *dispatch_refusal(enum dispatch_reason reason)
{
    static const struct dispatch_refusal refusals[DISPATCH_REASONS] = {
        [DISPATCH_MISSES_TTFT] = {true, NULL},
        [DISPATCH_MISSES_TBT] = {true, NULL},
        [DISPATCH_PRICE] = {true, NULL},
        [DISPATCH_SHARE] = {true, NULL},
        [DISPATCH_NO_ROOM] = {true, "no_capacity"},
        [DISPATCH_WAITED_TOO_LONG] = {true, "no_capacity"},
        [DISPATCH_LINK_BUSY] = {true, "link_busy"},
    };

    return &refusals[reason];
}

static enum dispatch_reason reason_of(enum schedule_verdict verdict)
{
    switch (verdict) {
    case SCHEDULE_REJECT_TTFT:
        return DISPATCH_MISSES_TTFT;
    case SCHEDULE_REJECT_TBT:
        return DISPATCH_MISSES_TBT;
    case SCHEDULE_REJECT_PRICE:
        return DISPATCH_PRICE;
    case SCHEDULE_REJECT_SHARE:
        return DISPATCH_SHARE;
    case SCHEDULE_NO_PREFILL_INSTANCE:
        return DISPATCH_NO_PREFILL;
    case SCHEDULE_NO_DECODE_INSTANCE:
        return DISPATCH_NO_DECODE;
    case SCHEDULE_TOO_LONG:
        return DISPATCH_TOO_LONG;
    case SCHEDULE_LINK_BUSY:
        return DISPATCH_LINK_BUSY;
    case SCHEDULE_ACCEPT:
    case SCHEDULE_DECODE_FULL:
    case SCHEDULE_QUEUE_FULL:
        break;
    }
    return DISPATCH_NO_ROOM;
}

static void refuse(enum dispatch_reason reason, int64_t retry_after_us,
                   struct dispatch_order *order)
{
    order->action = DISPATCH_REJECT;
    order->reason = reason;
    order->retry_after_us = retry_after_us;
}

/* Whether a request sent past the oldest takes room that the oldest waits for.
 * A request that waits for one instance loses room only there. */
static bool takes_room(const struct dispatch *d,
                       const struct dispatch_request *r,
                       const struct schedule_decision *decision)
{
    const struct dispatch_request *oldest = TAILQ_FIRST(&d->waiting);

    return r != oldest &&
           reach_takes_of(&oldest->ask, schedule_pool(d->scheduler),
                          decision) &&
           (r->size > 0 || oldest->for_queue) &&
           (!oldest->for_link || dispatch_may_wait_for_link(r)) &&
           (!(oldest->room.only || d->keeps) ||
            oldest->room.instance == decision->decode);
}

static bool takes_of(const struct dispatch *d, const struct dispatch_request *r,
                     enum reach_of others,
                     const struct schedule_decision *decision)
{
    return others == REACH_OLDEST
               ? takes_room(d, r, decision)
               : reach_takes(&d->reach, others, schedule_pool(d->scheduler),
                             decision);
}

/* others: the waiting requests whose room this one must leave alone. */
static void give_order(struct dispatch *d, struct dispatch_request *r,
                       enum reach_of others, int64_t now_us,
                       struct dispatch_order *order)
{
    struct schedule_decision *decision = &order->decision;
    enum dispatch_reason reason;

    order->reason = DISPATCH_NO_REASON;
    order->retry_after_us = 0;
    order->forecast = (struct forecast){0};
    order->decided = d->scheduler;
    if (!d->scheduler) {
        memset(decision, 0, sizeof(*decision));
        decision->verdict = SCHEDULE_NO_PREFILL_INSTANCE;
        refuse(DISPATCH_NO_PREFILL, -1, order);
        return;
    }
    dispatch_weigh(d, r, now_us);
    ask(d, r, now_us, decision);
    if (decision->verdict == SCHEDULE_QUEUE_FULL && r->ask.queue_most_us > 0) {
        decision->verdict = SCHEDULE_REJECT_SHARE;
        decision->retry_after_us = 0;
    }
    reason = reason_of(decision->verdict);
    r->behind = decision->verdict == SCHEDULE_ACCEPT &&
                takes_of(d, r, others, decision);
    held_lacks(d, r,
               decision->verdict == SCHEDULE_LINK_BUSY ||
                   (r->behind && dispatch_may_wait_for_link(r) &&
                    d->n_for_link == d->n_waiting),
               decision->verdict == SCHEDULE_QUEUE_FULL);
    r->room = schedule_room(d->scheduler, &r->ask, decision);
    if (decision->chosen.instance != POOL_NO_INSTANCE && !d->unpredicted)
        order->forecast = forecast_make(
            &d->forecasts,
            now_us - r->arrived_us + d->overhead_us + decision->hold_us,
            schedule_expected_us(d->scheduler, &r->ask, decision));
    if (r->behind) {
        order->action = DISPATCH_WAIT;
    } else if (decision->verdict == SCHEDULE_ACCEPT &&
               schedule_commit(d->scheduler, &r->ask, decision) == 0) {
        order->action = DISPATCH_SEND;
        r->accepted = true;
        dispatch_charge(d, r, decision, now_us);
    } else if (reason == DISPATCH_SHARE && !r->slo_ttft_us) {
        order->action = DISPATCH_WAIT;
        order->reason = reason;
    } else if ((reason == DISPATCH_NO_ROOM || reason == DISPATCH_LINK_BUSY) &&
               may_wait(r, decision->retry_after_us, now_us)) {
        order->action = DISPATCH_WAIT;
    } else {
        refuse(reason, decision->retry_after_us, order);
    }
}

/* Tokens of KV that a request needs at its decode instance, as predicted at its
 * last decision; 0 = no decode. */
static int64_t decode_tokens(const struct dispatch *d,
                             const struct schedule_request *ask)
{
    if (ask->max_output_tokens <= 1)
        return 0;
    return ask->n_tokens +
           (ask->expected_tokens > 0 &&
                    schedule_rules_of(d->scheduler)->predicts_decodes
                ? ask->expected_tokens
                : ask->max_output_tokens);
}

static void begin_waiting(struct dispatch *d, struct dispatch_request *request,
                          const struct dispatch_order *order)
{
    request->line.rank =
        schedule_rank(d->scheduler, &order->decision, request->arrived_us);
    request->patient_until_us =
        request->arrived_us +
        (request->slo_ttft_us > 0
             ? request->slo_ttft_us
             : queue_implied_us(schedule_shortest_us(&order->decision), 0));
    request->size = held_size(decode_tokens(d, &request->ask));
    held_add(d, request);
}

void dispatch_place(struct dispatch *d, struct dispatch_request *request,
                    int64_t now_us, struct dispatch_order *order)
{
    request->place = share_arrived(&d->share, request->tenant, request->weight,
                                   request->priority, now_us);
    request->line.priority =
        share_orders(&d->share, request->place) ? request->priority : 0;
    request->line.rank = INT64_MAX; /* not known yet */
    request->line.seq = d->n_waited++;
    if (request->slo_ttft_us <= 0)
        d->limitless_us = now_us;
    give_order(d, request,
               dispatch_stands_behind(d, request) ? REACH_WAITING : REACH_NONE,
               now_us, order);
    if (order->action == DISPATCH_WAIT)
        begin_waiting(d, request, order);
}

void dispatch_freed(struct dispatch *d)
{
    d->room = true;
}

void dispatch_link_freed(struct dispatch *d)
{
    d->room |= d->for_link;
}

static void begin_round(struct dispatch *d)
{
    d->room = d->for_link = d->keeps = false;
    d->in_round = true;
    d->n_missed = d->n_link_missed = 0;
    d->limit = DISPATCH_SIZES;
    d->last_turn_us = INFINITY;
    held_begin(d);
    memset(d->missed, 0, sizeof(d->missed));
    reach_begin(&d->reach);
    if (d->scheduler)
        schedule_await_none(d->scheduler);
}

/* Tokens of KV that a request needs at its decode instance; without a decode
 * the length of its prompt. */
static int64_t all_tokens(const struct dispatch *d,
                          const struct schedule_request *ask)
{
    int64_t tokens = decode_tokens(d, ask);

    return tokens > 0 ? tokens : ask->n_tokens;
}

/* Whether younger requests may take room that the oldest waits for: until
 * patient_until_us is over and they have taken `bypass` times its size. */
static bool is_patient(const struct dispatch *d, int64_t now_us)
{
    double bypass = schedule_rules_of(d->scheduler)->bypass;
    const struct dispatch_request *oldest = TAILQ_FIRST(&d->waiting);

    return now_us < oldest->patient_until_us ||
           (double)d->passed_tokens <
               bypass * (double)all_tokens(d, &oldest->ask);
}

/* Returns the size below which younger requests may pass the oldest. While the
 * oldest is patient or has room kept for it, these are all sizes not yet found
 * without room; later only requests that need no room to decode. */
static uint32_t may_pass(const struct dispatch *d, int64_t now_us)
{
    const struct dispatch_request *oldest = TAILQ_FIRST(&d->waiting);

    if (!oldest || !d->scheduler || d->n_missed >= DISPATCH_LOOK ||
        schedule_rules_of(d->scheduler)->bypass <= 0.0)
        return 0;
    if (is_patient(d, now_us))
        return d->limit;
    if (oldest->size == 0 || oldest->for_queue)
        return 0;
    return d->keeps ? d->limit : 1;
}

/* Returns the sizes that may be tried: all until an unrestricted request found
 * no room, then those of may_pass(). */
static uint32_t may_try(const struct dispatch *d, int64_t now_us)
{
    return d->reach.missed_anywhere ? may_pass(d, now_us) : DISPATCH_SIZES;
}

/* The next request to carry out where tenants take turns; NULL = none. */
static struct dispatch_request *next_in_turn(struct dispatch *d, int64_t now_us,
                                             struct dispatch_order *order)
{
    while (d->n_missed < SHARE_TENANTS) {
        struct dispatch_request *r = dispatch_next_by_share(d);

        if (!r)
            break;
        if (!dispatch_is_too_late(d, r)) {
            give_order(d, r, REACH_NONE, now_us, order);
            if (order->action != DISPATCH_WAIT) {
                held_remove(d, r);
                return r;
            }
            dispatch_missed(d, r, order->decision.verdict);
        }
        d->missed[r->place] = true;
        d->n_missed++;
    }
    d->in_round = false;
    return NULL;
}

/* Notes that a tried request still waits. If no instance has room for its
 * decode, none has room for a larger one. */
static void miss(struct dispatch *d, const struct dispatch_request *r,
                 enum schedule_verdict verdict)
{
    if (r->for_link)
        d->n_link_missed++;
    else if (verdict != SCHEDULE_DECODE_FULL || r->n_excluded || r->ask.whole ||
             r->ask.only != POOL_NO_INSTANCE || r->ask.eligible || r->room.only)
        d->n_missed++;
    else if (r->size < d->limit)
        d->limit = r->size;
}

/* Keeps the room of a tried request from all younger ones, if the request fits
 * no other instance, or is the oldest and no longer patient. */
static void keep_room(struct dispatch *d, const struct dispatch_request *r,
                      int64_t now_us)
{
    bool keeps = r == TAILQ_FIRST(&d->waiting) && !is_patient(d, now_us) &&
                 r->room.instance != POOL_NO_INSTANCE;

    d->keeps |= keeps;
    if (r->room.only || keeps)
        schedule_await(d->scheduler, &r->room);
}

/* Tries a waiting request. Returns false if it still waits. */
static bool try(struct dispatch *d, struct dispatch_request *r, int64_t now_us,
                struct dispatch_order *order)
{
    if (d->n_link_missed >= DISPATCH_LOOK &&
        (r->for_link || (r->behind && dispatch_may_wait_for_link(r))))
        return false;
    const struct dispatch_request *oldest = TAILQ_FIRST(&d->waiting);
    bool passes = r == oldest || r->size < may_pass(d, now_us);
    bool leaves_room = passes && r != oldest && !is_patient(d, now_us);

    if (!passes && reach_missed(&d->reach, &r->ask))
        return false;
    if (d->scheduler && !schedule_room_came(d->scheduler, &r->room))
        return false;
    give_order(d, r,
               !passes       ? REACH_MISSED
               : leaves_room ? REACH_OLDEST
                             : REACH_NONE,
               now_us, order);
    if (order->action == DISPATCH_WAIT) {
        miss(d, r, order->decision.verdict);
        return false;
    }
    if (order->action == DISPATCH_SEND && takes_room(d, r, &order->decision))
        d->passed_tokens += all_tokens(d, &r->ask);
    held_remove(d, r);
    return true;
}

/* Returns the oldest request that may be tried and either finds room or never
 * will. */
static struct dispatch_request *
next_in_round(struct dispatch *d, int64_t now_us, struct dispatch_order *order)
{
    if (!d->in_round && !d->room)
        return NULL;
    if (!d->in_round)
        begin_round(d);
    if (dispatch_shares(d))
        return next_in_turn(d, now_us, order);
    for (struct dispatch_request *r; (r = held_next(d, may_try(d, now_us)));) {
        if (d->n_link_missed >= DISPATCH_LOOK && d->n_for_link == d->n_waiting)
            break; /* no other request to try */
        if (try(d, r, now_us, order))
            return r;
        if (d->scheduler) {
            keep_room(d, r, now_us);
            reach_miss(&d->reach, schedule_pool(d->scheduler), &r->ask,
                       r->reach);
        }
        held_tried(d, r);
    }
    d->in_round = false;
    return NULL;
}

struct dispatch_request *dispatch_next(struct dispatch *d, int64_t now_us,
                                       struct dispatch_order *order)
{
    struct dispatch_request *r = held_expired(d, now_us);

    if (!r)
        return next_in_round(d, now_us, order);
    *order = (struct dispatch_order){.decision.verdict = SCHEDULE_REJECT_TTFT};
    refuse(r->for_link ? DISPATCH_LINK_BUSY : DISPATCH_WAITED_TOO_LONG, 0,
           order);
    dispatch_forget(d, r);
    return r;
}

void dispatch_answered(struct dispatch *d,
                       const struct dispatch_request *request,
                       int64_t output_tokens)
{
    lengths_observe(&d->lengths, request->length_key, output_tokens,
                    request->ask.max_output_tokens);
}

void dispatch_first_token(struct dispatch *d, const struct forecast *forecast,
                          int64_t ttft_us)
{
    forecast_came(&d->forecasts, forecast, ttft_us);
}

void dispatch_forget(struct dispatch *d, struct dispatch_request *request)
{
    if (!request->waits)
        return;
    d->room |= request == TAILQ_FIRST(&d->waiting) || dispatch_shares(d);
    held_remove(d, request);
}

void dispatch_exclude(struct dispatch_request *request, uint32_t instance)
{
    /* The oldest makes room. */
    request->excluded[request->n_excluded++ % SCHEDULE_EXCLUDE_MAX] = instance;
}

bool dispatch_failed(const struct dispatch *d, struct dispatch_request *request,
                     uint32_t blamed, bool answers)
{
    if (answers || request->retries >= d->max_retries)
        return false;
    if (blamed != POOL_NO_INSTANCE)
        dispatch_exclude(request, blamed);
    request->retries++;
    return true;
}
