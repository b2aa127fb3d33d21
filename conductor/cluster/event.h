/*
 * The events by which conductors publish their load, and how they are written.
 * Pure.
 *
 * A batch is one entry of the pool's stream:
 *
 *    u8       u64     u64     u64       then events
 *    +--------+-------+-------+---------+---------------------------
 *    | version| owner | token | number  | u8 kind, u64 request, ...
 *    +--------+-------+-------+---------+---------------------------
 *
 * The owner numbers its batches, so that a reader notices a missed one. Times
 * are relative to the moment of writing, and to the reader's own clock when
 * read: clocks differ, and transit takes milliseconds. Keys of blocks are
 * hashes; a batch has nothing that a client sent. A batch without events shows
 * its number alone.
 */
#ifndef CONDUCTOR_CLUSTER_EVENT_H
#define CONDUCTOR_CLUSTER_EVENT_H

#include "conductor/core/pool/record.h"
#include "conductor/core/schedule/schedule.h"
#include "proto/codec.h"

struct names;

#define CLUSTER_VERSION 3
/* Most keys of a prompt that are published; others learn of the blocks behind
 * when they are stored. */
#define CLUSTER_KEYS_MAX 4096
#define CLUSTER_BATCH_MAX (128u << 10) /* bytes of a batch */

enum cluster_kind {
    CLUSTER_RESET = 1, /* drops all earlier state of the owner */
    CLUSTER_ASK,       /* request: the conductor that is asked for its full
                          state; 0 = all others */
    CLUSTER_PREFILL,   /* a request has a prefill on an instance */
    CLUSTER_DECODE,    /* or a decode */
    CLUSTER_STARTED,   /* its first prefill began */
    CLUSTER_PREFILLED, /* its prefills are over */
    CLUSTER_DECODING,  /* its decode began */
    CLUSTER_PRODUCED,  /* its tokens so far */
    CLUSTER_ENDED,     /* nothing of it is left */
    CLUSTER_LEARNT,    /* the length of an answer; request: its key */
    CLUSTER_ASKED,     /* a request came, whatever became of it */
};
#define CLUSTER_KINDS CLUSTER_ASKED

struct cluster_head {
    uint64_t owner; /* of a conductor, new at each start */
    uint64_t token; /* of its lease: a higher one fences off lower ones */
    uint64_t number;
};

struct cluster_event {
    enum cluster_kind kind;
    uint64_t request;
    int64_t value; /* PREFILLED: observed us, -1: unknown; PRODUCED: tokens;
                      LEARNT: tokens */
    int64_t most;  /* LEARNT: its max_tokens */
    struct pool_record_prefill prefill;
    struct pool_record_decode decode;
    struct schedule_asked asked; /* without work.block_tokens */
};

/* Scratch memory for writing and reading. */
struct cluster_wire {
    struct names *names; /* borrowed */
    int64_t now_us;
    uint64_t *keys; /* (CLUSTER_KEYS_MAX), borrowed: of the last event read */
};

/* Writes or reads a batch's head, which stands in front of the events. */
void cluster_head_fields(struct codec *c, struct cluster_head *head);

/* Writes, or reads, an event. Keys that were read are valid until the next
 * event; an instance that is not known here is read as POOL_NO_INSTANCE. */
void cluster_event_fields(struct codec *c, const struct cluster_wire *wire,
                          struct cluster_event *e);

#endif
