/* End points: makes, connects and destroys queue pairs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/internal.h"

void end_set_state(struct end *e, enum end_state state)
{
    e->state = state;
    e->from_us = loop_now_us(e->card->rdma->config.loop);
}

void end_start(struct end *e, enum job_kind kind, enum end_state state)
{
    e->job.kind = kind;
    end_set_state(e, state);
    job_thread_add(&e->card->jobs, &e->job);
}

static struct end *end_new(struct rdma *r, struct card *card)
{
    struct end *e;

    if (r->free_slot == SIEVE_NONE)
        return NULL;
    e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    e->card = card;
    e->place = SIEVE_NONE;
    e->job.card = card;
    e->job.to.own_psn = (uint32_t)loop_random(r->config.loop) & 0xffffff;
    e->slot = r->free_slot;
    r->free_slot = r->ends[e->slot].next;
    r->ends[e->slot].end = e;
    r->ends[e->slot].turn++;
    return e;
}

static void leave_sieve(struct end *e)
{
    if (e->place != SIEVE_NONE)
        sieve_remove(e->card->rdma->sieve, e->place);
    e->place = SIEVE_NONE;
}

/* Frees an end point whose queue pair was destroyed. */
void end_free(struct end *e)
{
    struct rdma *r = e->card->rdma;

    leave_sieve(e);
    r->ends[e->slot].end = NULL;
    r->ends[e->slot].next = r->free_slot;
    r->free_slot = e->slot;
    if (e->path) {
        TAILQ_REMOVE(&e->path->all, e, link);
        path_mark(e->path);
    } else {
        TAILQ_REMOVE(&e->offer->ends, e, link);
        r->up->end_gone(e);
    }
    free(e);
}

/* Takes a place in the sieve; if all are taken, ends another end point first.
 */
static uint32_t take_place(struct rdma *r, struct end *e)
{
    uint32_t place = sieve_add(r->sieve, e), victim;

    if (place != SIEVE_NONE)
        return place;
    victim = sieve_victim(r->sieve);
    if (victim == SIEVE_NONE)
        return SIEVE_NONE;
    struct end *other = sieve_owner(r->sieve, victim);
    struct spread *spread = other->path->spread;
    uint32_t rail = other->card->index;
    end_fail(other, NULL);
    spread_rail_drop(spread, rail);
    return sieve_add(r->sieve, e);
}

struct end *end_ask(struct rdma_path *p, struct card *card, uint32_t peer_rail)
{
    struct end *e = end_new(p->rdma, card);

    if (!e)
        return NULL;
    e->path = p;
    e->id = ++p->n_pairings;
    e->peer_rail = peer_rail;
    TAILQ_INSERT_TAIL(&p->all, e, link);
    e->place = take_place(p->rdma, e);
    if (e->place == SIEVE_NONE) {
        end_free(e);
        return NULL;
    }
    sieve_pin(p->rdma->sieve, e->place, true);
    end_start(e, JOB_MAKE, END_MAKING);
    return e;
}

static void take_pairing(struct end *e, const struct wire_message *m)
{
    struct pairing *to = &e->job.to;

    memcpy(to->gid, m->data, sizeof(to->gid));
    to->lid = m->lid;
    to->qpn = m->qpn;
    to->psn = m->psn;
    to->mtu = m->mtu;
    to->reads = m->reads;
}

int end_serve(struct rdma_offer *o, const struct wire_message *m)
{
    struct rdma *r = o->rdma;
    struct end *e;

    TAILQ_FOREACH(e, &o->ends, link)
    if (e->id == m->id)
        return -EEXIST;
    if (m->peer_rail >= r->n_cards || !r->cards[m->peer_rail].up)
        return -ENETDOWN;
    if (o->n_ends >= 2 * r->n_cards || r->n_serving >= r->config.end_points)
        return -ENOBUFS;
    e = end_new(r, &r->cards[m->peer_rail]);
    if (!e)
        return -ENOBUFS;
    e->offer = o;
    e->id = m->id;
    e->peer_rail = m->rail;
    o->n_ends++;
    r->n_serving++;
    TAILQ_INSERT_TAIL(&o->ends, e, link);
    take_pairing(e, m);
    end_start(e, JOB_SERVE, END_CONNECTING);
    return 0;
}

struct wire_message end_message(const struct end *e, enum wire_type type)
{
    const struct card *c = e->card;
    struct wire_message m = {
        .type = type,
        .rail = (uint8_t)c->index,
        .peer_rail = (uint8_t)e->peer_rail,
        .mtu = (uint8_t)c->mtu,
        .reads = c->reads,
        .lid = c->lid,
        .qpn = e->job.qp ? e->job.qp->qp_num : 0,
        .psn = e->job.to.own_psn,
        .id = e->id,
    };

    memcpy(m.data, c->gid.raw, sizeof(m.data));
    return m;
}

void end_paired(struct end *e, const struct wire_message *m)
{
    if (e->state != END_ASKED)
        return;
    if (m->rc < 0) {
        end_fail(e, strerror(-m->rc));
        return;
    }
    take_pairing(e, m);
    end_start(e, JOB_CONNECT, END_CONNECTING);
}

/* Puts the queue pair into the error state, in which it moves nothing more and
 * completes all posted slices with an error; or destroys it if none is posted.
 */
void end_die(struct end *e)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (e->job.qp && e->posted > 0 &&
        ibv_modify_qp(e->job.qp, &attr, IBV_QP_STATE) == 0)
        end_set_state(e, END_DYING);
    else
        end_start(e, JOB_DESTROY, END_DESTROYING);
}

/* Takes the end point out of its path, which makes another when it needs one.
 */
static void leave_path(struct end *e, const char *why)
{
    struct wire_message m = {.type = WIRE_UNPAIR, .id = e->id};
    struct rdma_path *p = e->path;
    uint32_t rail = e->card->index;

    if (p->ends[rail] == e)
        p->ends[rail] = NULL;
    leave_sieve(e);
    if (e->asked && p->channel.stream)
        channel_send(&p->channel, &m);
    if (!why)
        return;
    p->attempts[rail]++;
    spread_rail_failed(p->spread, rail,
                       loop_now_us(e->card->rdma->config.loop));
    rdma_log(p->rdma, LOG_INFO, "rdma: %s leaves rail %u of its peer: %s",
             e->card->nic.name, e->peer_rail, why);
    path_mark(p);
}

void end_fail(struct end *e, const char *why)
{
    if (e->doomed)
        return;
    e->doomed = true;
    if (e->path)
        leave_path(e, why);
    if (e->state != END_MAKING && e->state != END_CONNECTING)
        end_die(e);
}

void end_tick(struct end *e, int64_t now_us)
{
    int64_t age_us = now_us - e->from_us;

    if ((e->state == END_ASKED || e->state == END_PROBING) &&
        age_us >= RDMA_PATIENCE_US)
        end_fail(e, "no answer");
    else if (e->state == END_DYING && age_us >= RDMA_FLUSH_US)
        end_start(e, JOB_DESTROY, END_DESTROYING);
}
