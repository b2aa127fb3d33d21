/* Paths: the functions of transport_ops. */
#include <errno.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/internal.h"

static void set_rails(struct rdma_path *p)
{
    struct rdma *r = p->rdma;

    for (uint32_t i = 0; i < r->n_cards; i++) {
        double rate = r->cards[i].nic.bytes_per_s;

        spread_rail_set(p->spread, i, rate > 0 ? rate : 1e9,
                        r->n_regions > 0 ? r->regions[0].classes[i] : 0);
    }
}

/* Makes a path that is not connected yet. Returns NULL if out of memory. */
static struct rdma_path *
new_path(struct rdma *r, const struct transport_path_ops *ops, void *arg)
{
    struct rdma_path *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->base.ops = r->base.ops;
    p->rdma = r;
    p->ops = ops;
    p->arg = arg;
    p->opened_us = loop_now_us(r->config.loop);
    TAILQ_INIT(&p->all);
    p->channel.message = path_message;
    p->channel.gone = path_channel_gone;
    p->channel.opened = path_opened;
    p->channel.arg = p;
    loop_timer_init(r->config.loop, &p->timer, path_on_timer, p);
    if (spread_new(&r->spread, r->n_cards, &p->spread) < 0) {
        path_free(p);
        return NULL;
    }
    set_rails(p);
    return p;
}

struct transport_path *rdma_open(struct transport *t,
                                 const struct transport_peer *peer,
                                 const struct transport_path_ops *ops,
                                 void *arg)
{
    struct rdma *r = (struct rdma *)t;
    struct wire_descriptor there;
    struct rdma_path *p;

    if (wire_descriptor_decode(peer->descriptor, peer->n_descriptor, &there) <
        0)
        return NULL;
    p = new_path(r, ops, arg);
    if (!p)
        return NULL;
    p->peer = there;
    if (channel_connect(&p->channel, r->config.stream_loop, r->config.dns,
                        peer->host, there.port) < 0) {
        path_free(p);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&r->paths, p, link);
    path_pump(p);
    return &p->base;
}

/* Returns 0 if all slices lie in registered regions of both sides, or a
 * negative errno. */
static int check_slices(const struct rdma_path *p,
                        const struct transport_slice *slices, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct transport_slice *s = &slices[i];

        if (s->region >= p->peer.n_regions ||
            s->offset > p->peer.regions[s->region].bytes ||
            s->bytes > p->peer.regions[s->region].bytes - s->offset)
            return -EINVAL;
        if (rdma_region_of(p->rdma, s->local, s->bytes) < 0)
            return -EFAULT;
    }
    return 0;
}

int rdma_read(struct transport_path *path, uint64_t op_id, uint64_t grant_id,
              const struct transport_slice *slices, uint32_t n)
{
    struct rdma_path *p = (struct rdma_path *)path;
    int may = path_may(p, grant_id), rc;

    if (p->rc != 0)
        return -ENOTCONN;
    if (may < 0)
        return may;
    rc = check_slices(p, slices, n);
    if (rc == 0)
        rc = spread_add(p->spread, op_id, grant_id, may == 0, slices, n,
                        loop_now_us(p->rdma->config.loop));
    if (rc == 0)
        path_mark(p);
    return rc;
}

void rdma_cancel(struct transport_path *path, uint64_t op_id)
{
    struct rdma_path *p = (struct rdma_path *)path;

    spread_cancel(p->spread, op_id);
    path_mark(p);
}

uint64_t rdma_moved_bytes(const struct transport_path *path)
{
    return ((const struct rdma_path *)path)->moved_bytes;
}

void rdma_close(struct transport_path *path)
{
    struct rdma_path *p = (struct rdma_path *)path;

    p->closed = true;
    p->rc = p->rc != 0 ? p->rc : -ECANCELED;
    channel_fini(&p->channel);
    path_fail_ends(p);
    path_mark(p);
}
