/* What a card's thread does: queue pairs are made, connected and destroyed. */
#include <errno.h>
#include <stdlib.h>
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
        .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
    };

    job->qp = ibv_create_qp(c->pd, &init);
    if (!job->qp)
        return errno ? -errno : -ENOMEM;
    return -ibv_modify_qp(job->qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              IBV_QP_ACCESS_FLAGS);
}

/* Ready to receive: here the peer's address is looked for. */
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

static void *work(void *arg)
{
    struct job_thread *t = arg;
    struct job *job;
    uint64_t one = 1;

    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (STAILQ_EMPTY(&t->waiting) && !t->leaving)
            pthread_cond_wait(&t->more, &t->lock);
        job = STAILQ_FIRST(&t->waiting);
        if (!job)
            break;
        STAILQ_REMOVE_HEAD(&t->waiting, link);
        pthread_mutex_unlock(&t->lock);
        job->rc = run(job);
        pthread_mutex_lock(&t->lock);
        STAILQ_INSERT_TAIL(&t->over, job, link);
        if (write(t->bell, &one, sizeof(one)) < 0)
            continue; /* it is ringing */
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int job_thread_start(struct job_thread *t)
{
    int rc;

    STAILQ_INIT(&t->waiting);
    STAILQ_INIT(&t->over);
    t->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (t->bell < 0)
        return -errno;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->more, NULL);
    rc = pthread_create(&t->thread, NULL, work, t);
    if (rc != 0)
        goto free_lock;
    t->started = true;
    return 0;
free_lock:
    pthread_cond_destroy(&t->more);
    pthread_mutex_destroy(&t->lock);
    close(t->bell);
    return -rc;
}

void job_thread_stop(struct job_thread *t)
{
    if (!t->started)
        return;
    pthread_mutex_lock(&t->lock);
    t->leaving = true;
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->more);
    pthread_mutex_destroy(&t->lock);
    close(t->bell);
    t->started = false;
}

void job_thread_add(struct job_thread *t, struct job *job)
{
    pthread_mutex_lock(&t->lock);
    STAILQ_INSERT_TAIL(&t->waiting, job, link);
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->lock);
}

struct job *job_thread_over(struct job_thread *t)
{
    struct job *job;

    pthread_mutex_lock(&t->lock);
    job = STAILQ_FIRST(&t->over);
    if (job)
        STAILQ_REMOVE_HEAD(&t->over, link);
    pthread_mutex_unlock(&t->lock);
    return job;
}
