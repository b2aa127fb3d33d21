/* The compute thread and its mailbox. */
#include "workers/step/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop/loop.h"

/* How long a step waits for layers, in all its segments together. A source a
 * little late with every layer costs the engine as much as one that stopped. */
#define PATIENCE_US 250000

/* How often a step in virtual time looks whether a layer came. */
#define LOOK_US 100

/* A step in virtual time. */
struct virtual_step {
    struct loop *loop;       /* NULL = there is a thread */
    struct loop_timer timer; /* its next event */
    int64_t begin_us, total_us;
    int64_t waited_us; /* for layers, in all */
    uint32_t first, n_layers, layer;
    bool passes; /* the layer's rows are written, and its time passes */
};

struct batch_thread {
    struct engine *engine;
    struct virtual_step virtual;
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

/* --- in virtual time ------------------------------------------------------ */

static void virtual_end(struct batch_thread *t, int rc)
{
    t->n = 0;
    t->busy = false;
    memset(t->gates, 0, t->max_segments * sizeof(struct layer_gate *));
    t->ops->done(t->arg, rc,
                 loop_now_us(t->virtual.loop) - t->virtual.begin_us);
}

/* Returns 0 if the layer came for all segments, -EAGAIN if it may still come,
 * or another negative errno. */
static int virtual_gates(struct batch_thread *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        int rc = t->gates[i]
                     ? layer_gate_wait(t->gates[i], t->virtual.layer, 0, NULL)
                     : 0;

        if (rc == -ETIMEDOUT)
            return t->virtual.waited_us < PATIENCE_US ? -EAGAIN : -EIO;
        if (rc < 0)
            return -EIO;
    }
    return 0;
}

static void virtual_next_in(struct batch_thread *t, int64_t us)
{
    if (loop_timer_start(&t->virtual.timer, us))
        virtual_end(t, -EIO); /* out of memory */
}

/* Writes the next layer, or waits for it. */
static void virtual_layer(struct batch_thread *t)
{
    struct virtual_step *v = &t->virtual;
    uint32_t passed = v->layer + 1 - v->first;
    int rc = virtual_gates(t);

    if (rc == -EAGAIN) {
        v->waited_us += LOOK_US;
        virtual_next_in(t, LOOK_US);
        return;
    }
    if (rc < 0) {
        virtual_end(t, rc);
        return;
    }
    engine_simulate_layer(t->engine, t->segments, t->n, t->stage, v->layer);
    v->passes = true;
    virtual_next_in(t, v->begin_us + v->waited_us +
                           v->total_us * passed / v->n_layers -
                           loop_now_us(v->loop));
}

static void on_virtual(void *arg)
{
    struct batch_thread *t = arg;
    struct virtual_step *v = &t->virtual;

    if (v->total_us < 0) {
        virtual_end(t, (int)v->total_us);
        return;
    }
    if (v->passes) {
        v->passes = false;
        v->layer++;
        for (uint32_t i = 0; i < t->n; i++)
            atomic_store(&t->layers_done[i], v->layer);
        if (v->layer == v->first + v->n_layers) {
            engine_simulate_end(t->engine, t->segments, t->n, t->stage);
            virtual_end(t, 0);
            return;
        }
        if (t->watch)
            t->ops->progress(t->arg);
    }
    virtual_layer(t);
}

static void virtual_submit(struct batch_thread *t)
{
    struct loop *loop = t->virtual.loop;
    uint32_t first = t->stage ? t->stage->from_layer : 0;
    uint32_t end =
        t->stage ? t->stage->to_layer : engine_kv_layout(t->engine)->layers;

    loop_timer_stop(&t->virtual.timer);
    t->virtual.begin_us = loop_now_us(loop);
    t->virtual.total_us = engine_simulate_us(t->engine, t->segments, t->n,
                                             t->stage);
    t->virtual.waited_us = 0;
    t->virtual.first = t->virtual.layer = first;
    t->virtual.n_layers = end - first;
    t->virtual.passes = false;
    /* Without memory for it nothing else of a virtual time goes on either. */
    (void)!loop_timer_start(&t->virtual.timer, 0);
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
    if (!t->layers_done || !t->gates)
        goto fail;
    if (!loop_has_threads(loop)) {
        if (!engine_simulates(engine))
            goto fail;
        t->virtual.loop = loop;
        loop_timer_init(loop, &t->virtual.timer, on_virtual, t);
        return t;
    }
    if (loop_bell_init(loop, &t->wakeup, true, on_wakeup, t) ||
        pthread_create(&t->thread, NULL, thread_main, t))
        goto fail;
    t->started = true;
    return t;
fail:
    batch_thread_free(t);
    return NULL;
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
    loop_timer_stop(&t->virtual.timer);
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
    if (t->virtual.loop)
        virtual_submit(t);
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
