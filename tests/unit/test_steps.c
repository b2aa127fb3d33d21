/* First tokens of one step, and what an engine's queue takes that computes all
 * prompts that wait in one. */
#include <stdio.h>

#include "conductor/core/observation/forecast.h"
#include "conductor/core/pool/pool.h"
#include "predictor/learned.h"
#include "predictor/steps.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

static struct steps_token token(int64_t tokens, int64_t us, int64_t now_us,
                                int64_t sent_us)
{
    return (struct steps_token){.tokens = tokens,
                                .us = us,
                                .now_us = now_us,
                                .sent_us = sent_us,
                                .predicted_us = 10000 + 10 * tokens,
                                .shared_us = 10000};
}

static struct steps_step came(struct steps *s, struct steps_token t)
{
    struct steps_step over;

    steps_first_token(s, &t, 10000, &over);
    return over;
}

static struct steps_step end(struct steps *s)
{
    struct steps_step over;

    steps_end(s, &over);
    return over;
}

/* One alone, then three in a step, the second of them out of turn. */
static void test_groups(void)
{
    struct steps s = {0};
    struct steps_step over;

    CU_ASSERT_EQUAL(came(&s, token(100, 11000, 11000, 0)).prompts, 0);
    CU_ASSERT_EQUAL(came(&s, token(300, -1, 26900, 1000)).prompts, 0);
    over = came(&s, token(200, 16000, 27000, 2000));
    CU_ASSERT_EQUAL(over.prompts, 1);
    CU_ASSERT_EQUAL(over.us, 11000);
    CU_ASSERT_EQUAL(over.tokens, 100);
    CU_ASSERT_EQUAL(over.predicted_us, 11000);
    CU_ASSERT_FALSE(over.left_one); /* it came after the step began */
    CU_ASSERT_EQUAL(came(&s, token(100, 40, 27040, 3000)).prompts, 0);
    over = end(&s);
    CU_ASSERT_EQUAL(over.prompts, 3);
    CU_ASSERT_EQUAL(over.us, 16040);
    CU_ASSERT_EQUAL(over.tokens, 600);
    CU_ASSERT_EQUAL(over.predicted_us, 16000);
    CU_ASSERT_EQUAL(end(&s).prompts, 0);
}

/* A step whose begin nobody saw, behind an answer that is not streamed: nothing
 * is learned of the prompts that come out of it. */
static void test_begin_unseen(void)
{
    struct steps s = {0};

    CU_ASSERT_EQUAL(came(&s, token(100, 0, 50000, 0)).prompts, 0);
    CU_ASSERT_EQUAL(came(&s, token(100, 30, 50030, 0)).prompts, 0);
    CU_ASSERT_EQUAL(came(&s, token(100, 40, 50070, 0)).prompts, 0);
    CU_ASSERT_EQUAL(came(&s, token(100, 11000, 61070, 50050)).us, 0);
    CU_ASSERT_EQUAL(end(&s).us, 11000);
}

/* Prompts that are computed one by one although they wait together. */
static void test_apart(void)
{
    struct steps s = {0};
    struct steps_step over;

    (void)came(&s, token(100, 11000, 21000, 10000));
    over = came(&s, token(100, 11000, 32000, 2000));
    CU_ASSERT_EQUAL(over.prompts, 1);
    CU_ASSERT_TRUE(over.left_one);
    /* Just before the step began: it may have come too late for it. */
    over = came(&s, token(100, 11000, 43000, 20900));
    CU_ASSERT_EQUAL(over.prompts, 1);
    CU_ASSERT_FALSE(over.left_one);
}

/* An engine; its steps take 8 ms and 30 us a token. */
#define STEP_US 8000
#define TOKEN_US 30

enum { PROMPTS = 10000 };

struct engine {
    bool batches; /* false: a step for each prompt */
    struct pool *pool;
    uint32_t id;
    struct learned learned;
    struct cost_model cost;
    struct steps steps;
    struct forecasts forecasts;
    struct forecast told[PROMPTS];
    int64_t arrives_us[PROMPTS], tokens[PROMPTS];
    size_t n_arrived, n_done;
    int64_t turn_us;
};

static void learn(struct engine *e, const struct steps_step *over)
{
    if (over->prompts == 0)
        return;
    learned_prefill(&e->learned, over->tokens, over->us);
    learned_waited(&e->learned, over->prompts - 1, over->left_one);
    learned_write(&e->learned, &e->cost);
    CU_ASSERT_EQUAL(
        pool_step_done(e->pool, e->id, over->predicted_us, over->us), 0);
}

static void arrive(struct engine *e)
{
    size_t i = e->n_arrived++;
    int64_t now_us = e->arrives_us[i];
    const struct pool_instance *view = pool_get(e->pool, e->id);
    int64_t own_us = cost_model_prefill_us(&e->cost, e->tokens[i], 0, NULL);
    struct pool_prefill_request request = {.request_id = i + 1,
                                           .predicted_us = own_us,
                                           .shared_us =
                                               (int64_t)e->cost.shared_us,
                                           .ready_at_us = now_us,
                                           .arrived_us = now_us,
                                           .uncached_tokens = e->tokens[i]};

    own_us = correction_apply_us(&view->correction, own_us);
    e->told[i] = forecast_make(
        &e->forecasts, 0,
        pool_queue_place(e->pool, view, now_us, own_us, 0, now_us).wait_us +
            own_us);
    CU_ASSERT_EQUAL(pool_prefill_accept(e->pool, e->id, &request), 0);
    if (i == e->n_done) {
        e->turn_us = now_us;
        CU_ASSERT_EQUAL(pool_prefill_started(e->pool, e->id, i + 1, now_us), 0);
    }
}

static void first_token(struct engine *e, int64_t now_us)
{
    size_t i = e->n_done++;
    struct steps_step over;
    struct steps_token t = {
        .tokens = e->tokens[i],
        .us = now_us - e->turn_us,
        .now_us = now_us,
        .sent_us = e->arrives_us[i],
        .predicted_us = cost_model_prefill_us(&e->cost, e->tokens[i], 0, NULL),
        .shared_us = (int64_t)e->cost.shared_us};

    forecast_came(&e->forecasts, &e->told[i], now_us - e->arrives_us[i]);
    steps_first_token(&e->steps, &t, e->cost.prefill[0], &over);
    CU_ASSERT_EQUAL(pool_prefill_done(e->pool, e->id, i + 1, -1, now_us), 0);
    learn(e, &over);
    e->turn_us = now_us;
    if (e->n_done < e->n_arrived)
        CU_ASSERT_EQUAL(
            pool_prefill_started(e->pool, e->id, e->n_done + 1, now_us), 0);
    if (e->n_done == e->n_arrived) {
        steps_end(&e->steps, &over);
        learn(e, &over);
    }
}

/* Serves all that arrives. Returns predicted over actual time, in the mean, of
 * the second half: of those that found work (or of those that found none). */
static double serve(struct engine *e, bool busy)
{
    double predicted = 0, actual = 0;

    while (e->n_done < PROMPTS) {
        int64_t now_us = e->arrives_us[e->n_done];
        size_t end;

        while (e->n_done < PROMPTS && (e->n_arrived > e->n_done ||
                                       e->arrives_us[e->n_done] <= now_us)) {
            int64_t step_us = STEP_US;

            while (e->n_arrived < PROMPTS &&
                   e->arrives_us[e->n_arrived] <= now_us)
                arrive(e);
            end = e->batches ? e->n_arrived : e->n_done + 1;
            for (size_t i = e->n_done; i < end; i++)
                step_us += TOKEN_US * e->tokens[i];
            while (e->n_arrived < PROMPTS &&
                   e->arrives_us[e->n_arrived] < now_us + step_us)
                arrive(e);
            for (size_t i = e->n_done; i < end; i++)
                if (i > PROMPTS / 2 &&
                    (e->arrives_us[i] < now_us || i > e->n_done) == busy) {
                    predicted += (double)e->told[i].ttft_us;
                    actual += (double)(now_us + step_us - e->arrives_us[i]);
                }
            now_us += step_us;
            for (int64_t us = 0; e->n_done < end; us += 30)
                first_token(e, now_us + us);
        }
    }
    return predicted / actual;
}

/* Bursts of up to `most` prompts, which load the engine so much. */
static struct engine *engine_new(bool batches, uint32_t most, double load)
{
    static struct engine e;
    struct pool_config config = pool_config_default;
    struct random_state random;
    int64_t now_us = 0;

    e = (struct engine){.batches = batches};
    config.max_waiting = 2000;
    config.max_instances = 1;
    config.shared_steps = true;
    e.pool = pool_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(e.pool);
    e.id = ADDED(e.pool, .role = ROLE_PREFILL, .name = "e",
                 .kv_capacity_tokens = 1 << 30);
    learned_init(&e.learned);
    learned_write(&e.learned, &e.cost);
    random_init(&random, 156);
    for (size_t i = 0; i < PROMPTS;) {
        uint32_t n = 1 + random_below(&random, most);
        int64_t work_us = 0;

        for (; n > 0 && i < PROMPTS; n--, i++) {
            e.tokens[i] = 50 + random_below(&random, 400);
            e.arrives_us[i] = now_us + random_below(&random, 500);
            if (i > 0 && e.arrives_us[i] <= e.arrives_us[i - 1])
                e.arrives_us[i] = e.arrives_us[i - 1] + 1;
            work_us += STEP_US + TOKEN_US * e.tokens[i];
        }
        now_us += (int64_t)((double)work_us / load * 2.0 *
                            random_below(&random, 1000) / 1e3) +
                  1;
        if (now_us <= e.arrives_us[i - 1])
            now_us = e.arrives_us[i - 1] + 1;
    }
    return &e;
}

/* What a prompt would wait behind k of 100 tokens, all of which came since the
 * engine began another one of 100. */
static int64_t wait_us(struct engine *e, uint32_t k)
{
    const struct pool_instance *view = pool_get(e->pool, e->id);
    int64_t own_us = cost_model_prefill_us(&e->cost, 100, 0, NULL);
    int64_t wait_us, now_us = e->turn_us;

    for (uint32_t i = 0; i <= k; i++) {
        ACCEPTS(e->pool, e->id, .request_id = PROMPTS + 1 + i,
                .predicted_us = own_us, .shared_us = (int64_t)e->cost.shared_us,
                .uncached_tokens = 100);
        if (i == 0)
            CU_ASSERT_EQUAL(
                pool_prefill_started(e->pool, e->id, PROMPTS + 1, now_us), 0);
    }
    wait_us =
        pool_queue_place(e->pool, view, now_us, own_us, 0, now_us).wait_us;
    for (uint32_t i = 0; i <= k; i++)
        CU_ASSERT_EQUAL(
            pool_prefill_cancel(e->pool, e->id, PROMPTS + 1 + i, now_us), 0);
    return wait_us;
}

/* A queue of k short prompts takes the constant of the step under way, and with
 * the next one that of its step, not k of them: where the engine computes those
 * that wait together. */
static void test_bursts(void)
{
    static const double loads[] = {0.3, 0.6};
    static const uint32_t most[] = {1, 3, 12};

    for (int l = 0; l < 2; l++)
        for (int m = 0; m < 3; m++)
            for (int batches = 0; batches < 2; batches++) {
                struct engine *e = engine_new(batches, most[m], loads[l]);
                double predicted = serve(e, true);
                int64_t us = STEP_US + 21 * 100 * TOKEN_US;

                CU_ASSERT_DOUBLE_EQUAL(predicted, 1.0, 0.1);
                if (!batches)
                    us += 20 * STEP_US;
                CU_ASSERT_DOUBLE_EQUAL((double)wait_us(e, 20) / (double)us, 1.0,
                                       0.03);
                pool_free(e->pool);
            }
}

static const struct suite_test tests[] = {
    {"groups", test_groups},
    {"begin unseen", test_begin_unseen},
    {"apart", test_apart},
    {"bursts", test_bursts},
};
SUITE("steps", tests)
