/* The loader without engine and sockets, on an invented clock: where computing
 * and loading meet, several sources, layers, failures, pressure. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/unit/load_rig.h"
#include "tests/unit/suite.h"

#define BT 16u
#define LAYERS 4u
#define BLOCK_BYTES 1024u
#define STEP 64u
#define PROMPT 1030u /* 64 blocks may be reused, 6 tokens are left */
#define BLOCKS 64u

static const struct engine_kv_layout layout = {.layers = LAYERS,
                                               .block_tokens = BT,
                                               .kv_row_bytes = 8,
                                               .block_bytes = BLOCK_BYTES,
                                               .vocab = 512,
                                               .window_tokens = 4096,
                                               .step_tokens = STEP};

static uint32_t prompt[2][PROMPT];

static void make_prompts(void)
{
    for (uint32_t i = 0; i < PROMPT; i++) {
        prompt[0][i] = i % 251;
        prompt[1][i] = i % 241 + 1;
    }
}

/* An engine on which a token at position p takes 10 + p / 200 us. */
static int64_t run_us(double from, double n)
{
    return (int64_t)(10 * n + (from + n / 2) * n / 200);
}

static int64_t step_us(const struct engine_segment *s, uint32_t n)
{
    int64_t us = 0;

    for (uint32_t i = 0; i < n; i++)
        us += run_us(s[i].position, s[i].n_tokens);
    return us;
}

static void init(struct load_rig *rig, uint32_t blocks)
{
    struct load_rig_config c = {
        .layout = layout, .blocks = blocks, .max_prefills = 1};

    load_rig_init(rig, &c);
}

static struct rig_source *add_source(struct load_rig *rig,
                                     enum block_origin origin, double block_us,
                                     uint32_t n_blocks)
{
    struct rig_source *s = load_rig_source(rig, origin);

    s->us_per_byte = block_us / BLOCK_BYTES;
    for (int i = 0; i < 2; i++)
        source_add(s, prompt[i], n_blocks, NULL);
    return s;
}

/* TTFT of the prompt on a worker that has seen one other request like it. */
static int64_t ttft_us(enum load_mode mode, double block_us, double other_us)
{
    struct load_rig rig;

    init(&rig, 200);
    add_source(&rig, BLOCK_FROM_DISK, block_us, BLOCKS);
    if (other_us > 0)
        add_source(&rig, BLOCK_FETCHED, other_us, BLOCKS);
    for (int i = 1; i >= 0; i--) {
        int64_t start_us = rig_now_us;

        load_rig_request(&rig, prompt[i], PROMPT, 1, mode);
        CU_ASSERT(load_rig_run(&rig, step_us));
        rig.prefilled_us -= start_us;
        load_rig_settle(&rig);
    }
    CU_ASSERT_EQUAL(rig.n_done, 2);
    load_rig_fini(&rig);
    return rig.prefilled_us;
}

/* The best of all places to meet, in whole blocks. */
static int64_t ideal_us(double block_us)
{
    int64_t best = INT64_MAX;

    for (uint32_t m = 0; m <= BLOCKS; m++) {
        double load = block_us * (BLOCKS - m);
        double compute = (double)run_us(0, m * BT);
        double end = (load > compute ? load : compute) +
                     (double)run_us(m == BLOCKS ? m * BT : BLOCKS * BT,
                                    PROMPT - BLOCKS * BT);

        if (end < (double)best)
            best = (int64_t)end;
    }
    return best;
}

/* From a load ten times as slow as the engine to one ten times as fast. */
static void test_ratios(void)
{
    const double compute_us = (double)run_us(0, BLOCKS * BT);

    for (double ratio = 0.1; ratio < 10.1; ratio *= 1.2589254) {
        double block_us = compute_us / ratio / BLOCKS;
        int64_t load = ttft_us(LOAD_MODE_LOAD, block_us, 0);
        int64_t compute = ttft_us(LOAD_MODE_COMPUTE, block_us, 0);
        int64_t both = ttft_us(LOAD_MODE_BOTH, block_us, 0);
        int64_t ideal = ideal_us(block_us);
        int64_t single = load < compute ? load : compute;

        printf("\n    compute : load = %5.2f  compute %6lld load %6lld both "
               "%6lld ideal %6lld (%.3f)",
               ratio, (long long)compute, (long long)load, (long long)both,
               (long long)ideal, (double)both / (double)ideal);
        CU_ASSERT((double)both <= 1.05 * (double)ideal);
        CU_ASSERT((double)both <= 1.02 * (double)single);
    }
    printf(" ");
}

/* Two sources share a prompt by their speed: together nearly as good as one of
 * the same rate (what a slow one has under way where the pointers meet is
 * lost), and better than the faster alone. */
static void test_two_sources(void)
{
    const double compute_us = (double)run_us(0, BLOCKS * BT);
    const double block_us = compute_us / BLOCKS;

    for (double part = 1.5; part < 9; part *= 1.7) {
        double other_us = 1 / (1 / block_us - 1 / (part * block_us));
        double faster_us =
            part * block_us < other_us ? part * block_us : other_us;
        int64_t one = ttft_us(LOAD_MODE_BOTH, block_us, 0);
        int64_t two = ttft_us(LOAD_MODE_BOTH, part * block_us, other_us);
        int64_t alone = ttft_us(LOAD_MODE_BOTH, faster_us, 0);

        printf("[one %lld two %lld, the faster alone %lld] ", (long long)one,
               (long long)two, (long long)alone);
        CU_ASSERT((double)two <= 1.15 * (double)one);
        CU_ASSERT((double)two <= 1.02 * (double)alone);
    }
}

#define LOAD_RIG_TEST(test, ...)                                   \
    SUITE_TEST(test, struct load_rig, rig, init(rig, __VA_ARGS__), \
               load_rig_fini(rig))

/* A slow source is not spared where the faster one has nothing. */
LOAD_RIG_TEST(test_slow_has_more, 400)
{
    struct rig_source *fast = add_source(rig, BLOCK_FETCHED, 20, BLOCKS);

    add_source(rig, BLOCK_FROM_DISK, 400, BLOCKS);
    for (int i = 0; i < 2; i++) {
        load_rig_request(rig, prompt[i], PROMPT, 1, LOAD_MODE_LOAD);
        CU_ASSERT(load_rig_run(rig, step_us));
        CU_ASSERT_EQUAL(rig->last.load.n_fetched + rig->last.load.n_disk,
                        BLOCKS);
        fast->limit_blocks = 5;
    }
    CU_ASSERT_EQUAL(rig->last.load.n_disk, BLOCKS - 5);
    CU_ASSERT_EQUAL(rig->n_done, 2);
}

/* What a source has by plan, it is asked for first. */
LOAD_RIG_TEST(test_planned_runs, 200)
{
    struct load_request plan = {.mode = LOAD_MODE_LOAD, .n_sources = 2};

    add_source(rig, BLOCK_FROM_DISK, 100, BLOCKS);
    add_source(rig, BLOCK_FETCHED, 100, BLOCKS);
    rig->sources[0].unused = rig->sources[1].unused = true;
    struct request *r =
        load_rig_request(rig, prompt[0], PROMPT, 1, LOAD_MODE_LOAD);
    for (uint32_t i = 0; i < 2; i++) {
        plan.sources[i].source = rig->sources[i].source;
        plan.sources[i].from_block = i * 40;
        plan.sources[i].to_block = i ? BLOCKS : 40;
    }
    CU_ASSERT_EQUAL_FATAL(loader_add(rig->loader, r, &plan), 0);
    load_rig_poke(rig);
    CU_ASSERT_EQUAL(TAILQ_FIRST(&rig->sources[0].pieces)->block, 39);
    CU_ASSERT_EQUAL(TAILQ_FIRST(&rig->sources[1].pieces)->block, 63);
    CU_ASSERT(load_rig_run(rig, step_us));
    /* The faster done helps the other: 24 and 40 blocks become 32 each. */
    CU_ASSERT(rig->last.load.n_disk >= 31 && rig->last.load.n_disk <= 33);
    CU_ASSERT_EQUAL(rig->last.load.n_disk + rig->last.load.n_fetched, BLOCKS);
}

/* 64 blocks of 1 KiB at 10 MB/s are 6.55 ms, however fast the source is. */
static void test_throttle(void)
{
    struct load_rig rig;
    struct load_rig_config c = {
        .layout = layout, .blocks = 200, .max_prefills = 1, .bytes_per_s = 1e7};

    load_rig_init(&rig, &c);
    struct rig_source *a = add_source(&rig, BLOCK_FROM_DISK, 1, BLOCKS);
    CU_ASSERT_EQUAL(loader_source_bytes_per_s(a->source), 1e7);
    int64_t start_us = rig_now_us;
    load_rig_request(&rig, prompt[0], PROMPT, 1, LOAD_MODE_LOAD);
    CU_ASSERT(load_rig_run(&rig, step_us));
    int64_t suffix_us = run_us(BLOCKS * BT, PROMPT - BLOCKS * BT);
    int64_t took_us = rig.prefilled_us - start_us - suffix_us;
    printf("[%lld us] ", (long long)took_us);
    CU_ASSERT(took_us >= 6500 && took_us <= 6700);
    CU_ASSERT_EQUAL(rig.last.load.us, took_us);
    double rate = loader_source_bytes_per_s(a->source);
    CU_ASSERT(rate > 0.95e7 && rate <= 1e7);
    load_rig_fini(&rig);
}

/* The time in which only the load was waited for is none of the queue's; that
 * in which another had the engine is. */
static void test_queue(void)
{
    for (int mode = LOAD_MODE_LOAD; mode <= LOAD_MODE_LAYERWISE; mode++) {
        for (int busy = 0; busy < 2; busy++) {
            struct load_rig rig;

            init(&rig, 200);
            add_source(&rig, BLOCK_FROM_DISK, 20, BLOCKS);
            int64_t step = 0;
            if (busy) {
                load_rig_request(&rig, prompt[1], STEP, 1, LOAD_MODE_COMPUTE);
                load_rig_form(&rig);
                step = step_us(rig.segments, 1);
            }
            load_rig_request(&rig, prompt[0], PROMPT, 1, (enum load_mode)mode);
            if (busy) {
                rig_now_us += step;
                rig.segments[0].token_out = 65;
                load_rig_complete(&rig, 0);
            }
            CU_ASSERT(load_rig_run(&rig, step_us));
            CU_ASSERT(rig.last.load.us >=
                      (mode == LOAD_MODE_BOTH ? 600 : 1200));
            CU_ASSERT_EQUAL(request_queue_us(&rig.last), step);
            CU_ASSERT_EQUAL(rig.last.load.mode, mode);
            load_rig_fini(&rig);
        }
    }
}

/* Layer by layer: the suffix ends one layer after the last one came, and the
 * step is not begun before that can be. */
LOAD_RIG_TEST(test_layerwise, 200)
{
    add_source(rig, BLOCK_FETCHED, 100, BLOCKS);
    load_rig_request(rig, prompt[1], PROMPT, 1, LOAD_MODE_LAYERWISE);
    CU_ASSERT(load_rig_run(rig, step_us));
    rig_now_us += 1000;
    int64_t start_us = rig_now_us;
    struct request *r =
        load_rig_request(rig, prompt[0], PROMPT, 1, LOAD_MODE_LAYERWISE);
    while (load_rig_form(rig) == 0) {
        CU_ASSERT(r->load.held_back);
        CU_ASSERT_FATAL(rig->sources[0].n_pieces > 0);
        rig_now_us = source_next_us(&rig->sources[0]);
        rig->sources[0].busy_until_us = rig_now_us;
        source_deliver(&rig->sources[0], 0);
        load_rig_poke(rig);
    }
    int64_t suffix_us = step_us(rig->segments, 1);
    int64_t begun_us = rig_now_us - start_us;
    CU_ASSERT(r->step.gated);
    CU_ASSERT_EQUAL(rig->segments[0].position, BLOCKS * BT);
    /* Three quarters of the step before the load ends, to a piece. */
    printf("[begun at %lld of 6400 us, a step is %lld us] ",
           (long long)begun_us, (long long)suffix_us);
    CU_ASSERT(begun_us >= 6400 - suffix_us * 3 / 4 - 50);
    CU_ASSERT(begun_us <= 6400 - suffix_us * 3 / 4 + 50);
    while (rig->sources[0].n_pieces > 0) {
        source_deliver(&rig->sources[0], 0);
        load_rig_poke(rig);
    }
    CU_ASSERT_EQUAL(layer_gate_layers(&r->step.gate), LAYERS);
    rig->segments[0].token_out = 65;
    load_rig_complete(rig, 0);
    CU_ASSERT_EQUAL(rig->last.load.n_fetched, BLOCKS);
    CU_ASSERT_EQUAL(rig->n_done, 2);
}

/* Layer by layer with a damaged block: what is in front of it is used, also if
 * a step waits for the layers already, as it does for the last one. */
static void test_layerwise_damage(void)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        uint32_t bad = layer == LAYERS - 1 ? BLOCKS - 1 : 50;
        struct load_rig rig;

        init(&rig, 200);
        struct rig_source *a = add_source(&rig, BLOCK_FROM_DISK, 100, BLOCKS);
        load_rig_request(&rig, prompt[1], PROMPT, 1, LOAD_MODE_LAYERWISE);
        CU_ASSERT(load_rig_run(&rig, step_us));
        struct request *r =
            load_rig_request(&rig, prompt[0], PROMPT, 1, LOAD_MODE_LAYERWISE);
        a->fail_in = layer * BLOCKS + bad + 1;
        while (a->fail_in > 0) {
            rig_now_us = source_next_us(a);
            a->busy_until_us = rig_now_us;
            source_deliver(a, 0);
            load_rig_poke(&rig);
            if (rig.n == 0)
                load_rig_form(&rig);
        }
        CU_ASSERT_EQUAL(rig.n, layer == LAYERS - 1);
        if (rig.n > 0) {
            CU_ASSERT_EQUAL(layer_gate_wait(&r->step.gate, layer, 0, NULL),
                            -EIO);
            load_rig_complete(&rig, -EIO);
        }
        CU_ASSERT(load_rig_run(&rig, step_us));
        CU_ASSERT_EQUAL(rig.last.load.n_disk, bad);
        CU_ASSERT_EQUAL(rig.n_done, 2);
        load_rig_fini(&rig);
    }
}

/* A step that waited in vain is time of the prefill, which has begun: what it
 * had waited for its turn stays what it was. */
LOAD_RIG_TEST(test_stalled_queue_time, 200)
{
    struct rig_source *a = add_source(rig, BLOCK_FETCHED, 100, BLOCKS);

    load_rig_request(rig, prompt[1], PROMPT, 1, LOAD_MODE_LAYERWISE);
    CU_ASSERT(load_rig_run(rig, step_us));
    rig_now_us += 1000;
    struct request *r =
        load_rig_request(rig, prompt[0], PROMPT, 1, LOAD_MODE_LAYERWISE);
    r->turn.arrival_us -= 70000; /* behind others */
    while (load_rig_form(rig) == 0) {
        rig_now_us = source_next_us(a);
        a->busy_until_us = rig_now_us;
        source_deliver(a, 0);
        load_rig_poke(rig);
    }
    int64_t queue_us = request_queue_us(r);
    CU_ASSERT(queue_us >= 70000);
    rig_now_us += 250000;
    load_rig_complete(rig, -EIO);
    CU_ASSERT(r->load.held_back);
    CU_ASSERT(load_rig_run(rig, step_us));
    CU_ASSERT_EQUAL(rig->n_stalled, 1);
    CU_ASSERT_EQUAL(request_queue_us(&rig->last), queue_us);
}

/* A bad piece, a lost source, one that cannot be asked, one that has less than
 * it was thought to have: what it does not send, the other does, or nobody. */
static void test_failures(void)
{
    for (int what = 0; what < 8; what++) {
        for (int mode = LOAD_MODE_LOAD; mode <= LOAD_MODE_LAYERWISE; mode++) {
            struct load_rig rig;

            init(&rig, 200);
            struct rig_source *a = add_source(&rig, BLOCK_FETCHED, 50, BLOCKS);
            if (what >= 4)
                add_source(&rig, BLOCK_FROM_DISK, 50, BLOCKS);
            a->fail_in = what % 4 == 0 ? 20 : 0;
            a->refuses = what % 4 == 1;
            a->limit_blocks = what % 4 == 2 ? 5 : 0;
            struct request *r = load_rig_request(&rig, prompt[0], PROMPT, 1,
                                                 (enum load_mode)mode);
            if (what % 4 == 3)
                source_lose(a);
            load_rig_poke(&rig);
            CU_ASSERT(load_rig_run(&rig, step_us));
            CU_ASSERT_EQUAL(rig.n_done, 1);
            (void)r;
            if (what >= 4 && mode == LOAD_MODE_LOAD)
                CU_ASSERT_EQUAL(rig.last.load.n_fetched + rig.last.load.n_disk,
                                BLOCKS);
            if (what == 0 && mode != LOAD_MODE_LAYERWISE)
                CU_ASSERT(rig.last.load.n_fetched >= 19 &&
                          rig.last.load.n_fetched < 60);
            if (what == 1 || what == 3)
                CU_ASSERT_EQUAL(rig.last.load.n_fetched, 0);
            if (what == 2 && mode == LOAD_MODE_LOAD)
                CU_ASSERT_EQUAL(rig.last.load.n_fetched, 5);
            load_rig_fini(&rig);
        }
    }
}

/* A source that stops in the middle is not waited for for ever. */
LOAD_RIG_TEST(test_standstill, 200)
{
    struct rig_source *a = add_source(rig, BLOCK_FETCHED, 100, BLOCKS);

    load_rig_request(rig, prompt[1], PROMPT, 1, LOAD_MODE_BOTH);
    CU_ASSERT(load_rig_run(rig, step_us));
    load_rig_settle(rig);
    load_rig_request(rig, prompt[0], PROMPT, 1, LOAD_MODE_BOTH);
    for (int i = 0; i < 10; i++) {
        rig_now_us += 100;
        source_deliver(a, 0);
        load_rig_poke(rig);
    }
    a->us_per_byte = 1e9; /* no more for days */
    int64_t start_us = rig_now_us;
    CU_ASSERT(load_rig_run(rig, step_us));
    CU_ASSERT_EQUAL(rig->last.load.n_fetched, 10);
    /* It is not much slower than computing all the rest. */
    int64_t rest_us = run_us(0, PROMPT - 10 * BT);
    CU_ASSERT(rig->prefilled_us - start_us < rest_us * 5 / 4);
}

/* No room for another block: what is on its way is waited for. */
LOAD_RIG_TEST(test_no_room_to_take_over, (PROMPT + BT - 1) / BT)
{
    add_source(rig, BLOCK_FROM_DISK, 300, BLOCKS);
    load_rig_request(rig, prompt[0], PROMPT, 1, LOAD_MODE_BOTH);
    CU_ASSERT(load_rig_run(rig, step_us));
    CU_ASSERT_EQUAL(rig->n_done, 1);
    CU_ASSERT(rig->last.load.n_disk > 10);
}

/* Room for one prompt: the second waits for the first, with its load. */
static void test_room_for_one(void)
{
    for (int mode = LOAD_MODE_LOAD; mode <= LOAD_MODE_LAYERWISE; mode++) {
        struct load_rig rig;

        init(&rig, 80);
        add_source(&rig, BLOCK_FETCHED, 50, BLOCKS);
        for (int i = 0; i < 6; i++)
            load_rig_request(&rig, prompt[i % 2], PROMPT - 3 * (uint32_t)i, 1,
                             i == 3 ? LOAD_MODE_COMPUTE : (enum load_mode)mode);
        CU_ASSERT(load_rig_run(&rig, step_us));
        CU_ASSERT_EQUAL(rig.n_done, 6);
        load_rig_fini(&rig);
    }
}

/* While one waits for its load, others have the engine, and it has what they
 * leave; when its load is over it is the oldest. */
LOAD_RIG_TEST(test_uncached_first, 400)
{
    static uint32_t other[4][100];

    add_source(rig, BLOCK_FETCHED, 200, BLOCKS);
    load_rig_request(rig, prompt[0], PROMPT, 1, LOAD_MODE_BOTH);
    rig->sources[0].unused = true;
    for (uint32_t i = 0; i < 4; i++) {
        other[i][0] = 100 + i;
        load_rig_request(rig, other[i], 100, 1, LOAD_MODE_LOAD);
    }
    int64_t start_us = rig_now_us;
    CU_ASSERT(load_rig_run(rig, step_us));
    CU_ASSERT_EQUAL(rig->n_done, 5);
    CU_ASSERT_EQUAL(rig->last.id, 1);
    /* Nothing was lost by it: the engine never stood still. */
    int64_t ideal = ideal_us(200) + 4 * run_us(0, 100);
    printf("[%lld us, one after the other %lld] ",
           (long long)(rig->prefilled_us - start_us), (long long)ideal);
    CU_ASSERT(rig->prefilled_us - start_us < ideal);
}

static const struct suite_test tests[] = {
    {"ratios of computing and loading", test_ratios},
    {"two sources", test_two_sources},
    {"slow source has more", test_slow_has_more},
    {"planned runs", test_planned_runs},
    {"throttle", test_throttle},
    {"queue", test_queue},
    {"layerwise", test_layerwise},
    {"layerwise damage", test_layerwise_damage},
    {"stalled queue time", test_stalled_queue_time},
    {"failures", test_failures},
    {"standstill", test_standstill},
    {"no room to take over", test_no_room_to_take_over},
    {"room for one", test_room_for_one},
    {"uncached first", test_uncached_first},
};

int main(void)
{
    log_init("test", LOG_ERROR);
    make_prompts();
    return SUITE_RUN("loader", tests);
}
