/* Delivers the events of requests to conductors: when, and which. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/views/views.h"

struct sim_view *sim_views_turn(struct sim *sim)
{
    uint64_t turn = sim->n_turns++;

    if (sim->config.conductors_drawn)
        turn = random_mix(random_mix(sim->config.seed) + turn);
    return &sim->views[turn % sim->n_views];
}

uint64_t sim_views_waiting(const struct sim *sim)
{
    uint64_t n = 0;

    for (uint32_t v = 0; v < sim->n_views; v++)
        n += sim->views[v].dispatch.n_waiting;
    return n;
}

void sim_views_steps(struct sim_view *view, const struct sim_node *node,
                     uint64_t steps)
{
    uint64_t *told = &view->told_steps[node->index];

    if (steps <= *told)
        return;
    pool_decode_advance(view->pool, node->id, (int64_t)(steps - *told));
    *told = steps;
}

/* Counts another conductor's arrival: its blocks and its price. With its own
 * arrivals alone, a conductor would overestimate the nodes' free time. */
static void hear_asked(struct sim *sim, struct sim_view *view,
                       const struct sim_sent *sent)
{
    struct schedule_request ask = sent->ask;
    struct schedule_asked asked;

    ask.keys = sent->keys;
    if (schedule_asked(view->scheduler, &ask, &sent->decision, &asked))
        schedule_heard(view->scheduler, &asked, sim->now_us);
}

static void hear_sent(struct sim *sim, struct sim_view *view,
                      const struct sim_sent *sent)
{
    struct scheduler *s = view->scheduler;
    struct schedule_request ask = sent->ask;

    ask.keys = sent->keys;
    /* A commit books own slow reads by the blocks that the scheduler looked up
     * last. */
    if (!sent->decision.chosen.planned)
        schedule_look(s, ask.keys, ask.n_keys, ask.n_tokens, true);
    if (schedule_commit(s, &ask, &sent->decision) < 0)
        sim->summary.crowded++;
}

static void hear_decodes(struct sim *sim, struct sim_view *view,
                         const struct sim_news_item *item)
{
    uint32_t slot = pool_get(view->pool, item->node)->slot;
    uint64_t steps;

    sim_views_steps(view, &sim->nodes[slot], sim->nodes[slot].batch.step);
    steps = view->told_steps[slot] - (uint64_t)item->number;
    pool_decode_started(view->pool, item->node, item->request_id);
    pool_decode_progress(view->pool, item->node, item->request_id,
                         1 + (int64_t)steps);
    dispatch_link_freed(&view->dispatch);
}

static void hear_answered(struct sim_view *view,
                          const struct sim_news_item *item)
{
    const struct dispatch_request request = {.ask.max_output_tokens =
                                                 item->most};

    dispatch_answered(&view->dispatch, &request, item->number);
}

static void hear_ended(struct sim *sim, struct sim_view *view,
                       const struct sim_news_item *item)
{
    const struct sim_node *node =
        &sim->nodes[pool_get(view->pool, item->node)->slot];

    sim_views_steps(view, node, node->batch.step);
    pool_decode_done(view->pool, item->node, item->request_id);
    dispatch_freed(&view->dispatch);
}

/* Handles news, but none of a decision that the pool had no place for. */
static void hear(struct sim *sim, struct sim_view *view,
                 const struct sim_news_item *item)
{
    struct pool *pool = view->pool;
    uint64_t id = item->request_id;

    /* Prefills that the pool had no place for are not in it. */
    switch (item->kind) {
    case SIM_NEWS_ASKED:
        hear_asked(sim, view, item->sent);
        break;
    case SIM_NEWS_SENT:
        hear_sent(sim, view, item->sent);
        break;
    case SIM_NEWS_BEGUN:
        (void)!pool_prefill_started(pool, item->node, id, sim->now_us);
        dispatch_freed(&view->dispatch);
        break;
    case SIM_NEWS_COMES:
        pool_decode_comes(pool, item->node, id, sim->now_us);
        break;
    case SIM_NEWS_DONE:
        pool_prefill_done(pool, item->node, id, item->number, sim->now_us);
        dispatch_freed(&view->dispatch);
        break;
    case SIM_NEWS_RETURNS:
        (void)!pool_prefill_cancel(pool, item->node, id, sim->now_us);
        break;
    case SIM_NEWS_DECODES:
        hear_decodes(sim, view, item);
        break;
    case SIM_NEWS_ENDED:
        hear_ended(sim, view, item);
        break;
    case SIM_NEWS_ANSWERED:
        hear_answered(view, item);
        break;
    case SIM_NEWS_LOADED:
        observation_load(pool, &item->load);
        break;
    }
}

static void wake(struct sim *sim)
{
    const struct sim_news_item *first = sim_news_first(&sim->news);

    if (first)
        heap_set(&sim->heap, sim_news_id(sim), SIM_NEWS_RANK, first->due_us);
    else
        heap_remove(&sim->heap, sim_news_id(sim));
}

static bool shares(const struct sim *sim)
{
    return sim->n_views > 1 && !sim->config.nothing_shared;
}

static void pass_on(struct sim *sim, const struct sim_news_item *item)
{
    if (sim_news_tell(&sim->news, item, sim->now_us) < 0) {
        free(item->sent);
        sim_fail(sim, -ENOMEM, "out of memory");
        return;
    }
    wake(sim);
}

static void tell_item(struct sim *sim, const struct sim_request *r,
                      struct sim_news_item item)
{
    item.from = r->view->index;
    item.request_id = r->record.index + 1;
    hear(sim, r->view, &item);
    if (shares(sim) && !r->warms) /* no conductor reports pieces */
        pass_on(sim, &item);
}

static void tell(struct sim *sim, const struct sim_request *r,
                 enum sim_news_kind kind, uint32_t node, int64_t number)
{
    tell_item(sim, r,
              (struct sim_news_item){
                  .kind = kind, .node = sim->nodes[node].id, .number = number});
}

/* Sends a decision to the other conductors; its own one has booked it. */
static void tell_decision(struct sim *sim, const struct sim_request *r,
                          enum sim_news_kind kind,
                          const struct schedule_decision *decision)
{
    const struct schedule_request *ask = &r->dispatch.ask;
    struct sim_sent *sent;

    if (!shares(sim))
        return;
    sent = malloc(sizeof(*sent) + ask->n_keys * sizeof(sent->keys[0]));
    if (!sent) {
        sim_fail(sim, -ENOMEM, "out of memory");
        return;
    }
    sent->ask = *ask;
    sent->decision = *decision;
    memcpy(sent->keys, ask->keys, ask->n_keys * sizeof(sent->keys[0]));
    pass_on(sim, &(struct sim_news_item){
                     .kind = kind, .from = r->view->index, .sent = sent});
}

void sim_views_asked(struct sim *sim, const struct sim_request *r,
                     const struct schedule_decision *decision)
{
    tell_decision(sim, r, SIM_NEWS_ASKED, decision);
}

void sim_views_sent(struct sim *sim, const struct sim_request *r,
                    const struct schedule_decision *decision)
{
    tell_decision(sim, r, SIM_NEWS_SENT, decision);
}

void sim_views_begun(struct sim *sim, const struct sim_request *r)
{
    tell(sim, r, SIM_NEWS_BEGUN, r->record.prefill_node, 0);
}

void sim_views_comes(struct sim *sim, const struct sim_request *r)
{
    tell(sim, r, SIM_NEWS_COMES, r->record.decode_node, 0);
}

void sim_views_done(struct sim *sim, struct sim_request *r, int64_t observed_us)
{
    tell(sim, r, SIM_NEWS_DONE, r->record.prefill_node, observed_us);
    for (uint32_t i = 0; i < r->lent.n; i++)
        tell(sim, r, SIM_NEWS_RETURNS,
             pool_get(r->view->pool, r->lent.members[i])->slot, 0);
}

void sim_views_decodes(struct sim *sim, const struct sim_request *r)
{
    tell(sim, r, SIM_NEWS_DECODES, r->record.decode_node,
         (int64_t)sim->nodes[r->record.decode_node].batch.step);
}

void sim_views_ended(struct sim *sim, const struct sim_request *r)
{
    tell(sim, r, SIM_NEWS_ENDED, r->record.decode_node, 0);
}

void sim_views_answered(struct sim *sim, struct sim_request *r)
{
    dispatch_decoded(&r->view->dispatch, &r->dispatch, r->n_output,
                     sim->now_us);
    tell_item(
        sim, r,
        (struct sim_news_item){.kind = SIM_NEWS_ANSWERED,
                               .number = r->n_output,
                               .most = r->dispatch.ask.max_output_tokens});
}

void sim_views_loaded(struct sim *sim, const struct sim_request *r,
                      const struct observation_load *load)
{
    tell_item(sim, r,
              (struct sim_news_item){.kind = SIM_NEWS_LOADED, .load = *load});
}

void sim_views_hear(struct sim *sim)
{
    const struct sim_news_item *item;

    while ((item = sim_news_first(&sim->news)) && item->due_us <= sim->now_us) {
        for (uint32_t v = 0; v < sim->n_views; v++)
            if (v != item->from)
                hear(sim, &sim->views[v], item);
        sim_news_arrived(&sim->news);
    }
    wake(sim);
}
