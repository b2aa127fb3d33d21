/* The compute thread: runs one engine step at a time and tells the event loop
 * when it ended and how far it is. Nothing else happens on that thread.
 *
 * The handing over is one mutex-protected mailbox with room for one step and
 * one eventfd back.
 */
#ifndef WORKERS_STEP_THREAD_H
#define WORKERS_STEP_THREAD_H

#include "workers/engine/engine.h"
#include "workers/step/layer_gate.h"
#include "workers/store/kv_store.h"

struct event_base;
struct batch_thread;

struct batch_thread_ops {
    /* The step ended: rc of engine_step and how long it took. The thread is
     * idle again and may be given the next step. */
    void (*done)(void *arg, int rc, int64_t step_us);
    /* One or more layers of the step under way are written. */
    void (*progress)(void *arg);
};

/* Start the thread. Borrows `base`, `engine`, `ops` and `arg` until
 * batch_thread_free; the callbacks run on the thread of `base`, before other
 * events that are due. max_segments: most segments of one step. Returns it
 * owned, or NULL. */
[[nodiscard]] struct batch_thread *
batch_thread_new(struct event_base *base, struct engine *engine,
                 uint32_t max_segments, const struct batch_thread_ops *ops,
                 void *arg);

/* Abandon the step under way at its next layer, join the thread, free. NULL is
 * a no-op. No callback comes any more. */
void batch_thread_free(struct batch_thread *t);

/* Where segments[segment] of the next step waits for layers in front of it;
 * NULL (what it is after every step): it does not. Borrowed until `done`. */
void batch_thread_gate(struct batch_thread *t, uint32_t segment,
                       struct layer_gate *gate);

/* Run a step of segments[n], borrowed until `done`. The thread must be idle.
 * watch: report progress of layers. */
void batch_thread_submit(struct batch_thread *t,
                         struct engine_segment *segments, uint32_t n,
                         bool watch);

/* As batch_thread_submit(), of one segment in some layers
 * (engine_step_stage()). `stage` is borrowed until `done`. */
void batch_thread_submit_stage(struct batch_thread *t,
                               struct engine_segment *segment,
                               const struct engine_stage *stage);

/* True from batch_thread_submit until `done` is called. */
bool batch_thread_busy(const struct batch_thread *t);

/* Layers of segments[segment] of the step under way whose KV is written. What
 * it counts may be read. */
uint32_t batch_thread_layers_done(const struct batch_thread *t,
                                  uint32_t segment);

/* For a store: memory of `engine` (borrowed), which forgets its copies of
 * blocks that are taken. */
struct kv_store_memory batch_thread_memory(struct engine *engine);

#endif
