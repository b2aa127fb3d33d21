/* The loader's table of sources when it is full, its throttle when it is all
 * but shut, a source that all but stands still. */
#include <stdio.h>

#include "base/log.h"
#include "tests/unit/engine_rig.h"
#include "tests/unit/load_rig.h"
#include "tests/unit/suite.h"
#include "workers/load/internal.h"

#define BT 16u
#define PROMPT 326u /* 20 blocks may be reused */

static uint32_t prompt[PROMPT];

static void init(struct load_rig *rig, double bytes_per_s)
{
    struct load_rig_config c = {.layout = {.layers = 4,
                                           .block_tokens = BT,
                                           .kv_row_bytes = 8,
                                           .block_bytes = 1024,
                                           .vocab = 512,
                                           .window_tokens = 4096,
                                           .step_tokens = 64},
                                .blocks = 60,
                                .max_prefills = 1,
                                .bytes_per_s = bytes_per_s};

    load_rig_init(rig, &c);
}

static void on_forget(void *arg)
{
    bool *gone = arg;

    *gone = true;
}

static struct loader_source *add(struct load_rig *rig, uint32_t i, bool *gone)
{
    static const struct loader_source_ops ops = {.forget = on_forget};
    char name[16];

    snprintf(name, sizeof(name), "s%u", i);
    return loader_add_source(rig->loader, name, &ops, gone);
}

#define LOAD_RIG_TEST(test, ...)                                   \
    SUITE_TEST(test, struct load_rig, rig, init(rig, __VA_ARGS__), \
               load_rig_fini(rig))

/* In a full table a new source takes the place of the oldest that nobody
 * uses, and of none that is held. */
LOAD_RIG_TEST(test_full_table, 0)
{
    static bool gone[LOADER_SOURCES_MAX + 2];
    struct loader_source *s[LOADER_SOURCES_MAX + 1];

    for (uint32_t i = 0; i < LOADER_SOURCES_MAX; i++) {
        s[i] = add(rig, i, &gone[i]);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s[i]);
    }
    loader_source_hold(s[0]);
    s[LOADER_SOURCES_MAX] =
        add(rig, LOADER_SOURCES_MAX, &gone[LOADER_SOURCES_MAX]);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s[LOADER_SOURCES_MAX]);
    CU_ASSERT_FALSE(gone[0]);
    CU_ASSERT_TRUE(gone[1]);
    CU_ASSERT_PTR_EQUAL(loader_find_source(rig->loader, "s0"), s[0]);
    CU_ASSERT_PTR_NULL(loader_find_source(rig->loader, "s1"));
    for (uint32_t i = 2; i <= LOADER_SOURCES_MAX; i++)
        loader_source_hold(s[i]);
    CU_ASSERT_PTR_NULL(add(rig, 99, &gone[LOADER_SOURCES_MAX + 1]));
    loader_source_release(s[0]);
    CU_ASSERT_PTR_NOT_NULL(add(rig, 99, &gone[LOADER_SOURCES_MAX + 1]));
    CU_ASSERT_TRUE(gone[0]);
    for (uint32_t i = 2; i <= LOADER_SOURCES_MAX; i++)
        loader_source_release(s[i]);
}

/* At a rate that lets nothing through in a lifetime, nothing comes: the time
 * at which it would is not so far off that it wraps to the past. */
static void test_shut_throttle(void)
{
    static const double rates[] = {1e-12, 1e-300, 5e-324};

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        struct load_rig rig;

        init(&rig, rates[i]);
        struct rig_source *s = load_rig_source(&rig, BLOCK_FETCHED);
        source_add(s, prompt, PROMPT / BT, NULL);
        struct request *r =
            load_rig_request(&rig, prompt, PROMPT, 1, LOAD_MODE_LOAD);
        load_rig_poke(&rig);
        CU_ASSERT(r->load.held_back);
        rig_now_us += 1000000000000;
        loader_tick(rig.loader);
        load_rig_poke(&rig);
        CU_ASSERT_EQUAL(s->n_read + s->n_pieces, 0);
        CU_ASSERT_EQUAL(r->load.origin[PROMPT / BT - 1], BLOCK_COMPUTED);
        load_rig_cancel(&rig, r->id);
        load_rig_fini(&rig);
    }
}

static int64_t step_us(const struct engine_segment *s, uint32_t n)
{
    (void)s;
    return n;
}

/* A source that sends a piece now and then does not hold a request for ever:
 * what came is used, the rest is computed. */
static void test_ever_so_little(void)
{
    for (int mode = LOAD_MODE_LOAD; mode <= LOAD_MODE_LAYERWISE; mode++) {
        struct load_rig rig;

        if (mode == LOAD_MODE_BOTH)
            continue; /* the engine overtakes it */
        init(&rig, 0);
        struct rig_source *s = load_rig_source(&rig, BLOCK_FETCHED);
        source_add(s, prompt, PROMPT / BT, NULL);
        int64_t start_us = rig_now_us;
        struct request *r =
            load_rig_request(&rig, prompt, PROMPT, 1, (enum load_mode)mode);
        load_rig_poke(&rig);
        while (r->load.job && s->n_pieces > 0) {
            CU_ASSERT_EQUAL(load_rig_form(&rig), 0);
            rig_now_us += 4900000;
            source_deliver(s, 0);
            loader_tick(rig.loader);
            load_rig_poke(&rig);
        }
        CU_ASSERT_PTR_NULL(r->load.job);
        CU_ASSERT(rig_now_us - start_us > 30000000);
        CU_ASSERT(rig_now_us - start_us < 50000000);
        CU_ASSERT(load_rig_run(&rig, step_us));
        CU_ASSERT_EQUAL(rig.n_done, 1);
        CU_ASSERT(mode != LOAD_MODE_LOAD || rig.last.load.n_fetched > 5);
        load_rig_fini(&rig);
    }
}

/* Nor those behind it, who are not even asked for. */
LOAD_RIG_TEST(test_ever_so_little_for_many, 0)
{
    static uint32_t prompts[2][PROMPT];
    struct request *r[2];
    bool waiting = true;

    struct rig_source *s = load_rig_source(rig, BLOCK_FETCHED);

    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < PROMPT; k++)
            prompts[i][k] = (k * 7 + i) % 250;
        source_add(s, prompts[i], PROMPT / BT, NULL);
    }
    int64_t start_us = rig_now_us;
    for (uint32_t i = 0; i < 2; i++)
        r[i] = load_rig_request(rig, prompts[i], PROMPT, 1, LOAD_MODE_LOAD);
    while (waiting && s->n_pieces > 0) {
        waiting = false;
        rig_now_us += 4900000;
        source_deliver(s, 0);
        loader_tick(rig->loader);
        load_rig_poke(rig);
        for (uint32_t i = 0; i < 2; i++)
            waiting = waiting || r[i]->load.job;
    }
    CU_ASSERT(rig_now_us - start_us > 30000000);
    CU_ASSERT(rig_now_us - start_us < 50000000);
    CU_ASSERT(load_rig_run(rig, step_us));
    CU_ASSERT_EQUAL(rig->n_done, 2);
}

/* A poke of everything, `us` later. */
static void later(struct load_rig *rig, int64_t us)
{
    rig_now_us += us;
    loader_tick(rig->loader);
    load_rig_poke(rig);
}

/* Reads that do not end: the request is computed, into other blocks, and the
 * source is asked for nothing until they do; then it is as good as before. */
static void test_hangs(void)
{
    for (int mode = LOAD_MODE_LOAD; mode <= LOAD_MODE_LAYERWISE; mode++) {
        struct load_rig rig;

        init(&rig, 0);
        struct rig_source *s = load_rig_source(&rig, BLOCK_FROM_DISK);
        source_add(s, prompt, PROMPT / BT, NULL);
        struct request *r =
            load_rig_request(&rig, prompt, PROMPT, 1, (enum load_mode)mode);
        uint32_t n = s->n_pieces;
        CU_ASSERT(n > 0);
        s->hangs = true;
        later(&rig, 29000000);
        CU_ASSERT_PTR_NOT_NULL(r->load.job);
        later(&rig, 1000000);
        CU_ASSERT_PTR_NULL(r->load.job);
        CU_ASSERT(load_rig_run(&rig, step_us));
        CU_ASSERT_EQUAL(rig.n_done, 1);
        CU_ASSERT_EQUAL(rig.last.load.n_disk, 0);
        load_rig_forget(&rig);
        load_rig_request(&rig, prompt, PROMPT, 1, (enum load_mode)mode);
        CU_ASSERT(load_rig_run(&rig, step_us));
        CU_ASSERT_EQUAL(rig.n_done, 2);
        CU_ASSERT_EQUAL(s->n_pieces, n);
        while (s->n_pieces > 0)
            source_deliver(s, 0);
        s->hangs = false;
        load_rig_forget(&rig);
        load_rig_request(&rig, prompt, PROMPT, 1, LOAD_MODE_LOAD);
        CU_ASSERT(load_rig_run(&rig, step_us));
        CU_ASSERT_EQUAL(rig.last.load.n_disk, PROMPT / BT);
        load_rig_fini(&rig);
    }
}

/* Two sources of which one hangs, with one read of two or before it has said
 * what it has: the other brings the rest, all of it if there is time. */
static void test_one_hangs(void)
{
    for (int what = 0; what < 4; what++) {
        struct load_rig rig;

        init(&rig, 0);
        struct rig_source *s = load_rig_source(&rig, BLOCK_FROM_DISK);
        struct rig_source *good = load_rig_source(&rig, BLOCK_FETCHED);
        source_add(s, prompt, PROMPT / BT, NULL);
        source_add(good, prompt, PROMPT / BT, NULL);
        s->late_open = what % 2;
        struct request *r =
            load_rig_request(&rig, prompt, PROMPT, 1,
                             what < 2 ? LOAD_MODE_LOAD : LOAD_MODE_LAYERWISE);
        for (int i = 0; r->load.job && i < 400; i++) {
            if (s->n_pieces > 1)
                source_deliver(s, 1);
            if (good->n_pieces > 0)
                source_deliver(good, 0);
            later(&rig, 200000);
        }
        CU_ASSERT_PTR_NULL(r->load.job);
        CU_ASSERT(load_rig_run(&rig, step_us));
        CU_ASSERT_EQUAL(rig.n_done, 1);
        uint32_t n = rig.last.load.n_fetched + rig.last.load.n_disk;
        if (s->late_open)
            CU_ASSERT_EQUAL(n, PROMPT / BT);
        if (what == 0)
            CU_ASSERT_EQUAL(n, PROMPT / BT);
        load_rig_fini(&rig);
    }
}

/* Has the rate of source i alone measured: a block in piece_us. */
static void measure(struct load_rig *rig, uint32_t i, int64_t piece_us)
{
    for (uint32_t k = 0; k < rig->n_sources; k++)
        rig->sources[k].unused = k != i;
    rig->sources[i].us_per_byte = (double)piece_us / 1024;
    load_rig_request(rig, prompt, PROMPT, 1, LOAD_MODE_LOAD);
    CU_ASSERT(load_rig_run(rig, step_us));
    CU_ASSERT_EQUAL(rig->last.load.n_fetched, PROMPT / BT);
    load_rig_forget(rig);
}

/* A source that was seen to send, and then sends nothing, or does not say what
 * it has: no request waits long for it. One that was never seen has more time.
 */
static void test_silent(void)
{
    for (int what = 0; what < 8; what++) {
        int mode = what & 1 ? LOAD_MODE_LOAD : LOAD_MODE_LAYERWISE;
        struct request *r[2];
        struct load_rig rig;

        init(&rig, 0);
        struct rig_source *s = load_rig_source(&rig, BLOCK_FETCHED);
        source_add(s, prompt, PROMPT / BT, NULL);
        if (what & 4)
            measure(&rig, 0, 1000);
        s->hangs = true;
        s->late_open = what & 2;
        for (int i = 0; i < 2; i++)
            r[i] =
                load_rig_request(&rig, prompt, PROMPT, 1, (enum load_mode)mode);
        later(&rig, 1490000);
        CU_ASSERT(r[0]->load.job && r[1]->load.job);
        later(&rig, 200000);
        for (int i = 0; i < 2; i++)
            CU_ASSERT_EQUAL(!r[i]->load.job, (what & 4) != 0);
        if (!(what & 4))
            later(&rig, 30000000);
        CU_ASSERT(load_rig_run(&rig, step_us));
        CU_ASSERT_EQUAL(rig.last.load.n_fetched, 0);
        load_rig_fini(&rig);
    }
}

/* The next thing that a source brings by its rate: one piece, any, or `at_once`
 * all that are under way. Returns false if nothing is. */
static bool keep_promise(struct load_rig *rig, bool at_once, uint64_t *state)
{
    struct rig_source *next = NULL;
    int64_t at_us = INT64_MAX;

    for (uint32_t i = 0; i < rig->n_sources; i++) {
        struct rig_source *s = &rig->sources[i];
        uint32_t n = at_once ? s->n_pieces : 1;
        int64_t us = s->busy_until_us + (int64_t)(s->us_per_byte * 1024 * n);

        if (s->n_pieces > 0 && us < at_us) {
            at_us = us;
            next = s;
        }
    }
    if (!next)
        return false;
    while (rig->loader->wake_us < at_us)
        later(rig, rig->loader->wake_us - rig_now_us);
    rig_now_us = at_us;
    next->busy_until_us = at_us;
    for (uint32_t n = at_once ? next->n_pieces : 1; n > 0; n--)
        source_deliver(next, rig_random(state, next->n_pieces));
    load_rig_poke(rig);
    return true;
}

/* Whatever the rates of two sources are, and however many requests share them,
 * a source that keeps its promise is never left. */
static void test_promise_kept(void)
{
    uint64_t state = rig_seed("promise kept");

    for (int i = 0; i < 300; i++) {
        uint32_t n = 1 + rig_random(&state, 2);
        bool at_once = rig_random(&state, 2);
        struct request *r[2];
        struct load_rig rig;

        init(&rig, 0);
        for (uint32_t k = 0; k < 2; k++) {
            struct rig_source *s = load_rig_source(&rig, BLOCK_FETCHED);

            source_add(s, prompt, PROMPT / BT, NULL);
            measure(&rig, k, 1000 + rig_random(&state, 1200000 / n));
        }
        rig.sources[0].unused = rig_random(&state, 2);
        for (uint32_t k = 0; k < n; k++)
            r[k] = load_rig_request(&rig, prompt, PROMPT, 1, LOAD_MODE_LOAD);
        while (keep_promise(&rig, at_once, &state))
            ;
        for (uint32_t k = 0; k < n; k++) {
            CU_ASSERT_PTR_NULL(r[k]->load.job);
            for (uint32_t b = 0; b < PROMPT / BT; b++)
                CU_ASSERT_EQUAL(r[k]->load.origin[b], BLOCK_FETCHED);
        }
        CU_ASSERT(load_rig_run(&rig, step_us));
        load_rig_fini(&rig);
    }
}

/* No room for other blocks: the request fails, and the worker goes on. */
LOAD_RIG_TEST(test_hangs_without_room, 0)
{
    struct kv_store_stats stats;

    struct rig_source *s = load_rig_source(rig, BLOCK_FROM_DISK);

    source_add(s, prompt, PROMPT / BT, NULL);
    for (int i = 0; i < 3; i++) /* 63 blocks are more than there are */
        load_rig_request(rig, prompt, PROMPT, 1, LOAD_MODE_LOAD);
    kv_store_stats(rig->store, &stats);
    uint32_t spare[60];
    uint32_t n = stats.free_blocks;
    CU_ASSERT_EQUAL_FATAL(kv_store_alloc(rig->store, n, spare), 0);
    later(rig, 30000000);
    CU_ASSERT_EQUAL(rig->n_failed, 1);
    while (n > 0)
        kv_store_release(rig->store, spare[--n]);
    load_rig_poke(rig);
    CU_ASSERT(load_rig_run(rig, step_us));
    CU_ASSERT_EQUAL(rig->n_done, 2);
}

/* A piece that a shut throttle keeps back does not hold a request for ever. */
LOAD_RIG_TEST(test_late_in_the_throttle, 1e-3)
{
    struct rig_source *s = load_rig_source(rig, BLOCK_FETCHED);

    source_add(s, prompt, PROMPT / BT, NULL);
    struct request *r =
        load_rig_request(rig, prompt, PROMPT, 1, LOAD_MODE_LOAD);
    later(rig, 29000000);
    CU_ASSERT(r->load.held_back);
    CU_ASSERT_EQUAL(s->n_pieces, 0);
    later(rig, 2000000);
    CU_ASSERT(load_rig_run(rig, step_us));
    CU_ASSERT_EQUAL(rig->n_done, 1);
    CU_ASSERT_EQUAL(rig->last.load.n_fetched, 0);
}

/* Pieces in the throttle of a source that is lost, or of a request that is
 * cancelled, are never asked for; the request is computed, or gone. */
static void test_throttle_lets_go(void)
{
    for (int what = 0; what < 6; what++) {
        struct load_rig rig;

        init(&rig, 1e5); /* a block takes 10 ms */
        struct rig_source *s = load_rig_source(&rig, BLOCK_FETCHED);
        source_add(s, prompt, PROMPT / BT, NULL);
        struct request *r =
            load_rig_request(&rig, prompt, PROMPT, 1,
                             (enum load_mode)(LOAD_MODE_LOAD + what / 2));
        later(&rig, 2600);
        uint32_t by_layer = what / 2 == LOAD_MODE_LAYERWISE - LOAD_MODE_LOAD;
        CU_ASSERT_EQUAL(s->n_pieces, by_layer);
        if (what % 2)
            source_lose(s);
        else
            load_rig_cancel(&rig, r->id);
        later(&rig, 1000000);
        CU_ASSERT_EQUAL(s->n_read + s->n_pieces, 0);
        CU_ASSERT(load_rig_run(&rig, step_us));
        CU_ASSERT_EQUAL(rig.n_done, (uint32_t)what % 2);
        load_rig_fini(&rig);
    }
}

/* Of two sources one sends next to nothing: it is given up by itself, and the
 * other brings the rest. */
LOAD_RIG_TEST(test_one_is_slow, 0)
{
    struct rig_source *slow = load_rig_source(rig, BLOCK_FETCHED);
    struct rig_source *good = load_rig_source(rig, BLOCK_FROM_DISK);

    source_add(slow, prompt, PROMPT / BT, NULL);
    source_add(good, prompt, PROMPT / BT, NULL);
    struct request *r =
        load_rig_request(rig, prompt, PROMPT, 1, LOAD_MODE_BOTH);
    /* The engine has others to serve meanwhile. */
    for (int i = 0; r->load.job && i < 100; i++) {
        if (good->n_pieces > 0)
            source_deliver(good, 0);
        later(rig, 1600000);
    }
    CU_ASSERT_EQUAL(slow->n_pieces, 0);
    CU_ASSERT(load_rig_run(rig, step_us));
    CU_ASSERT_EQUAL(rig->last.load.n_disk, PROMPT / BT);
}

static const struct suite_test tests[] = {
    {"full table", test_full_table},
    {"shut throttle", test_shut_throttle},
    {"ever so little", test_ever_so_little},
    {"ever so little for many", test_ever_so_little_for_many},
    {"throttle lets go", test_throttle_lets_go},
    {"one is slow", test_one_is_slow},
    {"hangs", test_hangs},
    {"one hangs", test_one_hangs},
    {"silent", test_silent},
    {"promise kept", test_promise_kept},
    {"hangs without room", test_hangs_without_room},
    {"late in the throttle", test_late_in_the_throttle},
};

int main(void)
{
    log_init("test", LOG_ERROR);
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = i % 251;
    return SUITE_RUN("load sources", tests);
}
