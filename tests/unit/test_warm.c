/* Refused prompts in the background: which are kept, where they are computed,
 * when, and when they are dropped. */
#include <stdio.h>
#include <string.h>

#include "conductor/core/warm/warm.h"
#include "tests/unit/cases.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

enum {
    BLOCK = 256, /* two of them make a piece */
    NODES = 3,
    SLOTS = 9,
    CHAINS = 6, /* prompts of one chain begin alike */
    LONGEST = 40,
    JOBS = 400,
    NOW_US = 5000000,
    STEPS = 400,
};

/* 1 us a token, 2 on the last instance. */
struct rig {
    struct cost_model cost, slow;
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    struct dispatch dispatch;
    struct warm warm;
    uint32_t nodes[NODES];
    uint64_t keys[CHAINS][LONGEST];
    struct warm_job jobs[JOBS];
    size_t n_jobs;
    uint64_t id;
};

static uint32_t add_node(struct pool *pool)
{
    return READY(pool, .role = ROLE_PREFILL, .kv_capacity_tokens = 1 << 20,
                 .block_tokens = BLOCK);
}

static void rig_init(struct rig *r, double on)
{
    struct pool_config pool = pool_config_default;

    memset(r, 0, sizeof(*r));
    r->cost.prefill[1] = 1;
    r->cost.range = (struct cost_model_range){1, 100000, 100000, 64, 1000000};
    r->slow = r->cost;
    r->slow.prefill[1] = 2;
    pool.max_instances = SLOTS;
    r->pool = pool_new(&pool);
    r->index = core_index(SLOTS, 1 << 18);
    CORE_SCHEDULER(r, "plan",
                   (&(struct estimate_model){.cost = &r->cost,
                                             .block_tokens = BLOCK,
                                             .kv_bytes_per_token = 1}),
                   {"warm_on_reject", on});
    for (int n = 0; n < NODES; n++)
        r->nodes[n] = add_node(r->pool);
    CU_ASSERT_EQUAL(pool_set_cost(r->pool, r->nodes[NODES - 1], &r->slow), 0);
    dispatch_init(&r->dispatch);
    r->dispatch.scheduler = r->scheduler;
    warm_init(&r->warm, &r->dispatch, 0);
    for (uint64_t c = 0; c < CHAINS; c++)
        for (uint64_t b = 0; b < LONGEST; b++)
            r->keys[c][b] = random_mix(c * LONGEST + b + 1) | 1;
}

static void rig_fini(struct rig *r)
{
    CORE_FREE(r);
}

/* A refused prompt of the first blocks of a chain, and 10 tokens more. */
static struct warm_job *refuse(struct rig *r, int chain, uint32_t blocks,
                               int64_t now_us)
{
    struct warm_job *job = &r->jobs[r->n_jobs];

    *job = (struct warm_job){.owner = job,
                             .keys = r->keys[chain],
                             .n_keys = blocks,
                             .n_tokens = blocks * BLOCK + 10};
    if (!warm_add(&r->warm, job, now_us))
        return NULL;
    r->n_jobs++;
    return job;
}

static void store(struct rig *r, int node, int chain, uint32_t first,
                  uint32_t last)
{
    CU_ASSERT_EQUAL(prefix_index_stored(r->index, (uint32_t)node, TIER_DEVICE,
                                        first ? r->keys[chain][first - 1] : 0,
                                        r->keys[chain] + first, last - first),
                    0);
}

/* The next piece begins. */
static struct warm_job *begin(struct rig *r, int64_t now_us,
                              struct warm_piece *piece)
{
    struct warm_job *job = warm_next(&r->warm, now_us, piece);

    if (job && piece->tokens > 0)
        CU_ASSERT_EQUAL(warm_begin(&r->warm, job, piece, ++r->id, now_us), 0);
    return job;
}

/* It ends, and its blocks are there. */
static void end(struct rig *r, struct warm_job *job, int chain,
                const struct warm_piece *piece, uint64_t id)
{
    store(r, (int)piece->slot, chain, piece->from_block, piece->end_block);
    CU_ASSERT_EQUAL(pool_prefill_done(r->pool, piece->instance, id, -1, NOW_US),
                    0);
    warm_end(&r->warm, job, false);
}

static void test_which_are_wanted(void)
{
    static const bool wanted[] = {
        [DISPATCH_MISSES_TTFT] = true,
        [DISPATCH_MISSES_TBT] = true,
        [DISPATCH_PRICE] = true,
        [DISPATCH_WAITED_TOO_LONG] = false,
    };
    struct dispatch_request request = {.ask = {.n_keys = 1}};
    struct dispatch_order order = {.action = DISPATCH_REJECT};
    struct rig r;

    rig_init(&r, 1);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        order.reason = (enum dispatch_reason)i;
        CU_ASSERT_EQUAL(warm_wants(&r.warm, &request, &order), wanted[i]);
    }
    order.reason = DISPATCH_PRICE;
    request.ask.n_keys = 0; /* no block would be kept */
    CU_ASSERT_FALSE(warm_wants(&r.warm, &request, &order));
    rig_fini(&r);
    rig_init(&r, 0);
    request.ask.n_keys = 1;
    CU_ASSERT_FALSE(warm_wants(&r.warm, &request, &order));
    rig_fini(&r);
}

#define RIG_TEST(test) \
    SUITE_TEST(test, struct rig, r, rig_init(r, 1), rig_fini(r))

/* Piece by piece, and only where nothing else is to be done. */
RIG_TEST(test_pieces)
{
    struct warm_piece piece, other;
    struct warm_job *job;

    store(r, 1, 0, 0, 2);
    job = refuse(r, 0, 5, NOW_US);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    CU_ASSERT_EQUAL(job->instance, r->nodes[1]); /* the cheapest */
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), job);
    CU_ASSERT_EQUAL(piece.instance, r->nodes[1]);
    CU_ASSERT_EQUAL(piece.cached_tokens, 2 * BLOCK);
    CU_ASSERT_EQUAL(piece.tokens, 4 * BLOCK);
    CU_ASSERT_EQUAL(piece.predicted_us, 2 * BLOCK);
    /* Estimates count the piece, and no more. */
    CU_ASSERT_EQUAL(pool_queue_place(r->pool, pool_get(r->pool, r->nodes[1]),
                                     NOW_US, 100, 0, NOW_US)
                        .wait_us,
                    2 * BLOCK);
    CU_ASSERT_PTR_NULL(begin(r, NOW_US, &other));
    end(r, job, 0, &piece, r->id);
    /* A request is accepted: it goes first. */
    ACCEPTS(r->pool, r->nodes[1], .request_id = 1000, .predicted_us = 9);
    CU_ASSERT_PTR_NULL(begin(r, NOW_US, &piece));
    CU_ASSERT_EQUAL(pool_prefill_done(r->pool, r->nodes[1], 1000, -1, NOW_US),
                    0);
    r->dispatch.n_waiting = 1; /* so does one that waits for room */
    CU_ASSERT_PTR_NULL(begin(r, NOW_US, &piece));
    r->dispatch.n_waiting = 0;
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), job);
    CU_ASSERT_EQUAL(piece.cached_tokens, 4 * BLOCK);
    CU_ASSERT_EQUAL(piece.tokens, 5 * BLOCK); /* its full blocks */
    end(r, job, 0, &piece, r->id);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), job);
    CU_ASSERT_EQUAL(piece.tokens, 0);
    CU_ASSERT_EQUAL(r->warm.counts.done, 1);
    CU_ASSERT_EQUAL(r->warm.counts.pieces, 2);
    CU_ASSERT_EQUAL(r->warm.counts.tokens, 3 * BLOCK);
    CU_ASSERT_EQUAL(r->warm.n_jobs, 0);
}

/* After a request without a limit nothing begins for a minute, also of a job
 * that has begun. */
RIG_TEST(test_limitless)
{
    struct dispatch_request request = {.ask = {.n_tokens = 10,
                                               .max_output_tokens = 1,
                                               .only = POOL_NO_INSTANCE},
                                       .arrived_us = NOW_US,
                                       .slo_ttft_us = 1000000};
    struct dispatch_order order;
    struct warm_piece piece;
    struct warm_job *job;

    job = refuse(r, 0, 5, NOW_US);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), job);
    end(r, job, 0, &piece, r->id);
    request.ask.request_id = 1000;
    dispatch_place(&r->dispatch, &request, NOW_US, &order);
    CU_ASSERT_EQUAL(order.action, DISPATCH_SEND);
    CU_ASSERT_EQUAL(
        pool_prefill_cancel(r->pool, order.decision.prefill, 1000, NOW_US), 0);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), job);
    end(r, job, 0, &piece, r->id);
    request.slo_ttft_us = 0;
    request.ask.request_id = 1001;
    dispatch_place(&r->dispatch, &request, NOW_US, &order);
    CU_ASSERT_EQUAL(order.action, DISPATCH_SEND);
    CU_ASSERT_EQUAL(
        pool_prefill_cancel(r->pool, order.decision.prefill, 1001, NOW_US), 0);
    CU_ASSERT_PTR_NULL(begin(r, NOW_US, &piece));
    CU_ASSERT_PTR_NULL(begin(r, NOW_US + WARM_BEGIN_US - 1, &piece));
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US + WARM_BEGIN_US, &piece), job);
    end(r, job, 0, &piece, r->id);
}

/* What did not begin in time, what failed, what gets no further, and what
 * another instance has by now. */
RIG_TEST(test_drops)
{
    struct warm_piece piece;
    struct warm_job *jobs[4];

    for (int i = 0; i < 4; i++)
        jobs[i] = refuse(r, i, 8, NOW_US);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), jobs[0]);
    warm_end(&r->warm, jobs[0], true);
    CU_ASSERT_EQUAL(pool_prefill_cancel(r->pool, piece.instance, r->id, NOW_US),
                    0);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), jobs[0]);
    CU_ASSERT_EQUAL(piece.tokens, 0);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), jobs[1]);
    CU_ASSERT_EQUAL(
        pool_prefill_done(r->pool, piece.instance, r->id, -1, NOW_US), 0);
    warm_end(&r->warm, jobs[1], false); /* and none of its blocks was kept */
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), jobs[1]);
    CU_ASSERT_EQUAL(piece.tokens, 0);
    CU_ASSERT_EQUAL(r->warm.counts.dropped, 2);
    store(r, 2, 2, 0, 8);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), jobs[2]);
    CU_ASSERT_EQUAL(piece.tokens, 0);
    CU_ASSERT_EQUAL(r->warm.counts.done, 1);
    r->dispatch.n_waiting = 1;
    CU_ASSERT_PTR_NULL(begin(r, NOW_US + WARM_BEGIN_US, &piece));
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US + WARM_BEGIN_US + 1, &piece), jobs[3]);
    CU_ASSERT_EQUAL(piece.tokens, 0);
    CU_ASSERT_EQUAL(r->warm.counts.late, 1);
}

/* A prompt that is refused again, and one that goes on behind it. */
RIG_TEST(test_joins)
{
    struct warm_piece piece;
    struct warm_job *first, *longer;

    first = refuse(r, 0, 6, NOW_US);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), first);
    CU_ASSERT_PTR_NULL(refuse(r, 0, 6, NOW_US));
    CU_ASSERT_PTR_NULL(refuse(r, 0, 3, NOW_US));
    longer = refuse(r, 0, 7, NOW_US + WARM_BEGIN_US);
    CU_ASSERT_PTR_NOT_NULL_FATAL(longer);
    CU_ASSERT_EQUAL(longer->instance, piece.instance);
    CU_ASSERT(longer->begun);
    CU_ASSERT_EQUAL(r->warm.counts.joined, 3);
    end(r, first, 0, &piece, r->id);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), longer);
    CU_ASSERT_EQUAL(piece.from_block, 2);
    CU_ASSERT_PTR_EQUAL(begin(r, NOW_US, &piece), first);
    CU_ASSERT_EQUAL(piece.tokens, 0);
    CU_ASSERT_EQUAL(r->warm.counts.jobs, 1);
}

/* Its work counts as its tenant's, also where that one has no place of its own
 * behind so many others. */
static void shares(uint64_t others)
{
    struct warm_piece piece;
    struct warm_job *job;
    struct rig r;
    uint32_t place;

    rig_init(&r, 1);
    for (uint64_t other = 0; other < others; other++)
        (void)share_arrived(&r.dispatch.share, 8 + other, 1.0, 0, NOW_US);
    place = share_arrived(&r.dispatch.share, 7, 1.0, 0, NOW_US);
    CU_ASSERT_EQUAL(place == 0, others >= SHARE_TENANTS - 1);
    job = refuse(&r, 0, 4, NOW_US);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    job->tenant = 7;
    job->place = place;
    CU_ASSERT_PTR_EQUAL(begin(&r, NOW_US, &piece), job);
    CU_ASSERT_EQUAL(r.dispatch.share.tenants[place].used_us[SHARE_PREFILL],
                    2 * BLOCK);
    rig_fini(&r);
}

static void test_shares(void)
{
    shares(1);
    shares(SHARE_TENANTS - 1);
}

/* A prompt of more than a sixteenth of what instances keep is not warmed, nor
 * in the place of a short one that it begins with. */
RIG_TEST(test_sizes)
{
    struct warm_job job = {.n_keys = 1, .n_tokens = (1 << 20) / 16 + 1};
    struct warm_job longer = {.n_keys = 2, .n_tokens = (1 << 20) / 16 + 1};

    job.keys = r->keys[0];
    CU_ASSERT_FALSE(warm_add(&r->warm, &job, NOW_US));
    job.n_tokens--;
    CU_ASSERT_TRUE(warm_add(&r->warm, &job, NOW_US));
    longer.keys = r->keys[0];
    CU_ASSERT_FALSE(warm_add(&r->warm, &longer, NOW_US));
    CU_ASSERT_EQUAL(r->warm.counts.joined, 0);
    CU_ASSERT_FALSE(job.over);
    longer.n_tokens--;
    CU_ASSERT_TRUE(warm_add(&r->warm, &longer, NOW_US));
    CU_ASSERT_TRUE(job.over);
    warm_forget(&r->warm, &longer);
    warm_forget(&r->warm, &job);
}

/* Bounds of an instance and of all. */
static void test_bounds(void)
{
    enum { MANY = WARM_JOBS + 1 };
    static uint64_t keys[2 * MANY];
    static struct warm_job jobs[2 * MANY];
    struct rig r;
    uint32_t kept = 0;

    rig_init(&r, 1);
    for (uint32_t i = 0; i < 2 * MANY; i++) {
        keys[i] = random_mix(i + 100000) | 1;
        jobs[i] =
            (struct warm_job){.keys = &keys[i], .n_keys = 1, .n_tokens = BLOCK};
        if (i == MANY)
            CU_ASSERT_EQUAL(kept, NODES * WARM_OF_INSTANCE);
        for (int n = NODES; i == MANY && n < SLOTS; n++)
            (void)add_node(r.pool);
        kept += warm_add(&r.warm, &jobs[i], NOW_US);
    }
    CU_ASSERT_EQUAL(kept, WARM_JOBS);
    CU_ASSERT_EQUAL(r.warm.counts.crowded, 2 * MANY - kept);
    CU_ASSERT_EQUAL(r.warm.n_jobs, kept);
    uint64_t longer_keys[] = {keys[0], 3};
    struct warm_job longer = {
        .keys = longer_keys, .n_keys = 2, .n_tokens = 2 * BLOCK};
    CU_ASSERT_FALSE(warm_add(&r.warm, &longer, NOW_US)); /* behind the first */
    CU_ASSERT_EQUAL(r.warm.n_jobs, kept);
    rig_fini(&r);
}

/* The rule once more, by loops over everything. What an instance has is a
 * table, what it will have another one. */
struct obvious {
    struct rig *r;
    uint32_t has[NODES][CHAINS];  /* leading blocks */
    uint32_t will[NODES][CHAINS]; /* of what runs */
    bool busy[NODES];
    struct warm_job *order[JOBS]; /* the oldest first */
    int chain[JOBS];              /* by number of the job */
    size_t n;
};

static uint32_t most(const struct obvious *o, int node, int chain)
{
    return o->has[node][chain] > o->will[node][chain] ? o->has[node][chain]
                                                      : o->will[node][chain];
}

static int node_of(const struct obvious *o, const struct warm_job *job)
{
    int node = 0;

    while (o->r->nodes[node] != job->instance)
        node++;
    return node;
}

static int chain_of(const struct obvious *o, const struct warm_job *job)
{
    return o->chain[job - o->r->jobs];
}

/* Which one it should be; NULL: none. *over: it should be handed back. */
static struct warm_job *expect(const struct obvious *o, int64_t now_us,
                               bool *over)
{
    for (size_t i = 0; i < o->n; i++) {
        struct warm_job *job = o->order[i];
        int node = node_of(o, job), chain = chain_of(o, job);
        bool held = false;

        if (job->computes)
            continue;
        for (int k = 0; k < NODES; k++)
            held |= most(o, k, chain) >= job->n_keys;
        *over = job->over ||
                (!job->begun && now_us > job->refused_us + WARM_BEGIN_US);
        if (*over)
            return job;
        if (o->busy[node])
            continue;
        *over = held || (job->begun && most(o, node, chain) <= job->blocks);
        return job;
    }
    return NULL;
}

static void forget(struct obvious *o, const struct warm_job *job)
{
    size_t i = 0;

    while (o->order[i] != job)
        i++;
    memmove(o->order + i, o->order + i + 1, (--o->n - i) * sizeof(job));
}

/* Where it should be added: before the one that it goes on behind, else at the
 * end. Returns whether it should be. */
static bool expect_place(const struct obvious *o, int chain, uint32_t blocks,
                         size_t *at)
{
    size_t i = 0;

    while (i < o->n && (o->order[i]->over || chain_of(o, o->order[i]) != chain))
        i++;
    *at = i;
    return i == o->n || o->order[i]->n_keys < blocks;
}

/* The cheapest one with room; NODES: none has. */
static int expect_node(const struct obvious *o, int chain, uint32_t blocks)
{
    int64_t best_us = INT64_MAX;
    int best = NODES;

    for (int k = 0; k < NODES; k++) {
        int64_t us =
            (int64_t)(blocks - (most(o, k, chain) < blocks ? most(o, k, chain)
                                                           : blocks)) *
            BLOCK;
        size_t n = 0;

        us = (us + 10) * (k == NODES - 1 ? 2 : 1);
        for (size_t i = 0; i < o->n; i++) {
            if (o->order[i]->over || node_of(o, o->order[i]) != k)
                continue;
            us += o->order[i]->cost_us;
            n++;
        }
        if (n >= WARM_OF_INSTANCE || us >= best_us)
            continue;
        best_us = us;
        best = k;
    }
    return best;
}

static void add(struct obvious *o, struct random_state *random, int64_t now_us)
{
    struct rig *r = o->r;
    int chain = (int)random_below(random, CHAINS), node;
    uint32_t blocks = 1 + random_below(random, LONGEST);
    struct warm_job *job;
    size_t at;
    bool kept = expect_place(o, chain, blocks, &at);

    node = at < o->n ? node_of(o, o->order[at]) : expect_node(o, chain, blocks);
    o->chain[r->n_jobs] = chain;
    job = refuse(r, chain, blocks, now_us);
    CU_ASSERT_EQUAL(!job, !kept || node == NODES);
    if (!job)
        return;
    memmove(o->order + at + 1, o->order + at, (o->n - at) * sizeof(job));
    o->order[at] = job;
    o->n++;
    CU_ASSERT_EQUAL(node_of(o, job), node);
}

struct running {
    struct warm_job *job; /* NULL: a request */
    struct warm_piece piece;
    uint64_t id;
    int chain;
    bool runs;
};

/* What runs there ends: it is kept, or not. */
static void finish(struct obvious *o, struct running *running, int node,
                   struct random_state *random)
{
    struct running *now = &running[node];
    struct rig *r = o->r;
    bool kept = random_below(random, 8) > 0, fails;

    if (!now->runs)
        return;
    o->busy[node] = now->runs = false;
    o->will[node][now->chain] = 0;
    fails = !kept && random_below(random, 2) == 0;
    if (kept && now->piece.end_block > o->has[node][now->chain]) {
        store(r, node, now->chain, o->has[node][now->chain],
              now->piece.end_block);
        o->has[node][now->chain] = now->piece.end_block;
    }
    CU_ASSERT_EQUAL(
        pool_prefill_cancel(r->pool, r->nodes[node], now->id, NOW_US), 0);
    if (now->job)
        warm_end(&r->warm, now->job, fails);
}

/* A request goes to an idle instance. */
static void ask(struct obvious *o, struct running *running, int node,
                struct random_state *random)
{
    struct rig *r = o->r;
    int chain = (int)random_below(random, CHAINS);
    uint32_t blocks = 1 + random_below(random, LONGEST);

    if (o->busy[node])
        return;
    running[node] = (struct running){
        .piece = {.from_block = o->has[node][chain], .end_block = blocks},
        .id = ++r->id,
        .chain = chain,
        .runs = true};
    o->busy[node] = true;
    o->will[node][chain] = blocks;
    ACCEPTS(r->pool, r->nodes[node], .request_id = r->id, .predicted_us = 1,
            .keys = r->keys[chain], .n_keys = blocks);
}

/* Blocks leave an instance from the end. */
static void evict(struct obvious *o, int node, struct random_state *random)
{
    int chain = (int)random_below(random, CHAINS);
    uint32_t *has = &o->has[node][chain];
    uint32_t keep = *has ? random_below(random, *has) : 0;

    CU_ASSERT_EQUAL(prefix_index_removed(o->r->index, (uint32_t)node,
                                         TIER_DEVICE, o->r->keys[chain] + keep,
                                         *has - keep),
                    0);
    *has = keep;
}

static void take_next(struct obvious *o, struct running *running,
                      int64_t now_us)
{
    bool over = false;
    struct warm_job *want = expect(o, now_us, &over), *job;
    struct warm_piece piece;

    job = begin(o->r, now_us, &piece);
    CU_ASSERT_PTR_EQUAL(job, want);
    if (!job)
        return;
    int node = node_of(o, job), chain = chain_of(o, job);

    CU_ASSERT_EQUAL(piece.tokens == 0, over);
    if (piece.tokens == 0) {
        forget(o, job);
        return;
    }
    CU_ASSERT_FALSE(o->busy[node]);
    CU_ASSERT_EQUAL(piece.slot, (uint32_t)node);
    CU_ASSERT_EQUAL(piece.from_block, o->has[node][chain]);
    CU_ASSERT(piece.end_block > piece.from_block);
    CU_ASSERT(piece.end_block - piece.from_block <= WARM_PIECE_TOKENS / BLOCK);
    CU_ASSERT(piece.end_block <= job->n_keys);
    o->busy[node] = true;
    o->will[node][chain] = piece.end_block;
    running[node] = (struct running){.job = job,
                                     .piece = piece,
                                     .id = o->r->id,
                                     .chain = chain,
                                     .runs = true};
}

/* Each job is kept, or ended in one way. */
static void check_counts(const struct obvious *o)
{
    const struct warm_counts *c = &o->r->warm.counts;
    uint64_t kept = 0;

    for (size_t i = 0; i < o->n; i++)
        kept += !o->order[i]->over;
    CU_ASSERT_EQUAL(c->jobs, kept + c->done + c->late + c->dropped);
}

static void test_random(void)
{
    static struct rig r;
    static struct obvious o;

    for (uint64_t seed = 1; seed <= cases_of(200); seed++) {
        struct running running[NODES] = {{.runs = false}};
        struct random_state random;
        int64_t now_us = NOW_US;
        unsigned failed = CU_get_number_of_failures();

        random_init(&random, seed);
        rig_init(&r, 1);
        o = (struct obvious){.r = &r};
        for (int i = 0; i < STEPS && r.n_jobs + 1 < JOBS; i++) {
            int node = (int)random_below(&random, NODES);

            now_us += (int64_t)random_below(&random, 4000000);
            switch (random_below(&random, 6)) {
            case 0:
                add(&o, &random, now_us);
                break;
            case 1:
                ask(&o, running, node, &random);
                break;
            case 2:
                if (!o.busy[node])
                    evict(&o, node, &random);
                break;
            case 3:
                finish(&o, running, node, &random);
                break;
            default:
                take_next(&o, running, now_us);
            }
            CU_ASSERT_EQUAL(r.warm.n_jobs, o.n);
            check_counts(&o);
        }
        CU_ASSERT(pool_slots(r.pool) == NODES);
        rig_fini(&r);
        if (CU_get_number_of_failures() > failed) {
            printf("seed %llu\n", (unsigned long long)seed);
            break;
        }
    }
}

static const struct suite_test tests[] = {
    {"which are wanted", test_which_are_wanted},
    {"pieces", test_pieces},
    {"without a limit", test_limitless},
    {"drops", test_drops},
    {"joins", test_joins},
    {"shares", test_shares},
    {"sizes", test_sizes},
    {"bounds", test_bounds},
    {"random", test_random},
};
SUITE("warm", tests)
