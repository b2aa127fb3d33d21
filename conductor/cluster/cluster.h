/*
 * Several conductors in front of the same instances, over a Redis: the list of
 * conductors, which requests each has sent to which instances, and which
 * conductor leads. A conductor without Redis (`state: memory`) has no cluster:
 * calls then take NULL, and cluster_leads() returns true.
 *
 * No call waits. Events that Redis does not take or deliver are missed:
 * decisions go on with what is known, and once Redis answers again all
 * conductors publish their full state.
 */
#ifndef CONDUCTOR_CLUSTER_CLUSTER_H
#define CONDUCTOR_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/redis/redis.h"
#include "conductor/cluster/foreign.h"
#include "conductor/cluster/limits.h"
#include "conductor/cluster/member.h"
#include "conductor/core/schedule/schedule.h"

struct cluster;
struct cluster_pool;
struct loop;
struct dns;

#define CLUSTER_MEMBERS_MAX 64

struct cluster_options {
    struct redis_url url;
    struct tls *tls; /* TLS of a rediss:// URL. Borrowed */
    int64_t lease_us;
    const char *model;         /* of native workers; "": none. Copied */
    struct address workers_at; /* host "" = local address of the connection to
                                  Redis; port 0 = no workers */
};

/* Callbacks. The first two may be NULL. */
struct cluster_ops {
    /* The conductors with the same workers' model have changed. */
    void (*members)(void *arg);
    /* This conductor leads from now on, or no more. */
    void (*leads)(void *arg, bool leads);
    /* The clients whose limits hold over all conductors. */
    limits_at *limit;
};

/* cluster_new(loop, dns, options, ops, arg): begins to connect. Borrows loop,
 * dns, ops and arg. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct cluster *cluster_new(struct loop *loop, struct dns *dns,
                                          const struct cluster_options *options,
                                          const struct cluster_ops *ops,
                                          void *arg);

/* cluster_free(c): call it when all pools have left. NULL is a no-op. */
void cluster_free(struct cluster *c);

/* cluster_workers_at(c, port): sets where this conductor takes workers. */
void cluster_workers_at(struct cluster *c, uint16_t port);

/* cluster_members(c, out, most): writes where the conductors of the same model
 * take workers, this one first. Returns their number; 0 = unknown. */
size_t cluster_members(const struct cluster *c, struct address *out,
                       size_t most);

/* cluster_leads(c): returns whether this conductor leads, or has no cluster. */
bool cluster_leads(const struct cluster *c);

/* cluster_lead_token(c): returns the leadership token, larger than every
 * earlier leader's; 0 = there is no cluster. */
uint64_t cluster_lead_token(const struct cluster *c);

/* cluster_limits_due(c): reports soon what clients have taken. O(clients). */
void cluster_limits_due(struct cluster *c);

/* The instances of one request. */
struct cluster_request {
    uint64_t id; /* of its attempt */
    uint32_t prefill, decode;
    const struct schedule_lent *lent;
};

struct cluster_pool_ops {
    /* Room may have appeared. */
    void (*freed)(void *arg);
    /* Calls visit() for each request of this conductor on instances. */
    void (*each)(void *arg,
                 void (*visit)(void *to, const struct cluster_request *r),
                 void *to);
};

/* cluster_join(c, model, pool, lengths, ops, arg): begins to share a model's
 * instances with other conductors. Borrows all but model. Returns it owned, or
 * NULL: out of memory, or there is no cluster. */
[[nodiscard]] struct cluster_pool *
cluster_join(struct cluster *c, const char *model, struct pool *pool,
             struct lengths *lengths, const struct cluster_pool_ops *ops,
             void *arg);

/* cluster_prices(p, scheduler): counts requests to other conductors in this
 * scheduler's prices from now on. Borrows it. p NULL is a no-op. */
void cluster_prices(struct cluster_pool *p, struct scheduler *scheduler);

/* cluster_leave(p): ends it. NULL is a no-op. */
void cluster_leave(struct cluster_pool *p);

/* Publish what happens to a request of this conductor. O(1), but
 * cluster_decided() is O(the instances' queues). */
void cluster_decided(struct cluster_pool *p, const struct cluster_request *r);
/* Tells of a request that came; `asked` is the input of its price. */
void cluster_asked(struct cluster_pool *p, const struct schedule_asked *asked);
void cluster_started(struct cluster_pool *p, uint64_t request);
void cluster_prefilled(struct cluster_pool *p, uint64_t request,
                       int64_t observed_us);
void cluster_decoding(struct cluster_pool *p, uint64_t request);
void cluster_produced(struct cluster_pool *p, uint64_t request, int64_t tokens);
void cluster_ended(struct cluster_pool *p, uint64_t request);
/* An answer of a length key had `tokens` of at most `most` tokens. */
void cluster_learnt(struct cluster_pool *p, uint64_t key, int64_t tokens,
                    int64_t most);

/* cluster_joined(p): call it when an instance came: asks the other conductors
 * for their full state, since they may have published work of it before. */
void cluster_joined(struct cluster_pool *p);

struct cluster_counts {
    bool up, leads;
    size_t members;
    struct redis_counts commands, reads;
    uint64_t told;     /* batches sent */
    uint64_t told_all; /* times that the full state was sent */
    uint64_t echoes;   /* own batches read back */
    uint64_t echo_us;  /* sum of the times from first event to reading back */
    uint64_t untold;   /* batches that Redis did not take */
    uint64_t asked;    /* times that it asked others for their state */
    uint64_t leases;   /* leases that this conductor was given */
    uint64_t led;      /* times that it became the leader */
    struct foreign_counts foreign; /* of all pools */
    struct limits_counts limits;
};

/* cluster_counts(c): since cluster_new(); zeros without a cluster. */
struct cluster_counts cluster_counts(const struct cluster *c);

#endif
