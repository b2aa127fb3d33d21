/* Estimates: the papers' unit values, transfers, decode. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/plan/estimate.h"
#include "tests/unit/busy.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"

/* The Mooncake paper's flops(n) = l (a n^2 d + b n d^2) on 8 x 312 TFLOP/s at
 * half of the peak, LLaMA3-70B. prefill(n, p) = (flops(n) - flops(p)) / G is
 * exactly c1 u + c2 u^2 + c3 u p, since n^2 - p^2 = u^2 + 2 u p. */
static struct cost_model paper_model(void)
{
    const double l = 80, d = 8192, a = 4, b = 22;
    const double flops_per_us = 8 * 312e12 * 0.5 / 1e6;
    struct cost_model m;

    memset(&m, 0, sizeof(m));
    m.prefill[1] = l * b * d * d / flops_per_us;
    m.prefill[2] = l * a * d / flops_per_us;
    m.prefill[3] = 2 * l * a * d / flops_per_us;
    m.decode[0] = 1000;
    m.decode[1] = 100;
    m.decode[2] = 0.5;
    m.range = (struct cost_model_range){1, 131072, 131072, 64, 1000000};
    return m;
}

static struct decode_end ends[64]; /* scratch */

static struct estimate_model model_of(const struct cost_model *cost)
{
    return (struct estimate_model){
        .cost = cost, .block_tokens = 512, .kv_bytes_per_token = 327680};
}

/* One instance, as a model of a paper has it. */
struct alone {
    struct cost_model cost;
    struct estimate_model model;
    struct pool *pool;
    uint32_t id;
    const struct pool_instance *i;
};

static void alone_init(struct alone *w)
{
    struct pool_config config = pool_config_default;

    w->cost = paper_model();
    w->model = model_of(&w->cost);
    config.correction_tau_us = 69521; /* 20 ms count for a quarter */
    config.max_instances = 2;
    config.max_decodes = 4;
    config.max_waiting = 3;
    w->pool = pool_new(&config);
    w->id = ADDED(w->pool, .name = "w", .role = ROLE_BOTH,
                  .kv_capacity_tokens = 200000, .link_bytes_per_s = 100e9);
    w->i = pool_get(w->pool, w->id);
}

#define ALONE_TEST(test) \
    SUITE_TEST(test, struct alone, w, alone_init(w), pool_free(w->pool))

static void
prefill_again(const struct estimate_model *model, const struct pool *pool,
              const struct pool_instance *instance, int64_t n_tokens,
              uint32_t local_blocks, uint32_t used_blocks,
              const struct pool_instance *sender, int64_t now_us,
              struct estimate_memo *memo, struct prefill_estimate *out)
{
    estimate_prefill(
        model, pool, instance,
        &(struct estimate_prefill_request){.n_tokens = n_tokens,
                                           .local_blocks = local_blocks,
                                           .used_blocks = used_blocks,
                                           .sender = sender,
                                           .now_us = now_us},
        memo, out);
}

/* Of a request that nothing is known of yet. */
static void prefill(const struct estimate_model *model, const struct pool *pool,
                    const struct pool_instance *instance, int64_t n_tokens,
                    uint32_t local_blocks, uint32_t used_blocks,
                    const struct pool_instance *sender, int64_t now_us,
                    struct prefill_estimate *out)
{
    struct estimate_memo memo = {.predicted = false};

    prefill_again(model, pool, instance, n_tokens, local_blocks, used_blocks,
                  sender, now_us, &memo, out);
}

/* Of a fetch of so many blocks, to the sender itself for simplicity. */
static int64_t transfer_us(const struct estimate_model *model,
                           const struct pool *pool,
                           const struct pool_instance *sender,
                           uint32_t n_blocks, int64_t now_us)
{
    struct prefill_estimate e;

    prefill(model, pool, sender, (int64_t)n_blocks * model->block_tokens + 1, 0,
            n_blocks, sender, now_us, &e);
    return e.transfer_us;
}

static void test_usable_blocks(void)
{
    struct estimate_model model = {.block_tokens = 256};

    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 9, 0), 0);
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 9, 1), 0);
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 9, 256), 0);
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 9, 257), 1);
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 1, 1024), 1);
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 4, 1024), 3);
    model.simulated.whole_prompt_reuse = true;
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 9, 0), 0);
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 9, 1), 1);
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 9, 256), 1);
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 9, 257), 2);
    CU_ASSERT_EQUAL(estimate_usable_blocks(&model, 1, 257), 1);
}

/* What papers' models assume: nothing to compute takes no time, and a busy
 * link is as fast as an idle one. */
ALONE_TEST(test_paper_options)
{
    struct prefill_estimate e;

    w->model.simulated.whole_prompt_reuse = true;
    w->model.simulated.links_unshared = true;
    prefill(&w->model, w->pool, w->i, 700, 2, 2, NULL, 0, &e);
    CU_ASSERT_EQUAL(e.cached_tokens, 700);
    CU_ASSERT_EQUAL(e.prefill_us, 0);
    CU_ASSERT_EQUAL(e.ttft_us, 0);
    CU_ASSERT_EQUAL(busy_link(w->pool, w->id, 5000), 0);
    CU_ASSERT_EQUAL(transfer_us(&w->model, w->pool, w->i, 16, 2000), 26844);
}

/* What tiers can't hold may have to be computed again, at most. */
ALONE_TEST(test_over)
{
    struct estimate_memo memo = {.predicted = false};
    struct estimate_prefill_request ask = {
        .n_tokens = 8192, .local_blocks = 8, .used_blocks = 8};
    struct prefill_estimate e, over;

    estimate_prefill(&w->model, w->pool, pool_get(w->pool, w->id), &ask, &memo,
                     &e);
    ask.over_blocks = 8;
    estimate_prefill(&w->model, w->pool, pool_get(w->pool, w->id), &ask, &memo,
                     &over);
    CU_ASSERT_EQUAL(over.ttft_us, e.ttft_us);
    CU_ASSERT_EQUAL(over.most_us, e.most_us + 916260 / 2);
    /* More than a time can be: never. */
    w->cost.prefill[0] = (double)COST_MODEL_MAX_US;
    ask = (struct estimate_prefill_request){.n_tokens = 1,
                                            .over_blocks = UINT32_MAX};
    memo = (struct estimate_memo){.predicted = false};
    estimate_prefill(&w->model, w->pool, pool_get(w->pool, w->id), &ask, &memo,
                     &over);
    CU_ASSERT_EQUAL(over.again_us, ESTIMATE_NEVER_US);
    CU_ASSERT_EQUAL(over.most_us, ESTIMATE_NEVER_US);
}

/* The reference values, computed independently from the paper. */
ALONE_TEST(test_paper_values)
{
    struct prefill_estimate e;

    prefill(&w->model, w->pool, w->i, 8192, 0, 0, NULL, 0, &e);
    CU_ASSERT_EQUAL(e.prefill_us, 916260);
    prefill(&w->model, w->pool, w->i, 16384, 16, 16, NULL, 0, &e);
    CU_ASSERT_EQUAL(e.cached_tokens, 8192);
    CU_ASSERT_EQUAL(e.prefill_us, 1198186);
    prefill(&w->model, w->pool, w->i, 131072, 0, 0, NULL, 0, &e);
    CU_ASSERT_EQUAL(e.prefill_us, 48491282);
    CU_ASSERT_FALSE(e.extrapolated);
    CU_ASSERT_EQUAL(transfer_us(&w->model, w->pool, w->i, 16, 0), 26844);
}

ALONE_TEST(test_prefill)
{
    struct prefill_estimate e;
    uint32_t sender_id;

    sender_id = ADDED(w->pool, .role = ROLE_PREFILL, .kv_capacity_tokens = 10,
                      .link_bytes_per_s = 100e9);
    const struct pool_instance *sender = pool_get(w->pool, sender_id);

    /* Sends that are accepted already come first. */
    CU_ASSERT_EQUAL(busy_link(w->pool, sender_id, 5000), 0);
    CU_ASSERT_EQUAL(transfer_us(&w->model, w->pool, sender, 16, 2000), 29844);
    CU_ASSERT_EQUAL(transfer_us(&w->model, w->pool, sender, 16, 9000), 26844);
    CU_ASSERT_EQUAL(transfer_us(&w->model, w->pool, sender, 0, 2000), 0);

    /* Transfer and queue are added for the choice and overlap in time. */
    struct pool_prefill_request work = {.request_id = 1, .predicted_us = 20000};

    CU_ASSERT_EQUAL(pool_prefill_accept(w->pool, w->id, &work), 0);
    prefill(&w->model, w->pool, w->i, 16384, 0, 16, sender, 9000, &e);
    CU_ASSERT_EQUAL(e.instance, w->id);
    CU_ASSERT_EQUAL(e.fetch_from, sender_id);
    CU_ASSERT_EQUAL(e.local_blocks, 0);
    CU_ASSERT_EQUAL(e.used_blocks, 16);
    CU_ASSERT_EQUAL(e.transfer_us, 26844);
    CU_ASSERT_EQUAL(e.transfer_end_us, 35844);
    CU_ASSERT_EQUAL(e.queue_us, 20000);
    CU_ASSERT_EQUAL(e.score_us, 26844 + 20000 + 1198186);
    CU_ASSERT_EQUAL(e.ttft_us, 26844 + 1198186);

    /* The correction scales this request and what waits. */
    CU_ASSERT_EQUAL(pool_prefill_done(w->pool, w->id, 1, 40000, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_accept(w->pool, w->id, &work), 0);
    prefill(&w->model, w->pool, w->i, 8192, 0, 0, NULL, 9000, &e);
    CU_ASSERT_EQUAL(e.predicted_us, 916260);
    CU_ASSERT_EQUAL(e.prefill_us, 1145326);
    CU_ASSERT_EQUAL(e.queue_us, 25000);
    CU_ASSERT_FALSE(e.queue_full || e.too_long);

    /* What cannot be. */
    prefill(&w->model, w->pool, w->i, 200001, 0, 0, NULL, 9000, &e);
    CU_ASSERT(e.too_long && e.extrapolated);
    for (work.request_id = 2; work.request_id <= 3; work.request_id++)
        CU_ASSERT_EQUAL(pool_prefill_accept(w->pool, w->id, &work), 0);
    prefill(&w->model, w->pool, w->i, 8192, 0, 0, NULL, 9000, &e);
    CU_ASSERT(e.queue_full);
}

static void test_no_link(void)
{
    struct cost_model cost = paper_model();
    struct estimate_model model = model_of(&cost);
    struct pool *pool = pool_new(&pool_config_default);
    uint32_t id;

    id = ADDED(pool, .role = ROLE_PREFILL, .kv_capacity_tokens = 1000000);
    const struct pool_instance *dead = pool_get(pool, id);

    CU_ASSERT_EQUAL(transfer_us(&model, pool, dead, 0, 0), 0);
    CU_ASSERT_EQUAL(transfer_us(&model, pool, dead, 1, 0), ESTIMATE_NEVER_US);
    pool_free(pool);
}

ALONE_TEST(test_decode)
{
    struct decode_estimate e;

    estimate_decode(&w->model, w->i, 1000, 100, &e);
    CU_ASSERT_EQUAL(e.batch, 1);
    CU_ASSERT_EQUAL(e.kv_tokens, 1000);
    CU_ASSERT_EQUAL(e.tbt_us, 1000 + 100 + 500);
    CU_ASSERT_FALSE(e.no_room || e.too_long);
    /* What is on its way counts. */
    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 1, 150000, 1000), 0);
    estimate_decode(&w->model, w->i, 48000, 1002, &e);
    CU_ASSERT_EQUAL(e.tbt_us, 1000 + 200 + 99000);
    CU_ASSERT_EQUAL(e.room_tokens, 49001);
    CU_ASSERT_FALSE(e.no_room);
    estimate_decode(&w->model, w->i, 48000, 1003, &e);
    CU_ASSERT(e.no_room && !e.too_long);
    estimate_decode(&w->model, w->i, 200000, 2, &e);
    CU_ASSERT(e.no_room && e.too_long);
    /* So does the number of decodes. */
    for (uint64_t r = 2; r <= 4; r++)
        CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, r, 1, 1), 0);
    estimate_decode(&w->model, w->i, 1, 1, &e);
    CU_ASSERT(e.no_room);
}

/* Four blocks hold four short requests, however few tokens they are. */
ALONE_TEST(test_decode_blocks)
{
    struct prefill_estimate p;
    struct decode_estimate e;

    w->id = ADDED(w->pool, .role = ROLE_BOTH, .kv_capacity_tokens = 1024,
                  .block_tokens = 256);
    w->i = pool_get(w->pool, w->id);

    for (uint64_t r = 1; r <= 3; r++)
        CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, r, 2, 50), 0);
    estimate_decode(&w->model, w->i, 2, 50, &e);
    CU_ASSERT_FALSE(e.no_room);
    estimate_decode(&w->model, w->i, 206, 52, &e);
    CU_ASSERT(e.no_room && !e.too_long);
    CU_ASSERT_EQUAL(
        estimate_decode_fits_in_us(&w->model, w->i, 206, 52, 0, ends),
        50 * (1000 + 3 * 100 + 3));
    estimate_decode(&w->model, w->i, 1000, 25, &e);
    CU_ASSERT_FALSE(e.too_long);
    estimate_decode(&w->model, w->i, 1000, 26, &e);
    CU_ASSERT(e.too_long);
    prefill(&w->model, w->pool, w->i, 1024, 0, 0, NULL, 0, &p);
    CU_ASSERT_FALSE(p.too_long);
    prefill(&w->model, w->pool, w->i, 1025, 0, 0, NULL, 0, &p);
    CU_ASSERT(p.too_long);
}

/* A batch that is full has room when the first of it ends. */
ALONE_TEST(test_max_batch)
{
    struct decode_estimate e;

    w->id = ADDED(w->pool, .role = ROLE_DECODE, .kv_capacity_tokens = 10000,
                  .max_batch = 2);
    w->i = pool_get(w->pool, w->id);

    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 1, 100, 30), 0);
    estimate_decode(&w->model, w->i, 100, 10, &e);
    CU_ASSERT_FALSE(e.no_room);
    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 2, 100, 20), 0);
    estimate_decode(&w->model, w->i, 100, 10, &e);
    CU_ASSERT(e.no_room && !e.too_long);
    CU_ASSERT_EQUAL(
        estimate_decode_fits_in_us(&w->model, w->i, 100, 10, 0, ends),
        20 * (1000 + 2 * 100 + 100));
}

ALONE_TEST(test_decode_fits_in)
{
#define FITS_IN(n, out, slo) \
    estimate_decode_fits_in_us(&w->model, w->i, n, out, slo, ends)
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 0), 0);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 1600), 0);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 1599), ESTIMATE_NEVER_US);
    CU_ASSERT_EQUAL(FITS_IN(200000, 2, 0), ESTIMATE_NEVER_US);
    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 1, 100000, 500), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 2, 60000, 200), 0);
    CU_ASSERT_EQUAL(pool_decode_progress(w->pool, w->id, 2, 100), 0);
    /* A step takes 1000 + 2 * 100 + 160100 / 2 = 81250 us today. */
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 0), 0);
    CU_ASSERT_EQUAL(FITS_IN(50000, 10, 0), 100 * 81250);
    CU_ASSERT_EQUAL(FITS_IN(150000, 10, 0), 500 * 81250);
    /* With the other one there: 1000 + 300 + 161100 / 2 = 81850. */
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 81850), 0);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 81849), 100 * 81250);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 51700), 100 * 81250);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 51699), 500 * 81250);
    /* Decodes of others slow all down, and stay: 1000 + 5 * 100 + 160500 / 2 =
     * 81750 today, and 1000 + 500 + 101400 / 2 = 52200 with the first one. */
    CU_ASSERT_EQUAL(pool_set_others(w->pool, w->id, 3, 400), 0);
    CU_ASSERT_EQUAL(FITS_IN(50000, 10, 0), 100 * 81750);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 82350), 0);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 82349), 100 * 81750);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 52200), 100 * 81750);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 52199), 500 * 81750);
    CU_ASSERT_EQUAL(FITS_IN(1000, 10, 1600), 500 * 81750);
    CU_ASSERT_EQUAL(pool_set_others(w->pool, w->id, 0, 0), 0);
    /* Two that end together: both have to, for this one. */
    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 3, 30000, 100), 0);
    CU_ASSERT_EQUAL(FITS_IN(99000, 10, 0), 100 * (1300 + 190100 / 2));
}

static int64_t left_of(const struct pool_decode *d)
{
    int64_t left = d->max_output_tokens - d->produced_tokens;

    return left > 0 ? left : 0;
}

/* The slow, obvious way: takes out the decode that ends next, of equal ones the
 * first, until the request fits. */
static int64_t slow_fits_in_us(const struct cost_model *cost,
                               const struct pool_instance *i, int64_t n_tokens,
                               int64_t output_tokens, int64_t slo_tbt_us)
{
    int64_t room = pool_decode_room_tokens(i), others = i->other_decodes;
    int64_t kv = i->decode_kv_tokens + i->other_kv_tokens;
    int64_t step_us = cost_model_decode_step_us(
        cost, (int64_t)i->n_decodes + others, kv, NULL);
    int64_t in_us = 0;
    bool gone[64] = {false};

    for (size_t left = i->n_decodes; left > 0; left--) {
        size_t first = SIZE_MAX;

        if (room >= pool_kv_tokens(i, n_tokens, output_tokens) &&
            cost_model_decode_step_us(cost, (int64_t)left + others + 1,
                                      kv + n_tokens, NULL) <= slo_tbt_us)
            break;
        for (size_t d = 0; d < i->n_decodes; d++)
            if (!gone[d] &&
                (first == SIZE_MAX ||
                 left_of(&i->decodes[d]) < left_of(&i->decodes[first])))
                first = d;
        gone[first] = true;
        room += pool_kv_tokens(i, i->decodes[first].prompt_tokens,
                               i->decodes[first].max_output_tokens);
        kv -=
            i->decodes[first].prompt_tokens + i->decodes[first].produced_tokens;
        in_us = left_of(&i->decodes[first]) * step_us;
    }
    return in_us;
}

static void test_random_ends(void)
{
    struct cost_model cost = paper_model();
    struct estimate_model model = model_of(&cost);
    struct pool_config config = pool_config_default;
    int n_waits = 0;

    config.max_instances = 1;
    config.max_pending_blocks = 64;
    config.max_bookings = 8;
    srand(7);
    for (int round = 0; round < 2000; round++) {
        struct pool *pool = pool_new(&config);
        const struct pool_instance *i;
        int64_t n_tokens = 1 + rand() % 3000, slo_us = 3000 + rand() % 30000;
        uint32_t id;

        id = ADDED(pool, .role = ROLE_BOTH, .kv_capacity_tokens = 60000);
        i = pool_get(pool, id);
        for (uint64_t d = (uint64_t)(rand() % 64); d > 0; d--) {
            CU_ASSERT_EQUAL(
                pool_decode_accept(pool, id, d, rand() % 2000, rand() % 20), 0);
            CU_ASSERT_EQUAL(pool_decode_progress(pool, id, d, rand() % 20), 0);
        }
        CU_ASSERT_EQUAL(pool_set_others(pool, id, rand() % 10, rand() % 3000),
                        0);
        int64_t us = slow_fits_in_us(&cost, i, n_tokens, 10, slo_us);

        CU_ASSERT_EQUAL(
            estimate_decode_fits_in_us(&model, i, n_tokens, 10, slo_us, ends),
            us);
        n_waits += us > 0;
        pool_free(pool);
    }
    CU_ASSERT(n_waits > 200 && n_waits < 1800);
}

/* Decodes beside a prefill: a step of 102 tokens has 2 of theirs. */
ALONE_TEST(test_beside)
{
    struct prefill_estimate e;
    struct estimate_memo memo = {.predicted = false};

    w->cost = (struct cost_model){.prefill = {1000, 10},
                                  .decode = {400, 50, 0.1},
                                  .range = {1, 1, 1, 1, 1}};
    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 1, 400, 10), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 2, 600, 10), 0);
    w->model.step_tokens = 102;
    prefill_again(&w->model, w->pool, w->i, 300, 0, 0, NULL, 0, &memo, &e);
    CU_ASSERT_EQUAL(e.prefill_us, 4000); /* not where they decode elsewhere */
    CU_ASSERT_EQUAL(e.beside_us, 0);
    CU_ASSERT_EQUAL(e.ttft_us, 4000);
    w->model.coupled = true;
    prefill_again(&w->model, w->pool, w->i, 300, 0, 0, NULL, 0, &memo, &e);
    /* Each step is 2 x 50 + 1000 x 0.1 us longer: 3 full ones and a half. */
    CU_ASSERT_EQUAL(e.predicted_us, 4000);
    CU_ASSERT_EQUAL(e.beside_us, 700);
    CU_ASSERT_EQUAL(e.prefill_us, 4700);
    CU_ASSERT_EQUAL(e.queue_us, 0);
    CU_ASSERT_EQUAL(e.score_us, 4700);
    CU_ASSERT_EQUAL(e.ttft_us, 4700 + 300); /* half of the step under way */
    /* Those that others gave it are there, too. */
    CU_ASSERT_EQUAL(pool_set_others(w->pool, w->id, 50, 4000), 0);
    prefill_again(&w->model, w->pool, w->i, 300, 0, 0, NULL, 0, &memo, &e);
    CU_ASSERT_EQUAL(e.beside_us, 3100 / 2 + 300 * 3100 / 50);
    CU_ASSERT_EQUAL(pool_set_others(w->pool, w->id, 0, 0), 0);
    /* A step of any number of tokens: one for the prompt, at any time. */
    w->model.step_tokens = 0;
    prefill_again(&w->model, w->pool, w->i, 300, 0, 0, NULL, 0, &memo, &e);
    CU_ASSERT_EQUAL(e.beside_us, 100);
    /* Behind 2 ms of others' prefills the step is no matter. */
    ACCEPTS(w->pool, w->id, .request_id = 9, .predicted_us = 2000);
    prefill_again(&w->model, w->pool, w->i, 300, 0, 0, NULL, 0, &memo, &e);
    CU_ASSERT_EQUAL(e.ttft_us, 2000 + 4100);
}

/* A decode beside prefills: their tokens fill its steps. */
ALONE_TEST(test_tbt_beside)
{
    struct decode_estimate e;

    w->cost = (struct cost_model){
        .prefill = {1000, 10}, .decode = {400, 50}, .range = {1, 1, 1, 1, 1}};
    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 1, 400, 10), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, 2, 400, 10), 0);
    for (uint64_t r = 8; r < 10; r++)
        ACCEPTS(w->pool, w->id, .request_id = r, .predicted_us = 3000,
                .uncached_tokens = 150);
    CU_ASSERT_EQUAL(pool_prefill_started(w->pool, w->id, 8, 0), 0);
    estimate_decode(&w->model, w->i, 100, 10, &e);
    CU_ASSERT_EQUAL(e.tbt_us, 400 + 3 * 50); /* they share no step */
    w->model.coupled = true;
    w->model.step_tokens = 102;
    estimate_decode(&w->model, w->i, 100, 10, &e);
    CU_ASSERT_EQUAL(e.tbt_us, 2000); /* 100 of 300 tokens that take 6 ms */
    CU_ASSERT_EQUAL(pool_set_others(w->pool, w->id, 20, 0), 0);
    estimate_decode(&w->model, w->i, 100, 10, &e);
    CU_ASSERT_EQUAL(e.tbt_us, 1600); /* 80 of them */
    CU_ASSERT_EQUAL(pool_set_others(w->pool, w->id, 0, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(w->pool, w->id, 8, -1, 0), 0);
    CU_ASSERT_EQUAL(pool_prefill_done(w->pool, w->id, 9, -1, 0), 0);
    estimate_decode(&w->model, w->i, 100, 10, &e);
    CU_ASSERT_EQUAL(e.tbt_us, 550);
}

/* An aggregated instance without room to decode: 4 places, 200,000 tokens. */
ALONE_TEST(test_room_beside)
{
    struct estimate_prefill_request ask = {.n_tokens = 300,
                                           .max_output_tokens = 20};
    struct estimate_memo memo = {.predicted = false};
    struct prefill_estimate e;

    w->cost = (struct cost_model){
        .prefill = {1000, 10}, .decode = {1000}, .range = {1, 1, 1, 1, 1}};
    w->model.coupled = true;
    for (uint64_t d = 1; d <= 4; d++)
        CU_ASSERT_EQUAL(pool_decode_accept(w->pool, w->id, d, 1000, 21), 0);
    /* Full: of lengths between 0 and 40 the first ends after 40 / 5 steps. */
    estimate_prefill(&w->model, w->pool, w->i, &ask, &memo, &e);
    CU_ASSERT_EQUAL(e.room_us, 7800); /* a half is taken for rounding */
    CU_ASSERT_EQUAL(e.queue_us, 7800);
    CU_ASSERT_EQUAL(e.ttft_us, 7800 + 4000);
    /* A step of decodes from outside the pool, too, takes twice as long. */
    w->cost.decode[1] = 100;
    w->cost.decode[2] = 0.001;
    CU_ASSERT_EQUAL(pool_set_others(w->pool, w->id, 8, 396000), 0);
    memo = (struct estimate_memo){.predicted = false};
    estimate_prefill(&w->model, w->pool, w->i, &ask, &memo, &e);
    CU_ASSERT_EQUAL(e.room_us, 7800 * (1000 + 12 * 100 + 400) / 1000);
    CU_ASSERT_EQUAL(pool_set_others(w->pool, w->id, 0, 0), 0);
    w->cost.decode[1] = w->cost.decode[2] = 0;
    memo = (struct estimate_memo){.predicted = false};
    /* No matter to a request of one token, or in another pool. */
    ask.max_output_tokens = 1;
    estimate_prefill(&w->model, w->pool, w->i, &ask, &memo, &e);
    CU_ASSERT_EQUAL(e.room_us, 0);
    ask.max_output_tokens = 20;
    w->model.coupled = false;
    estimate_prefill(&w->model, w->pool, w->i, &ask, &memo, &e);
    CU_ASSERT_EQUAL(e.room_us, 0);
    CU_ASSERT_EQUAL(e.queue_us, 0);
    w->model.coupled = true;
    /* The queue goes on meanwhile. */
    ACCEPTS(w->pool, w->id, .request_id = 9, .predicted_us = 20000);
    estimate_prefill(&w->model, w->pool, w->i, &ask, &memo, &e);
    CU_ASSERT_EQUAL(e.room_us, 7800);
    CU_ASSERT_EQUAL(e.queue_us, 20000);
    /* A place, but no memory: more of them must end. */
    CU_ASSERT_EQUAL(pool_decode_done(w->pool, w->id, 4), 0);
    ask.n_tokens = 199000;
    estimate_prefill(&w->model, w->pool, w->i, &ask, &memo, &e);
    CU_ASSERT(e.room_us > 15000);
    CU_ASSERT_FALSE(e.too_long);
    ask.max_output_tokens = 2000;
    estimate_prefill(&w->model, w->pool, w->i, &ask, &memo, &e);
    CU_ASSERT(e.too_long); /* with its answer */
    CU_ASSERT_EQUAL(e.room_us, 0);
}

static const struct suite_test tests[] = {
    {"usable blocks", test_usable_blocks},
    {"paper options", test_paper_options},
    {"paper values", test_paper_values},
    {"over", test_over},
    {"prefill", test_prefill},
    {"no link", test_no_link},
    {"decode", test_decode},
    {"decode blocks", test_decode_blocks},
    {"max batch", test_max_batch},
    {"decode fits in", test_decode_fits_in},
    {"random ends", test_random_ends},
    {"beside decodes", test_beside},
    {"TBT beside prefills", test_tbt_beside},
    {"room beside decodes", test_room_beside},
};
SUITE("estimate", tests)
