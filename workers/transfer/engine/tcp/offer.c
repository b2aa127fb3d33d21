/* Offers and grants: which memory peers may read here. */
#include <errno.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/tcp/internal.h"

/* Compares in constant time. */
static bool same_token(const uint8_t *a, const uint8_t *b)
{
    uint8_t other = 0;

    for (uint32_t i = 0; i < TCP_TOKEN_BYTES; i++)
        other |= a[i] ^ b[i];
    return other == 0;
}

struct tcp_offer *tcp_offer_bind(struct tcp *t, const uint8_t *token)
{
    struct tcp_offer *o;

    TAILQ_FOREACH(o, &t->offers, link)
    {
        if (!o->withdrawn && !o->broken && o->n_streams < TCP_STREAMS_MAX &&
            same_token(o->token, token)) {
            o->n_streams++;
            return o;
        }
    }
    return NULL;
}

struct tcp_grant *tcp_offer_grant(struct tcp_offer *o, uint64_t id)
{
    struct tcp_grant *g;

    LIST_FOREACH(g, &o->grants, link)
    {
        if (g->id == id && !g->ended)
            return g;
    }
    return NULL;
}

static bool has_ended(const struct tcp_offer *o, uint64_t id)
{
    uint32_t n = o->n_ended < TCP_ENDED_MAX ? o->n_ended : TCP_ENDED_MAX;

    for (uint32_t i = 0; i < n; i++)
        if (o->ended[i] == id)
            return true;
    return false;
}

/* Returns the last of the sorted ranges that does not begin after `r`, or NULL.
 */
static const struct transport_range *range_of(const struct tcp_grant *g,
                                              const struct tcp_request *r)
{
    uint32_t lo = 0, hi = g->n;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct transport_range *range = &g->ranges[mid];

        if (range->region < r->region ||
            (range->region == r->region && range->offset <= r->offset))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 ? &g->ranges[lo - 1] : NULL;
}

static bool covers(const struct transport_range *range,
                   const struct tcp_request *r)
{
    return range && r->region == range->region && r->bytes <= range->bytes &&
           r->offset - range->offset <= range->bytes - r->bytes;
}

uint8_t *tcp_offer_use(struct tcp_offer *o, const struct tcp_request *r,
                       struct tcp_grant **grant, int *rc)
{
    struct tcp_grant *g = tcp_offer_grant(o, r->grant_id);

    *rc = !g && has_ended(o, r->grant_id) ? -ECANCELED : -EPERM;
    if (!g || !covers(range_of(g, r), r))
        return NULL;
    g->uses++;
    *grant = g;
    *rc = 0;
    return o->tcp->regions[r->region].memory + r->offset;
}

static void leave(struct tcp_grant *g)
{
    struct tcp *t = g->offer->tcp;

    LIST_REMOVE(g, link);
    LIST_INSERT_HEAD(&t->revoked, g, link);
    loop_ring(&t->set.bell);
}

void tcp_grant_unuse(struct tcp_grant *g)
{
    if (--g->uses == 0 && g->ended)
        leave(g);
}

void tcp_grant_end(struct tcp_grant *g)
{
    struct tcp_offer *o = g->offer;

    g->ended = true;
    o->ended[o->n_ended++ % TCP_ENDED_MAX] = g->id;
    if (g->uses == 0)
        leave(g);
}
