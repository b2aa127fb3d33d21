/* Makes the transports of this worker. */
#include "workers/transfer/transports.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "workers/transfer/engine/rdma/rdma.h"
#include "workers/transfer/engine/shm/slab.h"
#include "workers/transfer/internal.h"

static struct transport *new_tcp(struct transfer *t)
{
    const struct transfer_config *c = &t->config;
    const struct tcp_config tcp = {
        .loop = c->loop,
        .stream_loop = c->stream_loop,
        .dns = c->dns,
        .secret = c->secret,
        .hello = &t->hello,
        .streams = c->streams,
    };

    t->tcp = tcp_transport_new(&tcp);
    return t->tcp;
}

/* Returns NULL if the slab or the kernel does not allow it: the worker starts
 * without it. */
static struct transport *new_shm(struct transfer *t)
{
    if (t->config.slab_fd < 0)
        return NULL;
    struct transport *transport = shm_transport_new(t->config.loop);
    if (!transport)
        log_warn("KV does not move over shared memory: the kernel refuses it");
    return transport;
}

static void log_rdma(int level, const char *line)
{
    log_line((enum log_level)level, "%s", line);
}

/* Returns NULL without an RDMA card or libibverbs: the worker starts without
 * it. */
static struct transport *new_rdma(struct transfer *t)
{
    const struct transfer_config *c = &t->config;
    const struct rdma_config rdma = {
        .loop = c->loop,
        .stream_loop = c->stream_loop,
        .dns = c->dns,
        .listen_host = c->listen_host,
        .devices = c->rdma_devices,
        .slice_bytes = c->rdma_slice_bytes,
        .log = log_rdma,
    };
    struct transport *transport;
    char why[400];

    if (rdma_transport_load(&rdma, &transport, why, sizeof(why)) == 0)
        return transport;
    log_warn("KV does not move over RDMA, but over the other --transports or "
             "tcp: %s",
             why);
    return NULL;
}

_Static_assert(TRANSFER_STREAMS_MAX <= TCP_STREAMS_MAX, "a thread for each");

/* Best first. */
static const struct {
    const char *name;
    struct transport *(*create)(struct transfer *t);
    /* Allocates the slab, as shm_slab_new(). NULL = any memory is fine. */
    void *(*slab)(size_t bytes, int *fd);
} kinds[] = {
    {"shm", new_shm, shm_slab_new},
    {"rdma", new_rdma, NULL},
    {"tcp", new_tcp, NULL},
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))
_Static_assert(N_KINDS <= MSG_TRANSPORTS_MAX,
               "TRANSPORTS has a place for each");

/* Returns whether `list`, separated by commas, has `name`. */
static bool listed(const char *list, const char *name)
{
    for (;;) {
        size_t n = strcspn(list, ",");

        if (strlen(name) == n && strncmp(list, name, n) == 0)
            return true;
        if (list[n] == '\0')
            return false;
        list += n + 1;
    }
}

/* Each name of a valid list is the name of a kind, and none appears twice. */
int transports_check(const char *list)
{
    size_t unknown = 1;

    for (const char *c = list; *c; c++)
        unknown += *c == ',';
    for (size_t i = 0; i < N_KINDS; i++)
        unknown -= listed(list, kinds[i].name);
    return unknown == 0 ? 0 : -EINVAL;
}

void *transports_slab_new(const char *list, size_t bytes, int *fd)
{
    void *memory = NULL;

    for (size_t i = 0; !memory && i < N_KINDS; i++)
        if (kinds[i].slab && listed(list, kinds[i].name))
            memory = kinds[i].slab(bytes, fd);
    return memory;
}

/* Registers the slab, so that all blocks can be granted. Returns 0 or more, or
 * a negative errno. */
static int register_slab(const struct transfer *t, struct transport *transport)
{
    struct kv_store *store = t->config.store;
    struct kv_store_stats stats;

    kv_store_stats(store, &stats);
    char *first = kv_store_data(store, 0);
    char *last = kv_store_data(store, stats.capacity_blocks - 1);
    uint64_t bytes = (uint64_t)(last - first) + t->config.layout->block_bytes;
    return transport->ops->reg(transport, first, bytes, t->config.slab_fd);
}

/* Registers the card's pages, so that they can be lent. Returns the region's
 * number, or negative: KV in the card goes through the host. */
static int register_card(const struct transfer *t, struct transport *transport)
{
    const char *name = transport->ops->name;

    if (!t->config.card || !transport->ops->reg_card)
        return -ENOTSUP;
    int rc = transport->ops->reg_card(transport, t->config.card);
    if (rc >= 0)
        log_info("KV on the card is read directly over %s", name);
    else
        log_info("KV on the card is read through the host over %s: %s", name,
                 strerror(-rc));
    return rc;
}

int transports_open(struct transfer *t)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        bool last = kinds[i].create == new_tcp; /* the fallback: required */

        if (!last && !listed(t->config.transports, kinds[i].name))
            continue;
        struct transport *transport = kinds[i].create(t);
        if (!transport && last)
            return -ENOMEM;
        if (!transport)
            continue;
        int rc = register_slab(t, transport);
        if (rc >= 0) {
            t->card_regions[t->n_transports] = register_card(t, transport);
            t->transports[t->n_transports++] = transport;
            continue;
        }
        log_warn("KV does not move over %s: the cache cannot be registered: %s",
                 kinds[i].name, strerror(-rc));
        transport->ops->free(transport);
        if (last)
            return rc;
    }
    return 0;
}

void transports_close(struct transfer *t)
{
    while (t->n_transports > 0) {
        struct transport *transport = t->transports[--t->n_transports];

        transport->ops->free(transport);
    }
}
