/* Events that wait for their parent: in a list by age, and in one list for each
 * hash bucket of parents. */
#include "conductor/link/events/waiting.h"

#include <stdlib.h>
#include <string.h>

/* Events freed in one sweep: they take as long as a block or two. */
#define SWEEP_EVENTS 4u

static struct waiting_list *bucket_of(struct waiting *w, uint64_t parent)
{
    uint64_t mixed = parent * UINT64_C(0x9e3779b97f4a7c15);

    return &w->by_parent[mixed >> 32 & (WAITING_BUCKETS - 1)];
}

void waiting_init(struct waiting *w, size_t max_bytes)
{
    *w = (struct waiting){.max_bytes = max_bytes};
    TAILQ_INIT(&w->by_age);
    TAILQ_INIT(&w->forgotten);
    for (uint32_t i = 0; i < WAITING_BUCKETS; i++)
        TAILQ_INIT(&w->by_parent[i]);
}

void waiting_event_free(struct waiting_event *event)
{
    free(event);
}

static void take(struct waiting *w, struct waiting_event *event)
{
    TAILQ_REMOVE(&w->by_age, event, by_age);
    TAILQ_REMOVE(bucket_of(w, event->parent), event, by_parent);
    w->n--;
    w->bytes -= event->bytes;
}

void waiting_clear(struct waiting *w)
{
    struct waiting_event *event;

    if (w->n < WAITING_BUCKETS)
        TAILQ_FOREACH(event, &w->by_age, by_age)
    TAILQ_INIT(bucket_of(w, event->parent));
    else for (uint32_t i = 0; i < WAITING_BUCKETS; i++)
        TAILQ_INIT(&w->by_parent[i]);
    TAILQ_CONCAT(&w->forgotten, &w->by_age, by_age);
    w->n = w->bytes = 0;
}

bool waiting_sweep(struct waiting *w)
{
    struct waiting_event *event;
    uint32_t i = 0;

    for (; i < SWEEP_EVENTS && (event = TAILQ_FIRST(&w->forgotten)); i++) {
        TAILQ_REMOVE(&w->forgotten, event, by_age);
        waiting_event_free(event);
    }
    return i > 0;
}

bool waiting_sweeps(const struct waiting *w)
{
    return !TAILQ_EMPTY(&w->forgotten);
}

void waiting_fini(struct waiting *w)
{
    waiting_clear(w);
    while (waiting_sweep(w))
        ;
}

/* Copies an event into one piece of memory, with its arrays behind it. */
static struct waiting_event *copy_of(const struct kv_event *e, size_t bytes)
{
    struct waiting_event *event = malloc(bytes);
    size_t hashes_bytes = e->n_hashes * sizeof(*e->hashes);

    if (!event)
        return NULL;
    *event = (struct waiting_event){
        .parent = e->parent, .n_hashes = e->n_hashes, .bytes = bytes};
    event->hashes = (uint64_t *)(event + 1);
    event->tokens = (uint32_t *)(event->hashes + e->n_hashes);
    memcpy(event->hashes, e->hashes, hashes_bytes);
    if (e->extras) {
        event->extras = event->hashes + e->n_hashes;
        event->tokens = (uint32_t *)(event->extras + e->n_hashes);
        memcpy(event->extras, e->extras, hashes_bytes);
    }
    memcpy(event->tokens, e->tokens, e->n_tokens * sizeof(*e->tokens));
    return event;
}

void waiting_keep(struct waiting *w, const struct kv_event *e)
{
    size_t bytes = sizeof(struct waiting_event) +
                   e->n_hashes * sizeof(*e->hashes) * (e->extras ? 2 : 1) +
                   e->n_tokens * sizeof(*e->tokens);
    struct waiting_event *event;

    while (w->bytes + bytes > w->max_bytes && !TAILQ_EMPTY(&w->by_age)) {
        event = TAILQ_FIRST(&w->by_age);
        take(w, event);
        waiting_event_free(event);
        w->dropped++;
    }
    event = bytes > w->max_bytes ? NULL : copy_of(e, bytes);
    if (!event) {
        w->dropped++;
        return;
    }
    TAILQ_INSERT_TAIL(&w->by_age, event, by_age);
    TAILQ_INSERT_TAIL(bucket_of(w, event->parent), event, by_parent);
    w->n++;
    w->bytes += bytes;
}

struct waiting_event *waiting_take(struct waiting *w, uint64_t parent)
{
    struct waiting_event *event;

    TAILQ_FOREACH(event, bucket_of(w, parent), by_parent)
    {
        if (event->parent == parent) {
            take(w, event);
            return event;
        }
    }
    return NULL;
}
