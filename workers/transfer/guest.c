/* What a peer may read here. */
#include "workers/transfer/guest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/entropy.h"
#include "base/log.h"
#include "workers/transfer/internal.h"

/* Blocks that are granted under one id. */
struct lease {
    LIST_ENTRY(lease) link;
    uint64_t id;
    uint32_t n;
    uint32_t blocks[]; /* (n), pinned */
};

struct guest {
    LIST_ENTRY(guest) link;
    struct transfer *transfer;
    struct frame_conn *conn; /* NULL: it is gone */
    const char *name;        /* for the log */
    struct transport_offer *offers[MSG_TRANSPORTS_MAX];
    uint32_t n_offers;              /* that are not withdrawn yet */
    struct transport_offer *chosen; /* NULL: none yet */
    LIST_HEAD(, lease) leases;
};

static void lease_free(struct guest *g, struct lease *l)
{
    struct kv_store *store = g->transfer->config.store;

    for (uint32_t i = 0; i < l->n; i++)
        kv_store_release(store, l->blocks[i]);
    LIST_REMOVE(l, link);
    free(l);
}

static void on_revoked(void *arg, uint64_t id)
{
    struct guest *g = arg;
    struct transfer *t = g->transfer;
    struct lease *l;

    LIST_FOREACH(l, &g->leases, link)
    {
        if (l->id == id)
            break;
    }
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
            strcmp(g->offers[i]->ops->name, m.list[0].name) == 0)
            g->chosen = g->offers[i];
    if (!g->chosen)
        return -EBADMSG;
    log_info("worker %s moves KV over %s", g->name, m.list[0].name);
    return 0;
}

int guest_grant(struct guest *g, const uint32_t *ids, uint32_t n, uint64_t *id)
{
    if (!g || !g->chosen)
        return -EPROTO;
    struct transfer *t = g->transfer;
    struct transport_range *ranges = calloc(n, sizeof(*ranges));
    struct lease *l = malloc(sizeof(*l) + n * sizeof(*ids));
    int rc = ranges && l ? 0 : -ENOMEM;

    for (uint32_t i = 0; rc == 0 && i < n; i++)
        ranges[i] = (struct transport_range){
            .offset = rows_offset(t, kv_store_data(t->config.store, ids[i])),
            .bytes = t->config.layout->block_bytes,
        };
    if (rc == 0) {
        *l = (struct lease){.id = entropy_u64(), .n = n};
        rc = g->chosen->ops->grant(g->chosen, l->id, false, ranges, n);
    }
    free(ranges);
    if (rc < 0) {
        free(l);
        return rc;
    }
    memcpy(l->blocks, ids, n * sizeof(*ids));
    for (uint32_t i = 0; i < n; i++)
        kv_store_pin(t->config.store, ids[i]);
    LIST_INSERT_HEAD(&g->leases, l, link);
    *id = l->id;
    return 0;
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
