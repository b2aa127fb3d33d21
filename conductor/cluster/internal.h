/* What the files of this folder share. Calls run one way: cluster -> registry,
 * hear -> tell; cluster, registry -> limits. */
#ifndef CONDUCTOR_CLUSTER_INTERNAL_H
#define CONDUCTOR_CLUSTER_INTERNAL_H

#include <event2/event.h>
#include <sys/queue.h>

#include "conductor/cluster/cluster.h"
#include "conductor/cluster/event.h"
#include "conductor/cluster/limits.h"
#include "conductor/cluster/names.h"
#include "proto/wire.h"

/* Before every key; the braces put all of them in one slot of a cluster. The
 * number is that of what is written. */
#define CLUSTER_PREFIX "{conductor:1}:"
#define CLUSTER_KEY_MAX 64
#define CLUSTER_PLACE_MAX 48
#define CLUSTER_ECHOES 256u /* batches whose way to Redis and back is timed */

struct cluster_pool {
    LIST_ENTRY(cluster_pool) entry;
    struct cluster *cluster;
    struct pool *pool; /* borrowed */
    struct names *names;
    struct foreign *foreign;
    const struct cluster_pool_ops *ops;
    void *arg;
    char key[CLUSTER_KEY_MAX];        /* of its stream */
    char place[CLUSTER_PLACE_MAX];    /* read up to there; "": not known */
    struct wire_buf out;              /* the batch that is being written */
    uint64_t number;                  /* of the next batch */
    int64_t began_us[CLUSTER_ECHOES]; /* of a batch, by its number: when its
                                         first event happened; 0: not known */
    int64_t flushed_us;               /* when one was sent last */
    bool all_due; /* others must be told all; until then nothing is told */
    bool ask_due; /* others may have to be asked */
    bool asked;   /* another one wants to be told all; meanwhile all goes on */
    int64_t all_us, ask_us; /* when that was last; 0: never */
    int64_t fenced_us;      /* when that was logged last; 0: never */
    size_t keys_left;       /* of prompts that telling all may still tell */
    uint64_t beaten, beaten_before; /* `number` at the last tell_beat(), and at
                                       the one before */
    uint64_t echoed; /* up to there own batches were read, or are before the
                        place from which it began to read */
};

struct cluster {
    struct cluster_options options;
    const struct cluster_ops *ops;
    void *arg;
    struct member self;
    char id[MEMBER_ID_BYTES + 1];
    char leader_key[CLUSTER_KEY_MAX]; /* of those of the same model */
    struct redis *redis;              /* for commands */
    struct redis *reader;             /* for reads that wait */
    struct event *tick;
    struct event *flush; /* pending: some batch waits to be sent */
    struct event *due;   /* pending: something is due, and was just now */
    struct limits *limits;
    LIST_HEAD(, cluster_pool) pools;
    struct member members[CLUSTER_MEMBERS_MAX]; /* of the last renewal */
    size_t n_members;
    uint64_t members_digest; /* of what ops->members() was told */
    bool renewing;           /* an answer is due */
    int64_t renew_us;        /* since when: its lease runs from there */
    bool reading;            /* likewise of the reader */
    bool leads;
    uint64_t lead_token;
    uint64_t led_token; /* the highest that any conductor was heard to have */
    int64_t lead_until_us;
    bool complained; /* of what Redis does not take */
    bool unleased;   /* it refused the last renewal */
    struct cluster_counts counts;
};

/* tell.c: sends what is written of a pool. */
void tell_flush(struct cluster_pool *p);

/* tell.c: a batch of one's own was read, as others read it. */
void tell_echo(struct cluster_pool *p, uint64_t number, int64_t now_us);

/* tell.c: tells what is due, if Redis is there: all; and the question for all,
 * to each conductor of which not all is known. If this was done just now, a
 * little later. */
void tell_due(struct cluster_pool *p, int64_t now_us);

/* tell.c: tells that there is nothing to tell, if nothing was told since the
 * last call: who missed what was told last notices by the number. Reads anew
 * where own batches of before that are not heard: the stream is another one,
 * and this one's place may be far behind its end. */
void tell_beat(struct cluster_pool *p);

/* registry.c: renews the lease. */
void registry_renew(struct cluster *c);

/* registry.c: what is over by the clock of this host alone. */
void registry_tick(struct cluster *c, int64_t now_us);

/* hear.c: reads on, if nothing is being read. */
void hear_on(struct cluster *c);

/* hear.c: begins to read, maybe of another server: its streams may be shorter,
 * and its clock earlier, so that places in those of before say nothing. */
void hear_anew(struct cluster *c);

#endif
