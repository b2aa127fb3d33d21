/* Offers: the side whose memory is read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/listener.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/internal.h"

/* Time for the answer to REVOKE; then the peer loses its queue pairs. */
#define REVOKE_US 5000000

static void describe_rail(const struct rdma *r, uint32_t i,
                          struct wire_rail *rail)
{
    const struct card *c = &r->cards[i];

    memcpy(rail->gid, c->gid.raw, sizeof(rail->gid));
    rail->lid = c->lid;
    rail->mtu = (uint8_t)c->mtu;
    rail->rail_class = r->n_regions > 0 ? (uint8_t)r->regions[0].classes[i] : 0;
    rail->up = c->up;
    rail->rate_mb_s =
        c->nic.bytes_per_s < 4e15 ? (uint32_t)(c->nic.bytes_per_s / 1e6) : 0;
    for (uint32_t k = 0; k < r->n_regions; k++)
        rail->keys[k] = c->regions[k]->rkey;
}

static void describe(const struct rdma_offer *o, struct wire_descriptor *d)
{
    const struct rdma *r = o->rdma;

    *d = (struct wire_descriptor){.port = listener_port(r->listener),
                                  .n_regions = r->n_regions,
                                  .n_rails = r->n_cards};
    memcpy(d->token, o->token, sizeof(d->token));
    for (uint32_t i = 0; i < r->n_regions; i++) {
        d->regions[i].address = (uintptr_t)r->regions[i].memory;
        d->regions[i].bytes = r->regions[i].bytes;
    }
    for (uint32_t i = 0; i < r->n_cards; i++)
        describe_rail(r, i, &d->rails[i]);
}

struct transport_offer *rdma_offer(struct transport *t,
                                   const struct transport_offer_ops *ops,
                                   void *arg, uint8_t *descriptor, size_t *n)
{
    struct rdma *r = (struct rdma *)t;
    struct rdma_offer *o = calloc(1, sizeof(*o));
    struct wire_descriptor d;

    if (!o)
        return NULL;
    o->base.ops = r->base.ops;
    o->rdma = r;
    o->ops = ops;
    o->arg = arg;
    TAILQ_INIT(&o->ends);
    TAILQ_INIT(&o->grants);
    loop_random_bytes(r->config.loop, o->token, sizeof(o->token));
    describe(o, &d);
    *n = wire_descriptor_encode(&d, descriptor);
    TAILQ_INSERT_TAIL(&r->offers, o, link);
    return &o->base;
}

/* --- grants --- */

static struct grant *find(const struct rdma_offer *o, uint64_t id)
{
    struct grant *g;

    TAILQ_FOREACH(g, &o->grants, link)
    if (g->id == id)
        return g;
    return NULL;
}

static void tell_grant(struct rdma_offer *o, struct grant *g)
{
    struct wire_message m = {.type = WIRE_GRANT, .id = g->id};

    if (!o->channel.stream || g->revoking)
        return;
    g->told = true;
    channel_send(&o->channel, &m);
}

/* Ignores the ranges: a card's key covers a whole region. Only the peer of this
 * offer has the keys. */
int rdma_grant(struct transport_offer *offer, uint64_t grant_id,
               const struct transport_range *, uint32_t)
{
    struct rdma_offer *o = (struct rdma_offer *)offer;
    struct grant *g;

    if (find(o, grant_id))
        return -EEXIST;
    if (o->n_grants == RDMA_GRANTS_MAX || !(g = calloc(1, sizeof(*g))))
        return -ENOMEM;
    g->id = grant_id;
    TAILQ_INSERT_HEAD(&o->grants, g, link);
    o->n_grants++;
    tell_grant(o, g);
    return 0;
}

/* Ends a grant that is no longer used. */
static void grant_over(struct rdma_offer *o, struct grant *g)
{
    g->over = true;
    offer_mark(o);
}

void rdma_revoke(struct transport_offer *offer, uint64_t grant_id)
{
    struct rdma_offer *o = (struct rdma_offer *)offer;
    struct wire_message m = {.type = WIRE_REVOKE, .id = grant_id};
    struct grant *g = find(o, grant_id);

    if (!g || g->revoking)
        return;
    g->revoking = true;
    g->revoke_us = loop_now_us(o->rdma->config.loop);
    if (g->told && o->channel.stream)
        channel_send(&o->channel, &m);
    else if (TAILQ_EMPTY(&o->ends))
        grant_over(o, g);
}

/* If the peer has no channel and no queue pair here: ends its revoked grants.
 * Its other grants can be sent again over a new channel. */
static void peer_gone(struct rdma_offer *o)
{
    struct grant *g;

    if (o->channel.stream || !TAILQ_EMPTY(&o->ends))
        return;
    TAILQ_FOREACH(g, &o->grants, link)
    {
        g->told = false;
        if (g->revoking || o->withdrawn)
            g->over = true;
    }
    offer_mark(o);
}

/* --- the peer --- */

static void drop_peer(struct rdma_offer *o)
{
    struct end *e, *next;

    channel_fini(&o->channel);
    for (e = TAILQ_FIRST(&o->ends); e; e = next) {
        next = TAILQ_NEXT(e, link);
        end_fail(e, NULL);
    }
    peer_gone(o);
}

static void break_off(struct rdma_offer *o, const char *why)
{
    if (o->broken)
        return;
    o->broken = true;
    snprintf(o->why, sizeof(o->why), "%s", why);
    drop_peer(o);
    offer_mark(o);
}

static void on_pair(struct rdma_offer *o, const struct wire_message *m)
{
    struct wire_message answer = {.type = WIRE_PAIRED, .id = m->id};

    answer.rc = end_serve(o, m);
    if (answer.rc < 0)
        channel_send(&o->channel, &answer);
}

void offer_end_made(struct end *e)
{
    struct wire_message m = end_message(e, WIRE_PAIRED);

    m.rc = e->job.rc;
    channel_send(&e->offer->channel, &m);
}

static void on_unpair(struct rdma_offer *o, uint64_t id)
{
    struct end *e;

    TAILQ_FOREACH(e, &o->ends, link)
    if (e->id == id) {
        end_fail(e, NULL);
        return;
    }
}

void offer_end_gone(const struct end *e)
{
    struct rdma_offer *o = e->offer;

    o->n_ends--;
    o->rdma->n_serving--;
    peer_gone(o);
}

static bool on_message(void *arg, const struct wire_message *m)
{
    struct rdma_offer *o = arg;
    struct grant *g;

    if (m->type == WIRE_PAIR) {
        on_pair(o, m);
    } else if (m->type == WIRE_UNPAIR) {
        on_unpair(o, m->id);
    } else if (m->type == WIRE_REVOKED && (g = find(o, m->id)) && g->revoking) {
        grant_over(o, g);
    } else {
        break_off(o, "a message that does not fit");
        return false;
    }
    return true;
}

static void on_gone(void *arg, int rc, const char *why)
{
    struct rdma_offer *o = arg;

    if (rc == -EBADMSG)
        break_off(o, why);
    else
        drop_peer(o);
}

void offer_rail_changed(struct rdma_offer *o, uint32_t rail, bool up)
{
    struct wire_message m = {
        .type = WIRE_RAIL, .rail = (uint8_t)rail, .rc = up};

    channel_send(&o->channel, &m);
}

void offer_take(struct rdma_offer *o, struct channel *c)
{
    struct wire_message m = {.type = WIRE_WELCOME};
    struct grant *g;

    /* Allows one connection at a time: after a lost one, only once all of its
     * queue pairs are gone. */
    if (o->channel.stream || !TAILQ_EMPTY(&o->ends) || o->broken ||
        o->withdrawn) {
        channel_fini(c);
        return;
    }
    o->channel =
        (struct channel){.message = on_message, .gone = on_gone, .arg = o};
    channel_move(&o->channel, c);
    channel_send(&o->channel, &m);
    for (uint32_t i = 0; i < o->rdma->n_cards; i++)
        offer_rail_changed(o, i, o->rdma->cards[i].up);
    TAILQ_FOREACH(g, &o->grants, link)
    tell_grant(o, g);
}

void offer_tick(struct rdma_offer *o, int64_t now_us)
{
    const struct grant *g;

    if (!o->channel.stream)
        return;
    TAILQ_FOREACH(g, &o->grants, link)
    if (g->revoking && !g->over && now_us - g->revoke_us >= REVOKE_US) {
        rdma_log(o->rdma, LOG_WARN,
                 "rdma: a peer does not give back revoked memory; its queue "
                 "pairs are closed");
        drop_peer(o);
        return;
    }
}

void rdma_withdraw(struct transport_offer *offer)
{
    struct rdma_offer *o = (struct rdma_offer *)offer;

    o->withdrawn = true;
    drop_peer(o);
    offer_mark(o);
}

/* --- callbacks --- */

static void tell_revoked(struct rdma_offer *o)
{
    struct grant *g, *next;

    for (g = TAILQ_FIRST(&o->grants); g; g = next) {
        uint64_t id = g->id;

        next = TAILQ_NEXT(g, link);
        if (!g->over)
            continue;
        TAILQ_REMOVE(&o->grants, g, link);
        o->n_grants--;
        free(g);
        o->ops->revoked(o->arg, id);
    }
}

void offer_tell(struct rdma_offer *o)
{
    tell_revoked(o);
    if (o->broken && !o->told_broken && !o->withdrawn) {
        o->told_broken = true;
        o->ops->broken(o->arg, o->why);
    }
}

void offer_reap(struct rdma_offer *o)
{
    const struct transport_offer_ops *ops = o->ops;
    void *arg = o->arg;

    if (!o->withdrawn || !TAILQ_EMPTY(&o->ends) || !TAILQ_EMPTY(&o->grants))
        return;
    if (o->dirty)
        TAILQ_REMOVE(&o->rdma->dirty_offers, o, dirty_link);
    TAILQ_REMOVE(&o->rdma->offers, o, link);
    free(o);
    ops->withdrawn(arg);
}
