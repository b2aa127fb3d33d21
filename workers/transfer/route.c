/* Chooses a transport, and reads over it. */
#include "workers/transfer/route.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workers/transfer/engine/sum.h"
#include "workers/transfer/internal.h"

struct route_op {
    struct errand errand; /* must be first; in use while `summing` */
    TAILQ_ENTRY(route_op) link;
    struct route *route;
    uint64_t id;
    route_done *done;
    void *arg;
    bool summing;
    int rc;
    uint32_t n;                      /* 0 = the transport verifies */
    struct transport_slice slices[]; /* (n) */
};

/* The peer's offer of one transport that this worker also has. */
struct told {
    struct transport *transport; /* the one with the same name here */
    uint8_t descriptor[TRANSPORT_DESCRIPTOR_MAX];
    size_t n;
};

struct route {
    LIST_ENTRY(route) link;
    struct transfer *transfer;
    struct route_to to;
    char host[MSG_HOST_MAX];
    bool shut;                            /* the control connection is gone */
    struct told told[MSG_TRANSPORTS_MAX]; /* best first for this side */
    uint32_t n_told;
    uint32_t next;               /* index into told: to be tried next */
    struct transport_path *path; /* NULL = none */
    bool stands; /* a path is or was connected, and the peer knows it */
    TAILQ_HEAD(, route_op) ops;
    uint64_t last_id;
};

static void route_free(struct route *r)
{
    LIST_REMOVE(r, link);
    free(r);
}

static void end_if_idle(struct route *r)
{
    if (!r->shut || !TAILQ_EMPTY(&r->ops))
        return;
    if (r->path)
        r->path->ops->close(r->path);
    route_free(r);
}

static void over(struct route_op *op, int rc)
{
    struct route *r = op->route;

    TAILQ_REMOVE(&r->ops, op, link);
    op->done(op->arg, rc);
    free(op);
    end_if_idle(r);
}

static struct route_op *op_of(struct errand *e)
{
    return (struct route_op *)(void *)e; /* its first member */
}

static bool sums_fit(const struct transport_slice *slice)
{
    const char *at = slice->local;
    uint64_t n = slice->sums ? slice->bytes / slice->sum_bytes : 0;

    for (uint64_t i = 0; i < n; i++)
        if (sum_of(at + i * slice->sum_bytes, slice->sum_bytes) !=
            slice->sums[i])
            return false;
    return true;
}

static void verify(struct errand *e)
{
    struct route_op *op = op_of(e);

    op->rc = 0;
    for (uint32_t i = 0; op->rc == 0 && i < op->n; i++)
        if (!sums_fit(&op->slices[i]))
            op->rc = -EILSEQ;
}

static void on_verified(struct errand *e)
{
    over(op_of(e), op_of(e)->rc);
}

static void on_done(void *arg, uint64_t op_id, int rc)
{
    struct route *r = arg;
    struct route_op *op;

    TAILQ_FOREACH(op, &r->ops, link)
    {
        if (op->id == op_id)
            break;
    }
    if (!op)
        return;
    if (rc < 0 || op->n == 0) {
        over(op, rc);
        return;
    }
    op->summing = true;
    op->rc = -ECANCELED;
    errands_add(r->transfer->errands, &op->errand, true);
}

static void open_next(struct route *r);

static void on_closed(void *arg, int, const char *why)
{
    struct route *r = arg;
    char text[MSG_TEXT_MAX];

    r->path->ops->close(r->path);
    r->path = NULL;
    if (r->shut) {
        end_if_idle(r);
        return;
    }
    snprintf(text, sizeof(text), "its %s data connection ended: %s",
             r->told[r->next - 1].transport->ops->name, why);
    if (r->stands) {
        frame_conn_fail(r->to.conn, text);
        return;
    }
    log_info("worker %s:%u: %s", r->host, r->to.port, text);
    open_next(r);
    if (!r->path)
        r->to.ready(r->to.arg);
}

/* Tells the peer which transport is connected. It hears of no other, and grants
 * blocks over this one. */
static void on_stands(void *arg)
{
    static const uint8_t reads_card = 1;
    struct msg_transports m = {.n = 1};
    struct route *r = arg;

    r->stands = true;
    if (r->path->ops->reads_card && r->path->ops->reads_card(r->path)) {
        m.list[0].n = 1;
        m.list[0].descriptor = &reads_card;
    }
    snprintf(m.list[0].name, sizeof(m.list[0].name), "%s", r->path->ops->name);
    msg_transports_pack(&r->transfer->buf, r->to.id, &m);
    transfer_send(r->transfer, r->to.conn);
    r->to.ready(r->to.arg);
}

static const struct transport_path_ops path_ops = {
    .stands = on_stands, .done = on_done, .closed = on_closed};

static void open_next(struct route *r)
{
    while (!r->path && r->next < r->n_told) {
        const struct told *told = &r->told[r->next++];
        const struct transport_peer peer = {
            .host = r->host,
            .port = r->to.port,
            .descriptor = told->descriptor,
            .n_descriptor = told->n,
        };

        r->path =
            told->transport->ops->open(told->transport, &peer, &path_ops, r);
    }
}

static void take(struct route *r, struct transport *transport,
                 const struct msg_transports *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        if (strcmp(m->list[i].name, transport->ops->name) != 0)
            continue;
        struct told *told = &r->told[r->n_told++];
        told->transport = transport;
        told->n = m->list[i].n;
        if (told->n > 0)
            memcpy(told->descriptor, m->list[i].descriptor, told->n);
        return;
    }
}

int route_on_transports(struct transfer *t, struct route **route,
                        const struct route_to *to, const uint8_t *payload,
                        size_t len)
{
    struct msg_transports m;

    if (msg_transports_unpack(payload, len, &m) || *route)
        return -EBADMSG;
    struct route *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->transfer = t;
    r->to = *to;
    snprintf(r->host, sizeof(r->host), "%s", to->host);
    r->to.host = r->host;
    TAILQ_INIT(&r->ops);
    LIST_INSERT_HEAD(&t->routes, r, link);
    for (uint32_t i = 0; i < t->n_transports; i++)
        take(r, t->transports[i], &m);
    *route = r;
    open_next(r);
    return 0;
}

bool route_hopes(const struct route *r)
{
    return r && r->path;
}

bool route_stands(const struct route *r)
{
    return route_hopes(r) && r->stands;
}

const char *route_transport(const struct route *r)
{
    return route_stands(r) ? r->path->ops->name : NULL;
}

int route_read(struct route *r, uint64_t grant_id,
               const struct transport_slice *slices, uint32_t n,
               route_done *done, void *arg, struct route_op **out)
{
    if (!route_stands(r))
        return -ENOTCONN;
    uint32_t kept = r->path->ops->verifies ? 0 : n;
    struct route_op *op = calloc(1, sizeof(*op) + kept * sizeof(*slices));
    if (!op)
        return -ENOMEM;
    op->errand = (struct errand){.run = verify, .done = on_verified};
    op->route = r;
    op->id = ++r->last_id;
    op->done = done;
    op->arg = arg;
    op->n = kept;
    memcpy(op->slices, slices, kept * sizeof(*slices));
    TAILQ_INSERT_TAIL(&r->ops, op, link);
    int rc = r->path->ops->read(r->path, op->id, grant_id, slices, n);
    if (rc < 0) {
        TAILQ_REMOVE(&r->ops, op, link);
        free(op);
        return rc;
    }
    *out = op;
    return 0;
}

void route_cancel(struct route_op *op)
{
    if (!op->summing && op->route->path)
        op->route->path->ops->cancel(op->route->path, op->id);
}

uint64_t route_moved_bytes(const struct route *r)
{
    return route_stands(r) ? r->path->ops->moved_bytes(r->path) : 0;
}

void route_shut(struct route *r)
{
    struct route_op *op;

    if (!r)
        return;
    r->shut = true;
    TAILQ_FOREACH(op, &r->ops, link)
    {
        route_cancel(op);
    }
    end_if_idle(r);
}

void route_free_all(struct transfer *t)
{
    struct route_op *op;
    struct route *r;

    while ((r = LIST_FIRST(&t->routes))) {
        r->shut = false; /* keeps over() from freeing it */
        while ((op = TAILQ_FIRST(&r->ops)))
            over(op, -ECANCELED);
        route_free(r);
    }
}
