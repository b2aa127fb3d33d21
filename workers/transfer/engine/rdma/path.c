/* Paths: the side that reads a peer's memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/internal.h"

void path_on_timer(void *arg)
{
    struct rdma_path *p = arg;
    struct rdma *r = p->rdma;
    struct end *e, *next;
    int64_t now_us = loop_now_us(r->config.loop);

    for (e = TAILQ_FIRST(&p->all); e; e = next) {
        next = TAILQ_NEXT(e, link);
        end_tick(e, now_us);
    }
    int64_t age_us = now_us - p->opened_us;
    if (!p->welcome && age_us >= RDMA_PATIENCE_US)
        path_fail(p, -ETIMEDOUT, "the peer does not answer");
    if (!p->rail_up && age_us >= r->config.stall_us)
        path_fail(p, -ETIMEDOUT, "no rail can be used");
    path_mark(p);
    r->up->turn(r);
}

void path_free(struct rdma_path *p)
{
    channel_fini(&p->channel);
    loop_timer_stop(&p->timer);
    spread_free(p->spread);
    free(p->grants);
    free(p->leaving);
    free(p);
}

void path_fail_ends(struct rdma_path *p)
{
    struct end *e, *next;

    for (e = TAILQ_FIRST(&p->all); e; e = next) {
        next = TAILQ_NEXT(e, link);
        end_fail(e, NULL);
    }
}

void path_fail(struct rdma_path *p, int rc, const char *why)
{
    if (p->rc != 0)
        return;
    p->rc = rc;
    snprintf(p->why, sizeof(p->why), "%s", why);
    channel_fini(&p->channel);
    spread_fail(p->spread, rc);
    path_fail_ends(p);
    path_mark(p);
}

void path_reap(struct rdma_path *p)
{
    if (!p->closed || !TAILQ_EMPTY(&p->all))
        return;
    if (p->dirty)
        TAILQ_REMOVE(&p->rdma->dirty_paths, p, dirty_link);
    TAILQ_REMOVE(&p->rdma->paths, p, link);
    path_free(p);
}

/* Returns the peer's rail to pair with: of its rails that are up, the nearest
 * to its memory, and of these the one with the same number. Every second
 * attempt takes this one; attempts in between take the others in turn, as cards
 * may reach only cards of the same number. */
static uint32_t partner(const struct rdma_path *p, uint32_t rail)
{
    uint32_t order[SPREAD_RAILS_MAX], n = 0, n_peer = p->peer.n_rails;

    for (uint32_t c = 0; c < 256 && n < n_peer; c++)
        for (uint32_t i = 0; i < n_peer; i++) {
            uint32_t at = (rail + i) % n_peer;

            if (p->peer.rails[at].rail_class == c && p->peer.rails[at].up)
                order[n++] = at;
        }
    if (n == 0)
        return SPREAD_NONE;
    return p->attempts[rail] % 2 == 1 ? order[0]
                                      : order[p->attempts[rail] / 2 % n];
}

static void pair(struct rdma_path *p, uint32_t rail)
{
    struct card *card = &p->rdma->cards[rail];
    uint32_t peer_rail = partner(p, rail);

    if (card->up && peer_rail != SPREAD_NONE)
        p->ends[rail] = end_ask(p, card, peer_rail);
    if (!p->ends[rail])
        spread_rail_failed(p->spread, rail, loop_now_us(p->rdma->config.loop));
}

static void flush(struct rdma_path *p, uint32_t rail,
                  struct spread_slice **slices, uint32_t *n)
{
    if (*n > 0)
        end_post(p->ends[rail], slices, *n);
    *n = 0;
}

static void post_all(struct rdma_path *p)
{
    struct spread_slice *slices[SPREAD_RAILS_MAX][RDMA_POST_MAX], *slice;
    uint32_t n[SPREAD_RAILS_MAX] = {0};
    int64_t now_us = loop_now_us(p->rdma->config.loop);

    while ((slice = spread_next(p->spread, now_us))) {
        uint32_t rail = slice->rail;

        slices[rail][n[rail]++] = slice;
        if (n[rail] == RDMA_POST_MAX)
            flush(p, rail, slices[rail], &n[rail]);
    }
    for (uint32_t i = 0; i < p->rdma->n_cards; i++)
        flush(p, i, slices[i], &n[i]);
}

/* Sets the timer to the earliest time at which something is due. */
static void set_timer(struct rdma_path *p)
{
    int64_t now_us = loop_now_us(p->rdma->config.loop),
            due_us = spread_due_us(p->spread);
    bool waits = !p->rail_up && p->rc == 0;
    const struct end *e;

    TAILQ_FOREACH(e, &p->all, link)
    waits = waits || (e->state != END_UP && e->state != END_DESTROYING);
    if (waits && due_us > now_us + 100000)
        due_us = now_us + 100000;
    if (p->rc != 0 && !waits)
        due_us = INT64_MAX;
    if (due_us == INT64_MAX)
        loop_timer_stop(&p->timer);
    else
        loop_timer_start(&p->timer, due_us > now_us ? due_us - now_us : 1);
}

void path_pump(struct rdma_path *p)
{
    uint32_t rail;

    if (p->rc == 0 &&
        spread_stalled(p->spread, loop_now_us(p->rdma->config.loop)))
        path_fail(p, -ETIMEDOUT, "nothing has moved for too long");
    if (p->rc == 0 && p->welcome) {
        while ((rail = spread_try(p->spread, !p->rail_up,
                                  loop_now_us(p->rdma->config.loop))) !=
               SPREAD_NONE)
            pair(p, rail);
        post_all(p);
    }
    set_timer(p);
}

void path_tell(struct rdma_path *p)
{
    uint64_t op_id;
    int rc;

    if (p->rail_up && !p->stands && !p->closed && p->rc == 0) {
        p->stands = true;
        p->ops->stands(p->arg);
    }
    while (!p->closed && spread_ended(p->spread, &op_id, &rc))
        p->ops->done(p->arg, op_id, rc);
    if (!p->closed)
        path_revoked(p);
    if (p->closed || p->rc == 0 || p->told || !spread_is_idle(p->spread))
        return;
    p->told = true;
    p->ops->closed(p->arg, p->rc, p->why);
}
