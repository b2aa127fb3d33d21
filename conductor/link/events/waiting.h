/* Stored events that came before their parent's event, in bounded memory. */
#ifndef CONDUCTOR_LINK_EVENTS_WAITING_H
#define CONDUCTOR_LINK_EVENTS_WAITING_H

#include <sys/queue.h>

#include "conductor/link/events/batch.h"

#define WAITING_BUCKETS 1024u

/* An event's blocks, copied; it owns the arrays. */
struct waiting_event {
    TAILQ_ENTRY(waiting_event) by_age, by_parent;
    uint64_t parent;
    uint32_t n_hashes;
    size_t bytes;
    uint64_t *hashes; /* (n_hashes) */
    uint64_t *extras; /* (n_hashes), or NULL */
    uint32_t *tokens; /* (n_hashes, block_tokens) */
};

TAILQ_HEAD(waiting_list, waiting_event);

struct waiting {
    struct waiting_list by_age; /* the oldest first */
    struct waiting_list by_parent[WAITING_BUCKETS];
    uint64_t n, bytes, max_bytes, dropped;
    struct waiting_list forgotten; /* dropped; freed by waiting_sweep() */
};

/* Makes *w empty, for at most max_bytes. */
void waiting_init(struct waiting *w, size_t max_bytes);

/* Drops all events. Their memory is freed by waiting_sweep(), or at the end by
 * waiting_fini(). */
void waiting_clear(struct waiting *w);
void waiting_fini(struct waiting *w);

/* Frees some dropped events. Returns whether there were any. */
bool waiting_sweep(struct waiting *w);

/* Returns whether waiting_sweep() has events to free. */
bool waiting_sweeps(const struct waiting *w);

/*
 * Keeps a copy of an event with a parent. Drops the oldest ones if there is no
 * room; an event larger than max_bytes itself.
 */
void waiting_keep(struct waiting *w, const struct kv_event *event);

/* Removes and returns an event that waits for this parent; NULL = none. The
 * caller frees it with waiting_event_free(). */
struct waiting_event *waiting_take(struct waiting *w, uint64_t parent);
void waiting_event_free(struct waiting_event *event);

#endif
