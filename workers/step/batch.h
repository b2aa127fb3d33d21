/* The step loop: which tokens the engine computes next. It has no I/O, threads
 * or clocks: it forms a step as an array of engine segments, the caller runs
 * it, and batch_complete takes in the outcome.
 *
 * A step has a budget of tokens. All decodes come first, one token each, then
 * chunks of the prefills that are under way, then prefills from the queue, in
 * the order that conductor/core/step/queue.h says; and last, with what is left,
 * prefills whose cached prefix is still being loaded, because that comes
 * without the engine (Cake's adaptive order).
 *
 *      queue --(room for its blocks)--> prefills --+--> done, or PUSHING
 *                                                  +--> decodes (role both)
 *      ready (KV received) --(max_batch)----------> decodes
 *
 * Invariants: at most one step is under way; a request is in exactly one of
 * the lists of its state; a request in a step is freed only after the step.
 */
#ifndef WORKERS_STEP_BATCH_H
#define WORKERS_STEP_BATCH_H

#include "workers/engine/engine.h"
#include "workers/service/request.h"

struct batch_config {
    struct kv_store *store;                /* borrowed */
    const struct engine_kv_layout *layout; /* borrowed */
    uint32_t step_tokens;                  /* budget of one step */
    uint32_t max_batch;                    /* decodes in one step */
    uint32_t max_prefills;                 /* under way at once, apart from
                                              those that are loading */
    uint32_t max_queue;                    /* waiting prefills */
};

/* What happened to a request; called from batch_form and batch_complete.
 * Those in front of `prefilled`, and `token`, must not remove any request. */
struct batch_ops {
    /* The prefill was taken from the queue; its blocks are allocated. */
    void (*started)(void *arg, struct request *r);
    /* How many of the next `most` tokens of `r`, which is loading, to compute
     * in the step that is formed; 0: it waits for its load. */
    uint32_t (*chunk)(void *arg, struct request *r, uint32_t most);
    /* The layers that the step waited for at r's gate did not come in time:
     * nothing was computed. */
    void (*stalled)(void *arg, struct request *r);
    /* The first token is there (r->last_token). The request then goes on as a
     * decode if decodes_here and max_tokens > 1; else the callee owns it. */
    void (*prefilled)(void *arg, struct request *r);
    /* A decode has one more token: r->last_token is number r->n_output - 1. */
    void (*token)(void *arg, struct request *r);
    /* All tokens are there; the callee owns the request. */
    void (*finished)(void *arg, struct request *r);
    /* The engine failed on the step; the callee owns the request. */
    void (*failed)(void *arg, struct request *r, const char *why);
    /* A request that was removed during the step can be freed; the callee
     * owns it. */
    void (*removed)(void *arg, struct request *r);
};

struct batch;

struct batch_counts {
    uint32_t waiting;
    uint32_t prefills;
    uint32_t ready; /* decodes that wait for a place */
    uint32_t decodes;
};

/* Make a step loop, with the order QUEUE_ORDER_DEFAULT. `config` is copied,
 * `ops` and `arg` are borrowed. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct batch *batch_new(const struct batch_config *config,
                                      const struct batch_ops *ops, void *arg);

/* Serve the queue in the order of that name from now on. 0, or -EINVAL: there
 * is none of that name. */
[[nodiscard]] int batch_set_order(struct batch *b, const char *name);

/* Free it. Its requests must be gone. NULL is a no-op. */
void batch_free(struct batch *b);

/* Queue the prefill `r` (REQUEST_WAITING), which the batch borrows until a
 * callback says otherwise; the blocks that it would reuse now become the most
 * recently used. 0, or -EBUSY: the queue is full. */
[[nodiscard]] int batch_enqueue(struct batch *b, struct request *r);

/* Take a request whose KV has arrived (REQUEST_RECEIVING); borrowed as above.
 * The number of such requests is bounded by the blocks of the store. */
void batch_add_decode(struct batch *b, struct request *r);

/* Give the waiting prefill `r` its blocks now, so that they can be loaded
 * before its turn. 0; or -ENOSPC: that would take room from older ones that
 * wait without blocks. O(waiting + blocks). */
[[nodiscard]] int batch_take_ahead(struct batch *b, struct request *r);

/* Forget `r` wherever it is. Returns true if the caller may free it now, or
 * false if the step under way still uses it: `removed` comes then. */
bool batch_remove(struct batch *b, struct request *r);

/* Form the next step at now_us. None may be under way. Returns the number of
 * segments in *segments (borrowed until batch_complete), 0: nothing to do. */
uint32_t batch_form(struct batch *b, int64_t now_us,
                    struct engine_segment **segments);

/* When to form a step again although nothing happens, after batch_form() made
 * none: the queue's order waits for a prefill that may be late. INT64_MAX:
 * never. O(waiting). */
int64_t batch_look_us(struct batch *b, int64_t now_us);

/* Take in the outcome of the step: `rc` is what engine_step returned. */
void batch_complete(struct batch *b, int rc);

/* The KV of the first `position` tokens of `r`, which a group prefills, is
 * whole.
 */
void batch_group_progress(struct batch *b, struct request *r,
                          uint32_t position);

/* All of it is, and the first token of the answer is there: as after its last
 * step. */
void batch_group_prefilled(struct batch *b, struct request *r,
                           uint32_t first_token);

/* Give up the step under way, which will not be completed: requests that were
 * removed meanwhile are freed through `removed`, the others stay. */
void batch_abandon(struct batch *b);

/* The request that segment `i` of the step under way belongs to; NULL if it was
 * removed meanwhile. Borrowed. */
struct request *batch_segment_owner(const struct batch *b, uint32_t i);

/* True while a step is under way. */
bool batch_in_step(const struct batch *b);

/* The number of requests in each list. */
void batch_counts(const struct batch *b, struct batch_counts *counts);

/* Segments that batch_form can return at most. */
uint32_t batch_max_segments(const struct batch_config *config);

#endif
