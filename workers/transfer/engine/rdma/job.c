/* A card's thread: makes, connects and destroys queue pairs. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "workers/transfer/engine/rdma/internal.h"

static int make(struct job *job)
{
    const struct card *c = job->card;
    struct ibv_qp_init_attr init = {
        .send_cq = c->cq,
        .recv_cq = c->cq,
        .cap = {.max_send_wr = c->rdma->spread.credits + 1,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = RDMA_PEERS_MAY,
    };

    job->qp = ibv_create_qp(c->pd, &init);
    if (!job->qp)
        return errno ? -errno : -ENOMEM;
    return -ibv_modify_qp(job->qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              IBV_QP_ACCESS_FLAGS);
}

/* Moves the queue pair to "ready to receive", which resolves the peer's
 * address. */
static int to_receive(const struct job *job)
{
    const struct card *c = job->card;
    const struct pairing *to = &job->to;
    int index = card_gid_index(c);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = to->mtu < c->mtu ? to->mtu : c->mtu,
        .dest_qp_num = to->qpn,
        .rq_psn = to->psn,
        .max_dest_rd_atomic = to->reads < c->reads ? to->reads : c->reads,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .dlid = to->lid,
                    .port_num = 1,
                    .grh = {.hop_limit = 64}},
    };

    if (index < 0)
        return index;
    attr.ah_attr.grh.sgid_index = (uint8_t)index;
    memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof(to->gid));
    return -ibv_modify_qp(job->qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                              IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int connect_pair(const struct job *job)
{
    const struct card *c = job->card;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .timeout = RDMA_ACK_TIMEOUT,
        .retry_cnt = RDMA_RETRIES,
        .rnr_retry = RDMA_RETRIES,
        .sq_psn = job->to.own_psn,
        .max_rd_atomic = job->to.reads < c->reads ? job->to.reads : c->reads,
    };
    int rc = to_receive(job);

    if (rc < 0)
        return rc;
    return -ibv_modify_qp(job->qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                              IBV_QP_MAX_QP_RD_ATOMIC);
}

static int destroy(struct job *job)
{
    int rc = job->qp ? ibv_destroy_qp(job->qp) : 0;

    job->qp = NULL;
    return -rc;
}

static int run(struct job *job)
{
    int rc;

    switch (job->kind) {
    case JOB_MAKE:
        return make(job);
    case JOB_CONNECT:
        return connect_pair(job);
    case JOB_SERVE:
        rc = make(job);
        return rc < 0 ? rc : connect_pair(job);
    case JOB_DESTROY:
        return destroy(job);
    }
    return -EINVAL;
}

static void over(void *arg)
{
    const struct job_thread *t = arg;
    uint64_t one = 1;

    /* fails only if the counter is full: it is readable */
    (void)!write(t->bell, &one, sizeof(one));
}

static void work(void *, struct crew_job *at)
{
    struct job *job = (struct job *)(void *)at; /* its first member */

    job->rc = run(job);
}

int job_thread_start(struct job_thread *t)
{
    static const struct crew_ops ops = {work, over};
    int rc;

    t->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (t->bell < 0)
        return -errno;
    rc = crew_new(NULL, 1, &ops, t, &t->crew);
    if (rc < 0)
        close(t->bell);
    return rc;
}

void job_thread_stop(struct job_thread *t)
{
    if (!t->crew)
        return;
    crew_free(t->crew);
    t->crew = NULL;
    close(t->bell);
}

void job_thread_add(struct job_thread *t, struct job *job)
{
    crew_add(t->crew, &job->at, false);
}

struct job *job_thread_over(struct job_thread *t)
{
    return (struct job *)(void *)crew_over(t->crew, false);
}
