/* The transport as a whole: cards, memory, start and end. */
#include "workers/transfer/engine/rdma/rdma.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/internal.h"

#define TICK_US 250000
/* Time for destroying all queue pairs at the end. */
#define END_MS 10000

__attribute__((visibility(
    "default"))) extern const struct rdma_module conductor_rdma_module;

static void card_changed(struct card *c, bool up)
{
    struct rdma *r = c->rdma;
    struct rdma_offer *o;
    struct rdma_path *p;

    if (c->up == up)
        return;
    c->up = up;
    rdma_log(r, LOG_WARN, "rdma: the port of %s is %s", c->nic.name,
             up ? "up" : "down");
    TAILQ_FOREACH(p, &r->paths, link)
    if (p->rc == 0)
        path_rail_changed(p, c->index, up);
    TAILQ_FOREACH(o, &r->offers, link)
    offer_rail_changed(o, c->index, up);
}

static void turn(struct rdma *r)
{
    struct rdma_path *p;
    struct rdma_offer *o;

    while ((p = TAILQ_FIRST(&r->dirty_paths))) {
        TAILQ_REMOVE(&r->dirty_paths, p, dirty_link);
        p->dirty = false;
        path_pump(p);
        path_tell(p);
        path_reap(p);
    }
    while ((o = TAILQ_FIRST(&r->dirty_offers))) {
        TAILQ_REMOVE(&r->dirty_offers, o, dirty_link);
        o->dirty = false;
        offer_tell(o);
        offer_reap(o);
    }
}

static void on_turn(void *arg)
{
    turn(arg);
}

static void on_tick(void *arg)
{
    struct rdma *r = arg;
    struct rdma_offer *o;
    int64_t now_us = loop_now_us(r->config.loop);

    TAILQ_FOREACH(o, &r->offers, link)
    offer_tick(o, now_us);
    rdma_strangers_drop(r, now_us - RDMA_PATIENCE_US);
    turn(r);
}

/* --- memory --- */

static int reg_all(struct rdma *r, const struct rdma_memory *m, int node)
{
    struct region *region = &r->regions[r->n_regions];
    uint32_t i;

    if (r->n_regions == TRANSPORT_REGIONS_MAX)
        return -ENOSPC;
    for (i = 0; i < r->n_cards; i++) {
        r->cards[i].regions[r->n_regions] = rdma_register(r->cards[i].pd, m);
        if (!r->cards[i].regions[r->n_regions])
            goto drop;
    }
    region->memory = m->at;
    region->bytes = m->bytes;
    topology_classes(&r->topology, node, region->classes);
    return (int)r->n_regions++;
drop:;
    int rc = errno ? -errno : -ENOMEM;
    while (i-- > 0) {
        ibv_dereg_mr(r->cards[i].regions[r->n_regions]);
        r->cards[i].regions[r->n_regions] = NULL;
    }
    return rc;
}

static int reg(struct transport *t, void *memory, uint64_t bytes, int)
{
    const struct rdma_memory m = {.at = memory, .bytes = bytes, .fd = -1};

    return reg_all((struct rdma *)t, &m, topology_node_of(memory, bytes));
}

/* Registers a GPU's pages for all network cards, since it is not known which is
 * near. */
static int reg_card(struct transport *t, const struct shared_card *card)
{
    const struct rdma_memory m = {
        .at = (void *)(uintptr_t)card->address,
        .bytes = card->bytes,
        .fd = card->dmabuf,
    };

    if (m.fd < 0)
        return -ENOTSUP;
    int rc = reg_all((struct rdma *)t, &m, -1);
    return rc == -EOPNOTSUPP ? -ENOTSUP : rc;
}

/* A network card reads regions of GPUs and of host memory alike. */
static bool reads_card(const struct transport_path *)
{
    return true;
}

/* --- from the begin to the end --- */

static bool ends_left(const struct rdma *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->ends && r->ends[i].end)
            return true;
    return false;
}

static void say_nothing(void *, uint64_t)
{
}

static void withdrawn(void *)
{
}

/* Closes all paths and withdraws all offers, without a callback. */
static void close_all(struct rdma *r)
{
    static const struct transport_offer_ops silent = {.revoked = say_nothing,
                                                      .withdrawn = withdrawn};
    struct rdma_path *p;
    struct rdma_offer *o;

    TAILQ_FOREACH(p, &r->paths, link)
    if (!p->closed)
        rdma_close(&p->base);
    TAILQ_FOREACH(o, &r->offers, link)
    {
        o->ops = &silent;
        if (!o->withdrawn)
            rdma_withdraw(&o->base);
    }
}

/* Waits until the queue pairs of closed paths and withdrawn offers are
 * destroyed. */
static void drain(struct rdma *r)
{
    struct rdma_path *p;

    for (int ms = 0; ends_left(r) && ms < END_MS; ms++) {
        for (uint32_t i = 0; i < r->n_cards; i++) {
            card_take(&r->cards[i]);
            card_take_jobs(&r->cards[i]);
        }
        TAILQ_FOREACH(p, &r->paths, link)
        {
            struct end *e, *next;

            for (e = TAILQ_FIRST(&p->all); e; e = next) {
                next = TAILQ_NEXT(e, link);
                end_tick(e, loop_now_us(r->config.loop));
            }
        }
        poll(NULL, 0, 1);
    }
    turn(r);
}

static void rdma_free(struct transport *t)
{
    struct rdma *r = (struct rdma *)t;

    listener_free(r->listener);
    rdma_strangers_drop(r, INT64_MAX);
    close_all(r);
    drain(r);
    for (uint32_t i = 0; i < SPREAD_RAILS_MAX; i++)
        card_close(&r->cards[i]);
    loop_timer_stop(&r->turn);
    loop_timer_stop(&r->tick);
    sieve_free(r->sieve);
    free(r->ends);
    free(r);
}

static const struct transport_ops rdma_ops = {
    .name = "rdma",
    .free = rdma_free,
    .reg = reg,
    .reg_card = reg_card,
    .reads_card = reads_card,
    .offer = rdma_offer,
    .grant = rdma_grant,
    .revoke = rdma_revoke,
    .withdraw = rdma_withdraw,
    .open = rdma_open,
    .read = rdma_read,
    .cancel = rdma_cancel,
    .moved_bytes = rdma_moved_bytes,
    .close = rdma_close,
};

/* Fills in defaults and checks the configuration. */
static int complete(struct rdma *r, char *err, size_t err_bytes)
{
    struct rdma_config *c = &r->config;

    c->devices = c->devices ? c->devices : "";
    c->sysfs = c->sysfs ? c->sysfs : "/sys";
    c->slice_bytes = c->slice_bytes ? c->slice_bytes : RDMA_SLICE_BYTES_DEFAULT;
    c->credits = c->credits ? c->credits : RDMA_CREDITS_DEFAULT;
    c->end_points = c->end_points ? c->end_points : RDMA_END_POINTS_DEFAULT;
    c->stall_us = c->stall_us ? c->stall_us : 5000000;
    if (c->slice_bytes < 1024 || c->slice_bytes > 1u << 30)
        return error_say(err, err_bytes, -EINVAL,
                         "slices of %u bytes: must be 1024 to 1073741824",
                         c->slice_bytes);
    if (c->credits > 1024 || c->end_points > 4096)
        return error_say(err, err_bytes, -EINVAL,
                         "%u credits, %u end points: must be at most 1024 and "
                         "4096",
                         c->credits, c->end_points);
    r->spread = (struct spread_config){
        .slice_bytes = c->slice_bytes,
        .credits = c->credits,
        .ops_max = RDMA_OPS_MAX,
        .slices_max = RDMA_SLICES_MAX,
        .retry_first_us = RDMA_RETRY_FIRST_US,
        .retry_longest_us = RDMA_RETRY_LONGEST_US,
        .stall_us = c->stall_us,
    };
    return 0;
}

/* Makes slots for asking end points, serving ones, and as many dying ones. */
static int make_ends(struct rdma *r)
{
    r->n_slots = 4 * r->config.end_points;
    r->ends = calloc(r->n_slots, sizeof(*r->ends));
    if (!r->ends)
        return -ENOMEM;
    r->free_slot = SIEVE_NONE;
    for (uint32_t i = r->n_slots; i-- > 0;) {
        r->ends[i].next = r->free_slot;
        r->free_slot = i;
    }
    return sieve_new(r->config.end_points, &r->sieve);
}

static int open_cards(struct rdma *r, char *err, size_t err_bytes)
{
    int rc = topology_read(r->config.sysfs, r->config.devices, &r->topology);

    if (rc < 0)
        return error_say(err, err_bytes, rc, "no RDMA device%s%s",
                         r->config.devices[0] ? " of " : "", r->config.devices);
    for (uint32_t i = 0; i < r->topology.n_nics && rc == 0; i++) {
        struct card *c = &r->cards[i];

        c->rdma = r;
        c->index = i;
        c->nic = r->topology.nics[i];
        r->n_cards = i + 1;
        rc = card_open(c, err, err_bytes);
    }
    return rc;
}

static int begin(struct rdma *r, char *err, size_t err_bytes)
{
    char why[300];
    int rc;

    loop_timer_init(r->config.loop, &r->turn, on_turn, r);
    loop_timer_init(r->config.loop, &r->tick, on_tick, r);
    if (loop_timer_repeat(&r->tick, TICK_US) < 0 || make_ends(r) < 0)
        return error_say(err, err_bytes, -ENOMEM, "out of memory");
    rc = open_cards(r, err, err_bytes);
    if (rc < 0)
        return rc;
    rc = listener_new(r->config.loop, r->config.listen_host,
                      r->config.listen_port, rdma_accept, r, &r->listener, why,
                      sizeof(why));
    if (rc < 0)
        return error_say(err, err_bytes, rc, "listen %s", why);
    return 0;
}

static const struct rdma_up up = {
    .completed = end_completed,
    .job_over = end_job_over,
    .end_made = offer_end_made,
    .end_gone = offer_end_gone,
    .card_changed = card_changed,
    .turn = turn,
};

static int make(const struct rdma_config *config, struct transport **out,
                char *err, size_t err_bytes)
{
    struct rdma *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return error_say(err, err_bytes, -ENOMEM, "out of memory");
    /* The module is linked with its own copy of base/log. */
    log_init("rdma", LOG_INFO);
    r->base.ops = &rdma_ops;
    r->up = &up;
    r->config = *config;
    TAILQ_INIT(&r->paths);
    TAILQ_INIT(&r->dirty_paths);
    TAILQ_INIT(&r->offers);
    TAILQ_INIT(&r->dirty_offers);
    TAILQ_INIT(&r->strangers);
    rc = complete(r, err, err_bytes);
    if (rc == 0)
        rc = begin(r, err, err_bytes);
    if (rc < 0) {
        rdma_free(&r->base);
        return rc;
    }
    *out = &r->base;
    return 0;
}

const struct rdma_module conductor_rdma_module = {
    .version = RDMA_MODULE_VERSION,
    .make = make,
};
