/* The prefills that instances have accepted: they wait or run. Invariants are
 * at the top of pool.c. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "conductor/core/pool/internal.h"
#include "conductor/core/pool/pool.h"
#include "predictor/cost_model.h"

/* Keeps a prefill's keys and counts them as pending. Without room for them
 * the prefill is accepted anyway: they only serve an estimate. */
static void remember_keys(struct pool *pool, uint32_t slot,
                          const uint64_t *keys, size_t n,
                          struct pool_prefill *prefill)
{
    uint32_t at = ARENA_NONE;

    prefill->n_keys = 0;
    if (n == 0)
        return;
    if (n <= pool->config.max_pending_blocks)
        at = arena_alloc(&pool->keys, arena_class_of(n));
    if (at == ARENA_NONE) {
        pool->n_dropped++;
        return;
    }
    if (pending_add(pool->pending, slot, keys, n) < 0) {
        arena_free(&pool->keys, at, arena_class_of(n));
        pool->n_dropped++;
        return;
    }
    memcpy(arena_at(&pool->keys, at), keys, n * sizeof(*keys));
    prefill->keys_at = at;
    prefill->n_keys = (uint32_t)n;
}

static void forget_keys(struct pool *pool, uint32_t slot,
                        const struct pool_prefill *prefill)
{
    if (prefill->n_keys == 0)
        return;
    pending_drop(pool->pending, slot, arena_at(&pool->keys, prefill->keys_at),
                 prefill->n_keys);
    arena_free(&pool->keys, prefill->keys_at, arena_class_of(prefill->n_keys));
}

/* Lets the correction of one instance, in turn, fade if the instance is idle
 * and has had no prefill for two rounds: per round by the work that other
 * instances got on average. */
static void forget_next(struct pool *pool, int64_t work_us)
{
    struct pool_slot *slot = &pool->slots[pool->next_seq % pool->n_slots];
    const struct pool_instance *view = &slot->view;

    if (slot->in_use && view->n_waiting + view->n_running == 0 &&
        pool->next_seq - view->last_prefill >= 2 * (uint64_t)pool->n_slots)
        correction_forget(&slot->view.correction, work_us);
}

/* Drops the cached pick: the queue has changed. */
static void forget_pick(struct pool_slot *slot)
{
    slot->picked_from_us = slot->picked_until_us = 0;
}

static void note_latest(struct queue_load *load, const struct queue_item *item)
{
    if (item->ready_at_us > load->latest_ready_us)
        load->latest_ready_us = item->ready_at_us;
    if (item->loading_until_us > load->latest_loading_us)
        load->latest_loading_us = item->loading_until_us;
}

struct pool_work pool_work_add(struct pool_work a, struct pool_work b)
{
    return (struct pool_work){a.tokens + b.tokens, a.us + b.us,
                              a.own_tokens + b.own_tokens, a.own_us + b.own_us,
                              a.own_square + b.own_square};
}

struct pool_work pool_work_less(struct pool_work a, struct pool_work b)
{
    return (struct pool_work){a.tokens - b.tokens, a.us - b.us,
                              a.own_tokens - b.own_tokens, a.own_us - b.own_us,
                              a.own_square - b.own_square};
}

/* Returns a prefill's corrected cost, without shared_us while it waits. */
static int64_t cost_us(const struct pool_instance *view,
                       const struct pool_prefill *p)
{
    return correction_apply_us(&view->correction,
                               p->predicted_us -
                                   (p->started_at_us < 0 ? p->shared_us : 0));
}

int pool_prefill_accept(struct pool *pool, uint32_t id,
                        const struct pool_prefill_request *request)
{
    struct pool_slot *slot = pool_slot_of(pool, id);
    int64_t predicted_us = request->predicted_us;

    if (!slot)
        return -ESTALE;
    if (predicted_us < 0 || request->shared_us < 0 ||
        request->uncached_tokens < 0 || request->cached_tokens < 0)
        return -EINVAL;
    if (predicted_us > COST_MODEL_MAX_US)
        predicted_us = COST_MODEL_MAX_US;
    struct pool_instance *view = &slot->view;
    int64_t ahead_us =
        view->load.cost_us + pool_running_left_us(view, request->arrived_us);
    int64_t due_us =
        request->deadline_us > 0
            ? request->deadline_us
            : request->arrived_us + queue_implied_us(predicted_us, ahead_us);

    if (pool_find_prefill(pool, id, request->request_id))
        return -EEXIST;
    if (view->n_waiting == pool->config.max_waiting)
        return -ENOSPC;
    struct pool_prefill *prefill = &slot->waiting[view->n_waiting];

    *prefill = (struct pool_prefill){
        .request_id = request->request_id,
        .item = {.arrival_seq = pool->next_seq++,
                 .ready_at_us = request->ready_at_us,
                 .arrived_us = request->arrived_us,
                 .deadline_us = due_us,
                 .has_slo = request->deadline_us > 0 && !request->implied,
                 .slo_us = due_us > request->arrived_us
                               ? due_us - request->arrived_us
                               : 0,
                 .loading_until_us = request->loading_until_us},
        .predicted_us = predicted_us,
        .shared_us = request->shared_us < predicted_us ? request->shared_us
                                                       : predicted_us,
        .uncached_tokens = request->uncached_tokens,
        .cached_tokens = request->cached_tokens,
        .stage = request->stage,
        .work = request->work,
        .started_at_us = -1,
        .bookings = BOOKING_NONE,
    };
    prefill->item.cost_us = cost_us(view, prefill);
    remember_keys(pool, view->slot, request->keys, request->n_keys, prefill);
    view->last_prefill = prefill->item.arrival_seq + 1;
    slot->queue[view->n_waiting++] = prefill->item;
    forget_pick(slot);
    forget_next(pool, predicted_us);
    view->load.cost_us += prefill->item.cost_us;
    view->accepted = pool_work_add(view->accepted, prefill->work);
    view->prefill_tokens += prefill->uncached_tokens + prefill->cached_tokens;
    note_latest(&view->load, &prefill->item);
    return 0;
}

/* Computes the queue's latest times anew, after an item changed or left. */
static void find_latest(struct pool_instance *view)
{
    view->load.latest_ready_us = INT64_MIN;
    view->load.latest_loading_us = 0;
    for (size_t i = 0; i < view->n_waiting; i++)
        note_latest(&view->load, &view->queue[i]);
}

/* Brings the times of running prefills up to now: the last one worked, the
 * others stood. */
static void note_work(struct pool_slot *slot, int64_t now_us)
{
    struct pool_instance *view = &slot->view;
    int64_t us = now_us - view->running_since_us;

    view->running_since_us = now_us;
    for (size_t i = 0; i < view->n_running; i++)
        if (i + 1 < view->n_running)
            slot->running[i].begun.stood_us += us;
        else
            slot->running[i].worked_us += us;
}

/* As sum_running(), under an order that interrupts: running is a stack. */
static void sum_stack(struct pool_slot *slot)
{
    struct pool_instance *view = &slot->view;
    struct pool_running_load *load = &view->running_load;
    int64_t below_us = INT64_MAX, end_us = view->running_since_us, left_us = 0;

    for (size_t i = 0; i < view->n_running; i++) {
        struct pool_prefill *p = &slot->running[i];

        p->begun.cost_us = p->item.cost_us;
        p->begun.left_us =
            p->item.cost_us > p->worked_us ? p->item.cost_us - p->worked_us : 0;
        below_us = p->stage ? 0 : yield_spare_us(below_us, &p->begun);
        p->spare_us = below_us;
        left_us = p->begun.left_us;
        end_us += left_us;
    }
    load->first_us = view->running_since_us + left_us;
    load->ends_us = (uint64_t)end_us;
    if (view->n_running == 0)
        *load = (struct pool_running_load){.first_us = INT64_MAX,
                                           .in_line = load->in_line};
}

/* Computes running_load anew, after a begin, an end or a change of cost. */
static void sum_running(struct pool_slot *slot)
{
    struct pool_instance *view = &slot->view;
    struct pool_running_load *load = &view->running_load;
    int64_t free_us = view->prefilled_us;

    if (view->order->preempts) {
        sum_stack(slot);
        return;
    }

    *load = (struct pool_running_load){.first_us = INT64_MAX,
                                       .in_line = load->in_line};
    for (size_t i = 0; i < view->n_running; i++) {
        const struct pool_prefill *p = &view->running[i];
        int64_t end_us = p->started_at_us + p->item.cost_us;

        if (load->in_line) {
            if (free_us > p->started_at_us)
                end_us = free_us + p->item.cost_us;
            free_us = end_us;
            load->ends_us = 0;
        }
        load->ends_us += (uint64_t)end_us;
        if (end_us < load->first_us)
            load->first_us = end_us;
    }
}

static struct pool_prefill take_waiting(struct pool_slot *slot, size_t i)
{
    struct pool_prefill taken = slot->waiting[i];
    size_t behind = slot->view.n_waiting - i - 1;

    memmove(slot->waiting + i, slot->waiting + i + 1,
            behind * sizeof(*slot->waiting));
    memmove(slot->queue + i, slot->queue + i + 1,
            behind * sizeof(*slot->queue));
    slot->view.n_waiting--;
    forget_pick(slot);
    slot->view.load.cost_us -= taken.item.cost_us;
    if (taken.item.ready_at_us == slot->view.load.latest_ready_us ||
        (taken.item.loading_until_us > 0 &&
         taken.item.loading_until_us == slot->view.load.latest_loading_us))
        find_latest(&slot->view);
    return taken;
}

int pool_begin_prefill(struct pool *pool, uint32_t id, uint64_t request_id,
                       int64_t started_us, int64_t worked_us, int64_t now_us)
{
    struct pool_slot *slot = pool_slot_of(pool, id);
    size_t i;

    if (!slot)
        return -ESTALE;
    i = pool_index_of(slot->waiting, slot->view.n_waiting, request_id);
    if (i == POOL_NOT_FOUND)
        return -ENOENT;
    if (slot->view.n_running == pool->config.max_running)
        return -ENOSPC;
    struct pool_prefill prefill = take_waiting(slot, i);

    note_work(slot, now_us);
    prefill.started_at_us = started_us;
    prefill.worked_us = worked_us;
    prefill.begun.stood_us = now_us - started_us - worked_us;
    prefill.item.cost_us = cost_us(&slot->view, &prefill);
    prefill.decodes_here = pool_find_decode(slot, request_id);
    slot->view.running_kv_tokens += pool_prefill_kv_tokens(slot, &prefill);
    slot->running[slot->view.n_running++] = prefill;
    sum_running(slot);
    return 0;
}

int pool_prefill_started(struct pool *pool, uint32_t id, uint64_t request_id,
                         int64_t now_us)
{
    return pool_begin_prefill(pool, id, request_id, now_us, 0, now_us);
}

/* Takes a prefill off an instance, waiting or running. */
static int take_prefill(struct pool *pool, struct pool_slot *slot,
                        uint64_t request_id, int64_t now_us,
                        struct pool_prefill *taken)
{
    struct pool_instance *view = &slot->view;
    size_t i = pool_index_of(slot->running, view->n_running, request_id);

    if (i != POOL_NOT_FOUND) {
        note_work(slot, now_us);
        pool->n_interrupted +=
            view->order->preempts && i > 0 && i + 1 == view->n_running;
        *taken = slot->running[i];
        view->running_kv_tokens -= pool_prefill_kv_tokens(slot, taken);
        memmove(slot->running + i, slot->running + i + 1,
                (view->n_running - i - 1) * sizeof(*slot->running));
        view->n_running--;
        sum_running(slot);
    } else {
        i = pool_index_of(slot->waiting, view->n_waiting, request_id);
        if (i == POOL_NOT_FOUND)
            return -ENOENT;
        *taken = take_waiting(slot, i);
    }
    view->prefill_tokens -= taken->uncached_tokens + taken->cached_tokens;
    CHECK(&pool->broken, view->prefill_tokens >= 0);
    CHECK(&pool->broken, view->running_kv_tokens >= 0);
    CHECK(&pool->broken, view->n_running > 0 || view->running_kv_tokens == 0);
    forget_keys(pool, view->slot, taken);
    pool_unbook(pool, taken, now_us);
    return 0;
}

void pool_apply_correction(struct pool_slot *slot)
{
    struct pool_instance *view = &slot->view;

    forget_pick(slot);
    for (size_t i = 0; i < view->n_waiting; i++) {
        struct pool_prefill *p = &slot->waiting[i];

        view->load.cost_us -= p->item.cost_us;
        p->item.cost_us = cost_us(view, p);
        slot->queue[i].cost_us = p->item.cost_us;
        view->load.cost_us += p->item.cost_us;
    }
    for (size_t i = 0; i < view->n_running; i++) {
        struct pool_prefill *p = &slot->running[i];

        p->item.cost_us = cost_us(view, p);
    }
    sum_running(slot);
}

/* Predicts a prefill by another cost model. */
static void predict_again(struct pool_prefill *p, const struct cost_model *from,
                          const struct cost_model *to)
{
    double times = (double)cost_model_prefill_us(to, p->uncached_tokens,
                                                 p->cached_tokens, NULL) /
                   (double)cost_model_prefill_us(from, p->uncached_tokens,
                                                 p->cached_tokens, NULL);
    double most_us = (double)COST_MODEL_MAX_US;

    p->predicted_us = (int64_t)fmin((double)p->predicted_us * times, most_us);
    p->shared_us = (int64_t)fmin((double)p->shared_us * times, most_us);
}

int pool_predict_again(struct pool *pool, uint32_t id,
                       const struct cost_model *from,
                       const struct cost_model *to)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    for (size_t i = 0; i < slot->view.n_waiting; i++)
        predict_again(&slot->waiting[i], from, to);
    for (size_t i = 0; i < slot->view.n_running; i++)
        predict_again(&slot->running[i], from, to);
    pool_apply_correction(slot);
    return 0;
}

/* Returns a prefill's own part of its time of service. */
static int64_t own_us(const struct pool *pool, const struct pool_instance *view,
                      const struct pool_prefill *done, int64_t observed_us)
{
    int64_t shared_us = view->prefilled_us - done->started_at_us;

    if (!pool->config.shared_steps || done->started_at_us < 0 ||
        shared_us <= 0 || observed_us < 0)
        return observed_us;
    return observed_us > shared_us ? observed_us - shared_us : 0;
}

int pool_prefill_done(struct pool *pool, uint32_t id, uint64_t request_id,
                      int64_t observed_us, int64_t now_us)
{
    struct pool_slot *slot = pool_slot_of(pool, id);
    struct pool_prefill done;
    int error;

    if (!slot)
        return -ESTALE;
    error = take_prefill(pool, slot, request_id, now_us, &done);
    if (error < 0)
        return error;
    if (!pool->config.uncorrected)
        correction_observe(&slot->view.correction, done.predicted_us,
                           own_us(pool, &slot->view, &done, observed_us));
    if (!pool->config.uncorrected && slot->view.order->preempts &&
        done.started_at_us >= 0)
        correction_observe(&slot->view.occupancy, done.item.cost_us,
                           done.worked_us);
    slot->view.prefilled_us = now_us;
    pool_apply_correction(slot);
    return 0;
}

int pool_step_done(struct pool *pool, uint32_t id, int64_t predicted_us,
                   int64_t observed_us)
{
    struct pool_slot *slot = pool_slot_of(pool, id);

    if (!slot)
        return -ESTALE;
    if (pool->config.uncorrected)
        return 0;
    correction_observe(&slot->view.correction, predicted_us, observed_us);
    pool_apply_correction(slot);
    return 0;
}

/* Takes a cancelled prefill's work out of the sums. */
static void forget_work(struct pool_slot *slot, const struct pool_prefill *gone)
{
    struct pool_instance *view = &slot->view;

    view->accepted = pool_work_less(view->accepted, gone->work);
    for (size_t i = 0; i < view->n_decodes; i++) {
        struct pool_decode *d = &slot->decodes[i];

        if (d->before_seq > gone->item.arrival_seq)
            d->before = pool_work_less(d->before, gone->work);
    }
}

int pool_prefill_cancel(struct pool *pool, uint32_t id, uint64_t request_id,
                        int64_t now_us)
{
    struct pool_slot *slot = pool_slot_of(pool, id);
    struct pool_prefill cancelled;
    int error;

    if (!slot)
        return -ESTALE;
    error = take_prefill(pool, slot, request_id, now_us, &cancelled);
    if (error == 0)
        forget_work(slot, &cancelled);
    return error;
}
