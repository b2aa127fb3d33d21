/* The step loop: chooses the tokens that the engine computes next. It has no
 * I/O, threads or clocks: it forms a step as an array of engine segments, the
 * caller runs the step, and batch_complete() takes in the outcome.
 *
 * A step has a budget of tokens. All decodes come first, one token each, then
 * chunks of the prefills that are under way, then prefills from the queue, in
 * the order of conductor/core/step/queue.h. Prefills whose cached prefix is
 * still being loaded get the rest, under orders that put them last: their load
 * goes on without the engine (Cake's adaptive order).
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
    uint32_t step_tokens;                  /* tokens in one step, at most */
    uint32_t max_batch;                    /* decodes in one step, at most */
    uint32_t max_prefills;                 /* most prefills under way, not
                                              counting those that are loading */
    uint32_t max_queue;                    /* waiting prefills, at most */
};

/* Called from batch_form() and batch_complete(). started, chunk, stalled and
 * token must not remove any request. */
struct batch_ops {
    /* Called when the prefill left the queue; its blocks are allocated. */
    void (*started)(void *arg, struct request *r);
    /* Returns how many tokens of `r`, which is loading, to compute in the step
     * being formed: at most `most`; 0 = `r` waits for its load. */
    uint32_t (*chunk)(void *arg, struct request *r, uint32_t most);
    /* Called when the step computed nothing: it waited at r's gate for layers
     * that did not come in time. */
    void (*stalled)(void *arg, struct request *r);
    /* The first token was computed (r->last_token). The request goes on as a
     * decode if decodes_here and max_tokens > 1; else the callee owns it. */
    void (*prefilled)(void *arg, struct request *r);
    /* Called when a decode has one more token: r->last_token. */
    void (*token)(void *arg, struct request *r);
    /* Called when the last token was computed; the callee owns the request. */
    void (*finished)(void *arg, struct request *r);
    /* Called when the engine failed on the step; the callee owns it. */
    void (*failed)(void *arg, struct request *r, const char *why);
    /* Called when a request removed during the step can be freed; the callee
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

/* Makes a step loop, with the order QUEUE_ORDER_DEFAULT. `config` is copied,
 * `ops` and `arg` are borrowed. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct batch *batch_new(const struct batch_config *config,
                                      const struct batch_ops *ops, void *arg);

/* Serves the queue in the order called `name` from now on. Returns 0, or
 * -EINVAL: no such order. */
[[nodiscard]] int batch_set_order(struct batch *b, const char *name);

/* Frees it. Its requests must be gone. NULL is a no-op. */
void batch_free(struct batch *b);

/* Queues the prefill `r` (REQUEST_WAITING), borrowed until batch_remove() or a
 * callback that makes the callee own it. The blocks that it would reuse become
 * the most recently used. Returns 0, or -EBUSY: the queue is full. */
[[nodiscard]] int batch_enqueue(struct batch *b, struct request *r);

/* Adds a decode whose KV has arrived (REQUEST_RECEIVING); borrowed as in
 * batch_enqueue(). The blocks of the store bound their number. */
void batch_add_decode(struct batch *b, struct request *r);

/* Gives the waiting prefill `r` its blocks now, so that they can be loaded
 * before its turn. Returns 0, or -ENOSPC: older waiting prefills without blocks
 * need the room. O(waiting + blocks). */
[[nodiscard]] int batch_take_ahead(struct batch *b, struct request *r);

/* Removes `r` from all lists. Returns true if the caller may free it now, or
 * false if the step under way uses it: `removed` is called when it ends. */
bool batch_remove(struct batch *b, struct request *r);

/* Forms the next step at now_us. No step may be under way. Returns the number
 * of segments in *segments (borrowed until batch_complete()); 0 = nothing to
 * do. */
uint32_t batch_form(struct batch *b, int64_t now_us,
                    struct engine_segment **segments);

/* Returns when (us) to call batch_form() again if nothing happens, after it
 * returned 0: the queue's order may wait for a prefill that is late. INT64_MAX
 * = never. O(waiting). */
int64_t batch_look_us(struct batch *b, int64_t now_us);

/* Takes in the outcome of the step. `rc` is what engine_step() returned. */
void batch_complete(struct batch *b, int rc);

/* Notes that the KV of the first `position` tokens of `r`, which a group
 * prefills, is complete. */
void batch_group_progress(struct batch *b, struct request *r,
                          uint32_t position);

/* Notes that the KV of the whole prompt of `r`, which a group prefills, and its
 * first token are complete. Calls `prefilled`. */
void batch_group_prefilled(struct batch *b, struct request *r,
                           uint32_t first_token);

/* Gives up the step under way; don't call batch_complete(). Calls `removed` for
 * requests that were removed meanwhile; the others stay in their lists. */
void batch_abandon(struct batch *b);

/* Returns the request of segment `i` of the step under way, borrowed, or NULL:
 * it was removed meanwhile. */
struct request *batch_segment_owner(const struct batch *b, uint32_t i);

/* Returns true while a step is under way. */
bool batch_in_step(const struct batch *b);

/* Writes the number of requests in each list to *counts. */
void batch_counts(const struct batch *b, struct batch_counts *counts);

/* Returns the most segments that batch_form() can return. */
uint32_t batch_max_segments(const struct batch_config *config);

#endif
