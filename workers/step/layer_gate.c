/* A gate that opens layer by layer. */
#include "workers/step/layer_gate.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

/* How often a wait checks the abort flag. */
#define NAP_US 5000

void layer_gate_init(struct layer_gate *g)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&g->lock, NULL);
    layer_gate_reset(g);
}

void layer_gate_fini(struct layer_gate *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}

void layer_gate_reset(struct layer_gate *g)
{
    atomic_store(&g->layers, 0);
    g->failed = false;
}

void layer_gate_open(struct layer_gate *g, uint32_t layers)
{
    pthread_mutex_lock(&g->lock);
    atomic_store_explicit(&g->layers, layers, memory_order_release);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

void layer_gate_fail(struct layer_gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->failed = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

uint32_t layer_gate_layers(const struct layer_gate *g)
{
    return atomic_load_explicit(&g->layers, memory_order_acquire);
}

static void nap(struct layer_gate *g)
{
    int64_t us = clock_now_us() + NAP_US;
    const struct timespec wake = {.tv_sec = us / 1000000,
                                  .tv_nsec = us % 1000000 * 1000};

    pthread_cond_timedwait(&g->changed, &g->lock, &wake);
}

int layer_gate_wait(struct layer_gate *g, uint32_t layer, int64_t patience_us,
                    const atomic_bool *abort)
{
    if (layer_gate_layers(g) > layer)
        return 0;
    int64_t until_us = clock_now_us() + patience_us;
    int rc = 0;

    pthread_mutex_lock(&g->lock);
    while (rc == 0 && layer_gate_layers(g) <= layer)
        if (g->failed)
            rc = -EIO;
        else if (abort && atomic_load(abort))
            rc = -ECANCELED;
        else if (clock_now_us() >= until_us)
            rc = -ETIMEDOUT;
        else
            nap(g);
    pthread_mutex_unlock(&g->lock);
    return rc;
}
