/* The step loop: forms a step, and takes in its outcome. */
#include "workers/step/batch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "workers/step/internal.h"

/* Most loading prefills in a step, beside max_prefills other ones. */
#define LOADING_SEGMENTS 8u

uint32_t batch_max_segments(const struct batch_config *config)
{
    return config->max_batch + config->max_prefills + LOADING_SEGMENTS;
}

struct batch *batch_new(const struct batch_config *config,
                        const struct batch_ops *ops, void *arg)
{
    uint32_t n_segments = batch_max_segments(config);
    struct batch *b = calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->config = *config;
    b->ops = ops;
    b->arg = arg;
    b->max_segments = n_segments;
    b->order = queue_order_by_name(QUEUE_ORDER_DEFAULT);
    TAILQ_INIT(&b->waiting);
    TAILQ_INIT(&b->prefills);
    TAILQ_INIT(&b->ready);
    TAILQ_INIT(&b->decodes);
    b->items_of = calloc(config->max_queue, sizeof(struct request *));
    b->segments = calloc(n_segments, sizeof(*b->segments));
    b->segment_owners = calloc(n_segments, sizeof(struct request *));
    if (array_reserve(b->items, b->items_capacity, config->max_queue) < 0 ||
        !b->items_of || !b->segments || !b->segment_owners) {
        batch_free(b);
        return NULL;
    }
    return b;
}

int batch_set_order(struct batch *b, const char *name)
{
    const struct queue_order *order = queue_order_by_name(name);

    if (!order)
        return -EINVAL;
    b->order = order;
    return 0;
}

void batch_free(struct batch *b)
{
    if (!b)
        return;
    free(b->items);
    free(b->items_of);
    free(b->active);
    free(b->active_of);
    free(b->segments);
    free(b->segment_owners);
    free(b);
}

int batch_enqueue(struct batch *b, struct request *r)
{
    struct request_turn *t = &r->turn;

    if (b->n.waiting >= b->config.max_queue)
        return -EBUSY;
    if (!t->has_slo)
        t->deadline_us =
            t->arrival_us + queue_implied_us(batch_item(r).cost_us,
                                             batch_left_us(b, t->arrival_us));
    r->turn.seq = b->next_seq++;
    r->turn.looks = true;
    TAILQ_INSERT_TAIL(&b->waiting, r, link);
    b->n.waiting++;
    request_touch(r, b->config.store);
    return 0;
}

void batch_add_decode(struct batch *b, struct request *r)
{
    request_set_state(r, REQUEST_READY);
    TAILQ_INSERT_TAIL(&b->ready, r, link);
    b->n.ready++;
}

bool batch_remove(struct batch *b, struct request *r)
{
    if (r->dead)
        return false;
    batch_unlink(b, r);
    r->dead = r->step.under_way;
    return !r->dead;
}

static void start_decode(struct batch *b, struct request *r)
{
    request_set_state(r, REQUEST_DECODE);
    TAILQ_INSERT_TAIL(&b->decodes, r, link);
    b->n.decodes++;
}

static void add_segment(struct batch *b, struct request *r,
                        const struct engine_segment *s)
{
    r->step.under_way = true;
    r->step.n_tokens = s->n_tokens;
    r->step.segment = b->n_segments;
    b->segments[b->n_segments] = *s;
    b->segment_owners[b->n_segments] = r;
    b->n_segments++;
}

/* Makes ready requests decodes, up to max_batch. Returns the number of
 * decodes. */
static uint32_t join_decodes(struct batch *b)
{
    struct request *r;

    while ((r = TAILQ_FIRST(&b->ready)) && b->n.decodes < b->config.max_batch) {
        batch_unlink(b, r);
        start_decode(b, r);
    }
    return b->n.decodes;
}

static void add_decodes(struct batch *b, uint32_t n)
{
    struct request *r;

    TAILQ_FOREACH(r, &b->decodes, link)
    {
        if (b->n_segments == n)
            break;
        add_segment(b, r,
                    &(struct engine_segment){.request_id = r->id,
                                             .tokens = &r->last_token,
                                             .n_tokens = 1,
                                             .position = r->position,
                                             .decode = true,
                                             .want_token = true,
                                             .blocks = r->blocks.data});
    }
}

/* Adds a chunk of `r` of at most `budget` tokens. Returns its tokens. */
static uint32_t add_chunk(struct batch *b, struct request *r, uint32_t budget)
{
    uint32_t bt = b->config.layout->block_tokens;

    if (r->group)
        return 0;
    if (!r->step.gated)
        request_advance(r, b->config.store, bt);
    uint32_t from = r->step.gated ? r->step.gate_token : r->position;
    uint32_t room =
        r->step.gated ? r->prompt.n_tokens - from : request_room(r, bt);
    uint32_t n = room < budget ? room : budget;
    if (batch_is_loading(r))
        n = b->ops->chunk(b->arg, r, n);
    if (n == 0)
        return 0;
    add_segment(b, r,
                &(struct engine_segment){
                    .request_id = r->id,
                    .tokens = r->prompt.tokens + from,
                    .n_tokens = n,
                    .position = from,
                    .cached_tokens = r->step.gated ? from : r->cached_tokens,
                    .want_token = n == r->prompt.n_tokens - from,
                    .blocks = r->blocks.data});
    r->step.n_tokens = from - r->position + n;
    return n;
}

/* Adds a chunk of the i-th active prefill to the step. */
static void take_turn(struct batch *b, struct step *step, uint32_t i,
                      int64_t now_us)
{
    struct request *r = b->active_of[i];
    uint32_t n = add_chunk(b, r, step->budget);

    step_take(step, n,
              step_part_us(batch_active(r, now_us).item.cost_us, n,
                           (int64_t)r->prompt.n_tokens - r->cached_tokens));
    b->active[i] = batch_active(r, now_us); /* its load may be over */
    b->active[i].in_step = true;
}

static void start(struct batch *b, struct request *r, int64_t now_us)
{
    if (!r->step.gated)
        request_adopt(r, b->config.store, b->config.layout->block_tokens);
    batch_unlink(b, r);
    request_set_state(r, REQUEST_PREFILL);
    r->turn.started_us = now_us;
    TAILQ_INSERT_TAIL(&b->prefills, r, link);
    b->n.prefills++;
    b->active_of[b->n_active++] = r;
    b->ops->started(b->arg, r);
}

/* Adds chunks of prefills, in the order of core/step. If a waiting prefill
 * cannot get its blocks, prefills that have blocks pass it. */
static void add_chunks(struct batch *b, struct step *step, int64_t now_us)
{
    bool only_taken = false;
    uint32_t n_items = batch_list_waiting(b, only_taken);

    batch_list_active(b, now_us);
    for (;;) {
        struct step_choice next =
            step_next(step, b->active, b->n_active, b->items, n_items, now_us);

        if (next.kind == STEP_FORMED)
            break;
        if (next.kind == STEP_CONTINUE) {
            take_turn(b, step, next.index, now_us);
            continue;
        }
        struct request *r = b->items_of[next.index];
        only_taken = !batch_take_blocks(b, r);
        if (!only_taken) {
            start(b, r, now_us);
            take_turn(b, step, b->n_active - 1, now_us);
        }
        n_items = batch_list_waiting(b, only_taken);
    }
    if (step_has_room(step) && step_may_start(step, b->active, b->n_active))
        batch_note_turns(b, now_us);
}

uint32_t batch_form(struct batch *b, int64_t now_us,
                    struct engine_segment **segments)
{
    struct step step;

    b->n_segments = 0;
    if (b->order->preempts)
        batch_note_stood(b, now_us);
    add_decodes(b, step_begin(&step,
                              &(struct step_config){
                                  .order = b->order,
                                  .tokens = b->config.step_tokens,
                                  .max_prefills = b->config.max_prefills,
                                  .max_segments = b->max_segments,
                                  .patience_us = QUEUE_PATIENCE_US,
                              },
                              join_decodes(b)));
    if (step_has_room(&step) && batch_reserve(b) == 0)
        add_chunks(b, &step, now_us);
    if (b->order->preempts && b->n_segments > 0)
        batch_note_standing(b, now_us);
    *segments = b->segments;
    return b->n_segments;
}

int64_t batch_look_us(struct batch *b, int64_t now_us)
{
    return queue_look_us(b->order, b->items, batch_list_waiting(b, false),
                         now_us);
}

static void end_prefill(struct batch *b, struct request *r)
{
    r->n_output = 1;
    batch_unlink(b, r);
    if (r->decodes_here && r->max_tokens > 1)
        batch_add_decode(b, r);
    else
        request_set_state(r, REQUEST_PUSHING);
    b->ops->prefilled(b->arg, r);
}

static void advance_prefill(struct batch *b, struct request *r,
                            const struct engine_segment *s)
{
    uint32_t block_tokens = b->config.layout->block_tokens;

    /* After a gated step the position also passes the blocks that came. */
    request_advance(r, b->config.store, block_tokens);
    r->position = s->position + s->n_tokens;
    r->step.gated = false;
    r->turn.computed += s->n_tokens;
    request_advance(r, b->config.store, block_tokens);
    if (!s->want_token)
        return;
    r->last_token = s->token_out;
    end_prefill(b, r);
}

void batch_group_progress(struct batch *b, struct request *r, uint32_t position)
{
    r->position = position;
    request_advance(r, b->config.store, b->config.layout->block_tokens);
}

void batch_group_prefilled(struct batch *b, struct request *r,
                           uint32_t first_token)
{
    r->last_token = first_token;
    end_prefill(b, r);
}

static void advance_decode(struct batch *b, struct request *r,
                           const struct engine_segment *s)
{
    r->position++;
    r->last_token = s->token_out;
    r->n_output++;
    b->ops->token(b->arg, r);
    if (r->n_output < r->max_tokens)
        return;
    batch_unlink(b, r);
    request_set_state(r, REQUEST_ENDED);
    b->ops->finished(b->arg, r);
}

/* Calls `stalled` if `r` waited at a gate in the failed step. Returns whether
 * it did: the step then counts as not run for all its requests. */
static bool take_stall(struct batch *b, struct request *r)
{
    if (r->dead || !r->step.gated)
        return r->step.gated;
    r->step.gated = false;
    b->ops->stalled(b->arg, r);
    return true;
}

void batch_complete(struct batch *b, int rc)
{
    bool stall = false;

    for (uint32_t i = 0; rc == -EIO && i < b->n_segments; i++)
        stall |= take_stall(b, b->segment_owners[i]);
    for (uint32_t i = 0; i < b->n_segments; i++) {
        struct request *r = b->segment_owners[i];

        /* Later requests stay under_way: if a callback removes one, it is not
         * freed before this loop comes to it. */
        r->step.under_way = false;
        if (r->dead) {
            b->ops->removed(b->arg, r);
        } else if (rc < 0 && stall) {
            continue;
        } else if (rc < 0) {
            batch_unlink(b, r);
            request_set_state(r, REQUEST_ENDED);
            b->ops->failed(b->arg, r, "the engine failed on a step");
        } else if (r->state == REQUEST_PREFILL) {
            advance_prefill(b, r, &b->segments[i]);
        } else {
            advance_decode(b, r, &b->segments[i]);
        }
    }
    b->n_segments = 0;
}

void batch_abandon(struct batch *b)
{
    for (uint32_t i = 0; i < b->n_segments; i++) {
        struct request *r = b->segment_owners[i];

        r->step.under_way = false;
        if (r->dead)
            b->ops->removed(b->arg, r);
    }
    b->n_segments = 0;
}

struct request *batch_segment_owner(const struct batch *b, uint32_t i)
{
    struct request *r = b->segment_owners[i];

    return r->dead ? NULL : r;
}

bool batch_in_step(const struct batch *b)
{
    return b->n_segments > 0;
}

void batch_counts(const struct batch *b, struct batch_counts *counts)
{
    *counts = b->n;
}
