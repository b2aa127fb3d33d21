/* Engine "cuda", for its files; and functions for tests. */
#ifndef WORKERS_ENGINE_CUDA_ENGINE_H
#define WORKERS_ENGINE_CUDA_ENGINE_H

#include <pthread.h>

#include "workers/engine/cuda/cuda_engine.h"
#include "workers/engine/cuda/page_cache.h"
#include "workers/engine/impl.h"
#include "workers/engine/shared_card.h"

/* A page that a step uses. */
struct cuda_use {
    void *block;
    uint32_t page;
    uint32_t needed; /* rows that the step reads and does not write */
    uint32_t from;   /* rows [from, to) that it writes */
    uint32_t to;
    bool stores; /* also write them to the host block */
};

/* Segments of a step that are computed together: as many as fit. */
struct cuda_group {
    struct engine_segment *segments; /* the step's */
    size_t first, end;               /* segments [first, end) */
    struct cuda_use *uses;           /* [n_uses], capacity: all pages */
    uint32_t n_uses;
    uint64_t ticket; /* last ticket that copies to one of the pages */
};

/* Page-locked memory that engine_kv_alloc() gave out. */
struct cuda_host {
    unsigned char *memory; /* NULL = free entry */
    size_t bytes;
};
#define CUDA_HOSTS 8 /* known allocations; only copies within one join */

struct cuda_engine {
    struct engine base;
    struct cuda_card *card;
    uint32_t layers;
    uint32_t group_heads; /* heads / kv_heads */
    struct cuda_group group;
    uint32_t *use_of; /* [pages] index in group.uses, valid if that use has this
                         page */
    size_t *answer_of;                  /* [rows] segment of each wanted row */
    uint32_t *answers;                  /* [rows] */
    struct cuda_host hosts[CUDA_HOSTS]; /* do not change during a step */
    pthread_mutex_t lock;               /* guards from here ... */
    struct page_cache *pages;
    uint64_t ticket;      /* last one issued */
    uint64_t ticket_over; /* all tickets up to this one are complete */
    bool lost;            /* ... to here: the card is lost */
    struct shared_card shared;
};

static inline uint32_t cuda_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns whether a segment uses the decode path. */
static inline bool cuda_decodes(const struct engine_segment *s)
{
    return s->decode && s->n_tokens == 1;
}

/* Returns the blocks of a segment, including those it writes. */
static inline uint32_t cuda_blocks_of(const struct cuda_engine *e,
                                      const struct engine_segment *s)
{
    uint32_t bt = e->base.layout.block_tokens;

    return (s->position + s->n_tokens + bt - 1) / bt;
}

/* Returns the splits of a segment's decode attention; 0 for a prompt. */
static inline uint32_t cuda_splits_of(const struct engine_segment *s)
{
    return cuda_decodes(s) ? s->position / CUDA_SPLIT_KEYS + 1 : 0;
}

/* Fills in the card's batch for the group, whose pages are taken. Called with
 * the lock. */
void cuda_describe_group(struct cuda_engine *e);

/* engine_ops.step of this engine. */
int cuda_step(struct engine *base, struct engine_segment *segments, size_t n,
              const struct engine_step_ops *ops, void *arg,
              const atomic_bool *abort);

/* Notes that the card is gone. Returns -ENODEV. */
int cuda_lose(struct cuda_engine *e);

/* Takes and pins a page for `block`, writing back an evicted page's rows.
 * Called with the lock. Returns PAGE_NONE if every page is in use, or the card
 * is gone. */
uint32_t cuda_take_page(struct cuda_engine *e, void *block);

/* Updates ticket_over. Called with the lock. Returns 0 or -ENODEV. */
int cuda_poll_tickets(struct cuda_engine *e, bool wait);

/* --- share.c --- */

/* Returns the most pages that may be lent, or read into, at once. */
uint32_t cuda_lent_max(const struct cuda_engine *e);
/* Sets up e->shared for the card and its pages. */
void cuda_share_init(struct cuda_engine *e);
void cuda_share_fini(struct cuda_engine *e);
/* engine_ops.card of this engine. */
const struct shared_card *cuda_shared(const struct engine *base);

/* Writes back all rows that only the card has, for tests and code that needs
 * the rows of decoded tokens. No step may run. Returns 0 or -ENODEV. */
int engine_cuda_flush(struct engine *base);

#endif
