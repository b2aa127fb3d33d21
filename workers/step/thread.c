/* The compute thread and its mailbox. */
#include "workers/step/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop/loop.h"

/* How long a step waits for layers, in all its segments together. A source a
 * little late with every layer costs the engine as much as one that stopped. */
#define PATIENCE_US 250000

struct batch_thread {
    struct engine *engine;
    const struct batch_thread_ops *ops;
    void *arg;
    struct loop_bell wakeup;
    pthread_t thread;
    bool started;
    bool busy; /* used by the loop's thread only */

    pthread_mutex_t lock; /* guards from here ... */
    pthread_cond_t posted;
    struct engine_segment *segments;
    uint32_t n;                       /* 0 = no step is posted */
    const struct engine_stage *stage; /* NULL = all layers */
    bool stop;
    bool ended;
    int rc;
    int64_t step_us; /* ... to here */

    int64_t patience_us; /* patience left in this step; compute thread only */
    atomic_bool abort;
    bool watch; /* written before a step is posted, read while it runs */
    atomic_uint *layers_done;  /* (max_segments) */
    struct layer_gate **gates; /* (max_segments); written like `watch` */
    uint32_t max_segments;
};

static void on_layer(void *arg, size_t segment, uint32_t layer)
{
    struct batch_thread *t = arg;

    atomic_store_explicit(&t->layers_done[segment], layer + 1,
                          memory_order_release);
    if (t->watch)
        loop_ring(&t->wakeup);
}

static int on_wait(void *arg, size_t segment, uint32_t layer)
{
    struct batch_thread *t = arg;
    struct layer_gate *gate = t->gates[segment];

    if (!gate || layer_gate_layers(gate) > layer)
        return 0;
    int64_t begin_us = clock_now_us();
    int rc = layer_gate_wait(gate, layer, t->patience_us, &t->abort);
    t->patience_us -= clock_now_us() - begin_us;
    return rc;
}

static const struct engine_step_ops step_ops = {on_wait, on_layer};

static int run_step(struct batch_thread *t, struct engine_segment *segments,
                    uint32_t n, const struct engine_stage *stage)
{
    return stage ? engine_step_stage(t->engine, segments, stage, &step_ops, t,
                                     &t->abort)
                 : engine_step(t->engine, segments, n, &step_ops, t, &t->abort);
}

static void *thread_main(void *arg)
{
    struct batch_thread *t = arg;

    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->n == 0 && !t->stop)
            pthread_cond_wait(&t->posted, &t->lock);
        if (t->stop)
            break;
        struct engine_segment *segments = t->segments;
        uint32_t n = t->n;
        const struct engine_stage *stage = t->stage;
        pthread_mutex_unlock(&t->lock);

        t->patience_us = PATIENCE_US;
        int64_t begin_us = clock_now_us();
        int rc = run_step(t, segments, n, stage);
        int64_t step_us = clock_now_us() - begin_us;

        pthread_mutex_lock(&t->lock);
        t->n = 0;
        t->rc = rc;
        t->step_us = step_us;
        t->ended = true;
        loop_ring(&t->wakeup);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void on_wakeup(void *arg)
{
    struct batch_thread *t = arg;

    pthread_mutex_lock(&t->lock);
    bool ended = t->ended;
    int rc = t->rc;
    int64_t step_us = t->step_us;
    t->ended = false;
    pthread_mutex_unlock(&t->lock);
    if (ended) {
        t->busy = false;
        memset(t->gates, 0, t->max_segments * sizeof(struct layer_gate *));
        t->ops->done(t->arg, rc, step_us);
    } else if (t->busy) {
        t->ops->progress(t->arg);
    }
}

struct batch_thread *batch_thread_new(struct loop *loop, struct engine *engine,
                                      uint32_t max_segments,
                                      const struct batch_thread_ops *ops,
                                      void *arg)
{
    struct batch_thread *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->engine = engine;
    t->ops = ops;
    t->arg = arg;
    t->max_segments = max_segments;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->posted, NULL);
    t->layers_done = calloc(max_segments, sizeof(*t->layers_done));
    t->gates = calloc(max_segments, sizeof(struct layer_gate *));
    if (!t->layers_done || !t->gates ||
        loop_bell_init(loop, &t->wakeup, true, on_wakeup, t) ||
        pthread_create(&t->thread, NULL, thread_main, t)) {
        batch_thread_free(t);
        return NULL;
    }
    t->started = true;
    return t;
}

void batch_thread_free(struct batch_thread *t)
{
    if (!t)
        return;
    if (t->started) {
        atomic_store(&t->abort, true);
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_cond_signal(&t->posted);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    loop_bell_fini(&t->wakeup);
    pthread_cond_destroy(&t->posted);
    pthread_mutex_destroy(&t->lock);
    free(t->layers_done);
    free(t->gates);
    free(t);
}

void batch_thread_gate(struct batch_thread *t, uint32_t segment,
                       struct layer_gate *gate)
{
    t->gates[segment] = gate;
}

static void submit(struct batch_thread *t, struct engine_segment *segments,
                   uint32_t n, const struct engine_stage *stage, bool watch)
{
    for (uint32_t i = 0; i < n; i++)
        atomic_store_explicit(&t->layers_done[i], 0, memory_order_relaxed);
    t->watch = watch;
    t->busy = true;
    pthread_mutex_lock(&t->lock);
    t->segments = segments;
    t->n = n;
    t->stage = stage;
    pthread_cond_signal(&t->posted);
    pthread_mutex_unlock(&t->lock);
}

void batch_thread_submit(struct batch_thread *t,
                         struct engine_segment *segments, uint32_t n,
                         bool watch)
{
    submit(t, segments, n, NULL, watch);
}

void batch_thread_submit_stage(struct batch_thread *t,
                               struct engine_segment *segment,
                               const struct engine_stage *stage)
{
    submit(t, segment, 1, stage, false);
}

bool batch_thread_busy(const struct batch_thread *t)
{
    return t->busy;
}

uint32_t batch_thread_layers_done(const struct batch_thread *t,
                                  uint32_t segment)
{
    return atomic_load_explicit(&t->layers_done[segment], memory_order_acquire);
}

static void *kv_alloc(void *arg, size_t bytes)
{
    return engine_kv_alloc(arg, bytes);
}

static void kv_free(void *arg, void *memory)
{
    engine_kv_free(arg, memory);
}

static void kv_taken(void *arg, void *data)
{
    engine_kv_forget(arg, data);
}

struct kv_store_memory batch_thread_memory(struct engine *engine)
{
    return (struct kv_store_memory){kv_alloc, kv_free, kv_taken, engine};
}
