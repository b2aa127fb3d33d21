/* End points: posts reads, and takes their completions. */
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/internal.h"

/* The id of a work request: the end point's slot and how often the slot was
 * taken, so that a late completion is not taken for another end point's; and
 * the slice, from 1 on (0 = the probe). */
#define NAME_SLICE_BITS 20u
#define NAME_SLOT_BITS 16u

static uint64_t name_of(const struct end *e, uint32_t slice)
{
    const struct end_slot *slot = &e->card->rdma->ends[e->slot];

    return (uint64_t)slot->turn << (NAME_SLOT_BITS + NAME_SLICE_BITS) |
           (uint64_t)e->slot << NAME_SLICE_BITS | slice;
}

/* Returns the end point of a completion; NULL = it is gone. */
static struct end *end_of(const struct rdma *r, uint64_t name, uint32_t *slice)
{
    uint32_t slot =
        (uint32_t)(name >> NAME_SLICE_BITS) & ((1u << NAME_SLOT_BITS) - 1);

    *slice = (uint32_t)name & ((1u << NAME_SLICE_BITS) - 1);
    if (slot >= r->n_slots || !r->ends[slot].end ||
        name_of(r->ends[slot].end, *slice) != name)
        return NULL;
    return r->ends[slot].end;
}

/* Posts an empty read, which shows whether the rail works before slices depend
 * on it. Its key must be valid, because a repeated read is checked for it. */
static void probe(struct end *e)
{
    const struct rdma_path *p = e->path;
    struct ibv_send_wr wr = {.wr_id = name_of(e, 0),
                             .opcode = IBV_WR_RDMA_READ},
                       *bad;

    if (p->peer.n_regions > 0) {
        wr.wr.rdma.remote_addr = p->peer.regions[0].address;
        wr.wr.rdma.rkey = p->peer.rails[e->peer_rail].keys[0];
    }

    end_set_state(e, END_PROBING);
    e->posted = 1;
    if (ibv_post_send(e->job.qp, &wr, &bad) == 0)
        return;
    e->posted = 0;
    end_fail(e, "nothing can be posted");
}

static void probed(struct end *e, const struct ibv_wc *wc)
{
    struct rdma_path *p = e->path;

    if (wc->status != IBV_WC_SUCCESS) {
        end_fail(e, ibv_wc_status_str(wc->status));
        return;
    }
    if (e->state != END_PROBING)
        return;
    end_set_state(e, END_UP);
    spread_rail_up(p->spread, e->card->index,
                   loop_now_us(p->rdma->config.loop));
    p->rail_up = true;
    rdma_log(p->rdma, LOG_INFO, "rdma: %s uses rail %u of its peer",
             e->card->nic.name, e->peer_rail);
}

static void take_slice(struct end *e, const struct ibv_wc *wc, uint32_t index)
{
    struct rdma_path *p = e->path;
    struct spread_slice *slice = spread_slice_at(p->spread, index);

    if (wc->status != IBV_WC_SUCCESS)
        end_fail(e, ibv_wc_status_str(wc->status));
    if (!slice)
        return;
    if (wc->status == IBV_WC_SUCCESS) {
        p->moved_bytes += slice->bytes;
        spread_moved(p->spread, slice, loop_now_us(p->rdma->config.loop));
    } else {
        spread_lost(p->spread, slice);
    }
}

void end_completed(struct card *c, const struct ibv_wc *wc)
{
    uint32_t slice;
    struct end *e = end_of(c->rdma, wc->wr_id, &slice);

    if (!e || !e->path || e->posted == 0)
        return;
    e->posted--;
    path_mark(e->path);
    if (slice == 0)
        probed(e, wc);
    else
        take_slice(e, wc, slice - 1);
    if (e->posted > 0)
        return;
    if (e->state == END_DYING)
        end_start(e, JOB_DESTROY, END_DESTROYING);
    else if (e->state == END_UP)
        sieve_pin(c->rdma->sieve, e->place, false);
}

static void fill_request(const struct end *e, const struct spread_slice *slice,
                         struct ibv_send_wr *wr, struct ibv_sge *sge)
{
    const struct rdma_path *p = e->path;
    const struct wire_region *there = &p->peer.regions[slice->region];
    int here = rdma_region_of(p->rdma, slice->local, slice->bytes);

    *sge = (struct ibv_sge){.addr = (uintptr_t)slice->local,
                            .length = slice->bytes,
                            .lkey = e->card->regions[here]->lkey};
    *wr = (struct ibv_send_wr){
        .wr_id = name_of(e, slice->index + 1),
        .next = wr + 1,
        .sg_list = sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_READ,
        .wr.rdma = {.remote_addr = there->address + slice->offset,
                    .rkey = p->peer.rails[e->peer_rail].keys[slice->region]}};
}

void end_post(struct end *e, struct spread_slice **slices, uint32_t n)
{
    struct ibv_send_wr requests[RDMA_POST_MAX], *bad = NULL;
    struct ibv_sge parts[RDMA_POST_MAX];

    for (uint32_t i = 0; i < n; i++)
        fill_request(e, slices[i], &requests[i], &parts[i]);
    requests[n - 1].next = NULL;
    sieve_touch(e->card->rdma->sieve, e->place);
    sieve_pin(e->card->rdma->sieve, e->place, true);
    e->posted += n;
    if (ibv_post_send(e->job.qp, requests, &bad) == 0)
        return;
    uint32_t done = (uint32_t)(bad - requests);
    e->posted -= n - done;
    end_fail(e, "nothing can be posted");
    for (uint32_t i = done; i < n; i++)
        spread_lost(e->path->spread, slices[i]);
}

/* Counts posted slices as lost: the queue pair was destroyed with them. */
static void lose_all(struct end *e)
{
    struct spread *s = e->path->spread;
    uint32_t n = e->card->rdma->n_cards * e->card->rdma->spread.credits;

    for (uint32_t i = 0; i < n && e->posted > 0; i++) {
        struct spread_slice *slice = spread_slice_at(s, i);

        if (slice && slice->rail == e->card->index) {
            spread_lost(s, slice);
            e->posted--;
        }
    }
}

static void made(struct end *e)
{
    struct rdma_path *p = e->path;
    struct wire_message m = end_message(e, WIRE_PAIR);

    end_set_state(e, END_ASKED);
    e->asked = true;
    channel_send(&p->channel, &m);
}

void end_job_over(struct job *job)
{
    struct end *e = (struct end *)((char *)job - offsetof(struct end, job));

    if (e->state == END_DESTROYING) {
        if (e->path)
            lose_all(e);
        end_free(e);
        return;
    }
    if (!e->doomed && e->job.rc < 0 && e->path)
        end_fail(e, strerror(-e->job.rc));
    if (e->offer && !e->doomed)
        e->card->rdma->up->end_made(e);
    if (e->doomed || e->job.rc < 0) {
        e->doomed = true;
        end_die(e);
    } else if (e->state == END_MAKING) {
        made(e);
    } else if (e->path) {
        probe(e);
    } else {
        end_set_state(e, END_UP);
    }
}
