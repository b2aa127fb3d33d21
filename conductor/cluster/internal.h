/* Shared by the files of this folder. Calls run one way: cluster -> registry,
 * hear -> tell; cluster, registry -> limits. */
#ifndef CONDUCTOR_CLUSTER_INTERNAL_H
#define CONDUCTOR_CLUSTER_INTERNAL_H

#include <sys/queue.h>

#include "base/loop/loop.h"
#include "conductor/cluster/cluster.h"
#include "conductor/cluster/event.h"
#include "conductor/cluster/limits.h"
#include "conductor/cluster/names.h"
#include "proto/wire.h"

/* Prefix of every key; the braces put all keys in one slot of a Redis cluster.
 * The number is the version of the format. */
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
    char place[CLUSTER_PLACE_MAX];    /* where reading goes on; "": not known */
    struct wire_buf out;              /* the batch that is being written */
    uint64_t number;                  /* of the next batch */
    int64_t began_us[CLUSTER_ECHOES]; /* by batch number: when its first event
                                         happened; 0 = unknown */
    int64_t flushed_us;               /* when a batch was last sent */
    bool all_due; /* the full state must be sent before any other event */
    bool ask_due; /* others may have to be asked for their full state */
    bool asked;   /* another conductor asks for the full state; events go on */
    int64_t all_us, ask_us;         /* when each was last done; 0 = never */
    int64_t fenced_us;              /* when that was last logged; 0 = never */
    size_t keys_left;               /* limit for the full state being sent */
    uint64_t beaten, beaten_before; /* `number` at the last tell_beat(), and at
                                       the one before */
    uint64_t echoed; /* own batches below this number were read back, or are
                        before the place where reading began */
};

struct cluster {
    struct loop *loop;
    struct cluster_options options;
    const struct cluster_ops *ops;
    void *arg;
    struct member self;
    char id[MEMBER_ID_BYTES + 1];
    char leader_key[CLUSTER_KEY_MAX]; /* of conductors of the same model */
    struct redis *redis;              /* for commands */
    struct redis *reader;             /* for reads that wait */
    struct loop_timer tick;
    struct loop_timer flush; /* pending: some batch waits to be sent */
    struct loop_timer due;   /* pending: tell_due() comes again */
    struct limits *limits;
    LIST_HEAD(, cluster_pool) pools;
    int n_pools;
    struct member members[CLUSTER_MEMBERS_MAX]; /* of the last renewal */
    size_t n_members;
    uint64_t members_digest; /* of what ops->members() last had */
    bool renewing;           /* an answer is due */
    int64_t renew_us;        /* when it was sent: the lease runs from there */
    bool reading;            /* the reader's answer is due */
    struct cluster_pool *placing; /* pool whose stream's end it asks for; NULL =
                                     none, or it has left */
    bool leads;
    uint64_t lead_token;
    uint64_t led_token; /* highest leader's token heard of */
    int64_t lead_until_us;
    bool complained; /* logged that Redis takes no batches */
    bool unleased;   /* Redis refused the last renewal */
    struct cluster_counts counts;
};

/* tell.c: sends a pool's batch as written so far. */
void tell_flush(struct cluster_pool *p);

/* tell.c: notes that an own batch was read back from the stream. */
void tell_echo(struct cluster_pool *p, uint64_t number, int64_t now_us);

/* tell.c: sends what is due, if Redis is there: the full state, and a question
 * to each conductor whose full state is not known here. If the last one is too
 * recent, it is called again later. */
void tell_due(struct cluster_pool *p, int64_t now_us);

/* tell.c: sends an empty batch if none was sent since the last call: its number
 * shows others which batches they missed. Reads anew if own batches from before
 * that call were not read back: the stream is another one, and this one's place
 * may be far beyond its end. */
void tell_beat(struct cluster_pool *p);

/* registry.c, limits.c: the scripts that Redis executes. tests/world/redis has
 * each as a C function, found by the SHA of its text. */
extern const char registry_script[], limits_script[];

/* registry.c: renews the lease. */
void registry_renew(struct cluster *c);

/* registry.c: ends leads and owners whose lease is over by the local clock. */
void registry_tick(struct cluster *c, int64_t now_us);

/* hear.c: reads on, if nothing is being read. */
void hear_on(struct cluster *c);

/* hear.c: begins to read, maybe from another server: forgets all places, as its
 * streams may be shorter and its clock earlier. */
void hear_anew(struct cluster *c);

#endif
