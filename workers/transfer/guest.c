/* Peers that read from this worker: offers, grants and leases of blocks. */
#include "workers/transfer/guest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/transfer/internal.h"

/* A block of a lease. */
struct leased {
    uint32_t id; /* pinned */
    bool lent;   /* its page on the card is lent to the peer, at */
    uint64_t at; /* this offset in the card's region */
};

/* Blocks granted under one id. */
struct lease {
    LIST_ENTRY(lease) link;
    uint64_t id;
    uint32_t n;
    struct leased blocks[]; /* (n) */
};

struct guest {
    LIST_ENTRY(guest) link;
    struct transfer *transfer;
    struct frame_conn *conn; /* NULL = gone */
    const char *name;        /* for the log */
    struct transport_offer *offers[MSG_TRANSPORTS_MAX];
    uint32_t n_offers;              /* offers not withdrawn yet */
    struct transport_offer *chosen; /* by the peer; NULL = none yet */
    int card_region; /* of the chosen transport; negative = card not readable */
    LIST_HEAD(, lease) leases;
};

static void lease_free(struct guest *g, struct lease *l)
{
    const struct shared_card *card = g->transfer->config.card;
    struct kv_store *store = g->transfer->config.store;
    uint32_t n_lent = 0;

    for (uint32_t i = 0; i < l->n; i++) {
        struct leased *b = &l->blocks[i];

        if (b->lent)
            card->ops->give_back(card, kv_store_data(store, b->id));
        n_lent += b->lent;
        kv_store_release(store, b->id);
    }
    if (n_lent > 0)
        log_debug("%u of %u blocks of a grant were lent in the card", n_lent,
                  l->n);
    LIST_REMOVE(l, link);
    free(l);
}

static struct lease *lease_of(const struct guest *g, uint64_t id)
{
    struct lease *l;

    LIST_FOREACH(l, &g->leases, link)
    {
        if (l->id == id)
            return l;
    }
    return NULL;
}

static void on_revoked(void *arg, uint64_t id)
{
    struct guest *g = arg;
    struct transfer *t = g->transfer;
    struct lease *l = lease_of(g, id);

    if (l)
        lease_free(g, l);
    t->ops->released(t->arg);
}

static void on_broken(void *arg, const char *why)
{
    struct guest *g = arg;

    if (g->conn)
        frame_conn_fail(g->conn, why);
}

static void on_withdrawn(void *arg)
{
    struct guest *g = arg;

    if (--g->n_offers > 0)
        return;
    LIST_REMOVE(g, link);
    free(g);
}

static const struct transport_offer_ops offer_ops = {
    .revoked = on_revoked,
    .broken = on_broken,
    .withdrawn = on_withdrawn,
};

struct guest *guest_new(struct transfer *t, struct frame_conn *conn,
                        const char *name, uint64_t id)
{
    uint8_t descriptors[MSG_TRANSPORTS_MAX][TRANSPORT_DESCRIPTOR_MAX];
    struct guest *g = calloc(1, sizeof(*g));
    struct msg_transports m = {0};

    if (!g)
        return NULL;
    g->transfer = t;
    g->conn = conn;
    g->name = name;
    LIST_INIT(&g->leases);
    LIST_INSERT_HEAD(&t->guests, g, link);
    for (uint32_t i = 0; i < t->n_transports; i++) {
        struct transport *transport = t->transports[i];
        size_t n = 0;

        g->offers[i] = transport->ops->offer(transport, &offer_ops, g,
                                             descriptors[m.n], &n);
        if (!g->offers[i])
            continue;
        g->n_offers++;
        struct msg_transport *told = &m.list[m.n];
        snprintf(told->name, sizeof(told->name), "%s", transport->ops->name);
        told->n = (uint32_t)n;
        told->descriptor = descriptors[m.n++];
    }
    msg_transports_pack(&t->buf, id, &m);
    transfer_send(t, conn);
    return g;
}

void guest_shut(struct guest *g)
{
    if (!g)
        return;
    g->conn = NULL;
    if (g->n_offers == 0) {
        LIST_REMOVE(g, link);
        free(g);
        return;
    }
    for (uint32_t i = 0; i < MSG_TRANSPORTS_MAX; i++)
        if (g->offers[i])
            g->offers[i]->ops->withdraw(g->offers[i]);
}

int guest_on_transports(struct guest *g, const uint8_t *payload, size_t len)
{
    struct msg_transports m;

    if (!g)
        return -EPROTO;
    if (msg_transports_unpack(payload, len, &m) || m.n != 1 || g->chosen)
        return -EBADMSG;
    for (uint32_t i = 0; i < MSG_TRANSPORTS_MAX && !g->chosen; i++)
        if (g->offers[i] &&
            strcmp(g->offers[i]->ops->name, m.list[0].name) == 0) {
            g->chosen = g->offers[i];
            g->card_region = g->transfer->card_regions[i];
        }
    if (!g->chosen)
        return -EBADMSG;
    if (m.list[0].n == 0 || m.list[0].descriptor[0] != 1)
        g->card_region = -1;
    log_info("worker %s moves KV over %s%s", g->name, m.list[0].name,
             g->card_region < 0 ? ""
                                : ", directly from the card if it is there");
    return 0;
}

int guest_grant(struct guest *g, const uint32_t *ids, uint32_t n, uint64_t *id)
{
    if (!g || !g->chosen)
        return -EPROTO;
    struct transfer *t = g->transfer;
    struct transport_range *ranges = calloc(n, sizeof(*ranges));
    struct lease *l = calloc(1, sizeof(*l) + n * sizeof(l->blocks[0]));
    int rc = ranges && l ? 0 : -ENOMEM;

    for (uint32_t i = 0; rc == 0 && i < n; i++)
        ranges[i] = (struct transport_range){
            .offset = rows_offset(t, kv_store_data(t->config.store, ids[i])),
            .bytes = t->config.layout->block_bytes,
        };
    if (rc == 0) {
        l->id = loop_random(t->config.loop);
        l->n = n;
        rc = g->chosen->ops->grant(g->chosen, l->id, ranges, n);
    }
    free(ranges);
    if (rc < 0) {
        free(l);
        return rc;
    }
    for (uint32_t i = 0; i < n; i++) {
        l->blocks[i].id = ids[i];
        kv_store_pin(t->config.store, ids[i]);
    }
    LIST_INSERT_HEAD(&g->leases, l, link);
    *id = l->id;
    return 0;
}

/* Lends the card's page of `b`, if it has one. Returns whether it is lent. */
static bool lend(const struct guest *g, struct leased *b)
{
    const struct transfer *t = g->transfer;
    const struct shared_card *card = t->config.card;

    if (!b->lent)
        b->lent = card->ops->lend(card, kv_store_data(t->config.store, b->id),
                                  &b->at) == 0;
    return b->lent;
}

void guest_place(struct guest *g, uint64_t grant_id, uint32_t i,
                 struct guest_place *place)
{
    const struct transfer *t = g->transfer;
    struct lease *l = lease_of(g, grant_id);

    if (l && g->card_region >= 0 && lend(g, &l->blocks[i]))
        *place =
            (struct guest_place){(uint32_t)g->card_region, l->blocks[i].at};
    else if (l)
        *place = (struct guest_place){
            0, rows_offset(t, kv_store_data(t->config.store, l->blocks[i].id))};
}

void guest_revoke(struct guest *g, uint64_t id)
{
    g->chosen->ops->revoke(g->chosen, id);
}

void guest_free_all(struct transfer *t)
{
    struct guest *g;

    while ((g = LIST_FIRST(&t->guests))) {
        while (!LIST_EMPTY(&g->leases))
            lease_free(g, LIST_FIRST(&g->leases));
        LIST_REMOVE(g, link);
        free(g);
    }
}
