/*
 * Several conductors in front of the same instances, over a Redis: who there
 * is, what each has given instances to do, and which one leads. A conductor
 * without one (`state: memory`) has no cluster: every call takes NULL then, and
 * says that it leads.
 *
 * Nothing here waits. What Redis does not take or tell is missed: decisions go
 * on with what is known, and once it answers again all tell each other all.
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

struct event_base;
struct evdns_base;
struct cluster;
struct cluster_pool;

#define CLUSTER_MEMBERS_MAX 64

struct cluster_options {
    struct redis_url url;
    struct tls *tls; /* whom a URL with TLS trusts. Borrowed */
    int64_t lease_us;
    const char *model;         /* of workers; "": this one has none. Copied */
    struct address workers_at; /* host "": this host's address, as Redis is
                                  reached from it; port 0: no workers */
};

/* Who asks for news. The first two may be NULL. */
struct cluster_ops {
    /* The conductors of this model's workers are others than before. */
    void (*members)(void *arg);
    /* This conductor leads from now on, or no more. */
    void (*leads)(void *arg, bool leads);
    /* The clients whose limits hold over all conductors. */
    limits_at *limit;
};

/* cluster_new(base, dns, options, ops, arg): begins to connect. Borrows base,
 * dns, ops and arg. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct cluster *cluster_new(struct event_base *base,
                                          struct evdns_base *dns,
                                          const struct cluster_options *options,
                                          const struct cluster_ops *ops,
                                          void *arg);

/* cluster_free(c): its pools have been left. NULL is a no-op. */
void cluster_free(struct cluster *c);

/* cluster_workers_at(c, port): workers are taken at that port. */
void cluster_workers_at(struct cluster *c, uint16_t port);

/* cluster_members(c, out, most): where the conductors of the same model take
 * workers, this one first. Returns how many; 0: it does not know. */
size_t cluster_members(const struct cluster *c, struct address *out,
                       size_t most);

/* cluster_leads(c): whether this conductor does what only one may do. */
bool cluster_leads(const struct cluster *c);

/* cluster_lead_token(c): of its leading, above that of any who led before; 0:
 * there is no cluster. */
uint64_t cluster_lead_token(const struct cluster *c);

/* cluster_limits_due(c): a client of ops->limit() has taken something, which
 * the others are told soon. O(clients). */
void cluster_limits_due(struct cluster *c);

/* What one request has, as a pool knows it. */
struct cluster_request {
    uint64_t id; /* of its attempt */
    uint32_t prefill, decode;
    const struct schedule_lent *lent;
};

struct cluster_pool_ops {
    /* Room may have come. */
    void (*freed)(void *arg);
    /* Calls visit() for each request that instances have from here. */
    void (*each)(void *arg,
                 void (*visit)(void *to, const struct cluster_request *r),
                 void *to);
};

/* cluster_join(c, model, pool, lengths, ops, arg): the instances of a model,
 * which other conductors have, too. Borrows all but model. Returns it owned, or
 * NULL: out of memory, or there is no cluster. */
[[nodiscard]] struct cluster_pool *
cluster_join(struct cluster *c, const char *model, struct pool *pool,
             struct lengths *lengths, const struct cluster_pool_ops *ops,
             void *arg);

/* cluster_prices(p, scheduler): it prices what comes, from now on, and is told
 * what came to the others. Borrows it. p NULL is a no-op. */
void cluster_prices(struct cluster_pool *p, struct scheduler *scheduler);

/* cluster_leave(p): NULL is a no-op. */
void cluster_leave(struct cluster_pool *p);

/* What happens to a request of this conductor; each is told to the others. O(1)
 * but for the first, which is O(the instances' queues). */
void cluster_decided(struct cluster_pool *p, const struct cluster_request *r);
/* A request came, as it was priced. */
void cluster_asked(struct cluster_pool *p, const struct schedule_asked *asked);
void cluster_started(struct cluster_pool *p, uint64_t request);
void cluster_prefilled(struct cluster_pool *p, uint64_t request,
                       int64_t observed_us);
void cluster_decoding(struct cluster_pool *p, uint64_t request);
void cluster_produced(struct cluster_pool *p, uint64_t request, int64_t tokens);
void cluster_ended(struct cluster_pool *p, uint64_t request);
/* An answer of a key had so many tokens, of as many as were asked for. */
void cluster_learnt(struct cluster_pool *p, uint64_t key, int64_t tokens,
                    int64_t most);

/* cluster_joined(p): an instance came, of whose work others may have told
 * before: they are asked again. */
void cluster_joined(struct cluster_pool *p);

struct cluster_counts {
    bool up, leads;
    size_t members;
    struct redis_counts commands, reads;
    uint64_t told;     /* batches sent */
    uint64_t told_all; /* times that all was told */
    uint64_t echoes;   /* of these, read as others read them */
    uint64_t echo_us;  /* the sum of the times from their first event to that */
    uint64_t untold;   /* batches that Redis did not take */
    uint64_t asked;    /* times that others were asked for all */
    uint64_t leases;   /* that this conductor was given */
    uint64_t led;      /* times that it became the leader */
    struct foreign_counts foreign; /* of all pools */
    struct limits_counts limits;
};

/* cluster_counts(c): since cluster_new(); zeros without a cluster. */
struct cluster_counts cluster_counts(const struct cluster *c);

#endif
