/* Engine "cuda": what its two files share, and what tests ask it. */
#ifndef WORKERS_CUDA_ENGINE_CUDA_H
#define WORKERS_CUDA_ENGINE_CUDA_H

#include <pthread.h>

#include "workers/cuda/cuda_engine.h"
#include "workers/cuda/page_cache.h"
#include "workers/engine_impl.h"

/* A page that a step uses. */
struct cuda_use {
    void *block;
    uint32_t page;
    uint32_t needed; /* rows that the step reads and does not write */
    uint32_t from;   /* rows [from, to) that it writes */
    uint32_t to;
    bool stores; /* they are to be in the host block as well */
};

/* Segments of a step that are computed together: as many as have room. */
struct cuda_group {
    struct engine_segment *segments; /* the step's */
    size_t first, end;               /* of them */
    struct cuda_use *uses;           /* [n_uses], room for all pages */
    uint32_t n_uses;
    uint64_t ticket; /* the last that copies to one of the pages */
};

struct cuda_engine {
    struct engine base;
    struct cuda_card *card;
    uint32_t layers;
    uint32_t group_heads; /* heads / kv_heads */
    struct cuda_group group;
    uint32_t *use_of;     /* [pages] which use, valid where it points back */
    size_t *answer_of;    /* [rows] segment of each wanted row */
    uint32_t *answers;    /* [rows] */
    pthread_mutex_t lock; /* guards from here ... */
    struct page_cache *pages;
    uint64_t ticket;      /* the last that was given */
    uint64_t ticket_over; /* it and all before are over */
    bool lost;            /* ... to here: the card */
    char error[240];
    char device[224];
};

/* engine_ops.step of this engine. */
int cuda_step(struct engine *base, struct engine_segment *segments, size_t n,
              const struct engine_step_ops *ops, void *arg,
              const atomic_bool *abort);

/* Notes that the card is gone. Returns -ENODEV. */
int cuda_lose(struct cuda_engine *e);

/* Takes and pins the page of `block`, writing back what is in the way. Called
 * with the lock. Returns PAGE_NONE if every page is in use, or the card is
 * gone. */
uint32_t cuda_take_page(struct cuda_engine *e, void *block);

/* Looks which tickets are over. Called with the lock. 0 or -ENODEV. */
int cuda_poll_tickets(struct cuda_engine *e, bool wait);

/* Copies all rows that are on the card only to their blocks, for tests and for
 * who wants the rows of decoded tokens. No step may run. 0 or -ENODEV. */
int engine_cuda_flush(struct engine *base);

/* For tests: what the cache did so far. */
void engine_cuda_counts(struct engine *base, struct page_cache_counts *counts);

#endif
