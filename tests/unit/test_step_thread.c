/* The compute thread in virtual time: a step's layers are calls of the loop, at
 * the times of the cost model; answers are those of engine_step(). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/loop/virtual.h"
#include "predictor/cost_model.h"
#include "tests/unit/engine_rig.h"
#include "tests/unit/suite.h"
#include "traces/random.h"
#include "workers/step/thread.h"

#define PROMPT 200u
#define ANSWERS 6u
#define LAYERS 4u

/* 100 tokens take 0.8 ms. */
static const struct cost_model cost = {
    .engine = "test",
    .prefill = {301.5, 3.1, 0.011, 0.023},
    .decode = {170.2, 11.7, 0.31},
};

struct world {
    struct random_state random;
    struct virtual_time *time;
    struct loop *loop;
    struct engine *engine;
    struct batch_thread *thread;
    struct rig_request request;
    unsigned n_done, n_progress;
    int rc;
    int64_t step_us;
    char text[8192];
};

static void add_line(struct world *w, const char *what)
{
    size_t n = strlen(w->text);

    snprintf(w->text + n, sizeof(w->text) - n, "%lld %s %u\n",
             (long long)virtual_time_us(w->time), what,
             batch_thread_layers_done(w->thread, 0));
}

static void on_done(void *arg, int rc, int64_t step_us)
{
    struct world *w = arg;

    CU_ASSERT_FALSE(batch_thread_busy(w->thread));
    w->n_done++;
    w->rc = rc;
    w->step_us = step_us;
    add_line(w, "done");
}

static void on_progress(void *arg)
{
    struct world *w = arg;

    CU_ASSERT_TRUE(batch_thread_busy(w->thread));
    w->n_progress++;
    add_line(w, "progress");
}

static const struct batch_thread_ops ops = {on_done, on_progress};

static uint32_t drawn(void *arg)
{
    return (uint32_t)random_u64(arg);
}

static struct engine *new_engine(const char *kind)
{
    const struct engine_config config = {.kind = kind,
                                         .shape = model_find("tiny"),
                                         .seed = 5,
                                         .block_tokens = 32,
                                         .cost = &cost};
    char err[200];
    struct engine *e = engine_new(&config, err, sizeof(err));

    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    return e;
}

static void world_init(struct world *w, uint64_t seed)
{
    uint32_t prompt[PROMPT];

    *w = (struct world){0};
    random_init(&w->random, seed);
    w->time = virtual_time_new(1000, drawn, &w->random);
    w->loop = w->time ? virtual_loop_new(w->time) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(w->loop);
    w->engine = new_engine("timed");
    CU_ASSERT_EQUAL_FATAL(engine_kv_layout(w->engine)->layers, LAYERS);
    w->thread = batch_thread_new(w->loop, w->engine, 2, &ops, w);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w->thread);
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = (i * 7 + 3) % 256;
    rig_init(&w->request, w->engine, prompt, PROMPT, ANSWERS);
}

static void world_fini(struct world *w)
{
    rig_fini(&w->request);
    batch_thread_free(w->thread);
    CU_ASSERT_FALSE(virtual_time_step(w->time, INT64_MAX - 1));
    engine_free(w->engine);
    loop_free(w->loop);
    virtual_time_free(w->time);
}

/* Lets time pass until the step is over. */
static void run_step(struct world *w)
{
    while (batch_thread_busy(w->thread))
        CU_ASSERT_TRUE_FATAL(virtual_time_step(w->time, INT64_MAX - 1));
}

/* Prefills in chunks that the seed says, then decodes. */
static void tell(struct world *w, uint64_t seed)
{
    struct rig_request *r = &w->request;
    int64_t begin_us, want_us = cost_model_prefill_us(&cost, PROMPT, 0, NULL);

    world_init(w, seed);
    begin_us = virtual_time_us(w->time);
    for (uint32_t n; r->n_tokens < PROMPT + ANSWERS;) {
        uint32_t left = r->n_tokens - r->done;

        n = 1 + random_below(&w->random, 90);
        struct engine_segment s = rig_segment(r, left < n ? left : n);
        bool decode = s.decode;
        batch_thread_submit(w->thread, &s, 1, true);
        CU_ASSERT_TRUE(batch_thread_busy(w->thread));
        run_step(w);
        CU_ASSERT_EQUAL(w->rc, 0);
        rig_take(r, &s);
        if (decode)
            CU_ASSERT_EQUAL(w->step_us,
                            cost_model_decode_step_us(&cost, 1, r->done, NULL));
        if (r->n_tokens == PROMPT + 1 && !decode)
            /* Each chunk's time is rounded. */
            CU_ASSERT(llabs(virtual_time_us(w->time) - begin_us - want_us) <=
                      (int64_t)w->n_done);
    }
    CU_ASSERT_EQUAL(w->n_progress, w->n_done * (LAYERS - 1));
}

static void test_seeds(void)
{
    static struct world one, again, other;
    struct rig_request plain;

    tell(&one, 7);
    tell(&again, 7);
    tell(&other, 8);
    CU_ASSERT_STRING_EQUAL(one.text, again.text);
    CU_ASSERT_STRING_NOT_EQUAL(one.text, other.text);
    rig_init(&plain, one.engine, one.request.tokens, PROMPT, ANSWERS);
    CU_ASSERT_EQUAL(rig_run(one.engine, &plain, 512, ANSWERS), 0);
    CU_ASSERT_EQUAL(memcmp(plain.tokens, one.request.tokens,
                           (PROMPT + ANSWERS) * sizeof(uint32_t)),
                    0);
    CU_ASSERT_EQUAL(rig_kv_differs(&plain, &one.request, plain.done), 0);
    CU_ASSERT_EQUAL(rig_kv_differs(&plain, &other.request, plain.done), 0);
    rig_fini(&plain);
    world_fini(&one);
    world_fini(&again);
    world_fini(&other);
}

/* A step waits for the layers of its gate, and for no more than 250 ms. */
static void test_gate(void)
{
    struct engine_segment s;
    struct layer_gate gate;
    struct world w;

    world_init(&w, 3);
    layer_gate_init(&gate);
    for (int how = 0; how < 3; how++) {
        int64_t from_us = virtual_time_us(w.time), took_us = 0;

        layer_gate_reset(&gate);
        layer_gate_open(&gate, 1);
        s = rig_segment(&w.request, PROMPT);
        batch_thread_gate(w.thread, 0, &gate);
        batch_thread_submit(w.thread, &s, 1, false);
        while (virtual_time_step(w.time, from_us + 20000))
            ;
        CU_ASSERT_TRUE(batch_thread_busy(w.thread));
        CU_ASSERT_EQUAL(batch_thread_layers_done(w.thread, 0), 1);
        if (how == 0)
            layer_gate_open(&gate, LAYERS);
        else if (how == 1)
            layer_gate_fail(&gate);
        run_step(&w);
        took_us = virtual_time_us(w.time) - from_us;
        CU_ASSERT_EQUAL(w.rc, how == 0 ? 0 : -EIO);
        CU_ASSERT_EQUAL(w.step_us, took_us);
        if (how == 0)
            CU_ASSERT(took_us >= 20000 && took_us < 24000);
        if (how == 2)
            CU_ASSERT(took_us >= 250000 && took_us < 255000);
    }
    CU_ASSERT_EQUAL(w.n_progress, 0);
    layer_gate_fini(&gate);
    world_fini(&w);
}

/* Stages of a pipeline answer as a whole step does. */
static void test_stages(void)
{
    static char between[16 * PROMPT];
    struct engine_segment whole, parts[2];
    struct world w, plain;

    world_init(&plain, 1);
    whole = rig_segment(&plain.request, PROMPT);
    CU_ASSERT_EQUAL(engine_step(plain.engine, &whole, 1, NULL, NULL, NULL), 0);
    world_init(&w, 1);
    CU_ASSERT_EQUAL(engine_kv_layout(w.engine)->activation_bytes, 16);
    parts[0] = parts[1] = rig_segment(&w.request, PROMPT);
    parts[0].want_token = false;
    parts[1].tokens = NULL;
    const struct engine_stage stages[] = {
        {.to_layer = 1, .out = between},
        {.from_layer = 1, .to_layer = LAYERS, .in = between}};
    for (int i = 0; i < 2; i++) {
        batch_thread_submit_stage(w.thread, &parts[i], &stages[i]);
        run_step(&w);
        CU_ASSERT_EQUAL(w.rc, 0);
        CU_ASSERT_EQUAL(w.step_us,
                        cost_model_prefill_us(&cost, PROMPT, 0, NULL) *
                            (i ? LAYERS - 1 : 1) / LAYERS);
    }
    CU_ASSERT_EQUAL(parts[1].token_out, whole.token_out);
    CU_ASSERT_EQUAL(rig_kv_differs(&w.request, &plain.request, PROMPT), 0);
    world_fini(&w);
    world_fini(&plain);
}

/* A step that the engine refuses; one under way when the thread is freed; an
 * engine that does not simulate. */
static void test_ends(void)
{
    struct engine_segment s;
    struct world w;

    world_init(&w, 1);
    s = rig_segment(&w.request, PROMPT);
    s.cached_tokens = 1;
    batch_thread_submit(w.thread, &s, 1, true);
    CU_ASSERT_EQUAL(w.n_done, 0); /* from the loop alone */
    run_step(&w);
    CU_ASSERT_EQUAL(w.rc, -EINVAL);
    s.cached_tokens = 0;
    batch_thread_submit(w.thread, &s, 1, true);
    CU_ASSERT_TRUE(virtual_time_step(w.time, INT64_MAX - 1));
    struct engine *cpu = new_engine("cpu");
    CU_ASSERT_PTR_NULL(batch_thread_new(w.loop, cpu, 1, &ops, &w));
    engine_free(cpu);
    world_fini(&w);
    CU_ASSERT_EQUAL(w.n_done, 1);
}

static const struct suite_test tests[] = {
    {"seeds", test_seeds},
    {"gates", test_gate},
    {"stages", test_stages},
    {"ends", test_ends},
};
SUITE("step_thread", tests)
