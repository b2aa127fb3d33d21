/* The connections and the pools. See cluster.h. */
#include "conductor/cluster/cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/cluster/internal.h"

/* Renewals in a lease: two may be lost. */
#define RENEWALS 3
#define FLIGHT_MAX 4096
#define FLIGHT_BYTES (16u << 20)
#define READ_PATIENCE_US 1500000 /* above the time that a read waits */

static void on_up(void *arg, bool up)
{
    struct cluster *c = arg;

    if (!up)
        return;
    registry_renew(c);
    limits_up(c->limits);
}

static void on_reader_up(void *arg, bool up)
{
    struct cluster *c = arg;

    c->reading = false;
    if (up)
        hear_anew(c);
}

static void on_tick(void *arg)
{
    struct cluster *c = arg;

    registry_tick(c, loop_now_us(c->loop));
    registry_renew(c);
    hear_on(c);
}

static void on_flush(void *arg)
{
    struct cluster *c = arg;
    struct cluster_pool *p;

    LIST_FOREACH(p, &c->pools, entry)
    {
        tell_flush(p);
    }
}

static void on_due(void *arg)
{
    struct cluster *c = arg;
    struct cluster_pool *p;

    LIST_FOREACH(p, &c->pools, entry)
    {
        tell_due(p, loop_now_us(c->loop));
    }
}

static int open_redis(struct cluster *c, struct loop *loop, struct dns *dns)
{
    struct redis_options options = {
        .what = "state",
        .max_flight = FLIGHT_MAX,
        .max_bytes = FLIGHT_BYTES,
        .tls = c->options.tls,
        .timeout_us = c->options.lease_us / RENEWALS,
    };

    c->redis = redis_new(loop, dns, &c->options.url, &options,
                         (struct redis_watch){on_up, c});
    options.what = "state, reading";
    options.timeout_us = READ_PATIENCE_US;
    c->reader = redis_new(loop, dns, &c->options.url, &options,
                          (struct redis_watch){on_reader_up, c});
    limits_use(c->limits, c->redis);
    return c->redis && c->reader ? 0 : -1;
}

struct cluster *cluster_new(struct loop *loop, struct dns *dns,
                            const struct cluster_options *options,
                            const struct cluster_ops *ops, void *arg)
{
    struct cluster *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->loop = loop;
    c->options = *options;
    c->ops = ops;
    c->arg = arg;
    LIST_INIT(&c->pools);
    do
        c->self.id = loop_random(loop);
    while (c->self.id == 0);
    c->self.model = *options->model ? names_of_text(options->model) : 0;
    member_id(c->self.id, c->id);
    snprintf(c->leader_key, sizeof(c->leader_key),
             CLUSTER_PREFIX "leader:%016" PRIx64, c->self.model);
    c->self.at = options->workers_at;
    loop_timer_init(loop, &c->tick, on_tick, c);
    loop_timer_init(loop, &c->flush, on_flush, c);
    loop_timer_init(loop, &c->due, on_due, c);
    c->limits = limits_new(loop, c->id, options->lease_us, ops->limit, arg);
    if (c->limits && open_redis(c, loop, dns) == 0 &&
        loop_timer_repeat(&c->tick, options->lease_us / RENEWALS) == 0)
        return c;
    cluster_free(c);
    return NULL;
}

void cluster_free(struct cluster *c)
{
    if (!c)
        return;
    redis_free(c->redis);
    redis_free(c->reader);
    limits_free(c->limits);
    loop_timer_stop(&c->tick);
    loop_timer_stop(&c->flush);
    loop_timer_stop(&c->due);
    free(c);
}

void cluster_workers_at(struct cluster *c, uint16_t port)
{
    if (c)
        c->options.workers_at.port = c->self.at.port = port;
}

void cluster_limits_due(struct cluster *c)
{
    if (c)
        limits_due(c->limits);
}

size_t cluster_members(const struct cluster *c, struct address *out,
                       size_t most)
{
    size_t n = 0;

    if (!c || !*c->self.at.host || c->self.at.port == 0 || most == 0)
        return 0;
    out[n++] = c->self.at;
    for (size_t i = 0; i < c->n_members && n < most; i++)
        if (c->members[i].id != c->self.id && c->members[i].at.port > 0 &&
            c->members[i].model == c->self.model)
            out[n++] = c->members[i].at;
    return n;
}

bool cluster_leads(const struct cluster *c)
{
    return !c || c->leads;
}

uint64_t cluster_lead_token(const struct cluster *c)
{
    return c ? c->lead_token : 0;
}

struct cluster_pool *cluster_join(struct cluster *c, const char *model,
                                  struct pool *pool, struct lengths *lengths,
                                  const struct cluster_pool_ops *ops, void *arg)
{
    struct cluster_pool *p = c ? calloc(1, sizeof(*p)) : NULL;

    if (!p)
        return NULL;
    p->cluster = c;
    p->pool = pool;
    p->ops = ops;
    p->arg = arg;
    p->all_due = true;
    snprintf(p->key, sizeof(p->key), CLUSTER_PREFIX "load:%016" PRIx64,
             names_of_text(model));
    wire_buf_init(&p->out, CLUSTER_BATCH_MAX);
    p->names = names_new(pool);
    p->foreign =
        p->names ? foreign_new(pool, p->names, lengths, c->self.id) : NULL;
    LIST_INSERT_HEAD(&c->pools, p, entry);
    c->n_pools++;
    if (p->foreign)
        return p;
    cluster_leave(p);
    return NULL;
}

void cluster_prices(struct cluster_pool *p, struct scheduler *scheduler)
{
    if (p)
        foreign_prices(p->foreign, scheduler);
}

void cluster_leave(struct cluster_pool *p)
{
    if (!p)
        return;
    LIST_REMOVE(p, entry);
    p->cluster->n_pools--;
    if (p->cluster->placing == p)
        p->cluster->placing = NULL;
    foreign_free(p->foreign);
    names_free(p->names);
    wire_buf_fini(&p->out);
    free(p);
}

static void add_foreign(struct foreign_counts *to,
                        const struct foreign_counts *x)
{
    to->batches += x->batches;
    to->events += x->events;
    to->bad += x->bad;
    to->gaps += x->gaps;
    to->fenced += x->fenced;
    to->missing += x->missing;
    to->unbooked += x->unbooked;
    to->dropped += x->dropped;
    to->owners += x->owners;
    to->entries += x->entries;
}

struct cluster_counts cluster_counts(const struct cluster *c)
{
    struct cluster_counts counts = {.leads = true};
    const struct cluster_pool *p;

    if (!c)
        return counts;
    counts = c->counts;
    counts.up = redis_is_up(c->redis) && redis_is_up(c->reader) &&
                !c->complained && !c->unleased;
    counts.leads = c->leads;
    counts.members = c->n_members;
    counts.limits = limits_counts(c->limits);
    counts.commands = redis_counts(c->redis);
    counts.reads = redis_counts(c->reader);
    LIST_FOREACH(p, &c->pools, entry)
    {
        struct foreign_counts f = foreign_counts(p->foreign);

        add_foreign(&counts.foreign, &f);
    }
    return counts;
}
