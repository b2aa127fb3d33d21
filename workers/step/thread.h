/* The compute thread: runs one engine step at a time and nothing else, and
 * reports its progress and its end to the event loop.
 *
 * A mailbox for one step, guarded by a mutex, leads to the thread, and an
 * eventfd leads back. In virtual time there is no thread: the layers of a step
 * of an engine that simulates are calls of the loop, each after its share of
 * the step's time.
 */
#ifndef WORKERS_STEP_THREAD_H
#define WORKERS_STEP_THREAD_H

#include "workers/engine/engine.h"
#include "workers/step/layer_gate.h"
#include "workers/store/kv_store.h"

struct batch_thread;
struct loop;

struct batch_thread_ops {
    /* Called when the step ended: rc of engine_step(), and the step's time. The
     * thread is idle and may get the next step. */
    void (*done)(void *arg, int rc, int64_t step_us);
    /* Called when one or more layers of the step under way are written. */
    void (*progress)(void *arg);
};

/* Starts the thread. Borrows `loop`, `engine`, `ops` and `arg` until
 * batch_thread_free; the callbacks run on the thread of `loop`, before other
 * events that are due. max_segments: most segments of one step. Returns it
 * owned, or NULL: out of memory, or a loop in virtual time has an engine that
 * does not simulate. */
[[nodiscard]] struct batch_thread *
batch_thread_new(struct loop *loop, struct engine *engine,
                 uint32_t max_segments, const struct batch_thread_ops *ops,
                 void *arg);

/* Aborts the step under way at its next layer, joins the thread and frees it.
 * Calls no callback. NULL is a no-op. */
void batch_thread_free(struct batch_thread *t);

/* Lets segments[segment] of the next step wait at `gate`, borrowed until
 * `done`, for layers of earlier tokens. NULL = no wait, as after each step. */
void batch_thread_gate(struct batch_thread *t, uint32_t segment,
                       struct layer_gate *gate);

/* Runs a step of segments[n], borrowed until `done`. The thread must be idle.
 * `progress` is called only if `watch`. */
void batch_thread_submit(struct batch_thread *t,
                         struct engine_segment *segments, uint32_t n,
                         bool watch);

/* Runs one segment in the layers of `stage`, with engine_step_stage(); else as
 * batch_thread_submit(). Both are borrowed until `done`. */
void batch_thread_submit_stage(struct batch_thread *t,
                               struct engine_segment *segment,
                               const struct engine_stage *stage);

/* Returns true from batch_thread_submit() until `done` is called. */
bool batch_thread_busy(const struct batch_thread *t);

/* Returns how many layers of segments[segment] of the step under way have their
 * KV written; these may be read. */
uint32_t batch_thread_layers_done(const struct batch_thread *t,
                                  uint32_t segment);

/* Returns the memory of `engine` (borrowed) for a store. When a block is
 * allocated, the engine forgets its copy of the old contents. */
struct kv_store_memory batch_thread_memory(struct engine *engine);

#endif
