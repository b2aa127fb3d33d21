/* What a peer may do with memory and queue pairs: verbs that keep what they are
 * asked for stand in for a card's. */

#include "tests/unit/suite.h"
#include "workers/transfer/engine/rdma/internal.h"

static struct {
    unsigned n_memory, n_pairs;
    unsigned memory, pair; /* access flags, all of them together */
} asked;

static struct ibv_mr registered;
static struct ibv_qp pair;

static struct ibv_mr *take(int access)
{
    asked.n_memory++;
    asked.memory |= (unsigned)access;
    return &registered;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int access)
{
    return take(access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *, void *, size_t, uint64_t,
                                unsigned access)
{
    return take((int)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *, uint64_t, size_t, uint64_t,
                                 int, int access)
{
    return take(access);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *)
{
    return &pair;
}

int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *attr, int mask)
{
    if (mask & IBV_QP_ACCESS_FLAGS) {
        asked.n_pairs++;
        asked.pair |= attr->qp_access_flags;
    }
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *)
{
    return 0;
}

int card_gid_index(const struct card *)
{
    return 0;
}

static const unsigned writes =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

static void test_memory(void)
{
    char memory[16];
    const struct rdma_memory host = {memory, sizeof(memory), -1};
    const struct rdma_memory of_card = {memory, sizeof(memory), 3};

    CU_ASSERT_PTR_EQUAL(rdma_register(NULL, &host), &registered);
    CU_ASSERT_PTR_EQUAL(rdma_register(NULL, &of_card), &registered);
    CU_ASSERT_EQUAL(asked.n_memory, 2);
    CU_ASSERT(asked.memory & IBV_ACCESS_REMOTE_READ);
    CU_ASSERT_EQUAL(asked.memory & writes, 0);
}

static void test_queue_pairs(void)
{
    struct rdma r = {.spread = {.credits = 1}};
    struct card card = {.rdma = &r};
    struct job jobs[] = {{.kind = JOB_MAKE, .card = &card},
                         {.kind = JOB_SERVE, .card = &card}};
    struct job_thread thread = {0};

    CU_ASSERT_EQUAL_FATAL(job_thread_start(&thread), 0);
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        job_thread_add(&thread, &jobs[i]);
        CU_ASSERT_PTR_EQUAL(crew_over(thread.crew, true), &jobs[i].at);
        CU_ASSERT_EQUAL(jobs[i].rc, 0);
    }
    job_thread_stop(&thread);
    CU_ASSERT_EQUAL(asked.n_pairs, 2);
    CU_ASSERT(asked.pair & IBV_ACCESS_REMOTE_READ);
    CU_ASSERT_EQUAL(asked.pair & writes, 0);
}

static const struct suite_test tests[] = {
    {"memory", test_memory},
    {"queue pairs", test_queue_pairs},
};
SUITE("rdma_access", tests)
