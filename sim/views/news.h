/*
 * News between conductors, in transit: it always takes the same time, so it
 * arrives in the order of sending. Pure.
 *
 * Invariant: due_us never falls from one item to the next.
 */
#ifndef SIM_VIEWS_NEWS_H
#define SIM_VIEWS_NEWS_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/core/observation/observation.h"
#include "conductor/core/schedule/schedule.h"

enum sim_news_kind {
    SIM_NEWS_ASKED,    /* a request arrived, with its price */
    SIM_NEWS_SENT,     /* a decision on a request */
    SIM_NEWS_BEGUN,    /* prefill begun */
    SIM_NEWS_COMES,    /* KV begins to reach the decode node */
    SIM_NEWS_DONE,     /* prefill done */
    SIM_NEWS_RETURNS,  /* a lent node is free */
    SIM_NEWS_DECODES,  /* decode begun */
    SIM_NEWS_ENDED,    /* decode ended */
    SIM_NEWS_ANSWERED, /* answer complete */
    SIM_NEWS_LOADED,   /* blocks loaded from one source */
};

/* A decision as sent to other conductors. */
struct sim_sent {
    struct schedule_request ask; /* keys point to the member below */
    struct schedule_decision decision;
    uint64_t keys[]; /* (ask.n_keys) */
};

struct sim_news_item {
    enum sim_news_kind kind;
    uint32_t from; /* index of the sender's view */
    uint32_t node; /* pool id of the node concerned */
    uint64_t request_id;
    int64_t number; /* DONE: duration in us, negative = unknown; DECODES:
                       steps of the node's batch before it; ANSWERED:
                       tokens of the answer */
    int64_t most;   /* ANSWERED: max_tokens of the request */
    struct observation_load load; /* LOADED */
    struct sim_sent *sent;        /* ASKED, SENT: owned; else NULL */
    int64_t due_us;               /* arrival; set by sim_news_tell() */
};

struct sim_news {
    int64_t delay_us;            /* transit time, at least 0 */
    struct sim_news_item *items; /* (capacity), a ring */
    size_t capacity;             /* a power of two, or 0 */
    size_t first, n;
};

/* Adds an item, sent at now_us, which never falls between calls. Returns 0, or
 * -ENOMEM: item->sent is still the caller's. */
[[nodiscard]] int sim_news_tell(struct sim_news *news,
                                const struct sim_news_item *item,
                                int64_t now_us);

/* Returns the oldest item, borrowed until the next call; NULL = none. */
const struct sim_news_item *sim_news_first(const struct sim_news *news);

/* Removes and frees the oldest item, which must exist. */
void sim_news_arrived(struct sim_news *news);

/* Frees the remaining items. */
void sim_news_fini(struct sim_news *news);

#endif
