/* The transport over TCP as a whole, and its offers. */
#include "workers/transfer/engine/tcp/tcp.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "workers/transfer/engine/tcp/internal.h"

static struct tcp *tcp_of(struct transport *t)
{
    return (struct tcp *)(void *)t; /* its first member */
}

static struct tcp_offer *offer_of(struct transport_offer *o)
{
    return (struct tcp_offer *)(void *)o;
}

static int tcp_reg(struct transport *transport, void *memory, uint64_t bytes,
                   int)
{
    struct tcp *t = tcp_of(transport);

    if (t->n_regions == TRANSPORT_REGIONS_MAX)
        return -ENOSPC;
    t->regions[t->n_regions] = (struct tcp_region){memory, bytes};
    return (int)t->n_regions++;
}

static struct transport_offer *tcp_offer(struct transport *transport,
                                         const struct transport_offer_ops *ops,
                                         void *arg, uint8_t *descriptor,
                                         size_t *n)
{
    struct tcp *t = tcp_of(transport);
    struct tcp_offer *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    o->base.ops = transport->ops;
    o->tcp = t;
    o->ops = ops;
    o->arg = arg;
    LIST_INIT(&o->grants);
    loop_random_bytes(t->config.loop, o->token, sizeof(o->token));
    memcpy(descriptor, o->token, TCP_TOKEN_BYTES);
    *n = TCP_TOKEN_BYTES;
    pthread_mutex_lock(&t->set.lock);
    TAILQ_INSERT_TAIL(&t->offers, o, link);
    pthread_mutex_unlock(&t->set.lock);
    return &o->base;
}

static int in_order(const void *a, const void *b)
{
    const struct transport_range *x = a, *y = b;

    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static bool registered(const struct tcp *t, const struct transport_range *r)
{
    return r->region < t->n_regions &&
           r->bytes <= t->regions[r->region].bytes &&
           r->offset <= t->regions[r->region].bytes - r->bytes;
}

static int tcp_grant(struct transport_offer *offer, uint64_t grant_id,
                     const struct transport_range *ranges, uint32_t n)
{
    struct tcp_offer *o = offer_of(offer);

    struct tcp_grant *g = malloc(sizeof(*g) + n * sizeof(*ranges));
    for (uint32_t i = 0; g && i < n; i++) {
        if (!registered(o->tcp, &ranges[i])) {
            free(g);
            return -EINVAL;
        }
    }
    if (!g)
        return -ENOMEM;
    *g = (struct tcp_grant){.offer = o, .id = grant_id, .n = n};
    memcpy(g->ranges, ranges, n * sizeof(*ranges));
    qsort(g->ranges, n, sizeof(*ranges), in_order);
    pthread_mutex_lock(&o->tcp->set.lock);
    bool there = tcp_offer_grant(o, grant_id);
    if (!there)
        LIST_INSERT_HEAD(&o->grants, g, link);
    pthread_mutex_unlock(&o->tcp->set.lock);
    if (there)
        free(g);
    return there ? -EEXIST : 0;
}

static void tcp_revoke(struct transport_offer *offer, uint64_t grant_id)
{
    struct tcp_offer *o = offer_of(offer);

    pthread_mutex_lock(&o->tcp->set.lock);
    struct tcp_grant *g = tcp_offer_grant(o, grant_id);
    bool used = g && g->uses > 0;
    if (g)
        tcp_grant_end(g);
    pthread_mutex_unlock(&o->tcp->set.lock);
    if (used)
        tcp_io_wake(o->tcp);
}

static void tcp_withdraw(struct transport_offer *offer)
{
    struct tcp_offer *o = offer_of(offer);
    struct tcp_grant *g, *next;

    pthread_mutex_lock(&o->tcp->set.lock);
    o->withdrawn = true;
    for (g = LIST_FIRST(&o->grants); g; g = next) {
        next = LIST_NEXT(g, link);
        if (!g->ended)
            tcp_grant_end(g);
    }
    pthread_mutex_unlock(&o->tcp->set.lock);
    tcp_io_wake(o->tcp);
    loop_ring(&o->tcp->set.bell);
}

static void offer_free(struct tcp_offer *o)
{
    struct tcp_grant *g;

    while ((g = LIST_FIRST(&o->grants))) {
        LIST_REMOVE(g, link);
        free(g);
    }
    TAILQ_REMOVE(&o->tcp->offers, o, link);
    free(o);
}

static struct tcp_grant *take_revoked(struct tcp *t)
{
    pthread_mutex_lock(&t->set.lock);
    struct tcp_grant *g = LIST_FIRST(&t->revoked);
    if (g)
        LIST_REMOVE(g, link);
    pthread_mutex_unlock(&t->set.lock);
    return g;
}

/* Returns an offer whose peer broke the rules, or that has ended; or NULL. */
static struct tcp_offer *take_news(struct tcp *t)
{
    struct tcp_offer *o;

    pthread_mutex_lock(&t->set.lock);
    TAILQ_FOREACH(o, &t->offers, link)
    {
        if (o->withdrawn ? o->n_streams == 0 && LIST_EMPTY(&o->grants) &&
                               LIST_EMPTY(&t->revoked)
                         : o->broken && !o->told)
            break;
    }
    if (o)
        o->told = true;
    pthread_mutex_unlock(&t->set.lock);
    return o;
}

static void offers_heard(struct tcp *t)
{
    struct tcp_grant *g;
    struct tcp_offer *o;

    while ((g = take_revoked(t))) {
        g->offer->ops->revoked(g->offer->arg, g->id);
        free(g);
    }
    while ((o = take_news(t))) {
        if (!o->withdrawn) {
            o->ops->broken(o->arg, o->broken);
            continue;
        }
        o->ops->withdrawn(o->arg);
        pthread_mutex_lock(&t->set.lock);
        offer_free(o);
        pthread_mutex_unlock(&t->set.lock);
    }
}

static void wake(struct op_set *s)
{
    tcp_io_wake((struct tcp *)(void *)((char *)s - offsetof(struct tcp, set)));
}

static void on_bell(void *arg)
{
    struct tcp *t = arg;

    op_set_heard(&t->set);
    offers_heard(t);
}

static void tcp_free(struct transport *transport)
{
    struct tcp *t = tcp_of(transport);
    struct tcp_grant *g;

    tcp_io_stop(t);
    while ((g = take_revoked(t)))
        free(g);
    while (!TAILQ_EMPTY(&t->offers))
        offer_free(TAILQ_FIRST(&t->offers));
    op_set_fini(&t->set);
    free(t);
}

static const struct transport_ops tcp_ops = {
    .name = "tcp",
    .verifies = true,
    .free = tcp_free,
    .reg = tcp_reg,
    .offer = tcp_offer,
    .grant = tcp_grant,
    .revoke = tcp_revoke,
    .withdraw = tcp_withdraw,
    .open = tcp_open,
    .read = op_path_read,
    .cancel = op_path_cancel,
    .moved_bytes = op_path_moved_bytes,
    .close = op_path_close,
};

struct transport *tcp_transport_new(const struct tcp_config *config)
{
    struct tcp *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->base.ops = &tcp_ops;
    t->config = *config;
    t->hello = *config->hello;
    t->hello.kind = PROTO_PEER_WORKER_DATA;
    t->set.wake = wake;
    t->set.hang_up = tcp_hang_up;
    t->set.free = tcp_path_free;
    strangers_init(&t->unbound);
    TAILQ_INIT(&t->offers);
    LIST_INIT(&t->revoked);
    if (op_set_init(&t->set, config->loop, on_bell, t) || tcp_io_start(t)) {
        tcp_free(&t->base);
        return NULL;
    }
    return &t->base;
}

/* Tells a connection without a token to close if there are too many. Returns
 * whether there is room for one more: not while too many are closing. */
static bool make_room(struct tcp *t)
{
    pthread_mutex_lock(&t->set.lock);
    struct stranger *surplus = strangers_surplus(&t->unbound);
    bool room = !surplus || t->n_leaving < HANDSHAKE_STRANGERS_MAX;
    if (surplus && room) {
        struct tcp_stream *s = surplus->owner;

        strangers_remove(&t->unbound, surplus);
        s->leaving = true;
        t->n_leaving++;
        loop_ring(&s->io->wake);
    }
    pthread_mutex_unlock(&t->set.lock);
    return room;
}

void tcp_transport_take(struct transport *transport, int fd)
{
    struct tcp *t = tcp_of(transport);

    if (!make_room(t))
        net_close(t->config.loop, fd);
    else
        /* If out of memory, fd is closed, which ends the peer's path. */
        (void)!tcp_io_add(t, fd, NULL);
}
