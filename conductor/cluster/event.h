/*
 * What conductors tell each other of the load that they make: events, and how
 * they are written. Pure.
 *
 * A batch is one entry of the pool's stream:
 *
 *    u8       u64     u64     u64       then events
 *    +--------+-------+-------+---------+---------------------------
 *    | version| owner | token | number  | u8 kind, u64 request, ...
 *    +--------+-------+-------+---------+---------------------------
 *
 * The owner numbers its batches, so that who misses one notices. Times are
 * told from the moment of writing on, and are the reader's from its own: clocks
 * differ, and what passes between is milliseconds. Keys of blocks are hashes;
 * nothing that a client sent is in it. A batch without events tells the number.
 */
#ifndef CONDUCTOR_CLUSTER_EVENT_H
#define CONDUCTOR_CLUSTER_EVENT_H

#include "conductor/core/pool/record.h"
#include "conductor/core/schedule/schedule.h"
#include "proto/codec.h"

struct names;

#define CLUSTER_VERSION 3
/* Keys of a prompt that are told; the blocks behind are unknown to others until
 * they are stored. */
#define CLUSTER_KEYS_MAX 4096
#define CLUSTER_BATCH_MAX (128u << 10) /* bytes of a batch */

enum cluster_kind {
    CLUSTER_RESET = 1, /* what the owner had before counts no more */
    CLUSTER_ASK,       /* request: the conductor that is asked to tell all that
                          it has; 0: all others are */
    CLUSTER_PREFILL,   /* a request has a prefill on an instance */
    CLUSTER_DECODE,    /* or a decode */
    CLUSTER_STARTED,   /* its first prefill began */
    CLUSTER_PREFILLED, /* its prefills are over */
    CLUSTER_DECODING,  /* its decode began */
    CLUSTER_PRODUCED,  /* so many tokens so far */
    CLUSTER_ENDED,     /* nothing of it is left */
    CLUSTER_LEARNT,    /* the length of an answer; request: its key */
    CLUSTER_ASKED,     /* a request came, whatever became of it */
};
#define CLUSTER_KINDS CLUSTER_ASKED

struct cluster_head {
    uint64_t owner; /* of a conductor's life */
    uint64_t token; /* of its lease: a higher one fences off lower ones */
    uint64_t number;
};

struct cluster_event {
    enum cluster_kind kind;
    uint64_t request;
    int64_t value; /* PREFILLED: observed us, -1: unknown; PRODUCED: tokens;
                      LEARNT: tokens */
    int64_t most;  /* LEARNT: of so many that were asked for */
    struct pool_record_prefill prefill;
    struct pool_record_decode decode;
    struct schedule_asked asked; /* work.block_tokens is not told */
};

/* How records are written and read. */
struct cluster_wire {
    struct names *names; /* borrowed */
    int64_t now_us;
    uint64_t *keys; /* (CLUSTER_KEYS_MAX), borrowed: of the event that was read
                       last */
};

/* Writes, or reads, what stands in front of the events. */
void cluster_head_fields(struct codec *c, struct cluster_head *head);

/* Writes, or reads, an event. Reading, the keys of a prefill or of what was
 * asked are valid until the next one, and an instance that is not known here is
 * POOL_NO_INSTANCE. */
void cluster_event_fields(struct codec *c, const struct cluster_wire *wire,
                          struct cluster_event *e);

#endif
