/*
 * What conductors tell one another, on its way: each piece of news arrives the
 * same time after it was told, and so in the order in which it was told. Pure.
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
    SIM_NEWS_ASKED,    /* a request came, and what it would take: its price */
    SIM_NEWS_SENT,     /* a decision: where a request goes */
    SIM_NEWS_READY,    /* its blocks have come */
    SIM_NEWS_BEGUN,    /* its prefill has begun */
    SIM_NEWS_COMES,    /* its KV begins to come to where it decodes */
    SIM_NEWS_DONE,     /* its prefill is done */
    SIM_NEWS_RETURNS,  /* a node that was lent to it is free */
    SIM_NEWS_DECODES,  /* it decodes */
    SIM_NEWS_ENDED,    /* its decode has ended */
    SIM_NEWS_ANSWERED, /* its answer is over, by itself */
    SIM_NEWS_LOADED,   /* blocks that it loads have come from one source */
};

/* A decision as others hear of it. */
struct sim_sent {
    struct schedule_request ask; /* its keys are those below */
    struct schedule_decision decision;
    uint64_t keys[]; /* (ask.n_keys) */
};

struct sim_news_item {
    enum sim_news_kind kind;
    uint32_t from; /* who tells it: the index of a view */
    uint32_t node; /* pool id of where it happened */
    uint64_t request_id;
    int64_t number; /* DONE: how long it took, negative: not known; DECODES:
                       steps of the node's batch before it; ANSWERED: tokens
                       of the answer */
    int64_t most;   /* ANSWERED: tokens that its client asked for */
    struct observation_load load; /* LOADED */
    struct sim_sent *sent;        /* ASKED, SENT: owned; else NULL */
    int64_t due_us;               /* when it arrives; set by sim_news_tell() */
};

struct sim_news {
    int64_t delay_us;            /* at least 0 */
    struct sim_news_item *items; /* (capacity): a ring */
    size_t capacity;             /* a power of two, or 0 */
    size_t first, n;
};

/* Takes in what is told now: no earlier than what was told before.
 * Returns 0 or -ENOMEM: then item->sent is still the caller's. */
[[nodiscard]] int sim_news_tell(struct sim_news *news,
                                const struct sim_news_item *item,
                                int64_t now_us);

/* The oldest that is on its way, borrowed until the next call; NULL: none. */
const struct sim_news_item *sim_news_first(const struct sim_news *news);

/* The oldest has arrived everywhere: it is freed. There must be one. */
void sim_news_arrived(struct sim_news *news);

/* Frees what is left. */
void sim_news_fini(struct sim_news *news);

#endif
