/* The step loop, step by step: budgets, order, reuse, room, removal. No
 * engine: the test answers the segments itself. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bug.h"
#include "predictor/cost_model.h"
#include "tests/unit/kv_store_check.h"
#include "tests/unit/suite.h"
#include "workers/step/internal.h"

#define BT 16u
#define STEP 64u

struct rig {
    struct kv_store *store;
    struct batch *batch;
    struct engine_kv_layout layout;
    struct engine_segment *segments;
    uint32_t n;
    uint64_t next_id;
    uint32_t chunk;
    char log[512]; /* what happened, e.g. "s1 p1 " */
};

static void note(void *arg, char what, struct request *r)
{
    struct rig *rig = arg;
    size_t len = strlen(rig->log);

    snprintf(rig->log + len, sizeof(rig->log) - len, "%c%u ", what,
             (unsigned)r->id);
}

static void free_request(struct rig *rig, struct request *r)
{
    request_release(r, rig->store);
    request_free(r);
}

static void on_started(void *arg, struct request *r)
{
    note(arg, 's', r);
}

static void on_prefilled(void *arg, struct request *r)
{
    note(arg, 'p', r);
    if (!r->decodes_here || r->max_tokens == 1)
        free_request(arg, r);
}

static void on_token(void *arg, struct request *r)
{
    note(arg, 't', r);
}

static void on_finished(void *arg, struct request *r)
{
    note(arg, 'd', r);
    CU_ASSERT(batch_remove(((struct rig *)arg)->batch, r));
    free_request(arg, r);
}

static void on_failed(void *arg, struct request *r, const char *why)
{
    CU_ASSERT_PTR_NOT_NULL(why);
    note(arg, 'f', r);
    CU_ASSERT(batch_remove(((struct rig *)arg)->batch, r));
    free_request(arg, r);
}

static void on_removed(void *arg, struct request *r)
{
    note(arg, 'r', r);
    free_request(arg, r);
}

/* Tokens that the load of every request lets the engine have at once. */
static uint32_t on_chunk(void *arg, struct request *r, uint32_t most)
{
    const struct rig *rig = arg;

    note(arg, 'c', r);
    return most < rig->chunk ? most : rig->chunk;
}

static void on_stalled(void *arg, struct request *r)
{
    note(arg, 'w', r);
}

static const struct batch_ops ops = {
    .started = on_started,
    .chunk = on_chunk,
    .stalled = on_stalled,
    .prefilled = on_prefilled,
    .token = on_token,
    .finished = on_finished,
    .failed = on_failed,
    .removed = on_removed,
};

static void rig_init_prefills(struct rig *rig, uint32_t blocks,
                              uint32_t max_queue, uint32_t max_prefills)
{
    struct kv_store_config sc = {.capacity_blocks = blocks,
                                 .block_tokens = BT,
                                 .block_bytes = 64,
                                 .event_capacity = 16};

    memset(rig, 0, sizeof(*rig));
    rig->layout = (struct engine_kv_layout){
        .layers = 1, .block_tokens = BT, .vocab = 512};
    CU_ASSERT_EQUAL_FATAL(kv_store_new(&sc, &rig->store), 0);
    struct batch_config c = {.store = rig->store,
                             .layout = &rig->layout,
                             .step_tokens = STEP,
                             .max_batch = 3,
                             .max_prefills = max_prefills,
                             .max_queue = max_queue};
    rig->batch = batch_new(&c, &ops, rig);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rig->batch);
    rig->next_id = 1;
}

static void rig_init(struct rig *rig, uint32_t blocks, uint32_t max_queue)
{
    rig_init_prefills(rig, blocks, max_queue, 4);
}

static void rig_fini(struct rig *rig)
{
    struct kv_store_stats stats;

    kv_store_check(rig->store);
    kv_store_stats(rig->store, &stats);
    CU_ASSERT_EQUAL(stats.private_blocks, 0);
    CU_ASSERT_EQUAL(stats.evictable_blocks, stats.held_blocks);
    batch_free(rig->batch);
    kv_store_free(rig->store);
}

/* A prompt of `n` tokens; those of the same `kind` share their beginnings. */
static struct request *make(struct rig *rig, uint32_t kind, uint32_t n,
                            uint32_t max_tokens)
{
    uint8_t bytes[4 * 1024];

    for (uint32_t i = 0; i < n; i++) {
        bytes[4 * i] = (uint8_t)kind;
        bytes[4 * i + 1] = 0;
        bytes[4 * i + 2] = 0;
        bytes[4 * i + 3] = 0;
    }
    struct request *r =
        request_new(&(struct request_spec){.id = rig->next_id++,
                                           .key_seed = 1,
                                           .tokens = bytes,
                                           .n_tokens = n,
                                           .max_tokens = max_tokens,
                                           .block_tokens = BT,
                                           .decodes_here = true});
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    return r;
}

static struct request *enqueue_costing(struct rig *rig, uint32_t kind,
                                       uint32_t n, uint32_t max_tokens,
                                       int64_t cost_us)
{
    struct request *r = make(rig, kind, n, max_tokens);

    r->turn.cost_us = cost_us;
    CU_ASSERT_EQUAL_FATAL(batch_enqueue(rig->batch, r), 0);
    return r;
}

static struct request *enqueue(struct rig *rig, uint32_t kind, uint32_t n,
                               uint32_t max_tokens)
{
    return enqueue_costing(rig, kind, n, max_tokens, 0);
}

/* Forms a step and writes it as "id:position+tokens" into `out`. */
static const char *form(struct rig *rig, char out[256])
{
    size_t len = 0;

    out[0] = '\0';
    rig->n = batch_form(rig->batch, 1000, &rig->segments);
    for (uint32_t i = 0; i < rig->n; i++) {
        const struct engine_segment *s = &rig->segments[i];

        len +=
            (size_t)snprintf(out + len, 256 - len, "%u:%u+%u%s%s ",
                             (unsigned)s->request_id, s->position, s->n_tokens,
                             s->want_token ? "!" : "", s->decode ? "d" : "");
    }
    return out;
}

static void complete(struct rig *rig, int rc)
{
    for (uint32_t i = 0; i < rig->n; i++)
        rig->segments[i].token_out = 65;
    batch_complete(rig->batch, rc);
    kv_store_check(rig->store);
}

static void expect(struct rig *rig, const char *log)
{
    CU_ASSERT_STRING_EQUAL(rig->log, log);
    rig->log[0] = '\0';
}

/* Runs steps until nothing is left; returns how many. */
static int drain(struct rig *rig)
{
    char out[256];
    int n = 0;

    while (*form(rig, out)) {
        complete(rig, 0);
        n++;
        CU_ASSERT_FATAL(n < 1000);
    }
    rig->log[0] = '\0';
    return n;
}

#define STEP_IS(rig, text)                             \
    do {                                               \
        char out_[256];                                \
        CU_ASSERT_STRING_EQUAL(form(rig, out_), text); \
    } while (0)

/* Likewise, and the step completes. */
#define STEPS(rig, text)    \
    do {                    \
        STEP_IS(rig, text); \
        complete(rig, 0);   \
    } while (0)

#define RIG_PREFILLS_TEST(test, ...)                                       \
    SUITE_TEST(test, struct rig, rig, rig_init_prefills(rig, __VA_ARGS__), \
               rig_fini(rig))

/* One of a third of what is left begins in front of the rest, which keeps its
 * blocks and goes on. */
RIG_PREFILLS_TEST(test_interrupted, 64, 8, 1)
{
    struct request *one, *two;

    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first_yield"), 0);
    one = enqueue_costing(rig, 1, 200, 1, 9000);
    STEP_IS(rig, "1:0+64 ");
    two = enqueue_costing(rig, 2, 70, 1, 3001);
    complete(rig, 0);
    STEP_IS(rig, "1:64+64 ");
    two->turn.cost_us = 3000;
    complete(rig, 0);
    STEP_IS(rig, "2:0+64 ");
    CU_ASSERT_EQUAL(one->turn.stands_since_us, 1000);
    complete(rig, 0);
    STEP_IS(rig, "2:64+6! ");
    expect(rig, "s1 s2 ");
    complete(rig, 0);
    STEP_IS(rig, "1:128+64 ");
    CU_ASSERT_EQUAL(one->turn.stands_since_us, 0);
    complete(rig, 0);
    STEPS(rig, "1:192+8! ");
    expect(rig, "p2 p1 ");
}

#define RIG_TEST(test, ...) \
    SUITE_TEST(test, struct rig, rig, rig_init(rig, __VA_ARGS__), rig_fini(rig))

RIG_TEST(test_chunks_and_decodes, 100, 10)
{
    struct kv_store_stats stats;

    enqueue(rig, 1, 100, 3);
    enqueue(rig, 2, 10, 1);
    STEP_IS(rig, "1:0+64 ");
    expect(rig, "s1 ");
    complete(rig, 0);
    /* The second starts in the room that the first leaves. */
    STEPS(rig, "1:64+36! 2:0+10! ");
    expect(rig, "s2 p1 p2 ");
    /* Decodes come first, and a prefill gets the rest of the budget. */
    enqueue(rig, 3, 200, 1);
    STEPS(rig, "1:100+1!d 3:0+63 ");
    expect(rig, "s3 t1 ");
    /* Whole blocks are shared at once: 6 of the first, 3 of the third. */
    kv_store_stats(rig->store, &stats);
    CU_ASSERT_EQUAL(stats.held_blocks, 9);
    STEPS(rig, "1:101+1!d 3:63+63 ");
    expect(rig, "t1 d1 ");
    drain(rig);
}

/* One at a time: the second does not wait with the first for both, and finds
 * the prefix that the first has computed. */
RIG_PREFILLS_TEST(test_one_prefill_at_a_time, 100, 10, 1)
{
    enqueue(rig, 1, 33, 1);
    enqueue(rig, 1, 40, 1);
    STEPS(rig, "1:0+33! ");
    STEPS(rig, "2:32+8! ");
}

RIG_TEST(test_reuse, 100, 10)
{
    struct request *r;

    enqueue(rig, 1, 40, 1);
    drain(rig);
    /* Two full blocks of the 40 tokens are there. */
    r = enqueue(rig, 1, 41, 1);
    STEP_IS(rig, "2:32+9! ");
    CU_ASSERT_EQUAL(r->cached_tokens, 32);
    complete(rig, 0);
    /* At least the last token is computed, with its block. */
    enqueue(rig, 1, 32, 1);
    STEPS(rig, "3:16+16! ");
    enqueue(rig, 2, 41, 1);
    STEPS(rig, "4:0+41! ");
}

RIG_TEST(test_batch_is_bounded, 100, 10)
{
    for (uint32_t i = 0; i < 4; i++)
        enqueue(rig, i, 2, 3);
    STEPS(rig, "1:0+2! 2:0+2! 3:0+2! 4:0+2! ");
    STEPS(rig, "1:2+1!d 2:2+1!d 3:2+1!d ");
    STEPS(rig, "1:3+1!d 2:3+1!d 3:3+1!d ");
    STEPS(rig, "4:2+1!d ");
    drain(rig);
}

RIG_TEST(test_queue_is_bounded, 100, 2)
{
    struct request *a, *b, *c;

    a = enqueue(rig, 1, 5, 1);
    b = enqueue(rig, 2, 5, 1);
    c = make(rig, 3, 5, 1);
    CU_ASSERT_EQUAL(batch_enqueue(rig->batch, c), -EBUSY);
    CU_ASSERT(batch_remove(rig->batch, b));
    free_request(rig, b);
    CU_ASSERT_EQUAL(batch_enqueue(rig->batch, c), 0);
    CU_ASSERT(batch_remove(rig->batch, a));
    free_request(rig, a);
    STEPS(rig, "3:0+5! ");
}

/* Stands for a load, which only the loader looks into. */
static struct load *const some_load = (struct load *)(void *)&ops;

/* A request that must wait for its load does not block those behind it. */
RIG_TEST(test_loading_waits, 100, 10)
{
    struct request *a;

    a = enqueue(rig, 1, 5, 1);
    a->load.job = some_load;
    a->load.held_back = true;
    enqueue(rig, 2, 5, 1);
    STEPS(rig, "2:0+5! ");
    STEP_IS(rig, "");
    a->load.job = NULL;
    a->load.held_back = false;
    STEPS(rig, "1:0+5! ");
}

/* What is left of a step goes to those that are loading, as far as they want
 * it; they take no place from the others, even if only one may be under way. */
RIG_PREFILLS_TEST(test_loading_comes_last, 100, 10, 1)
{
    struct request *a;

    rig->chunk = 32;
    a = enqueue(rig, 1, 200, 1);
    a->load.job = some_load;
    STEP_IS(rig, "1:0+32 ");
    expect(rig, "s1 c1 ");
    complete(rig, 0);
    enqueue(rig, 2, 100, 1);
    enqueue(rig, 3, 20, 1);
    STEPS(rig, "2:0+64 ");
    /* One at a time without a load: 3 waits for 2. */
    STEPS(rig, "2:64+36! 1:32+28 ");
    rig->chunk = 0;
    STEPS(rig, "3:0+20! ");
    STEP_IS(rig, "");
    /* When the load is over it is the oldest. */
    a->load.job = NULL;
    enqueue(rig, 4, 20, 1);
    STEPS(rig, "1:60+64 ");
    drain(rig);
}

/* Under fifo it keeps its turn, and its place. */
RIG_PREFILLS_TEST(test_loading_by_age, 100, 10, 2)
{
    struct request *a;

    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "fifo"), 0);
    rig->chunk = 32;
    a = enqueue(rig, 1, 200, 1);
    a->load.job = some_load;
    enqueue(rig, 2, 100, 1);
    enqueue(rig, 3, 20, 1);
    STEPS(rig, "1:0+32 2:0+32 ");
    STEPS(rig, "1:32+32 2:32+32 ");
    a->load.job = NULL;
    drain(rig);
}

/* The position jumps over blocks that were loaded, and no chunk reaches into
 * one; they are shared once all in front of them are there. */
RIG_TEST(test_jump, 100, 10)
{
    struct request *a;
    struct kv_store_stats stats;

    rig->chunk = 64;
    a = enqueue(rig, 1, 105, 1);
    CU_ASSERT_EQUAL_FATAL(batch_take_ahead(rig->batch, a), 0);
    a->load.job = some_load;
    a->load.origin[2] = BLOCK_FETCHED;
    a->load.origin[3] = BLOCK_FROM_DISK;
    a->load.origin[5] = BLOCK_FROM_DISK;
    STEP_IS(rig, "1:0+32 ");
    CU_ASSERT_EQUAL(rig->segments[0].cached_tokens, 0);
    complete(rig, 0);
    CU_ASSERT_EQUAL(a->position, 64);
    kv_store_stats(rig->store, &stats);
    CU_ASSERT_EQUAL(stats.held_blocks, 4);
    STEP_IS(rig, "1:64+16 ");
    CU_ASSERT_EQUAL(rig->segments[0].cached_tokens, 64);
    complete(rig, 0);
    CU_ASSERT_EQUAL(a->load.n_fetched, 1);
    CU_ASSERT_EQUAL(a->load.n_disk, 2);
    a->load.job = NULL;
    STEP_IS(rig, "1:96+9! ");
    CU_ASSERT_EQUAL(rig->segments[0].cached_tokens, 96);
    complete(rig, 0);
}

/* What a waiting prefill would reuse is not the first to be evicted. */
RIG_TEST(test_touch, 12, 10)
{
    struct request *r;

    enqueue(rig, 1, 64, 1);
    drain(rig);
    enqueue(rig, 2, 64, 1);
    drain(rig);
    /* Room for four more, and the next one needs six. */
    enqueue(rig, 3, 90, 1);
    r = enqueue(rig, 1, 70, 1);
    STEPS(rig, "3:0+64 ");
    STEP_IS(rig, "3:64+26! 4:64+6! ");
    CU_ASSERT_EQUAL(r->cached_tokens, 64);
    complete(rig, 0);
}

/* How long the rest takes is told by the tokens that were computed, not by
 * those that a load brought; while it loads, by the prediction alone. */
RIG_PREFILLS_TEST(test_left_behind_a_load, 64, 8, 1)
{
    struct request *r;

    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first_yield"), 0);
    r = enqueue_costing(rig, 1, 200, 1, 1000);
    STEPS(rig, "1:0+64 ");
    r->turn.started_us = 0;
    r->position = r->cached_tokens = 128; /* as where both have met */
    CU_ASSERT_EQUAL(batch_active(r, 640).begun.left_us, 720);
    r->position = r->cached_tokens = 64;
    STEPS(rig, "1:64+64 ");
    STEPS(rig, "1:128+64 ");
    STEPS(rig, "1:192+8! ");
}

/* The next turn of a conversation waits behind the turn before it, whose blocks
 * it counts on, and others pass both. */
RIG_PREFILLS_TEST(test_follows, 64, 8, 1)
{
    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first"), 0);
    enqueue_costing(rig, 1, 48, 1, 9000);
    enqueue_costing(rig, 1, 60, 1, 100);
    enqueue_costing(rig, 2, 20, 1, 500);
    STEPS(rig, "3:0+20! ");
    STEPS(rig, "1:0+48! ");
    STEPS(rig, "2:48+12! ");
    expect(rig, "s3 p3 s1 p1 s2 p2 ");
}

/* A short one that shares little does not wait for a long one; and when that
 * one is cancelled, the youngest follows the next. */
RIG_PREFILLS_TEST(test_follows_another, 64, 8, 1)
{
    struct request *one, *two, *three;

    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first"), 0);
    one = enqueue_costing(rig, 1, 60, 1, 9000);
    two = enqueue_costing(rig, 1, 30, 1, 100);
    STEPS(rig, "2:0+30! ");
    two = enqueue_costing(rig, 1, 50, 1, 9000);
    three = enqueue_costing(rig, 1, 51, 1, 50);
    STEP_IS(rig, "1:16+44! ");
    CU_ASSERT_PTR_EQUAL(three->turn.follows, two);
    complete(rig, 0);
    STEPS(rig, "4:48+3! ");
    STEPS(rig, "3:48+2! ");

    one = enqueue_costing(rig, 9, 60, 1, 9000);
    two = enqueue_costing(rig, 9, 50, 1, 9000);
    three = enqueue_costing(rig, 9, 51, 1, 50);
    CU_ASSERT_TRUE(batch_follows(rig->batch, three));
    CU_ASSERT_PTR_EQUAL(three->turn.follows, one);
    CU_ASSERT_EQUAL(batch_remove(rig->batch, one), true);
    request_free(one);
    STEPS(rig, "6:0+50! ");
    STEPS(rig, "7:48+3! ");
}

/* A short one waits for the blocks that the load of another one brings, which
 * are no part of what that one costs. */
RIG_PREFILLS_TEST(test_follows_load, 100, 10, 4)
{
    struct request *one, *two;

    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first"), 0);
    one = enqueue_costing(rig, 1, 60, 1, 9000);
    one->load.job = some_load;
    one->load.held_back = true;
    two = enqueue_costing(rig, 1, 34, 1, 50);
    STEP_IS(rig, "");
    one->load.job = NULL;
    one->load.held_back = false;
    CU_ASSERT_TRUE(batch_follows(rig->batch, two));
    STEPS(rig, "1:0+60! ");
    STEPS(rig, "2:32+2! ");
}

/* Where prefills share steps, one that counts on blocks which another one is
 * yet to compute, beside its load, does not begin beside it and compute them
 * too; one that shares nothing does. */
RIG_PREFILLS_TEST(test_follows_begun, 100, 10, 4)
{
    struct request *a;

    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first"), 0);
    rig->chunk = 16;
    a = enqueue(rig, 1, 70, 1);
    a->load.job = some_load;
    STEPS(rig, "1:0+16 ");
    enqueue(rig, 1, 75, 1);
    enqueue(rig, 2, 20, 1);
    STEPS(rig, "1:16+16 3:0+20! ");
    a->load.job = NULL;
    STEPS(rig, "1:32+38! ");
    STEPS(rig, "2:64+11! ");
}

/* One whose blocks were taken ahead goes on where the one in front of it, whose
 * blocks it counts on, cannot get its own. */
RIG_PREFILLS_TEST(test_follows_without_room, 6, 8, 1)
{
    struct request *two;

    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first"), 0);
    enqueue_costing(rig, 1, 48, 1, 9000);
    two = enqueue_costing(rig, 1, 60, 1, 100);
    CU_ASSERT_EQUAL(request_take(two, rig->store, BT), 0);
    STEPS(rig, "2:0+60! ");
    STEPS(rig, "1:32+16! ");
}

/* What a waiting one counts on outlives what is used after it came. */
RIG_PREFILLS_TEST(test_kept, 24, 8, 1)
{
    struct request *late;
    char step[16];

    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first"), 0);
    enqueue(rig, 1, 64, 1);
    drain(rig);
    late = enqueue_costing(rig, 1, 80, 1, 1000000);
    for (uint32_t i = 3; i < 20; i++) {
        enqueue_costing(rig, i, 60, 1, 900);
        snprintf(step, sizeof(step), "%u:0+60! ", i);
        STEP_IS(rig, step);
        complete(rig, 0);
    }
    STEP_IS(rig, "2:64+16! ");
    CU_ASSERT_EQUAL(late->cached_tokens, 64);
    complete(rig, 0);
}

/* Without an SLO one is due within twice what all before it and itself take;
 * what a conductor may say of that does not count beyond all measure. */
RIG_PREFILLS_TEST(test_implied, 64, 8, 1)
{
    const int64_t most_us = INT64_MAX / 2 - 1;
    struct request *one, *two, *three, *four;

    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first"), 0);
    one = enqueue_costing(rig, 1, 16, 1, 9000);
    two = enqueue_costing(rig, 2, 20, 1, 0);
    CU_ASSERT_EQUAL(one->turn.deadline_us - one->turn.arrival_us, 18000);
    CU_ASSERT_EQUAL(two->turn.deadline_us - two->turn.arrival_us, 18040);
    three = enqueue_costing(rig, 3, 16, 1, most_us);
    four = enqueue_costing(rig, 4, 16, 1, most_us);
    CU_ASSERT_EQUAL(three->turn.deadline_us - three->turn.arrival_us,
                    18040 + 2 * COST_MODEL_MAX_US);
    CU_ASSERT_EQUAL(four->turn.deadline_us - four->turn.arrival_us,
                    18040 + 4 * COST_MODEL_MAX_US);
    STEPS(rig, "2:0+20! ");
    STEPS(rig, "1:0+16! ");
    drain(rig);
}

/* Blocks taken ahead are found again, with what others have shared since. */
RIG_TEST(test_adopt, 100, 10)
{
    struct request *a, *b;

    b = enqueue(rig, 1, 80, 1);
    a = enqueue(rig, 1, 100, 1);
    CU_ASSERT_EQUAL_FATAL(batch_take_ahead(rig->batch, a), 0);
    a->load.job = some_load;
    a->load.held_back = true;
    a->load.origin[3] = BLOCK_FETCHED;
    a->load.origin[5] = BLOCK_FETCHED;
    CU_ASSERT_EQUAL(a->load.n_local, 0);
    STEPS(rig, "1:0+64 ");
    STEP_IS(rig, "1:64+16! ");
    (void)b;
    complete(rig, 0);
    a->load.job = NULL;
    a->load.held_back = false;
    STEP_IS(rig, "2:96+4! ");
    CU_ASSERT_EQUAL(a->load.n_local, 5);
    CU_ASSERT_EQUAL(a->load.n_fetched, 1);
    complete(rig, 0);
}

/* Layers on their way: the step begins behind them, and if they don't come it
 * did not happen for anybody. */
RIG_TEST(test_gate, 100, 10)
{
    struct request *a;

    enqueue(rig, 2, 10, 3);
    STEPS(rig, "1:0+10! ");
    a = enqueue(rig, 1, 105, 1);
    CU_ASSERT_EQUAL_FATAL(batch_take_ahead(rig->batch, a), 0);
    a->load.job = some_load;
    for (int round = 0; round < 2; round++) {
        a->step.gated = true;
        a->step.gate_token = 96;
        rig->log[0] = '\0';
        STEP_IS(rig, "1:10+1!d 2:96+9! ");
        CU_ASSERT_EQUAL(a->position, 0);
        CU_ASSERT_EQUAL(a->step.n_tokens, 105);
        if (round == 0) {
            complete(rig, -EIO);
            expect(rig, "s2 w2 ");
            CU_ASSERT_FALSE(a->step.gated);
            CU_ASSERT_EQUAL(a->position, 0);
        }
    }
    for (uint32_t i = 0; i < 6; i++)
        a->load.origin[i] = BLOCK_FETCHED;
    a->load.job = NULL;
    CU_ASSERT_EQUAL(a->load.n_fetched, 0);
    complete(rig, 0);
    expect(rig, "t1 p2 ");
    /* An engine that fails by itself still fails its requests. */
    STEP_IS(rig, "1:11+1!d ");
    complete(rig, -EIO);
    expect(rig, "f1 ");
}

RIG_TEST(test_room, 5, 10)
{
    enqueue(rig, 1, 40, 9); /* 48 tokens of KV: 3 blocks */
    enqueue(rig, 2, 40, 1); /* 3 blocks */
    STEPS(rig, "1:0+40! ");
    STEP_IS(rig, "1:40+1!d ");
    for (int i = 0; i < 7; i++) {
        complete(rig, 0);
        CU_ASSERT_EQUAL(batch_form(rig->batch, 1000, &rig->segments), 1);
        rig->n = 1;
    }
    complete(rig, 0);
    rig->log[0] = '\0';
    STEP_IS(rig, "2:0+40! ");
    expect(rig, "s2 ");
    complete(rig, 0);
}

/* Blocks ahead of a request's turn: only as many as leave older requests their
 * room; a request that has its blocks runs, even if an older one does not fit.
 */
RIG_TEST(test_take_ahead, 7, 10)
{
    struct request *a, *b, *c;
    uint32_t ids[3];

    a = enqueue(rig, 1, 40, 1); /* 3 blocks each */
    b = enqueue(rig, 2, 40, 1);
    c = enqueue(rig, 3, 40, 1);
    CU_ASSERT_EQUAL(batch_take_ahead(rig->batch, c), -ENOSPC);
    CU_ASSERT_EQUAL(batch_take_ahead(rig->batch, b), 0);
    CU_ASSERT_EQUAL(batch_take_ahead(rig->batch, c), -ENOSPC);
    /* Another owner takes the room of the first. */
    CU_ASSERT_EQUAL_FATAL(kv_store_alloc(rig->store, 3, ids), 0);
    STEPS(rig, "2:0+40! ");
    for (int i = 0; i < 3; i++)
        kv_store_release(rig->store, ids[i]);
    STEPS(rig, "1:0+40! 3:0+24 ");
    (void)a;
    drain(rig);
}

RIG_TEST(test_removal_in_step, 100, 10)
{
    struct request *a, *b;
    struct kv_store_stats stats;

    a = enqueue(rig, 1, 20, 5);
    b = enqueue(rig, 2, 20, 1);
    STEP_IS(rig, "1:0+20! 2:0+20! ");
    CU_ASSERT(!batch_remove(rig->batch, a));
    CU_ASSERT(!batch_remove(rig->batch, a));
    CU_ASSERT_PTR_NULL(batch_segment_owner(rig->batch, 0));
    CU_ASSERT_PTR_EQUAL(batch_segment_owner(rig->batch, 1), b);
    kv_store_stats(rig->store, &stats);
    CU_ASSERT_EQUAL(stats.private_blocks, 4);
    rig->log[0] = '\0';
    complete(rig, 0);
    expect(rig, "r1 p2 ");
    STEP_IS(rig, "");
    /* The same when the step is never completed. */
    a = enqueue(rig, 3, 20, 5);
    STEP_IS(rig, "3:0+20! ");
    CU_ASSERT(!batch_remove(rig->batch, a));
    rig->log[0] = '\0';
    batch_abandon(rig->batch);
    expect(rig, "r3 ");
}

RIG_TEST(test_failed_step, 100, 10)
{
    enqueue(rig, 1, 20, 5);
    enqueue(rig, 2, 20, 5);
    STEPS(rig, "1:0+20! 2:0+20! ");
    enqueue(rig, 3, 20, 5);
    STEP_IS(rig, "1:20+1!d 2:20+1!d 3:0+20! ");
    rig->log[0] = '\0';
    complete(rig, -EINVAL);
    expect(rig, "f1 f2 f3 ");
    STEP_IS(rig, "");
}

static void test_unknown_order(void)
{
    struct rig rig;

    rig_init(&rig, 100, 10);
    CU_ASSERT_EQUAL(batch_set_order(rig.batch, "lifo"), -EINVAL);
    CU_ASSERT_EQUAL(batch_set_order(rig.batch, ""), -EINVAL);
    CU_ASSERT_EQUAL(batch_set_order(rig.batch, "fifo"), 0);
    rig_fini(&rig);
    batch_free(NULL);
}

static void test_request_table(void)
{
    struct request_table t;
    struct request r[3] = {{.id = 1}, {.id = 1025}, {.id = UINT64_MAX}};

    request_table_init(&t);
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_PTR_NULL(request_find(&t, r[i].id));
        request_insert(&t, &r[i]);
        CU_ASSERT_PTR_EQUAL(request_find(&t, r[i].id), &r[i]);
    }
    request_remove(&t, &r[1]);
    CU_ASSERT_PTR_NULL(request_find(&t, 1025));
    CU_ASSERT_PTR_EQUAL(request_find(&t, 1), &r[0]);
    CU_ASSERT_EQUAL(t.n, 2);
    /* n + max - 1 tokens: the last answered token has no KV. */
    CU_ASSERT_EQUAL(request_blocks(16, 1, 16), 1);
    CU_ASSERT_EQUAL(request_blocks(16, 2, 16), 2);
    CU_ASSERT_EQUAL(request_blocks(1, UINT32_MAX, 16), 1u << 28);
    CU_ASSERT_EQUAL(request_blocks(UINT32_MAX, 3, 16), (1u << 28) + 1);
}

/* Nothing but the lives that workers/DESIGN.md draws. */
static void test_states(void)
{
    static const enum request_state lives[][8] = {
        {REQUEST_WAITING, REQUEST_PREFILL, REQUEST_PUSHING, REQUEST_ENDED},
        {REQUEST_WAITING, REQUEST_PREFILL, REQUEST_READY, REQUEST_DECODE,
         REQUEST_ENDED},
        {REQUEST_ANNOUNCED, REQUEST_KV_WAIT, REQUEST_RECEIVING, REQUEST_READY,
         REQUEST_DECODE, REQUEST_ENDED},
    };
    bool may[REQUEST_STATES][REQUEST_STATES] = {{false}};

    for (size_t i = 0; i < sizeof(lives) / sizeof(*lives); i++)
        for (size_t k = 0; lives[i][k] != REQUEST_ENDED; k++) {
            may[lives[i][k]][lives[i][k + 1]] = true;
            may[lives[i][k]][REQUEST_ENDED] = true;
        }
    for (unsigned from = 0; from < REQUEST_STATES; from++)
        for (unsigned to = 0; to < REQUEST_STATES; to++)
            CU_ASSERT_EQUAL(request_may_go(from, to), may[from][to]);
    /* Tests abort; without that the request fails, and no other. */
    struct request r = {.state = REQUEST_PUSHING};
    const char *aborts = getenv(BUG_ABORTS);
    unsetenv(BUG_ABORTS);
    request_set_state(&r, REQUEST_DECODE);
    CU_ASSERT_TRUE(r.broken);
    CU_ASSERT_EQUAL(r.state, REQUEST_PUSHING);
    if (aborts)
        setenv(BUG_ABORTS, "1", 1);
}

/* What could use the blocks that one under way is about to compute does not
 * pass before these are there. */
RIG_PREFILLS_TEST(test_waits_for_blocks, 64, 8, 1)
{
    CU_ASSERT_EQUAL(batch_set_order(rig->batch, "shortest_first_yield"), 0);
    enqueue_costing(rig, 1, 200, 1, 9000);
    STEP_IS(rig, "1:0+64 ");
    enqueue_costing(rig, 1, 130, 1, 1000);
    complete(rig, 0);
    STEPS(rig, "1:64+64 ");
    STEPS(rig, "2:128+2! ");
    STEPS(rig, "1:128+64 ");
    STEPS(rig, "1:192+8! ");
    expect(rig, "s1 s2 p2 p1 ");
}

static const struct suite_test tests[] = {
    {"chunks and decodes", test_chunks_and_decodes},
    {"one prefill at a time", test_one_prefill_at_a_time},
    {"reuse", test_reuse},
    {"batch is bounded", test_batch_is_bounded},
    {"queue is bounded", test_queue_is_bounded},
    {"loading waits", test_loading_waits},
    {"loading comes last", test_loading_comes_last},
    {"loading by age", test_loading_by_age},
    {"jump over loaded blocks", test_jump},
    {"adopt", test_adopt},
    {"touch at arrival", test_touch},
    {"gate", test_gate},
    {"room", test_room},
    {"take ahead", test_take_ahead},
    {"removal in step", test_removal_in_step},
    {"failed step", test_failed_step},
    {"interrupted", test_interrupted},
    {"waits for blocks", test_waits_for_blocks},
    {"follows", test_follows},
    {"left behind a load", test_left_behind_a_load},
    {"follows another", test_follows_another},
    {"follows load", test_follows_load},
    {"follows begun", test_follows_begun},
    {"follows without room", test_follows_without_room},
    {"kept for the waiting", test_kept},
    {"implied promises", test_implied},
    {"unknown order", test_unknown_order},
    {"request table", test_request_table},
    {"request states", test_states},
};
SUITE("batch", tests)
