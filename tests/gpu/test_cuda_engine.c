/* Engine "cuda" as a whole, shape tiny, on a card or emulated (EMULATED): the
 * same answers and the same KV, bit for bit, however the work is cut, wherever
 * the KV in front came from, with pages that are evicted meanwhile; and numbers
 * close to those of engine "cpu". Exits with 77 where there is no card. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/kernels_ref.h"
#include "tests/unit/cases.h"
#include "tests/unit/engine_rig.h"
#include "tests/unit/model_facts.h"
#include "tests/unit/suite.h"
#include "workers/engine/cuda/engine.h"

#ifdef EMULATED
void emulate_set_memory(size_t bytes);
void emulate_lose_card(long after_calls);
void emulate_have_cublaslt(bool have);
#define ROUNDS 2
#define MOST_PROMPT 100
#else
#define ROUNDS 12
#define MOST_PROMPT 700
#endif

#define EXIT_SKIPPED 77
#define REQUESTS 4
#define ANSWERS 5
#define SEED 99

/* Of a KV row against engine "cpu": length of the difference over length of the
 * row, as the root mean square over the rows of a layer, and at worst. bfloat16
 * has 8 bits, and the difference grows from layer to layer of a random model:
 * 0.004, 0.013, 0.022, 0.032 on the emulated card, 0.1 at worst. */
#define CPU_TOLERANCE(layer) (0.006 + 0.013 * (layer))
#define CPU_WORST 0.3

static struct engine *new_engine(const char *kind, uint32_t block_tokens,
                                 uint32_t step_tokens, uint32_t pages)
{
    const struct model_shape *shape = model_find("tiny");
    struct engine_config config = {
        .kind = kind,
        .shape = shape,
        .seed = SEED,
        .block_tokens = block_tokens,
        .step_tokens = step_tokens,
        .device_kv_bytes =
            pages * block_tokens * model_kv_bytes_per_token(shape, 2),
    };
    char err[400] = "";
    struct engine *e = engine_new(&config, err, sizeof(err));

    if (!e)
        fprintf(stderr, "%s\n", err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    return e;
}

static uint32_t random_prompt(uint64_t *state, uint32_t *prompt)
{
    uint32_t n = 1 + rig_random(state, MOST_PROMPT);

    for (uint32_t i = 0; i < n; i++)
        prompt[i] = rig_random(state, 256);
    return n;
}

/* The engine must not know the blocks any more when their addresses come back
 * for something else. */
static void fini(struct engine *e, struct rig_request *r)
{
    uint32_t bt = r->layout->block_tokens;

    for (uint32_t i = 0; i < (r->room + bt - 1) / bt; i++)
        engine_kv_forget(e, r->blocks[i]);
    rig_fini(r);
}

/* The host blocks begin anew, after they were another request's. */
static void reuse(struct engine *e, struct rig_request *r, uint64_t *state)
{
    uint32_t bt = r->layout->block_tokens;
    uint32_t prompt[MOST_PROMPT];
    struct rig_request other = *r;

    for (uint32_t i = 0; i < r->n_prompt; i++)
        prompt[i] = rig_random(state, 256);
    other.tokens = prompt;
    other.done = 0;
    other.n_tokens = r->n_prompt;
    while (other.done < r->n_prompt) {
        uint32_t left = r->n_prompt - other.done;
        struct engine_segment s = rig_segment(&other, left < 64 ? left : 64);

        s.want_token = false;
        CU_ASSERT_EQUAL_FATAL(engine_step(e, &s, 1, NULL, NULL, NULL), 0);
        rig_take(&other, &s);
    }

    for (uint32_t i = 0; i < (r->room + bt - 1) / bt; i++) {
        engine_kv_forget(e, r->blocks[i]);
        memset(r->blocks[i], 0xff, r->layout->block_bytes);
    }
    r->done = 0;
    r->n_tokens = r->n_prompt;
}

/* One step for all requests that still have something to do: random pieces of
 * random ones, in random order. Returns how many are busy. */
static uint32_t mixed_step(struct engine *e, struct rig_request *r,
                           uint64_t *state)
{
    struct engine_segment s[REQUESTS];
    size_t of[REQUESTS];
    size_t n = 0;
    uint32_t left = engine_kv_layout(e)->step_tokens;
    uint32_t busy = 0;
    uint32_t first = rig_random(state, REQUESTS);

    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint32_t k = (first + i) % REQUESTS;
        uint32_t most = r[k].n_tokens - r[k].done;

        if (r[k].n_tokens == r[k].room)
            continue;
        busy++;
        most = most < left ? most : left;
        if (most == 0 || rig_random(state, 4) == 0)
            continue;
        of[n] = k;
        s[n] = rig_segment(&r[k], 1 + rig_random(state, most));
        left -= s[n++].n_tokens;
    }
    if (n > 0)
        CU_ASSERT_EQUAL_FATAL(engine_step(e, s, n, NULL, NULL, NULL), 0);
    for (size_t i = 0; i < n; i++)
        rig_take(&r[of[i]], &s[i]);
    return busy;
}

static void expect_same(const struct rig_request *a,
                        const struct rig_request *b, uint32_t kv_tokens)
{
    CU_ASSERT_EQUAL(memcmp(a->tokens, b->tokens, a->n_tokens * 4), 0);
    CU_ASSERT_EQUAL(rig_kv_differs(a, b, kv_tokens), 0);
}

/* Random steps and batches, block sizes and step sizes, on a card that has room
 * for little more than one request: all equal to requests alone. */
static void test_mixed(void)
{
    uint64_t state = rig_seed("mixed");
    uint32_t rounds = cases_of(ROUNDS);
    struct engine *plain = new_engine("cuda", 64, 256, 40);
    uint64_t evicted = 0;
    uint64_t written_back = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t bt = 16 * (1 + rig_random(&state, 6));
        /* One request fits, four do not. */
        struct engine *e = new_engine("cuda", bt, 30 + rig_random(&state, 90),
                                      (MOST_PROMPT + ANSWERS) / bt + 2);
        struct page_cache_counts counts;
        struct rig_request alone[REQUESTS];
        struct rig_request mixed[REQUESTS];

        for (int k = 0; k < REQUESTS; k++) {
            uint32_t prompt[MOST_PROMPT];
            uint32_t n;

            do
                n = random_prompt(&state, prompt);
            while (n < MOST_PROMPT / 2);
            rig_init(&alone[k], plain, prompt, n, ANSWERS);
            rig_init(&mixed[k], e, prompt, n, ANSWERS);
            CU_ASSERT_EQUAL(rig_run(plain, &alone[k], 256, ANSWERS), 0);
        }
        while (mixed_step(e, mixed, &state) > 0)
            ;
        CU_ASSERT_EQUAL(engine_cuda_flush(e), 0);
        CU_ASSERT_EQUAL(engine_cuda_flush(plain), 0);
        page_cache_check(((struct cuda_engine *)e)->pages);
        page_cache_counts(((struct cuda_engine *)e)->pages, &counts);
        evicted += counts.evicted;
        written_back += counts.written_back;
        for (int k = 0; k < REQUESTS; k++) {
            expect_same(&alone[k], &mixed[k], mixed[k].done);
            fini(plain, &alone[k]);
            fini(e, &mixed[k]);
        }
        engine_free(e);
    }
    printf("[%llu evicted, %llu written back] ", (unsigned long long)evicted,
           (unsigned long long)written_back);
    CU_ASSERT(evicted > 0 && written_back > 0);
    engine_free(plain);
}

/* --- where the KV in front comes from ------------------------------------- */

/* Host blocks that fill while a step runs: layer by layer, just when the engine
 * waits for them. */
struct late {
    struct rig_request *to;
    const struct rig_request *from;
    uint32_t n_cached;
    uint32_t next_layer;
    uint32_t fails_at; /* layer_wait of this layer fails */
};

static void copy_layers(struct rig_request *to, const struct rig_request *from,
                        uint32_t from_token, uint32_t to_token,
                        uint32_t from_layer, uint32_t to_layer)
{
    const struct engine_kv_layout *l = to->layout;

    for (uint32_t t = from_token; t < to_token; t++)
        for (uint32_t layer = from_layer; layer < to_layer; layer++)
            for (int w = 0; w < 2; w++) {
                uint32_t b = t / l->block_tokens;
                uint32_t slot = t % l->block_tokens;

                memcpy(engine_kv_row(l, to->blocks[b], layer,
                                     (enum engine_which)w, slot),
                       engine_kv_row(l, from->blocks[b], layer,
                                     (enum engine_which)w, slot),
                       l->kv_row_bytes);
            }
}

static int late_wait(void *arg, size_t segment, uint32_t layer)
{
    struct late *late = arg;

    (void)segment;
    if (layer == late->fails_at)
        return -EIO;
    CU_ASSERT_EQUAL(layer, late->next_layer);
    late->next_layer++;
    copy_layers(late->to, late->from, 0, late->n_cached, layer, layer + 1);
    return 0;
}

static const struct engine_step_ops late_ops = {.layer_wait = late_wait};

/* Takes blocks [from, to) of `r` from `source`, with an upload or without. */
static void load_blocks(struct engine *e, struct rig_request *r,
                        const struct rig_request *source, uint32_t from,
                        uint32_t to, uint64_t *state)
{
    uint32_t bt = r->layout->block_tokens;
    uint32_t layers = r->layout->layers;
    uint32_t cut = rig_random(state, layers + 1);
    uint64_t ticket;

    copy_layers(r, source, from * bt, to * bt, 0, layers);
    if (from == to || rig_random(state, 2) == 0)
        return;
    CU_ASSERT_EQUAL(
        engine_kv_upload(e, r->blocks + from, to - from, 0, cut, &ticket), 0);
    if (rig_random(state, 2) == 0)
        CU_ASSERT_EQUAL(engine_kv_upload_done(e, ticket, true), 1);
    CU_ASSERT_EQUAL(
        engine_kv_upload(e, r->blocks + from, to - from, cut, layers, &ticket),
        0);
    CU_ASSERT(engine_kv_upload_done(e, ticket, false) >= 0);
}

/* Load, both at a random split, and layer by layer: what is in the host blocks
 * before comes from `source`, the rest is computed. */
static void run_loaded(struct engine *e, struct rig_request *r,
                       const struct rig_request *source, uint64_t *state)
{
    uint32_t bt = r->layout->block_tokens;
    uint32_t cached = rig_random(state, (r->n_prompt - 1) / bt + 1);
    uint32_t split = rig_random(state, cached + 1);
    uint32_t chunk = 1 + rig_random(state, 100);

    reuse(e, r, state);
    switch (rig_random(state, 3)) {
    case 0: /* load */
        load_blocks(e, r, source, 0, cached, state);
        r->done = cached * bt;
        break;
    case 1: /* both: computes [0, split), part of a block that came as well */
        load_blocks(e, r, source, split, cached, state);
        while (r->done < split * bt) {
            uint32_t left = split * bt - r->done;
            struct engine_segment s =
                rig_segment(r, left < chunk ? left : chunk);

            CU_ASSERT_EQUAL(engine_step(e, &s, 1, NULL, NULL, NULL), 0);
            rig_take(r, &s);
        }
        r->done = cached * bt;
        break;
    default: { /* layerwise, at its second try */
        struct late late = {r, source, cached * bt, 0,
                            rig_random(state, r->layout->layers)};
        r->done = cached * bt;
        uint32_t left = r->n_prompt - r->done;
        struct engine_segment s = rig_segment(r, left < chunk ? left : chunk);
        CU_ASSERT_EQUAL(engine_step(e, &s, 1, &late_ops, &late, NULL), -EIO);
        late.next_layer = 0;
        late.fails_at = UINT32_MAX;
        CU_ASSERT_EQUAL(engine_step(e, &s, 1, &late_ops, &late, NULL), 0);
        CU_ASSERT_EQUAL(late.next_layer, r->layout->layers);
        rig_take(r, &s);
    }
    }
    CU_ASSERT_EQUAL(rig_run(e, r, chunk, ANSWERS), 0);
}

static void test_modes(void)
{
    uint64_t state = rig_seed("modes");
    uint32_t rounds = cases_of(ROUNDS);

    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t bt = 16 * (1 + rig_random(&state, 3));
        struct engine *a = new_engine("cuda", bt, 256, 60);
        struct engine *b =
            new_engine("cuda", bt, 100, (MOST_PROMPT + 130 + bt) / bt);
        struct rig_request source;
        struct rig_request loaded;
        uint32_t prompt[MOST_PROMPT];
        uint32_t n = random_prompt(&state, prompt);

        rig_init(&source, a, prompt, n, ANSWERS);
        rig_init(&loaded, b, prompt, n, ANSWERS);
        CU_ASSERT_EQUAL(rig_run(a, &source, 256, ANSWERS), 0);
        for (int k = 0; k < 4; k++) {
            run_loaded(b, &loaded, &source, &state);
            expect_same(&source, &loaded, n);
        }
        fini(a, &source);
        fini(b, &loaded);
        engine_free(a);
        engine_free(b);
    }
}

/* --- what a step says ------------------------------------------------------
 */

struct done_log {
    struct engine_segment *s;
    const struct engine_kv_layout *layout;
    uint32_t calls;
    atomic_bool *abort_at_layer_1;
};

/* K and V of all layers so far are in the host blocks. */
static void note_done(void *arg, size_t segment, uint32_t layer)
{
    struct done_log *log = arg;
    const struct engine_segment *s = &log->s[segment];
    uint32_t bt = log->layout->block_tokens;

    CU_ASSERT_EQUAL(log->calls, layer * 2 + segment);
    log->calls++;
    for (uint32_t t = s->position; t < s->position + s->n_tokens; t++)
        for (int w = 0; w < 2; w++) {
            uint32_t bits;

            memcpy(&bits,
                   engine_kv_row(log->layout, s->blocks[t / bt], layer,
                                 (enum engine_which)w, t % bt),
                   sizeof(bits));
            CU_ASSERT_NOT_EQUAL(bits, UINT32_MAX);
        }
    if (log->abort_at_layer_1 && layer == 1)
        atomic_store(log->abort_at_layer_1, true);
}

static const struct engine_step_ops note_ops = {.layer_done = note_done};

/* --- pages for others ----------------------------------------------------- */

/* Reads a block out of the pages `memory` into another engine's, some layers at
 * a time. Returns whether its page there is to be used. */
static bool read_block(const struct shared_card *by, const char *memory,
                       const struct engine_kv_layout *l, char *block,
                       uint64_t *state)
{
    uint64_t layer_bytes = l->block_bytes / l->layers;
    bool ok = rig_random(state, 3) > 0, by_page = true;

    for (uint32_t n, layer = 0; layer < l->layers; layer += n) {
        uint64_t at = layer * layer_bytes;
        uint32_t page;

        n = 1 + rig_random(state, l->layers - layer);
        CU_ASSERT_EQUAL(
            by->ops->read(by, memory + at, block + at, n * layer_bytes, &page),
            0);
        by_page = by_page && page != PAGE_NONE;
        by->ops->read_over(by, block + at, n * layer_bytes, page, ok);
    }
    return ok && by_page;
}

/* All blocks of `source` are read. What lies in the page is spoilt in the host
 * block: a step must use the one and not the other. */
static uint32_t take_blocks(struct engine *a, struct engine *b,
                            const char *memory, struct rig_request *r,
                            const struct rig_request *source, uint64_t *state)
{
    const struct shared_card *from = engine_card(a), *by = engine_card(b);
    const struct engine_kv_layout *l = r->layout;
    uint32_t n = (r->n_prompt - 1) / l->block_tokens, n_spoilt = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = 0;

        CU_ASSERT_EQUAL_FATAL(from->ops->lend(from, source->blocks[i], &at), 0);
        bool by_page = read_block(by, memory + at, l, r->blocks[i], state);
        from->ops->give_back(from, source->blocks[i]);
        CU_ASSERT_EQUAL(memcmp(r->blocks[i], source->blocks[i], l->block_bytes),
                        0);
        if (by_page)
            memset(r->blocks[i], 0xff, l->block_bytes);
        n_spoilt += by_page;
    }
    r->done = n * l->block_tokens;
    return n_spoilt;
}

/* No more than a part is ever lent, and nothing that is not there. */
static void check_lending(struct engine *a, const struct rig_request *source)
{
    const struct shared_card *from = engine_card(a);
    uint32_t most = cuda_lent_max((struct cuda_engine *)a), n = 0;
    uint64_t at;
    char other;

    CU_ASSERT_EQUAL(from->ops->lend(from, &other, &at), -ENOENT);
    CU_ASSERT_FATAL(source->n_prompt / 16 > most);
    while (n < most)
        CU_ASSERT_EQUAL(from->ops->lend(from, source->blocks[n++], &at), 0);
    CU_ASSERT_EQUAL(from->ops->lend(from, source->blocks[n], &at), -ENOBUFS);
    while (n > 0)
        from->ops->give_back(from, source->blocks[--n]);
}

static void test_shared(void)
{
    uint64_t state = rig_seed("shared");
    struct engine *a = new_engine("cuda", 16, 256, 48);
    struct engine *b = new_engine("cuda", 16, 256, 48);
    const struct engine_kv_layout *l = engine_kv_layout(a);
    const struct shared_card *from = engine_card(a), *by = engine_card(b);
    struct rig_request source, r;
    uint32_t prompt[80];
    void *blocks[8];

    for (uint32_t i = 0; i < 80; i++)
        prompt[i] = rig_random(&state, 256);
    CU_ASSERT_FATAL(from->has_handle);
    CU_ASSERT_PTR_NULL(
        by->ops->open(by, from->handle, from->bytes + (1 << 20)));
    char *memory = by->ops->open(by, from->handle, from->bytes);
#ifndef EMULATED
    if (!memory) {
        printf("[skipped: a process cannot open its own pages] ");
        engine_free(a);
        engine_free(b);
        return;
    }
#endif
    CU_ASSERT_PTR_NOT_NULL_FATAL(memory);
    char *slab = aligned_alloc(4096, 8 * l->block_bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(slab);
    CU_ASSERT_EQUAL(engine_kv_adopt(b, slab, 8 * l->block_bytes), 0);
    rig_init(&source, a, prompt, 80, ANSWERS);
    rig_init(&r, b, prompt, 80, ANSWERS);
    CU_ASSERT_EQUAL(rig_run(a, &source, 256, ANSWERS), 0);
    for (uint32_t i = 0; i < 6; i++) {
        blocks[i] = r.blocks[i];
        r.blocks[i] = slab + i * l->block_bytes;
    }
    uint32_t n = 0;
    for (uint32_t tries = 0; n == 0 && tries < 40; tries++) {
        for (uint32_t i = 0; i < 6; i++)
            engine_kv_forget(b, r.blocks[i]);
        n = take_blocks(a, b, memory, &r, &source, &state);
    }
    printf("[%u of 4 by way of the page] ", n);
    CU_ASSERT(n > 0);
    CU_ASSERT_EQUAL(rig_run(b, &r, 256, ANSWERS), 0);
    CU_ASSERT_EQUAL(memcmp(r.tokens, source.tokens, r.n_tokens * 4), 0);
    check_lending(a, &source);
    page_cache_check(((struct cuda_engine *)a)->pages);
    page_cache_check(((struct cuda_engine *)b)->pages);
    memcpy(r.blocks, blocks, 6 * sizeof(blocks[0]));
    by->ops->shut(by, memory);
    engine_kv_disown(b, slab);
    free(slab);
    fini(a, &source);
    rig_fini(&r);
    engine_free(a);
    engine_free(b);
}

static void test_layer_done_and_abort(void)
{
    struct engine *e = new_engine("cuda", 16, 512, 40);
    struct rig_request r[2];
    struct engine_segment s[2];
    uint32_t prompt[40] = {0};
    atomic_bool stop = false;

    for (int i = 0; i < 2; i++) {
        rig_init(&r[i], e, prompt, 40, 1);
        s[i] = rig_segment(&r[i], 30 + (uint32_t)i);
    }
    struct done_log log = {
        .s = s, .layout = engine_kv_layout(e), .abort_at_layer_1 = &stop};
    CU_ASSERT_EQUAL(engine_step(e, s, 2, &note_ops, &log, &stop), -ECANCELED);
    CU_ASSERT_EQUAL(log.calls, 4);
    CU_ASSERT_EQUAL(engine_step(e, s, 2, &note_ops, &log, &stop), -ECANCELED);
    CU_ASSERT_EQUAL(log.calls, 4);
    log = (struct done_log){.s = s, .layout = engine_kv_layout(e)};
    CU_ASSERT_EQUAL(engine_step(e, s, 2, &note_ops, &log, NULL), 0);
    CU_ASSERT_EQUAL(log.calls, 8);
    for (int i = 0; i < 2; i++)
        fini(e, &r[i]);
    engine_free(e);
}

/* --- against engine "cpu" ---------------------------------------------------
 */

/* How far a KV row is from the same row of engine "cpu". */
static double row_difference(const struct rig_request *cuda,
                             const struct rig_request *cpu, uint32_t token,
                             uint32_t layer, enum engine_which which)
{
    uint32_t bt = cuda->layout->block_tokens;
    const uint16_t *a = engine_kv_row(cuda->layout, cuda->blocks[token / bt],
                                      layer, which, token % bt);
    const float *b = engine_kv_row(cpu->layout, cpu->blocks[token / bt], layer,
                                   which, token % bt);
    uint32_t n = cuda->layout->kv_row_bytes / 2;
    double squares = 0;
    double apart = 0;

    for (uint32_t i = 0; i < n; i++) {
        double d = (double)ref_float(a[i]) - (double)b[i];

        apart += d * d;
        squares += (double)b[i] * (double)b[i];
    }
    return sqrt(apart / squares);
}

static void test_close_to_cpu(void)
{
    uint64_t state = rig_seed("cpu");
    uint32_t rounds = cases_of(ROUNDS);
    struct engine *a = new_engine("cuda", 32, 256, 40);
    struct engine *b = new_engine("cpu", 32, 256, 0);
    uint32_t layers = engine_kv_layout(a)->layers;
    double squares[8] = {0};
    double worst = 0;
    uint64_t rows = 0;
    uint32_t same = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        struct rig_request cuda;
        struct rig_request cpu;
        uint32_t prompt[MOST_PROMPT];
        uint32_t n = random_prompt(&state, prompt);

        rig_init(&cuda, a, prompt, n, 1);
        rig_init(&cpu, b, prompt, n, 1);
        CU_ASSERT_EQUAL(rig_run(a, &cuda, 256, 1), 0);
        CU_ASSERT_EQUAL(rig_run(b, &cpu, 256, 1), 0);
        same += cuda.tokens[n] == cpu.tokens[n];
        for (uint32_t t = 0; t < n; t++)
            for (uint32_t l = 0; l < layers; l++)
                for (int w = 0; w < 2; w++) {
                    double d =
                        row_difference(&cuda, &cpu, t, l, (enum engine_which)w);

                    worst = d > worst || d != d ? d : worst;
                    squares[l] += d * d;
                }
        rows += 2 * (uint64_t)n;
        fini(a, &cuda);
        rig_fini(&cpu);
    }
    printf("[largest difference %.3f, %u of %u first answers equal] ", worst,
           same, rounds);
    CU_ASSERT(worst < CPU_WORST);
    for (uint32_t l = 0; l < layers; l++)
        CU_ASSERT(sqrt(squares[l] / (double)rows) < CPU_TOLERANCE(l));
    engine_free(a);
    engine_free(b);
}

/* --- what goes wrong ---------------------------------------------------------
 */

static void expect_refused(const struct engine_config *config, const char *what)
{
    char err[400] = "";

    CU_ASSERT_PTR_NULL(engine_new(config, err, sizeof(err)));
    if (!strstr(err, what))
        fprintf(stderr, "\n'%s' without '%s'\n", err, what);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, what));
}

static void test_refused(void)
{
    struct model_shape shape = *model_find("tiny");
    struct engine_config c = {.kind = "cuda", .shape = &shape};

    shape.head_dim = 48;
    expect_refused(&c, "head_dim must be 32 or 128");
    shape = *model_find("tiny");
    shape.heads = 6;
    expect_refused(&c, "heads / kv_heads must be 1, 2, 4, 8 or 16");
    shape = *model_find("tiny");
    shape.d_model = 136;
    expect_refused(&c, "multiples of 32");
    shape = *model_find("llama3-70b");
    shape.ffn *= 8;
    expect_refused(&c, "GiB free of");
}

#ifdef EMULATED
static void test_memory(void)
{
    struct engine_config c = {.kind = "cuda", .shape = model_find("tiny")};

    emulate_set_memory((size_t)260 << 20);
    expect_refused(&c, "emulated card has 0.25 GiB free of 0.25: take");
    emulate_set_memory(0);
    expect_refused(&c, "cuda: no card");
    emulate_set_memory((size_t)1 << 30);
}

/* The card disappears at every possible moment of a step: the step says so, all
 * later ones too, and the engine can be freed. */
static void test_lost(void)
{
    uint32_t prompt[40] = {0};

    for (long after = 1; after < 400; after += 37) {
        struct engine *e = new_engine("cuda", 16, 64, 20);
        struct rig_request r;
        uint64_t ticket;

        rig_init(&r, e, prompt, 40, 3);
        emulate_lose_card(after);
        int rc = rig_run(e, &r, 20, 3);
        if (rc != 0) {
            CU_ASSERT_EQUAL(rc, -ENODEV);
            CU_ASSERT_PTR_NOT_NULL(strstr(engine_error(e), "emulated card: "));
            CU_ASSERT_EQUAL(rig_run(e, &r, 20, 3), -ENODEV);
            CU_ASSERT_EQUAL(engine_kv_upload(e, r.blocks, 1, 0, 1, &ticket),
                            -EIO);
        }
        fini(e, &r);
        engine_free(e);
        emulate_lose_card(-1);
    }
}

/* Without cuBLASLt our own products do, and all of the above holds. */
static void test_own_products(void)
{
    emulate_have_cublaslt(false);
    struct engine *e = new_engine("cuda", 16, 16, 20);
    CU_ASSERT_PTR_NOT_NULL(strstr(engine_device(e), "own kernels"));
    engine_free(e);
    test_close_to_cpu();
    test_modes();
    emulate_have_cublaslt(true);
}
#endif

static const struct suite_test tests[] = {
    {"close to engine cpu", test_close_to_cpu},
    {"random steps, batches, evictions", test_mixed},
    {"compute, load, both, layerwise", test_modes},
    {"pages of another process", test_shared},
    {"layer_done and abort", test_layer_done_and_abort},
    {"shapes that are refused", test_refused},
#ifdef EMULATED
    {"too little memory, no card", test_memory},
    {"a card that disappears", test_lost},
    {"own matrix products", test_own_products},
#endif
};

int main(void)
{
    char why[256];

    if (cuda_card_present(why, sizeof(why)) < 0) {
        printf("skipped: %s\n", why);
        return EXIT_SKIPPED;
    }
    return SUITE_RUN("cuda_engine", tests);
}
