/* Makes the transports of this worker. */
#include "workers/transfer/transports.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "workers/transfer/engine/rdma/rdma.h"
#include "workers/transfer/internal.h"

static struct transport *new_tcp(struct transfer *t)
{
    const struct transfer_config *c = &t->config;
    const struct tcp_config tcp = {
        .base = c->base,
        .dns = c->dns,
        .secret = c->secret,
        .hello = &t->hello,
        .streams = c->streams,
    };

    t->tcp = tcp_transport_new(&tcp);
    return t->tcp;
}

/* Returns NULL if the slab or the kernel does not allow it: the worker starts
 * without. */
static struct transport *new_shm(struct transfer *t)
{
    if (t->config.slab_fd < 0)
        return NULL;
    struct transport *transport = shm_transport_new(t->config.base);
    if (!transport)
        log_warn("KV does not move over shared memory: the kernel refuses it");
    return transport;
}

static void log_rdma(int level, const char *line)
{
    log_line((enum log_level)level, "%s", line);
}

/* Returns NULL without an RDMA card or libibverbs: the worker starts without.
 */
static struct transport *new_rdma(struct transfer *t)
{
    const struct transfer_config *c = &t->config;
    const struct rdma_config rdma = {
        .base = c->base,
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
} kinds[] = {
    {"shm", new_shm},
    {"rdma", new_rdma},
    {"tcp", new_tcp},
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Writes the length of the first name of *list, which commas separate, to *n.
 * Returns whether more names follow. */
static bool next_name(const char **list, size_t *n)
{
    *n = strcspn(*list, ",");
    return (*list)[*n] == ',';
}

static bool is(const char *at, size_t n, const char *name)
{
    return strlen(name) == n && strncmp(at, name, n) == 0;
}

bool transports_name(const char *list, const char *name)
{
    bool more = true;
    size_t n;

    for (; more; list += n + 1) {
        more = next_name(&list, &n);
        if (is(list, n, name))
            return true;
    }
    return false;
}

int transports_check(const char *list)
{
    bool more = true, seen[N_KINDS] = {0};
    size_t n;

    for (; more; list += n + 1) {
        bool known = false;

        more = next_name(&list, &n);
        for (size_t i = 0; i < N_KINDS; i++) {
            if (!is(list, n, kinds[i].name))
                continue;
            known = !seen[i];
            seen[i] = true;
        }
        if (!known)
            return -EINVAL;
    }
    return 0;
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

        if (!last && !transports_name(t->config.transports, kinds[i].name))
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
