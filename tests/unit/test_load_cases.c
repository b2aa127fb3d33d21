/* Greedy output is the same whether a prompt's KV was computed, loaded from
 * disk, loaded from a peer, or both at any split, whole blocks or layer by
 * layer: random cases on the CPU engine with the real store, step loop, loader
 * and disk tier; blocks are evicted, the worker and its disk are restarted,
 * sources fail, pieces come while the engine computes, requests are cancelled.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/entropy.h"
#include "base/log.h"
#include "tests/unit/disk_check.h"
#include "tests/unit/engine_rig.h"
#include "tests/unit/kv_store_check.h"
#include "tests/unit/load_rig.h"
#include "tests/unit/suite.h"
#include "workers/disk/source.h"

#define BT 16u
#define STEP 48u
#define PROMPTS 10
#define MOST_BLOCKS 14u
#define MOST_PROMPT (MOST_BLOCKS * BT)
#define ANSWERS 5u
#define CASES 500
#define AT_ONCE 3u

struct world {
    struct engine *engine;
    uint64_t state;
    uint32_t prompts[PROMPTS][MOST_PROMPT];
    uint8_t *kv[PROMPTS]; /* (MOST_BLOCKS, block_bytes) */
    struct load_rig rig;
    struct disk_tier *tier;
    char path[64];
    bool keeps;      /* nothing is forgotten: blocks leave by eviction */
    bool mid_step;   /* pieces come while the engine computes */
    bool give_up;    /* layers do not come in time */
    uint64_t cancel; /* this request, at any time; 0: none */
    uint32_t used_fetched, used_disk, used_local, gated, stalled, lost;
    uint32_t hung, no_room;
    uint32_t checks;
    uint64_t evicted; /* from memory and from disk */
};

static uint32_t any(struct world *w, uint32_t below)
{
    return rig_random(&w->state, below);
}

/* --- what is true -------------------------------------------------------- */

/* Prompts begin alike, by pairs and all: so they share blocks. */
static void make_prompts(struct world *w)
{
    for (uint32_t p = 0; p < PROMPTS; p++) {
        for (uint32_t i = 0; i < MOST_PROMPT; i++)
            w->prompts[p][i] = any(w, 256);
        uint32_t alike = BT * (p % 2 ? 9 : 3) + any(w, BT);
        if (p > 0)
            memcpy(w->prompts[p], w->prompts[p - 1], alike * sizeof(uint32_t));
    }
}

/* The KV of each prompt, computed in one go: what peers have. */
static void compute_kv(struct world *w)
{
    const struct engine_kv_layout *l = engine_kv_layout(w->engine);

    for (uint32_t p = 0; p < PROMPTS; p++) {
        struct rig_request r;

        rig_init(&r, w->engine, w->prompts[p], MOST_PROMPT, 1);
        CU_ASSERT_EQUAL_FATAL(rig_run(w->engine, &r, STEP, 1), 0);
        w->kv[p] = malloc(MOST_BLOCKS * l->block_bytes);
        CU_ASSERT_PTR_NOT_NULL_FATAL(w->kv[p]);
        for (uint32_t b = 0; b < MOST_BLOCKS; b++)
            memcpy(w->kv[p] + b * l->block_bytes, r.blocks[b], l->block_bytes);
        rig_fini(&r);
    }
}

/* What the engine answers to the first n tokens of a prompt by itself. */
static void answer_alone(struct world *w, uint32_t p, uint32_t n,
                         uint32_t *answer)
{
    struct rig_request r;

    rig_init(&r, w->engine, w->prompts[p], n, ANSWERS);
    CU_ASSERT_EQUAL_FATAL(rig_run(w->engine, &r, STEP, ANSWERS), 0);
    memcpy(answer, r.tokens + n, ANSWERS * sizeof(*answer));
    rig_fini(&r);
}

/* --- a worker's life ----------------------------------------------------- */

static int64_t now_us(const struct loop *)
{
    return rig_now_us;
}

static uint64_t random_number(struct loop *)
{
    return entropy_u64();
}

static void start(struct world *w)
{
    const struct engine_kv_layout *l = engine_kv_layout(w->engine);
    char err[256] = "";
    struct disk_tier_config dc = {
        .now_us = now_us,
        .random = random_number,
        .path = w->path,
        .bytes = 24 * (l->block_bytes + 4096) + 65536,
        .geometry = {.fingerprint = l->fingerprint,
                     .block_bytes = l->block_bytes,
                     .block_tokens = l->block_tokens,
                     .layers = l->layers},
        .max_reads = 64,
        .max_writes = 64,
        .event_capacity = 16,
        .direct = any(w, 2),
        .uring = any(w, 2),
    };
    struct load_rig_config c = {.engine = w->engine,
                                .blocks = 20 + any(w, 54),
                                .max_prefills = 1 + any(w, 3)};

    w->keeps = any(w, 3) == 0;
    load_rig_init(&w->rig, &c);
    for (int i = 0; i < 2; i++) {
        struct rig_source *s = load_rig_source(&w->rig, BLOCK_FETCHED);

        for (uint32_t p = 0; p < PROMPTS; p++) {
            uint8_t *kv = malloc(MOST_BLOCKS * l->block_bytes);

            CU_ASSERT_PTR_NOT_NULL_FATAL(kv);
            memcpy(kv, w->kv[p], MOST_BLOCKS * l->block_bytes);
            source_add(s, w->prompts[p], MOST_BLOCKS, kv);
        }
    }
    int rc = disk_tier_open(&dc, &w->tier, err, sizeof(err));
    if (rc < 0)
        printf("%s ", err);
    CU_ASSERT_EQUAL_FATAL(rc, 0);
    w->rig.disk = disk_source(w->rig.loader, w->tier);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w->rig.disk);
}

static void stop(struct world *w)
{
    struct kv_store_stats s;

    kv_store_stats(w->rig.store, &s);
    w->evicted += s.evicted_blocks;
    kv_store_stats(disk_tier_index(w->tier), &s);
    w->evicted += s.evicted_blocks;
    w->gated += w->rig.n_gated;
    w->stalled += w->rig.n_stalled;
    disk_tier_close(w->tier);
    load_rig_fini(&w->rig);
}

static void on_written(void *arg, int rc)
{
    CU_ASSERT_EQUAL(rc, 0);
    ++*(uint32_t *)arg;
}

/* Copies what the store holds of a prompt to the disk. */
static void write_to_disk(struct world *w, uint32_t p)
{
    struct kv_store *store = w->rig.store;
    struct disk_ref parent = DISK_REF_NONE;
    uint32_t ids[MOST_BLOCKS];
    uint64_t keys[MOST_BLOCKS];
    uint32_t asked = 0;
    uint32_t done = 0;

    struct request *r = request_new(
        &(struct request_spec){.id = 1,
                               .key_seed = 1,
                               .tokens = (const void *)w->prompts[p],
                               .n_tokens = MOST_PROMPT,
                               .max_tokens = 1,
                               .block_tokens = BT});
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    memcpy(keys, r->prompt.keys, sizeof(keys));
    request_free(r);
    uint32_t n = kv_store_match(store, keys, w->prompts[p], MOST_BLOCKS, ids);
    for (uint32_t b = 0; b < n; b++) {
        struct disk_ref ref;
        int rc = disk_tier_write(
            w->tier, parent, keys[b], w->prompts[p] + b * BT,
            kv_store_data(store, ids[b]), on_written, &done, &ref);

        asked += rc == 0;
        kv_store_check(disk_tier_index(w->tier));
        if (rc != 0 && rc != -EEXIST)
            break;
        parent = ref;
    }
    while (done < asked) {
        struct pollfd fd = {.fd = disk_tier_fd(w->tier), .events = POLLIN};

        poll(&fd, 1, 1000);
        disk_tier_poll(w->tier);
        kv_store_check(disk_tier_index(w->tier));
    }
    while (n > 0)
        kv_store_release(store, ids[--n]);
}

/* --- things that happen -------------------------------------------------- */

/* What must hold of the store and of the disk's index, whatever happened. */
static void must_hold(struct world *w)
{
    kv_store_check(w->rig.store);
    kv_store_check(disk_tier_index(w->tier));
    w->checks++;
}

/* Some pieces come, in an order that a source of its kind could have. */
static bool bring(struct world *w, uint32_t most)
{
    bool any_came = false;

    for (uint32_t i = 0; i < w->rig.n_sources; i++) {
        struct rig_source *s = &w->rig.sources[i];

        if (s->hangs)
            continue;
        if (s->late_open && any(w, 3) == 0)
            source_open_all(s);
        for (uint32_t k = any(w, most + 1); k > 0 && s->n_pieces > 0; k--) {
            rig_now_us += any(w, 300);
            source_deliver(s, 0);
            must_hold(w);
            any_came = true;
        }
    }
    disk_tier_poll(w->tier);
    must_hold(w);
    load_rig_poke(&w->rig);
    must_hold(w);
    return any_came;
}

/* Something must come, or time pass. */
static void wait_a_little(struct world *w)
{
    if (bring(w, 2))
        return;
    struct pollfd fd = {.fd = disk_tier_fd(w->tier), .events = POLLIN};
    if (poll(&fd, 1, 2) > 0)
        disk_tier_poll(w->tier);
    for (uint32_t i = 0; i < w->rig.n_sources; i++)
        if (!w->rig.sources[i].hangs)
            source_open_all(&w->rig.sources[i]);
    rig_now_us += 200 + any(w, 2000);
    loader_tick(w->rig.loader);
    load_rig_poke(&w->rig);
    must_hold(w);
}

/* Everything under way takes longer than any request waits; one of the peers
 * keeps standing still, or stops doing so. */
static void maybe_hang(struct world *w)
{
    if (any(w, 200) > 0)
        return;
    struct rig_source *s = &w->rig.sources[any(w, 2)];
    s->hangs = !s->hangs;
    s->lingers = true;
    w->hung++;
    rig_now_us += 31000000;
    loader_tick(w->rig.loader);
    load_rig_poke(&w->rig);
    must_hold(w);
}

static void maybe_cancel(struct world *w)
{
    if (w->cancel && any(w, 12) == 0) {
        load_rig_cancel(&w->rig, w->cancel);
        must_hold(w);
        w->cancel = 0;
    }
}

static int wait_layer(void *arg, size_t segment, uint32_t layer)
{
    struct world *w = arg;
    struct request *r = batch_segment_owner(w->rig.batch, (uint32_t)segment);

    if (!r || !r->step.gated)
        return 0;
    for (int i = 0; i < 1000; i++) {
        if (layer_gate_layers(&r->step.gate) > layer)
            return 0;
        if (w->give_up)
            return -EIO;
        int rc = layer_gate_wait(&r->step.gate, layer, 0, NULL);
        if (rc == -EIO)
            return rc;
        wait_a_little(w);
    }
    return -EIO;
}

static void layer_done(void *arg, size_t segment, uint32_t layer)
{
    struct world *w = arg;

    (void)segment;
    (void)layer;
    maybe_cancel(w);
    if (w->mid_step)
        bring(w, 1);
}

static const struct engine_step_ops step_ops = {wait_layer, layer_done};

static void step(struct world *w)
{
    struct load_rig *rig = &w->rig;

    for (uint32_t i = 0; i < rig->n; i++)
        rig->n_gated += batch_segment_owner(rig->batch, i)->step.gated;
    w->give_up = any(w, 6) == 0;
    int rc = engine_step(w->engine, rig->segments, rig->n, &step_ops, w, NULL);
    rig_now_us += 100 + any(w, 1000);
    if (rc == 0)
        loader_learn(rig->loader, rig->segments, rig->n, 100 + any(w, 1000));
    else
        CU_ASSERT_EQUAL(rc, -EIO);
    load_rig_complete(rig, rc);
    must_hold(w);
}

/* --- cases --------------------------------------------------------------- */

struct ask {
    uint32_t p;
    uint32_t n;
    enum load_mode mode;
    uint64_t id;
    uint32_t want[ANSWERS];
};

static void run_all(struct world *w)
{
    struct batch_counts c;

    for (uint32_t turns = 0; turns < 20000; turns++) {
        batch_counts(w->rig.batch, &c);
        if (c.waiting + c.prefills + c.ready + c.decodes == 0)
            return;
        maybe_cancel(w);
        maybe_hang(w);
        if (any(w, 150) == 0)
            source_lose(&w->rig.sources[any(w, 2)]);
        must_hold(w);
        bring(w, 2);
        bool formed = load_rig_form(&w->rig) > 0;
        must_hold(w);
        if (formed)
            step(w);
        else
            wait_a_little(w);
    }
    CU_FAIL_FATAL("nothing goes on");
}

static void check(struct world *w, const struct ask *a)
{
    const struct rig_answer *got = &w->rig.answers[a->id % RIG_ANSWERS];

    CU_ASSERT_EQUAL_FATAL(got->id, a->id);
    w->no_room += got->no_room;
    if (got->no_room)
        return;
    CU_ASSERT_EQUAL(got->n, ANSWERS);
    CU_ASSERT_EQUAL(memcmp(got->tokens, a->want, sizeof(a->want)), 0);
    CU_ASSERT((got->n_local + got->n_fetched + got->n_disk) * BT < a->n);
    if (a->mode == LOAD_MODE_COMPUTE)
        CU_ASSERT_EQUAL(got->n_fetched + got->n_disk, 0);
    w->used_local += got->n_local > 0;
    w->used_fetched += got->n_fetched > 0;
    w->used_disk += got->n_disk > 0;
}

static void turn_knobs(struct world *w)
{
    w->mid_step = any(w, 2);
    for (uint32_t i = 0; i < w->rig.n_sources; i++) {
        struct rig_source *s = &w->rig.sources[i];

        s->unused = any(w, 3) == 0;
        s->lingers = s->hangs;
        s->refuses = any(w, 12) == 0;
        s->late_open = any(w, 2);
        s->limit_blocks = any(w, 3) ? 0 : 1 + any(w, MOST_BLOCKS);
        s->fail_in = any(w, 6) ? 0 : 1 + any(w, 10);
    }
}

static void one_case(struct world *w)
{
    struct ask asks[AT_ONCE];
    uint32_t n = 1 + any(w, 4) / 3 * any(w, AT_ONCE);

    turn_knobs(w);
    if (!w->keeps && any(w, 4) > 0)
        load_rig_forget(&w->rig);
    must_hold(w);
    for (uint32_t i = 0; i < n; i++) {
        struct ask *a = &asks[i];

        a->p = any(w, PROMPTS);
        a->n = 1 + any(w, MOST_PROMPT);
        a->mode = (enum load_mode)any(w, LOAD_MODES);
        answer_alone(w, a->p, a->n, a->want);
        struct request *r =
            load_rig_request(&w->rig, w->prompts[a->p], a->n, ANSWERS, a->mode);
        a->id = r->id;
        must_hold(w);
        if (any(w, 8) == 0)
            w->cancel = r->id;
    }
    uint64_t cancelled = w->cancel;
    uint32_t no_room = w->no_room;
    run_all(w);
    w->cancel = 0;
    for (uint32_t i = 0; i < n; i++)
        if (asks[i].id != cancelled)
            check(w, &asks[i]);
    CU_ASSERT(w->rig.n_failed <= w->no_room - no_room + (cancelled != 0));
    w->rig.n_failed = 0;
    if (any(w, 2))
        write_to_disk(w, any(w, PROMPTS));
    kv_store_check(w->rig.store);
    disk_tier_check(w->tier);
}

static void world_init(struct world *w, const char *name)
{
    struct engine_config config = {.kind = "cpu",
                                   .shape = model_find("tiny"),
                                   .seed = 11,
                                   .block_tokens = BT,
                                   .layers = 3,
                                   .step_tokens = STEP};
    char err[256];

    memset(w, 0, sizeof(*w));
    w->state = rig_seed(name);
    w->engine = engine_new(&config, err, sizeof(err));
    CU_ASSERT_PTR_NOT_NULL_FATAL(w->engine);
    snprintf(w->path, sizeof(w->path), "/tmp/test_load_cases.XXXXXX");
    int fd = mkstemp(w->path);
    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    make_prompts(w);
    compute_kv(w);
    start(w);
}

static void world_fini(struct world *w)
{
    stop(w);
    unlink(w->path);
    for (uint32_t p = 0; p < PROMPTS; p++)
        free(w->kv[p]);
    engine_free(w->engine);
}

static void test_random_cases(void)
{
    struct world *w = malloc(sizeof(*w));

    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    world_init(w, "cases");
    for (int i = 0; i < CASES; i++) {
        if (i % 25 == 24) {
            stop(w);
            start(w);
        }
        one_case(w);
    }
    world_fini(w);
    printf("[%u used the store, %u a peer, %u the disk; %u steps waited for "
           "layers, %u in vain; reads hung %u times, %u requests had no room; "
           "%llu blocks evicted; the stores checked %u times] ",
           w->used_local, w->used_fetched, w->used_disk, w->gated, w->stalled,
           w->hung, w->no_room, (unsigned long long)w->evicted, w->checks);
    /* Each way was gone, and more than now and then. */
    CU_ASSERT(w->used_local > 50 && w->used_fetched > 50 && w->used_disk > 50);
    CU_ASSERT(w->gated > 10 && w->evicted > 100);
    free(w);
}

/* Loads the last blocks, so many as it takes for the two to meet at `split`,
 * and no more; the engine must do the rest. */
static void meet_at(struct world *w, struct rig_source *s, uint32_t p,
                    uint32_t split, const uint32_t *want)
{
    struct batch_counts c;
    uint32_t left = MOST_BLOCKS - 1 - split;

    load_rig_forget(&w->rig);
    struct request *r = load_rig_request(&w->rig, w->prompts[p], MOST_PROMPT,
                                         ANSWERS, LOAD_MODE_BOTH);
    uint64_t id = r->id;
    for (; left > 0; left--) {
        if (s->n_pieces == 0)
            break;
        source_deliver(s, 0);
        load_rig_poke(&w->rig);
    }
    CU_ASSERT_EQUAL(left, 0);
    do {
        if (load_rig_form(&w->rig) > 0) {
            CU_ASSERT_EQUAL(engine_step(w->engine, w->rig.segments, w->rig.n,
                                        NULL, NULL, NULL),
                            0);
            loader_learn(w->rig.loader, w->rig.segments, w->rig.n, 1000);
            load_rig_complete(&w->rig, 0);
        }
        rig_now_us += 1000; /* nothing comes: it must not be waited for */
        batch_counts(w->rig.batch, &c);
    } while (c.waiting + c.prefills + c.ready + c.decodes > 0);
    const struct rig_answer *a = &w->rig.answers[id % RIG_ANSWERS];
    CU_ASSERT_EQUAL(a->id, id);
    CU_ASSERT_EQUAL(a->n_fetched, MOST_BLOCKS - 1 - split);
    CU_ASSERT_EQUAL(memcmp(a->tokens, want, ANSWERS * sizeof(*want)), 0);
    load_rig_settle(&w->rig);
}

static void test_every_split(void)
{
    struct world *w = malloc(sizeof(*w));
    uint32_t want[ANSWERS];

    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    world_init(w, "splits");
    w->rig.disk = NULL;
    w->rig.sources[1].unused = true;
    for (uint32_t p = 0; p < PROMPTS; p++) {
        answer_alone(w, p, MOST_PROMPT, want);
        for (uint32_t split = 0; split < MOST_BLOCKS; split++)
            meet_at(w, &w->rig.sources[p % 2], p, split, want);
        w->rig.sources[p % 2].unused = true;
        w->rig.sources[(p + 1) % 2].unused = false;
    }
    world_fini(w);
    free(w);
}

static const struct suite_test tests[] = {
    {"both, at every split", test_every_split},
    {"random cases", test_random_cases},
};

int main(void)
{
    log_init("test", LOG_ERROR);
    return SUITE_RUN("load_cases", tests);
}
