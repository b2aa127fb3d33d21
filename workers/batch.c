/* The step loop; batch.h says what it promises. */
#include "workers/batch.h"

#include <errno.h>
#include <stdlib.h>

#include "conductor/core/queue.h"

struct batch {
    struct batch_config config;
    const struct batch_ops *ops;
    void *arg;
    const struct queue_order *order;

    struct request_list waiting;
    struct request_list prefills;
    struct request_list ready;
    struct request_list decodes;
    struct batch_counts n;
    uint64_t next_seq;

    struct queue_item *items;        /* (max_queue) scratch of pick_next */
    struct request **items_of;       /* (max_queue) */
    struct engine_segment *segments; /* (max_segments) */
    struct request **segment_owners; /* (max_segments) */
    uint32_t n_segments;             /* of the step under way */
};

uint32_t batch_max_segments(const struct batch_config *config)
{
    return config->max_batch + config->max_prefills;
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
    b->order = queue_order_by_name(config->order);
    TAILQ_INIT(&b->waiting);
    TAILQ_INIT(&b->prefills);
    TAILQ_INIT(&b->ready);
    TAILQ_INIT(&b->decodes);
    b->items = calloc(config->max_queue, sizeof(*b->items));
    b->items_of = calloc(config->max_queue, sizeof(struct request *));
    b->segments = calloc(n_segments, sizeof(*b->segments));
    b->segment_owners = calloc(n_segments, sizeof(struct request *));
    if (!b->order || !b->items || !b->items_of || !b->segments ||
        !b->segment_owners) {
        batch_free(b);
        return NULL;
    }
    return b;
}

void batch_free(struct batch *b)
{
    if (!b)
        return;
    free(b->items);
    free(b->items_of);
    free(b->segments);
    free(b->segment_owners);
    free(b);
}

int batch_enqueue(struct batch *b, struct request *r)
{
    if (b->n.waiting >= b->config.max_queue)
        return -EBUSY;
    r->seq = b->next_seq++;
    TAILQ_INSERT_TAIL(&b->waiting, r, link);
    b->n.waiting++;
    return 0;
}

void batch_add_decode(struct batch *b, struct request *r)
{
    r->state = REQUEST_READY;
    TAILQ_INSERT_TAIL(&b->ready, r, link);
    b->n.ready++;
}

/* Takes `r` out of the list of its state. */
static void unlink_request(struct batch *b, struct request *r)
{
    switch (r->state) {
    case REQUEST_WAITING:
        TAILQ_REMOVE(&b->waiting, r, link);
        b->n.waiting--;
        break;
    case REQUEST_PREFILL:
        TAILQ_REMOVE(&b->prefills, r, link);
        b->n.prefills--;
        break;
    case REQUEST_READY:
        TAILQ_REMOVE(&b->ready, r, link);
        b->n.ready--;
        break;
    case REQUEST_DECODE:
        TAILQ_REMOVE(&b->decodes, r, link);
        b->n.decodes--;
        break;
    case REQUEST_PUSHING:
    case REQUEST_TICKET:
    case REQUEST_KV_WAIT:
    case REQUEST_RECEIVING:
    case REQUEST_ENDED:
        break; /* not ours */
    }
}

bool batch_remove(struct batch *b, struct request *r)
{
    if (r->dead)
        return false;
    unlink_request(b, r);
    r->dead = r->in_step;
    return !r->dead;
}

static void start_decode(struct batch *b, struct request *r)
{
    r->state = REQUEST_DECODE;
    TAILQ_INSERT_TAIL(&b->decodes, r, link);
    b->n.decodes++;
}

/* The waiting request to serve next, or NULL. */
static struct request *pick_next(struct batch *b, int64_t now_us)
{
    struct request *r;
    uint32_t n = 0;

    TAILQ_FOREACH(r, &b->waiting, link)
    {
        b->items[n] = (struct queue_item){
            .arrival_seq = r->seq,
            .ready_at_us = r->fetch.peer ? QUEUE_NOT_READY : 0,
            .cost_us = r->n_tokens,
            .has_cached_prefix = r->n_ids > 0,
        };
        b->items_of[n++] = r;
    }
    int i = n ? queue_pick(b->order, b->items, n, now_us) : -1;
    return i < 0 ? NULL : b->items_of[i];
}

/* Reuses what the store holds and allocates the rest. Blocks that were fetched
 * are pinned already and match again. False: no room for all of it. */
static bool take_blocks(struct batch *b, struct request *r)
{
    struct kv_store *store = b->config.store;
    uint32_t *ids = calloc(r->n_blocks, sizeof(*ids));

    if (!ids)
        return false;
    uint32_t n = kv_store_match(store, r->keys, r->tokens, r->n_reusable, ids);
    uint32_t rest = r->n_blocks - n;
    if (kv_store_alloc(store, rest, ids + n) < 0) {
        while (n > 0)
            kv_store_release(store, ids[--n]);
        free(ids);
        return false;
    }
    /* The pins from the fetch are double now. */
    request_release(r, store);
    for (uint32_t i = 0; i < r->n_blocks; i++)
        request_append(r, store, ids[i]);
    free(ids);
    r->n_chained = n;
    r->tip = n > 0 ? r->ids[n - 1] : KV_BLOCK_NONE;
    r->chain_closed = false;
    r->cached_tokens = n * b->config.layout->block_tokens;
    r->position = r->cached_tokens;
    if (r->fetch.n_stored > n)
        r->fetch.n_stored = n;
    return true;
}

/* Pins of fetched blocks could make waiting requests wait for each other. If
 * nothing is under way that will give blocks back, those behind `r` lose
 * their pins: what they fetched may be evicted, and is then computed. */
static bool relieve(struct batch *b, const struct request *r)
{
    struct request *other;
    bool any = false;

    TAILQ_FOREACH(other, &b->waiting, link)
    {
        if (other == r || other->fetch.peer || other->n_ids == 0)
            continue;
        request_release(other, b->config.store);
        any = true;
    }
    return any;
}

static bool start_next(struct batch *b, int64_t now_us)
{
    struct request *r = pick_next(b, now_us);

    if (!r || b->n.prefills >= b->config.max_prefills)
        return false;
    if (!take_blocks(b, r)) {
        if (b->n.prefills + b->n.decodes + b->n.ready > 0)
            return false;
        if (!relieve(b, r) || !take_blocks(b, r))
            return false;
    }
    unlink_request(b, r);
    r->state = REQUEST_PREFILL;
    r->started_us = now_us;
    TAILQ_INSERT_TAIL(&b->prefills, r, link);
    b->n.prefills++;
    b->ops->started(b->arg, r);
    return true;
}

static void add_segment(struct batch *b, struct request *r,
                        const struct engine_segment *s)
{
    r->in_step = true;
    r->step_tokens = s->n_tokens;
    r->step_segment = b->n_segments;
    b->segments[b->n_segments] = *s;
    b->segment_owners[b->n_segments] = r;
    b->n_segments++;
}

static uint32_t add_decodes(struct batch *b, uint32_t budget)
{
    struct request *r;
    uint32_t used = 0;

    while ((r = TAILQ_FIRST(&b->ready)) && b->n.decodes < b->config.max_batch) {
        unlink_request(b, r);
        start_decode(b, r);
    }
    TAILQ_FOREACH(r, &b->decodes, link)
    {
        if (used == budget || used == b->config.max_batch)
            break;
        add_segment(b, r,
                    &(struct engine_segment){.request_id = r->id,
                                             .tokens = &r->last_token,
                                             .n_tokens = 1,
                                             .position = r->position,
                                             .decode = true,
                                             .want_token = true,
                                             .blocks = r->data});
        used++;
    }
    return used;
}

static uint32_t add_chunk(struct batch *b, struct request *r, uint32_t budget)
{
    uint32_t left = r->n_tokens - r->position;
    uint32_t n = left < budget ? left : budget;

    add_segment(b, r,
                &(struct engine_segment){.request_id = r->id,
                                         .tokens = r->tokens + r->position,
                                         .n_tokens = n,
                                         .position = r->position,
                                         .cached_tokens = r->cached_tokens,
                                         .want_token = n == left,
                                         .blocks = r->data});
    return n;
}

uint32_t batch_form(struct batch *b, int64_t now_us,
                    struct engine_segment **segments)
{
    uint32_t budget = b->config.step_tokens;
    struct request *r;

    b->n_segments = 0;
    budget -= add_decodes(b, budget);
    TAILQ_FOREACH(r, &b->prefills, link)
    {
        if (budget > 0)
            budget -= add_chunk(b, r, budget);
    }
    while (budget > 0 && start_next(b, now_us))
        budget -= add_chunk(b, TAILQ_LAST(&b->prefills, request_list), budget);
    *segments = b->segments;
    return b->n_segments;
}

static void end_prefill(struct batch *b, struct request *r)
{
    r->n_output = 1;
    unlink_request(b, r);
    if (r->decodes_here && r->max_tokens > 1)
        batch_add_decode(b, r);
    else
        r->state = REQUEST_PUSHING;
    b->ops->prefilled(b->arg, r);
}

static void advance_prefill(struct batch *b, struct request *r,
                            const struct engine_segment *s)
{
    uint32_t block_tokens = b->config.layout->block_tokens;

    r->position += s->n_tokens;
    while (r->n_chained < r->n_full &&
           (uint64_t)(r->n_chained + 1) * block_tokens <= r->position &&
           request_commit(r, b->config.store, block_tokens))
        ;
    if (!s->want_token)
        return;
    r->last_token = s->token_out;
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
    unlink_request(b, r);
    r->state = REQUEST_ENDED;
    b->ops->finished(b->arg, r);
}

void batch_complete(struct batch *b, int rc)
{
    for (uint32_t i = 0; i < b->n_segments; i++) {
        struct request *r = b->segment_owners[i];
        /* Those further down stay in_step, so that a callback which removes
         * one of them does not free it under our feet. */
        r->in_step = false;
        if (r->dead) {
            b->ops->removed(b->arg, r);
        } else if (rc < 0) {
            unlink_request(b, r);
            r->state = REQUEST_ENDED;
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
        r->in_step = false;
        if (r->dead)
            b->ops->removed(b->arg, r);
    }
    b->n_segments = 0;
}

const struct request *batch_segment_owner(const struct batch *b, uint32_t i)
{
    const struct request *r = b->segment_owners[i];

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
