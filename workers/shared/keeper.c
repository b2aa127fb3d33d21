/* See keeper.h.
 *
 * A note about a block carries the allocation number of its contents, so a
 * note about earlier contents is ignored. A block is pinned during its put. */
#include "workers/shared/keeper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"

#define PUTS_MAX 256u
/* At most 1/PINNED_SHARE of the store's blocks are pinned. */
#define PINNED_SHARE 8u

/* Pauses after a failed put, and after -ENOSPC. */
#define RETRY_US 5000000
#define FULL_US 1000000

/* Pause between two walks over all blocks. */
#define WALK_US 50000
/* Held blocks examined in one call: takes some microseconds. */
#define WALK_BLOCKS 1024

struct note {
    uint64_t number; /* allocation number of the block; 0 = no note */
    bool has_chain;
    bool queued;
    int64_t there_until_us; /* counts as stored until this time */
    int64_t retry_us;       /* no put before */
    uint8_t chain[SHARED_CHAIN_BYTES];
};

struct put {
    struct shared_job job;
    struct shared_keeper *keeper;
    uint32_t id;
    struct shared_block block;
    struct shared_gone gone;
};

struct shared_keeper {
    struct kv_store *store;
    struct shared_tier *tier;
    uint32_t most_unput;
    void (*released)(void *arg);
    void *arg;
    uint32_t capacity;
    uint32_t max_puts;
    uint32_t n_puts;
    struct note *notes; /* (capacity) */
    uint32_t *chain;    /* (capacity) scratch */
    int64_t paused_us;  /* no put before */
    bool refused;       /* the last put was refused, which was logged */
    uint32_t n_known;   /* held blocks that are stored or being put */
    uint32_t walked;    /* last block examined; KV_BLOCK_NONE = none */
    uint64_t walked_number;
};

struct shared_keeper *shared_keeper_new(struct kv_store *store,
                                        struct shared_tier *tier,
                                        uint32_t most_unput,
                                        void (*released)(void *arg), void *arg)
{
    struct shared_keeper *k = calloc(1, sizeof(*k));
    struct kv_store_stats s;

    if (!k)
        return NULL;
    kv_store_stats(store, &s);
    k->store = store;
    k->tier = tier;
    k->most_unput = most_unput;
    k->walked = KV_BLOCK_NONE;
    k->released = released;
    k->arg = arg;
    k->capacity = s.capacity_blocks;
    k->max_puts = k->capacity / PINNED_SHARE;
    if (k->max_puts < 1)
        k->max_puts = 1;
    if (k->max_puts > PUTS_MAX)
        k->max_puts = PUTS_MAX;
    k->notes = calloc(k->capacity, sizeof(*k->notes));
    k->chain = calloc(k->capacity, sizeof(*k->chain));
    if (k->notes && k->chain)
        return k;
    shared_keeper_free(k);
    return NULL;
}

void shared_keeper_free(struct shared_keeper *k)
{
    if (!k)
        return;
    free(k->notes);
    free(k->chain);
    free(k);
}

void shared_keeper_forget(struct shared_keeper *k)
{
    for (uint32_t i = 0; i < k->capacity; i++)
        k->notes[i].there_until_us = k->notes[i].retry_us = 0;
    k->paused_us = 0;
}

/* --- notes -------------------------------------------------------------- */

static struct note *note_of(struct shared_keeper *k, uint32_t id)
{
    struct note *note = &k->notes[id];
    uint64_t number = kv_store_number(k->store, id);

    if (note->number != number)
        *note = (struct note){.number = number};
    return note;
}

static bool is_there(const struct note *note, int64_t now_us)
{
    return now_us < note->there_until_us;
}

/* Computes the missing chains of the held block `id` and its ancestors. */
static int learn_chain(struct shared_keeper *k, uint32_t id)
{
    uint32_t block_tokens = shared_tier_config(k->tier)->shape.block_tokens;
    uint32_t n = 0;

    while (id != KV_BLOCK_NONE && !note_of(k, id)->has_chain) {
        k->chain[n++] = id;
        id = kv_store_parent(k->store, id);
    }
    while (n > 0) {
        uint32_t parent = id;

        id = k->chain[--n];
        if (shared_chain(parent == KV_BLOCK_NONE ? NULL
                                                 : k->notes[parent].chain,
                         kv_store_tokens(k->store, id), block_tokens,
                         k->notes[id].chain) < 0)
            return -EIO;
        k->notes[id].has_chain = true;
    }
    return 0;
}

/* --- putting ------------------------------------------------------------ */

static struct put *put_of(struct shared_job *j)
{
    return (struct put *)(void *)((char *)j - offsetof(struct put, job));
}

static int put_run(struct shared_job *j, struct shared_store *store)
{
    struct put *p = put_of(j);

    return shared_put(store, &p->block, &p->gone);
}

/* Logs once when the store starts refusing blocks, and once when it accepts
 * them again. */
static void judge(struct shared_keeper *k, const struct shared_job *j)
{
    const char *shown = shared_tier_config(k->tier)->shown;

    if (j->rc == 0 && k->refused)
        log_info("shared store %s takes blocks again", shown);
    if ((j->rc == -ENOSPC || j->rc == -EPROTO) && !k->refused)
        log_warn("shared store %s takes no blocks: %s", shown, j->why);
    if (j->rc == -ENOSPC || j->rc == -EPROTO) {
        k->refused = true;
        k->paused_us = loop_now_us(shared_tier_config(k->tier)->loop) +
                       (j->rc == -ENOSPC ? FULL_US : RETRY_US);
    } else if (j->rc == 0) {
        k->refused = false;
    }
}

static void put_done(struct shared_job *j)
{
    struct put *p = put_of(j);
    struct shared_keeper *k = p->keeper;
    struct note *note = &k->notes[p->id]; /* its pin keeps the contents */
    int64_t now_us = loop_now_us(shared_tier_config(k->tier)->loop);
    int64_t ttl_us = (int64_t)shared_tier_config(k->tier)->ttl_s * 1000000;

    k->n_puts--;
    note->queued = false;
    if (j->rc == 0) {
        note->there_until_us = now_us + ttl_us / 2;
        shared_tier_stats(k->tier)->put_blocks++;
        shared_tier_stored(k->tier, &p->block.known, 1);
    } else {
        k->n_known -= k->n_known > 0;
        note->retry_us = now_us + RETRY_US;
        shared_tier_stats(k->tier)->put_failed++;
    }
    judge(k, j);
    shared_tier_gone(k->tier, p->gone.keys, p->gone.n);
    kv_store_put_back(k->store, p->id);
    free(p);
    k->released(k->arg);
}

static int put_one(struct shared_keeper *k, uint32_t id)
{
    uint32_t parent = kv_store_parent(k->store, id);
    struct note *note = note_of(k, id);
    struct put *p;

    if (k->n_puts == k->max_puts)
        return -EBUSY;
    p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->keeper = k;
    p->id = id;
    p->block.known.key = kv_store_key(k->store, id);
    if (parent != KV_BLOCK_NONE)
        p->block.known.parent_key = kv_store_key(k->store, parent);
    memcpy(p->block.chain, note->chain, sizeof(p->block.chain));
    p->block.data = kv_store_data(k->store, id);
    p->job.run = put_run;
    p->job.done = put_done;
    note->queued = true;
    k->n_known++;
    k->n_puts++;
    kv_store_pin(k->store, id);
    shared_tier_do(k->tier, SHARED_WRITES, &p->job);
    return 0;
}

/* Puts `id` and its ancestors not stored yet, ancestors first: a block without
 * its ancestors is useless. Returns 0: all are stored or being put; -EAGAIN:
 * one failed less than RETRY_US ago; -EBUSY; -ENOMEM; -EIO. */
static int put_chain(struct shared_keeper *k, uint32_t id)
{
    int64_t now_us = loop_now_us(shared_tier_config(k->tier)->loop);
    uint32_t n = 0;
    int rc = learn_chain(k, id);

    for (; rc == 0 && id != KV_BLOCK_NONE; id = kv_store_parent(k->store, id)) {
        const struct note *note = note_of(k, id);

        if (note->queued || is_there(note, now_us))
            break; /* then so are its ancestors */
        if (now_us < note->retry_us)
            return -EAGAIN;
        k->chain[n++] = id;
    }
    while (rc == 0 && n > 0)
        rc = put_one(k, k->chain[--n]);
    return rc;
}

/* --- what is due -------------------------------------------------------- */

/* Returns the next held block of the walk, or KV_BLOCK_NONE after the last.
 * The walk restarts if its current block was evicted. */
static uint32_t walk_on(struct shared_keeper *k)
{
    struct kv_store_event e;
    uint32_t id = k->walked;

    if (id != KV_BLOCK_NONE &&
        (!kv_store_is_held(k->store, id) ||
         kv_store_number(k->store, id) != k->walked_number))
        id = KV_BLOCK_NONE;
    if (!kv_store_inventory(k->store, &id, &e))
        id = KV_BLOCK_NONE;
    k->walked = id;
    if (id != KV_BLOCK_NONE)
        k->walked_number = kv_store_number(k->store, id);
    return id;
}

/* Returns the held blocks that are neither stored nor being put; too low by the
 * stored blocks that left memory since the last tick. */
static uint32_t unput(const struct shared_keeper *k)
{
    struct kv_store_stats s;

    kv_store_stats(k->store, &s);
    return s.held_blocks > k->n_known ? s.held_blocks - k->n_known : 0;
}

void shared_keeper_poke(struct shared_keeper *k)
{
    int64_t now_us = loop_now_us(shared_tier_config(k->tier)->loop);

    if (!shared_tier_is_up(k->tier) || now_us < k->paused_us)
        return;
    for (int i = 0;
         i < WALK_BLOCKS && unput(k) > k->most_unput && k->n_puts < k->max_puts;
         i++) {
        uint32_t id = walk_on(k);

        if (id == KV_BLOCK_NONE) {
            k->paused_us = now_us + WALK_US;
            return;
        }
        put_chain(k, id); /* a later walk tries again */
    }
}

void shared_keeper_tick(struct shared_keeper *k)
{
    int64_t now_us = loop_now_us(shared_tier_config(k->tier)->loop);

    k->n_known = 0;
    for (uint32_t id = 0; id < k->capacity; id++) {
        const struct note *note = &k->notes[id];

        k->n_known += kv_store_is_held(k->store, id) &&
                      note->number == kv_store_number(k->store, id) &&
                      (note->queued || is_there(note, now_us));
    }
    shared_keeper_poke(k);
}
