/* The disk tier against an obvious model: random prompts that share prefixes
 * and collide, random reads, writes, damage and restarts. The model knows which
 * blocks there must be and, from the prompt alone, what each must hold. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "disk_rig.h"
#include "tests/unit/cases.h"
#include "tests/unit/disk_check.h"
#include "tests/unit/suite.h"

#define SLOTS 14u
#define STEPS 6000
#define MAX_BUSY 12u

/* A block that the tier said it has. */
struct held {
    uint64_t key;
    uint64_t parent_key;
    bool has_parent;
};

/* An operation under way, with memory of its own. */
struct job {
    struct model *m;
    bool busy;
    bool is_read;
    bool cancelled;
    struct rig_prompt p;
    uint32_t i; /* block of the prompt */
    uint32_t from, to;
    char *memory;
    struct disk_job *read;
};

struct model {
    struct disk_rig rig;
    uint64_t rng;
    struct held held[SLOTS]; /* as the events say */
    uint32_t n_held;
    struct job jobs[MAX_BUSY];
    bool damaged; /* since the last start */
    uint32_t n_read, n_bad, n_written, n_matched, n_restarts;
};

static uint32_t rnd(struct model *m, uint32_t n)
{
    return draw_below(&m->rng, n);
}

/* Few different tokens, and keys of seven bits. */
static void random_prompt(struct model *m, struct rig_prompt *p)
{
    uint64_t h = 0;

    for (uint32_t i = 0; i < RIG_CHAIN * RIG_TOKENS; i++)
        p->tokens[i] = rnd(m, 7) == 0;
    for (uint32_t i = 0; i < RIG_CHAIN; i++) {
        h = h * 31 + p->tokens[2 * i] * 7 + p->tokens[2 * i + 1] * 3 + 1;
        p->keys[i] = h % 127;
    }
}

static uint32_t find_held(const struct model *m, uint64_t key)
{
    uint32_t i = 0;

    while (i < m->n_held && m->held[i].key != key)
        i++;
    return i;
}

static void take_event(struct model *m, const struct kv_store_event *e)
{
    uint32_t at = find_held(m, e->key);

    if (e->kind == KV_EVENT_REMOVED) {
        CU_ASSERT_FATAL(at < m->n_held);
        m->held[at] = m->held[--m->n_held];
        return;
    }
    CU_ASSERT_FATAL(e->kind == KV_EVENT_STORED && at == m->n_held &&
                    at < SLOTS);
    m->held[m->n_held++] = (struct held){.key = e->key,
                                         .parent_key = e->parent_key,
                                         .has_parent = e->has_parent};
}

static void drain(struct model *m)
{
    struct kv_store_event e;

    CU_ASSERT_FATAL(!kv_store_take_resync(disk_tier_index(m->rig.t)));
    while (kv_store_next_event(disk_tier_index(m->rig.t), &e))
        take_event(m, &e);
}

static void inventory(struct model *m)
{
    struct kv_store_event e;
    uint32_t cursor = KV_BLOCK_NONE;

    m->n_held = 0;
    while (kv_store_inventory(disk_tier_index(m->rig.t), &cursor, &e))
        take_event(m, &e);
}

/* A match is never longer than the events allow. (It may be shorter: a key
 * that belongs to another prompt.) */
static uint32_t match(struct model *m, const struct rig_prompt *p,
                      struct disk_ref *refs)
{
    uint32_t n = disk_tier_match(m->rig.t, p->keys, p->tokens, RIG_CHAIN, refs);

    drain(m);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = find_held(m, p->keys[i]);

        CU_ASSERT_FATAL(at < m->n_held);
        CU_ASSERT_EQUAL_FATAL(m->held[at].has_parent, i > 0);
        if (i > 0)
            CU_ASSERT_EQUAL_FATAL(m->held[at].parent_key, p->keys[i - 1]);
    }
    m->n_matched += n;
    return n;
}

static void unpin(struct model *m, const struct disk_ref *refs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        disk_tier_unpin(m->rig.t, refs[i]);
}

static struct job *free_job(struct model *m)
{
    for (uint32_t i = 0; i < MAX_BUSY; i++)
        if (!m->jobs[i].busy)
            return &m->jobs[i];
    return NULL;
}

/* The heart: whatever a read says is good, is what the prompt wants. */
static void on_done(void *arg, int rc)
{
    struct job *j = arg;
    struct model *m = j->m;

    CU_ASSERT_FATAL(j->busy);
    j->busy = false;
    if (!j->is_read) {
        m->n_written += rc == 0;
        CU_ASSERT(rc == 0 || rc == -ESTALE || rc == -ECANCELED);
        return;
    }
    if (rc == 0) {
        CU_ASSERT_FATAL(
            disk_rig_is(&m->rig, &j->p, j->i, j->from, j->to, j->memory));
        m->n_read++;
        return;
    }
    if (rc == -EBADMSG) {
        CU_ASSERT(m->damaged);
        m->n_bad++;
        return;
    }
    CU_ASSERT(rc == -ECANCELED);
}

static void op_write(struct model *m)
{
    struct disk_ref refs[RIG_CHAIN];
    struct disk_ref ref = DISK_REF_NONE;
    struct job *j = free_job(m);

    if (!j)
        return;
    random_prompt(m, &j->p);
    uint32_t n = match(m, &j->p, refs);
    unpin(m, refs, n);
    if (n == RIG_CHAIN)
        return;
    j->i = n;
    j->is_read = false;
    disk_rig_fill(&m->rig, &j->p, n, j->memory);
    int rc = disk_tier_write(m->rig.t, n > 0 ? refs[n - 1] : DISK_REF_NONE,
                             j->p.keys[n], j->p.tokens + n * RIG_TOKENS,
                             j->memory, on_done, j, &ref);
    CU_ASSERT(rc == 0 || rc == -ENOTUNIQ || rc == -ENOSPC || rc == -EBUSY);
    j->busy = rc == 0;
    drain(m);
}

static void op_read(struct model *m)
{
    struct disk_ref refs[RIG_CHAIN];
    struct job *j = free_job(m);

    if (!j)
        return;
    random_prompt(m, &j->p);
    uint32_t n = match(m, &j->p, refs);
    if (n > 0) {
        j->i = rnd(m, n);
        j->from = rnd(m, 3);
        j->to = j->from + 1 + rnd(m, 3 - j->from);
        j->is_read = true;
        j->cancelled = false;
        memset(j->memory, 0x33, m->rig.config.geometry.block_bytes);
        CU_ASSERT_EQUAL_FATAL(disk_tier_read(m->rig.t, refs[j->i], j->from,
                                             j->to, j->memory, on_done, j,
                                             &j->read),
                              0);
        j->busy = true;
    }
    unpin(m, refs, n);
}

static void op_cancel(struct model *m)
{
    struct job *j = &m->jobs[rnd(m, MAX_BUSY)];

    if (!j->busy || !j->is_read || j->cancelled)
        return;
    j->cancelled = true;
    disk_tier_cancel(m->rig.t, j->read);
    CU_ASSERT(j->busy);
}

static void op_poll(struct model *m, bool wait)
{
    struct pollfd p = {.fd = disk_tier_fd(m->rig.t), .events = POLLIN};

    if (poll(&p, 1, wait ? 1 : 0) == 1)
        disk_tier_poll(m->rig.t);
    drain(m);
}

static void op_damage(struct model *m)
{
    uint64_t end = m->rig.config.bytes;
    uint64_t at = 8192 + (((uint64_t)rnd(m, 1u << 30) << 10) % (end - 8192));

    disk_rig_flip(&m->rig, at + rnd(m, 1000) % (end - at));
    m->damaged = true;
}

static void op_restart(struct model *m)
{
    struct held before[SLOTS];

    if (rnd(m, 2))
        disk_rig_settle(&m->rig);
    disk_tier_close(m->rig.t);
    m->rig.t = NULL;
    for (uint32_t i = 0; i < MAX_BUSY; i++)
        CU_ASSERT_FATAL(!m->jobs[i].busy);
    /* What was held without damage must be there again. The last commits may
     * have come while it closed, so more may be there. */
    uint32_t n = m->n_held;
    memcpy(before, m->held, sizeof(before));
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&m->rig), 0);
    inventory(m);
    for (uint32_t i = 0; i < n && !m->damaged; i++)
        CU_ASSERT_FATAL(find_held(m, before[i].key) < m->n_held);
    m->n_restarts++;
}

static void random_op(struct model *m)
{
    uint32_t op = rnd(m, 1000);

    if (op < 5)
        op_restart(m);
    else if (op < 8 && m->n_restarts > 8)
        op_damage(m);
    else if (op < 350)
        op_write(m);
    else if (op < 650)
        op_read(m);
    else if (op < 700)
        op_cancel(m);
    else
        op_poll(m, op < 900);
    disk_tier_check(m->rig.t);
}

static void walk(bool uring, uint64_t seed)
{
    struct model *m = calloc(1, sizeof(*m));

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    m->rng = (seed + uring) * 0x9e3779b97f4a7c15u + 1;
    disk_rig_init(&m->rig, 4096, SLOTS);
    m->rig.config.uring = uring;
    for (uint32_t i = 0; i < MAX_BUSY; i++) {
        m->jobs[i].m = m;
        m->jobs[i].memory =
            aligned_alloc(4096, m->rig.config.geometry.block_bytes);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m->jobs[i].memory);
    }
    CU_ASSERT_EQUAL_FATAL(disk_rig_open(&m->rig), 0);
    for (int i = 0; i < STEPS; i++)
        random_op(m);
    /* The walk reached what it is for. */
    CU_ASSERT(m->n_written > 200 && m->n_read > 200 && m->n_restarts > 10);
    printf("\n    written %u, read %u, damaged %u, restarts %u ", m->n_written,
           m->n_read, m->n_bad, m->n_restarts);
    disk_tier_close(m->rig.t);
    m->rig.t = NULL;
    for (uint32_t i = 0; i < MAX_BUSY; i++)
        free(m->jobs[i].memory);
    disk_rig_fini(&m->rig);
    free(m);
}

static void test_random(void)
{
    uint64_t seed = cases_seed((uint64_t)time(NULL));

    walk(true, seed);
    walk(false, seed);
}

static const struct suite_test tests[] = {
    {"random against model", test_random},
};

int main(void)
{
    log_init("test", LOG_ERROR); /* damage is what this test makes */
    return SUITE_RUN("disk_random", tests);
}
