/*
 * From arrival to a node's queue: carries out the orders of core's dispatch, as
 * conductor/service/request/decide.c does in the daemon.
 */
#include <errno.h>

#include "sim/copies.h"
#include "sim/decode.h"
#include "sim/internal.h"
#include "sim/views/views.h"

/* Most requests in the system at once; further ones fail. */
#define UNFINISHED_MAX (UINT64_C(1) << 22)

/* Records core's forecast plus the time in the pipeline, which core does not
 * know. */
static void note_forecast(struct sim *sim, struct sim_request *r,
                          const struct dispatch_order *order)
{
    int64_t passage_us = sim_prefill_passage_us(
        sim, sim->nodes[order->decision.chosen.slot].known, r->n_tokens,
        order->decision.chosen.cached_tokens);

    r->forecast = order->forecast;
    r->forecast.known_us += passage_us;
    r->record.predicted_ttft_us = r->forecast.ttft_us + passage_us;
    if (r->forecast.p90_us > 0)
        r->record.predicted_p90_us = r->forecast.p90_us + passage_us;
}

/* Takes memory for a decode from its node's cache. */
static void take_memory(struct sim *sim, struct sim_node *node,
                        const struct sim_request *r)
{
    node->decode_tokens += sim_decode_tokens(sim, node, r);
    sim_copies_share_memory(sim, node);
}

static void carry_out(struct sim *sim, struct sim_request *r,
                      const struct dispatch_order *order)
{
    const struct schedule_decision *d = &order->decision;
    struct sim_node *node = &sim->nodes[d->chosen.slot];
    const struct pool_instance *decode = pool_get(r->view->pool, d->decode);
    int rc;

    r->plan = d->chosen;
    sim_views_sent(sim, r, d);
    sim_lend(sim, r, &d->lent);
    r->holds_first = d->holds;
    r->accepted_at_us = sim->now_us + sim->cluster.handover_us;
    note_forecast(sim, r, order);
    r->record.prefill_node = node->index;
    if (decode) {
        r->record.predicted_tbt_us = d->tbt_us;
        r->record.decode_node = decode->slot;
    }
    if (decode && sim->nodes[decode->slot].shares)
        take_memory(sim, &sim->nodes[decode->slot], r);
    if (sim->cluster.cache_at == CLUSTER_CACHE_AT_DISPATCH)
        sim_copies_dispatch(sim, node, r);
    else
        sim_copies_keep(node, r);
    rc = d->chosen.planned ? sim_load_begin(sim, r, d) : 0;
    if (rc == 0)
        rc = sim_hand_over(sim, node, r);
    if (rc < 0)
        sim_fail(sim, rc, "out of memory");
    else
        sim_mark_node(sim, node);
}

/* Returns whether a rejected request comes again after its retry time. */
static bool comes_again(struct sim *sim, struct sim_request *r,
                        const struct dispatch_order *order)
{
    if (!sim->config.ask_again || r->asks_again || order->retry_after_us <= 0)
        return false;
    r->asks_again = true;
    if (links_delay(sim->links, SIM_FLOW_AGAIN, r, sim->now_us,
                    sim->now_us + order->retry_after_us) < 0)
        sim_fail(sim, -ENOMEM, "out of memory");
    return true;
}

static void refuse(struct sim *sim, struct sim_request *r,
                   const struct dispatch_order *order)
{
    const struct schedule_decision *d = &order->decision;
    const struct dispatch_refusal *how = dispatch_refusal(order->reason);

    sim_warm(sim, r, order);
    if (comes_again(sim, r, order))
        return;
    if (how->rejects && !how->name && d->chosen.instance != POOL_NO_INSTANCE)
        note_forecast(sim, r, order);
    sim_end(sim, r, how->rejects ? SIM_REJECTED : SIM_FAILED,
            how->name ? how->name : schedule_verdict_name(d->verdict));
}

static void follow(struct sim *sim, struct sim_request *r,
                   const struct dispatch_order *order)
{
    switch (order->action) {
    case DISPATCH_SEND:
        carry_out(sim, r, order);
        break;
    case DISPATCH_REJECT:
        refuse(sim, r, order);
        break;
    case DISPATCH_WAIT:
        if (sim_views_waiting(sim) > sim->summary.max_waiting_for_room)
            sim->summary.max_waiting_for_room = sim_views_waiting(sim);
        break;
    }
}

/* Tells a view the decode steps so far, before it decides. A rule that predicts
 * decodes needs single steps; for others whole runs are enough. */
static void tell(struct sim *sim, struct sim_view *view)
{
    bool single = schedule_rules_of(view->scheduler)->predicts_decodes;

    if (sim->n_views == 1 && !single)
        return; /* sim_decode_advance() told the view each run */
    for (uint32_t i = 0; i < sim->n_nodes; i++) {
        const struct sim_node *node = &sim->nodes[i];
        uint64_t steps = node->batch.step;

        if (single)
            steps += sim_decode_steps_ended(sim, node);
        sim_views_steps(view, node, steps);
    }
}

/* Returns whether a view may send or refuse a waiting request now. */
static bool looks_again(const struct sim *sim, const struct sim_view *view)
{
    const struct dispatch *d = &view->dispatch;

    return d->n_waiting > 0 && (sim->n_views == 1 || d->room || d->in_round ||
                                sim->now_us >= d->next_expiry_us);
}

bool sim_retry_next(struct sim *sim, struct sim_view *view)
{
    struct dispatch_request *next;
    struct dispatch_order order;

    if (sim->rc != 0)
        return false;
    if (looks_again(sim, view))
        tell(sim, view);
    next = dispatch_next(&view->dispatch, sim->now_us, &order);
    if (next)
        follow(sim, next->owner, &order);
    return next;
}

bool sim_retries_at_once(const struct sim *sim)
{
    return schedule_rules_of(sim->views[0].scheduler)->predicts_decodes ||
           schedule_rules_of(sim->views[0].scheduler)->bypass > 0;
}

static enum dispatch_action place(struct sim *sim, struct sim_request *r)
{
    struct dispatch_order order;

    r->view = sim_views_turn(sim);
    tell(sim, r->view);
    /* Room freed while no request waited: no round of tries. */
    if (sim_retries_at_once(sim) && r->view->dispatch.n_waiting == 0)
        sim_retry_next(sim, r->view);
    dispatch_place(&r->view->dispatch, &r->dispatch, sim->now_us, &order);
    sim_views_asked(sim, r, &order.decision);
    sim_switch_asked(sim, r, &order);
    follow(sim, r, &order);
    return order.action;
}

void sim_arrive(struct sim *sim, const struct trace_request *request)
{
    struct sim_request *r = sim_request_new(sim, request);

    if (!r) {
        sim_fail(sim, -ENOMEM, "out of memory");
        return;
    }
    TAILQ_INSERT_TAIL(&sim->every, r, every);
    r->record.index = sim->summary.requests++;
    if (++sim->n_unfinished > sim->summary.max_unfinished)
        sim->summary.max_unfinished = sim->n_unfinished;
    if (sim->n_unfinished > UNFINISHED_MAX) {
        sim_end(sim, r, SIM_FAILED, "too_many_unfinished");
        return;
    }
    sim_request_describe(sim, r);
    sim_replicate_asked(sim, r);
    place(sim, r);
}

void sim_ask_again(struct sim *sim, struct sim_request *request)
{
    request->record.arrival_us = sim->now_us;
    sim_request_describe(sim, request);
    sim->summary.asked_again++;
    sim->summary.accepted_again += place(sim, request) != DISPATCH_REJECT;
}
