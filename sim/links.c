/* Transfers that share links; see links.h.
 *
 * Invariants: a flow with a sender is in the sender's and in the receiver's
 * list, whose lengths are n + n_behind; left and rate hold at since_us; its
 * event is at the time when left is 0. */
#include "sim/links.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "sim/time.h"

#define NONE UINT32_MAX

enum { SEND, RECEIVE };

struct flow {
    uint32_t node[2]; /* sender and receiver; NONE = a timer */
    uint32_t next[2]; /* in both lists; [0] also links free flows */
    uint32_t prev[2];
    double bytes;
    double left; /* bytes at since_us */
    double rate; /* bytes per microsecond */
    double most; /* largest rate of a background transfer; 0 = a normal one */
    int64_t since_us;
    int64_t started_us;
    void *what;
    int kind;
};

struct link_side {
    uint32_t first;    /* flow; NONE = none */
    uint32_t n;        /* normal transfers */
    uint32_t n_behind; /* background transfers */
};

struct sim_links {
    struct links_config config;
    double bytes_per_us;
    struct flow *flows; /* (capacity) */
    size_t capacity;
    uint32_t fresh;
    uint32_t free_flow;
    struct link_side *sides[2]; /* (n_nodes) each */
};

struct sim_links *links_new(const struct links_config *config)
{
    struct sim_links *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->config = *config;
    l->bytes_per_us = config->bytes_per_s / 1e6;
    l->free_flow = NONE;
    for (int side = 0; side < 2; side++) {
        l->sides[side] = calloc(config->n_nodes, sizeof(struct link_side));
        if (!l->sides[side]) {
            links_free(l);
            return NULL;
        }
        for (uint32_t i = 0; i < config->n_nodes; i++)
            l->sides[side][i].first = NONE;
    }
    return l;
}

void links_free(struct sim_links *links)
{
    if (!links)
        return;
    free(links->sides[SEND]);
    free(links->sides[RECEIVE]);
    free(links->flows);
    free(links);
}

static uint32_t take_flow(struct sim_links *l)
{
    uint32_t f = l->free_flow;

    if (f != NONE) {
        l->free_flow = l->flows[f].next[0];
        return f;
    }
    if (array_reserve(l->flows, l->capacity, l->fresh + 1) ||
        heap_reserve(l->config.heap, l->config.first_id + l->fresh + 1))
        return NONE;
    return l->fresh++;
}

static void attach(struct sim_links *l, uint32_t f, int side)
{
    struct flow *flow = &l->flows[f];
    struct link_side *s = &l->sides[side][flow->node[side]];

    flow->prev[side] = NONE;
    flow->next[side] = s->first;
    if (s->first != NONE)
        l->flows[s->first].prev[side] = f;
    s->first = f;
    *(flow->most > 0.0 ? &s->n_behind : &s->n) += 1;
}

static void detach(struct sim_links *l, uint32_t f, int side)
{
    struct flow *flow = &l->flows[f];
    struct link_side *s = &l->sides[side][flow->node[side]];

    if (flow->prev[side] != NONE)
        l->flows[flow->prev[side]].next[side] = flow->next[side];
    else
        s->first = flow->next[side];
    if (flow->next[side] != NONE)
        l->flows[flow->next[side]].prev[side] = flow->prev[side];
    *(flow->most > 0.0 ? &s->n_behind : &s->n) -= 1;
}

/* Returns a background transfer's rate: 0 with a normal one at either end. */
static double share_behind(const struct sim_links *l, const struct flow *flow)
{
    const struct link_side *send = &l->sides[SEND][flow->node[SEND]];
    const struct link_side *receive = &l->sides[RECEIVE][flow->node[RECEIVE]];
    uint32_t n =
        send->n_behind > receive->n_behind ? send->n_behind : receive->n_behind;
    double rate = l->bytes_per_us;

    if (l->config.shared && send->n + receive->n > 0)
        return 0.0;
    if (l->config.shared)
        rate /= (double)n;
    return rate < flow->most ? rate : flow->most;
}

static double share(const struct sim_links *l, const struct flow *flow)
{
    uint32_t n = l->sides[SEND][flow->node[SEND]].n;
    uint32_t m = l->sides[RECEIVE][flow->node[RECEIVE]].n;

    if (flow->most > 0.0)
        return share_behind(l, flow);
    if (!l->config.shared)
        return l->bytes_per_us;
    return l->bytes_per_us / (double)(n > m ? n : m);
}

/* Subtracts the bytes sent since the last change, and sets the new rate and
 * end. */
static void renew(struct sim_links *l, uint32_t f, int64_t now_us)
{
    struct flow *flow = &l->flows[f];

    flow->left -= flow->rate * (double)(now_us - flow->since_us);
    if (flow->left < 0.0)
        flow->left = 0.0;
    flow->since_us = now_us;
    flow->rate = share(l, flow);
    heap_set(l->config.heap, l->config.first_id + f, LINKS_RANK,
             flow->rate > 0.0
                 ? now_us +
                       (int64_t)(sim_bounded_us(flow->left / flow->rate) + 0.5)
                 : SIM_NEVER_US);
}

static void renew_side(struct sim_links *l, int side, uint32_t node,
                       int64_t now_us)
{
    for (uint32_t f = l->sides[side][node].first; f != NONE;
         f = l->flows[f].next[side])
        renew(l, f, now_us);
}

static int start(struct sim_links *links, uint32_t from, uint32_t to,
                 double bytes, double most, int kind, void *what,
                 int64_t now_us)
{
    uint32_t f = take_flow(links);

    if (f == NONE)
        return -ENOMEM;
    links->flows[f] = (struct flow){.node = {from, to},
                                    .bytes = bytes,
                                    .left = bytes,
                                    .most = most,
                                    .since_us = now_us,
                                    .started_us = now_us,
                                    .what = what,
                                    .kind = kind};
    attach(links, f, SEND);
    attach(links, f, RECEIVE);
    if (links->config.shared) {
        renew_side(links, SEND, from, now_us);
        renew_side(links, RECEIVE, to, now_us);
    } else {
        renew(links, f, now_us);
    }
    return 0;
}

int links_start(struct sim_links *links, uint32_t from, uint32_t to,
                double bytes, int kind, void *what, int64_t now_us)
{
    return start(links, from, to, bytes, 0.0, kind, what, now_us);
}

int links_start_behind(struct sim_links *links, uint32_t from, uint32_t to,
                       double bytes, double most_bytes_per_s, int kind,
                       void *what, int64_t now_us)
{
    return start(links, from, to, bytes, most_bytes_per_s / 1e6, kind, what,
                 now_us);
}

int links_delay(struct sim_links *links, int kind, void *what, int64_t now_us,
                int64_t at_us)
{
    uint32_t f = take_flow(links);

    if (f == NONE)
        return -ENOMEM;
    links->flows[f] = (struct flow){
        .node = {NONE, NONE}, .started_us = now_us, .what = what, .kind = kind};
    heap_set(links->config.heap, links->config.first_id + f, LINKS_RANK, at_us);
    return 0;
}

struct links_end links_finish(struct sim_links *links, uint32_t id,
                              int64_t now_us)
{
    uint32_t f = id - links->config.first_id;
    struct flow flow = links->flows[f];

    heap_remove(links->config.heap, id);
    if (flow.node[SEND] != NONE) {
        detach(links, f, SEND);
        detach(links, f, RECEIVE);
    }
    links->flows[f].next[0] = links->free_flow;
    links->free_flow = f;
    if (flow.node[SEND] != NONE && links->config.shared) {
        renew_side(links, SEND, flow.node[SEND], now_us);
        renew_side(links, RECEIVE, flow.node[RECEIVE], now_us);
    }
    return (struct links_end){flow.what, flow.kind, flow.bytes,
                              flow.started_us};
}
