/* A thread that sums, a queue to it and one back. */
#include "workers/transfer/layer_sums.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "workers/transfer/engine/bell.h"
#include "workers/transfer/engine/sum.h"

/* Share of the store that is pinned ahead of demand. */
#define PINNED_SHARE 8u

/* A block's sums, or what is known of them. */
struct entry {
    TAILQ_ENTRY(entry) link; /* while the thread has it */
    uint64_t number;         /* of the contents that the rest is about */
    uint32_t n_known;        /* layers; they are known from the first on, or all
                                are made at once */
    bool queued;
};

TAILQ_HEAD(entries, entry);

struct layer_sums {
    struct kv_store *store;
    const struct engine_kv_layout *layout;
    void (*ready)(void *arg);
    void *arg;
    struct bell *bell;
    uint32_t n_blocks;
    uint32_t n_queued;
    struct entry *entries; /* (n_blocks) */
    uint64_t *sums;        /* (n_blocks, layers) */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t more;
    struct entries todo, done;
    bool leaving;
};

static uint32_t id_of(const struct layer_sums *s, const struct entry *e)
{
    return (uint32_t)(e - s->entries);
}

static uint64_t *sums_of(const struct layer_sums *s, uint32_t id)
{
    return s->sums + (size_t)id * s->layout->layers;
}

static void sum_block(const struct layer_sums *s, uint32_t id)
{
    size_t bytes = s->layout->block_bytes / s->layout->layers;
    const char *data = kv_store_data(s->store, id);
    uint64_t *sums = sums_of(s, id);

    for (uint32_t i = 0; i < s->layout->layers; i++)
        sums[i] = sum_of(data + i * bytes, bytes);
}

static void *run(void *arg)
{
    struct layer_sums *s = arg;

    pthread_mutex_lock(&s->lock);
    while (!s->leaving) {
        struct entry *e = TAILQ_FIRST(&s->todo);

        if (!e) {
            pthread_cond_wait(&s->more, &s->lock);
            continue;
        }
        TAILQ_REMOVE(&s->todo, e, link);
        pthread_mutex_unlock(&s->lock);
        sum_block(s, id_of(s, e));
        pthread_mutex_lock(&s->lock);
        TAILQ_INSERT_TAIL(&s->done, e, link);
        bell_ring(s->bell);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void release(struct layer_sums *s, struct entry *e)
{
    e->queued = false;
    s->n_queued--;
    kv_store_release(s->store, id_of(s, e));
}

static void on_bell(void *arg)
{
    struct layer_sums *s = arg;
    struct entries done = TAILQ_HEAD_INITIALIZER(done);
    struct entry *e;

    pthread_mutex_lock(&s->lock);
    TAILQ_CONCAT(&done, &s->done, link);
    pthread_mutex_unlock(&s->lock);
    if (TAILQ_EMPTY(&done))
        return;
    while ((e = TAILQ_FIRST(&done))) {
        TAILQ_REMOVE(&done, e, link);
        e->number = kv_store_number(s->store, id_of(s, e));
        e->n_known = s->layout->layers;
        release(s, e);
    }
    s->ready(s->arg);
}

struct layer_sums *layer_sums_new(struct event_base *base,
                                  struct kv_store *store,
                                  const struct engine_kv_layout *layout,
                                  void (*ready)(void *arg), void *arg)
{
    struct layer_sums *s = calloc(1, sizeof(*s));
    struct kv_store_stats stats;

    if (!s)
        return NULL;
    kv_store_stats(store, &stats);
    s->store = store;
    s->layout = layout;
    s->ready = ready;
    s->arg = arg;
    s->n_blocks = stats.capacity_blocks;
    TAILQ_INIT(&s->todo);
    TAILQ_INIT(&s->done);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    s->entries = calloc(s->n_blocks, sizeof(*s->entries));
    s->sums = calloc((size_t)s->n_blocks * layout->layers, sizeof(*s->sums));
    s->bell = bell_new(base, on_bell, s);
    if (!s->entries || !s->sums || !s->bell ||
        pthread_create(&s->thread, NULL, run, s)) {
        layer_sums_free(s);
        return NULL;
    }
    s->started = true;
    return s;
}

void layer_sums_free(struct layer_sums *s)
{
    if (!s)
        return;
    if (s->started) {
        pthread_mutex_lock(&s->lock);
        s->leaving = true;
        pthread_cond_signal(&s->more);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (uint32_t id = 0; s->entries && id < s->n_blocks; id++)
        if (s->entries[id].queued)
            release(s, &s->entries[id]);
    bell_free(s->bell);
    pthread_cond_destroy(&s->more);
    pthread_mutex_destroy(&s->lock);
    free(s->entries);
    free(s->sums);
    free(s);
}

static bool known(const struct layer_sums *s, uint32_t id)
{
    return s->entries[id].number == kv_store_number(s->store, id) &&
           s->entries[id].n_known == s->layout->layers;
}

/* Hands the held block to the thread; one that is wanted now goes first. */
static void queue(struct layer_sums *s, uint32_t id, bool now)
{
    struct entry *e = &s->entries[id];

    kv_store_pin(s->store, id);
    e->queued = true;
    s->n_queued++;
    pthread_mutex_lock(&s->lock);
    if (now)
        TAILQ_INSERT_HEAD(&s->todo, e, link);
    else
        TAILQ_INSERT_TAIL(&s->todo, e, link);
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
}

void layer_sums_held(struct layer_sums *s, uint32_t id)
{
    if (!s->entries[id].queued && !known(s, id) &&
        s->n_queued < s->n_blocks / PINNED_SHARE)
        queue(s, id, false);
}

const uint64_t *layer_sums_want(struct layer_sums *s, uint32_t id)
{
    if (s->entries[id].queued)
        return NULL;
    if (known(s, id))
        return sums_of(s, id);
    queue(s, id, true);
    return NULL;
}

void layer_sums_know(struct layer_sums *s, uint32_t id, uint32_t layer,
                     uint64_t sum)
{
    struct entry *e = &s->entries[id];
    uint64_t number = kv_store_number(s->store, id);

    if (e->queued)
        return;
    if (e->number != number) {
        e->number = number;
        e->n_known = 0;
    }
    if (layer != e->n_known)
        return;
    sums_of(s, id)[layer] = sum;
    e->n_known++;
}
