#include "tests/gpu/cake_run.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "conductor/core/plan/load_plan.h"
#include "conductor/core/step/meeting.h"

#define BT CAKE_BLOCK_TOKENS
#define POLL_US 50

/* A load under way, and how far the computing is. */
struct pull {
    struct cake *c;
    bool alone; /* the engine waits for all of it */
    double start_us;
    double each_us;          /* a block on the link */
    struct cake_loaded *out; /* NULL: nobody asks when blocks came */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. Blocks [loaded_from, all) are there; [0, claimed) are
     * computed, or will be when the step ends that is running. */
    uint32_t loaded_from;
    uint32_t claimed;
    bool uploading;    /* block loaded_from - 1: no step may have it */
    double arrives_us; /* when block loaded_from - 1 comes, if it still does */
    int rc;
};

uint32_t cake_blocks(const struct cake *c)
{
    return (c->n_tokens - 1) / BT;
}

static struct timespec at_us(double us)
{
    return (struct timespec){(time_t)(us * 1e-6), (long)fmod(us * 1e3, 1e9)};
}

/* What the conductor would choose. */
static enum load_mode choose(const struct cake *c)
{
    const struct load_source source = {
        .to_block = cake_blocks(c),
        .bytes_per_s = c->bytes_per_s,
    };
    const struct load_plan_request request = {
        .cost = &c->cost,
        .cost_ratio = 1,
        .n_tokens = c->n_tokens,
        .block_tokens = BT,
        .block_bytes = (int64_t)c->b->layout->block_bytes,
        .usable_blocks = cake_blocks(c),
        .sources = &source,
        .n_sources = 1,
        .modes = LOAD_MODE_BIT(LOAD_MODE_COMPUTE) |
                 LOAD_MODE_BIT(LOAD_MODE_LOAD) | LOAD_MODE_BIT(LOAD_MODE_BOTH),
    };
    struct load_plan plan;

    return load_plan_make(&request, &plan) == 0 ? plan.mode : LOAD_MODE_BOTH;
}

/* Looks again and again, as the worker does: waiting in the engine would keep a
 * step from beginning. Without room the step brings the block itself. */
static int bring_block(struct cake *c, uint32_t block)
{
    uint64_t ticket = 0;
    int rc = engine_kv_upload(c->b->engine, &c->kv.blocks[block], 1, 0,
                              c->b->layout->layers, &ticket);

    while (rc == 0) {
        rc = engine_kv_upload_done(c->b->engine, ticket, false);
        if (rc == 0)
            usleep(POLL_US);
    }
    return rc == -EBUSY || rc > 0 ? 0 : rc;
}

/* Waits until the next block has come. False: the engine has it, or all are
 * there. Under the lock. */
static bool next_block(struct pull *p)
{
    if (p->loaded_from <= p->claimed || p->rc != 0)
        return false;
    const struct timespec until = at_us(p->arrives_us);
    while (p->loaded_from > p->claimed && p->rc == 0)
        if (pthread_cond_timedwait(&p->changed, &p->lock, &until) == ETIMEDOUT)
            break;
    return p->loaded_from > p->claimed && p->rc == 0;
}

static void *load_blocks(void *arg)
{
    struct pull *p = arg;
    uint32_t all = p->loaded_from;

    pthread_mutex_lock(&p->lock);
    while (next_block(p)) {
        uint32_t block = p->loaded_from - 1;

        p->uploading = true;
        pthread_mutex_unlock(&p->lock);
        int rc = bring_block(p->c, block);
        pthread_mutex_lock(&p->lock);
        p->rc = rc < 0 ? rc : p->rc;
        p->loaded_from = block;
        p->uploading = false;
        /* The link went on when the block was through. */
        p->arrives_us += p->each_us;
        if (p->out)
            p->out->arrived_us[all - 1 - block] = bench_now_us() - p->start_us;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int pull_start(struct pull *p, struct cake *c, pthread_t *thread)
{
    pthread_condattr_t monotonic;

    p->c = c;
    p->loaded_from = cake_blocks(c);
    p->each_us = (double)c->b->layout->block_bytes / c->bytes_per_s * 1e6;
    bench_kv_forget(c->b, &c->kv, 0, bench_blocks(c->b, c->n_tokens));
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    p->start_us = bench_now_us();
    p->arrives_us = p->start_us + p->each_us;
    return -pthread_create(thread, NULL, load_blocks, p);
}

/* Ends the load, which needs no more blocks. */
static int pull_stop(struct pull *p, pthread_t thread, int rc)
{
    pthread_mutex_lock(&p->lock);
    if (rc < 0 && p->rc == 0)
        p->rc = rc;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    return p->rc;
}

/* Tokens of the step from `at` on. Waits while the load is sooner with what is
 * left. 0: the two have met, or the load failed. */
static uint32_t next_step(struct pull *p, uint32_t at)
{
    const struct cake *c = p->c;
    uint32_t begun = (at + BT - 1) / BT;
    uint32_t n = 0;

    pthread_mutex_lock(&p->lock);
    while (p->rc == 0 && at < p->loaded_from * BT) {
        uint32_t end = p->loaded_from - p->uploading;
        uint32_t left = end * BT > at ? end * BT - at : 0;
        const struct meeting m = {
            .position = at,
            .block_tokens = BT,
            .most = left < c->budget ? left : c->budget,
            .missing = end > begun ? end - begun : 0,
            .first_us = fmax(0, p->arrives_us + p->each_us * p->uploading -
                                    bench_now_us()),
            .block_us = p->each_us,
        };
        n = p->alone || left == 0 ? 0
                                  : meeting_chunk(&m, step_pace_us, &c->pace);
        if (n > 0) {
            p->claimed = (at + n + BT - 1) / BT;
            pthread_cond_broadcast(&p->changed);
            break;
        }
        pthread_cond_wait(&p->changed, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* Steps of the budget over tokens [from, to) of the prompt; the answer if these
 * are its last. */
static int compute(struct cake *c, uint32_t from, uint32_t to, uint32_t cached,
                   uint32_t *token)
{
    for (uint32_t at = from; at < to; at += c->budget) {
        uint32_t end = to - at < c->budget ? to : at + c->budget;
        double us = bench_step_us(c->b, c->prompt, &c->kv, at, end, cached,
                                  end == c->n_tokens ? token : NULL);

        if (us < 0)
            return (int)us;
    }
    return 0;
}

/* Both until they meet; sets *at to where. */
static int meet(struct cake *c, struct pull *p, uint32_t *at)
{
    pthread_t thread;
    uint32_t n;
    int rc = pull_start(p, c, &thread);

    if (rc != 0)
        return rc;
    *at = 0;
    while (rc == 0 && (n = next_step(p, *at)) > 0) {
        rc = compute(c, *at, *at + n, 0, NULL);
        *at += n;
    }
    return pull_stop(p, thread, rc);
}

int cake_both(struct cake *c, struct cake_both *out)
{
    enum load_mode mode = choose(c);
    struct pull p = {.alone = mode == LOAD_MODE_LOAD};
    uint32_t all = cake_blocks(c) * BT;
    uint32_t at = 0;
    int rc;

    if (mode == LOAD_MODE_COMPUTE) {
        p.start_us = bench_now_us();
        at = all;
        rc = compute(c, 0, c->n_tokens, 0, &out->token);
    } else {
        rc = meet(c, &p, &at);
        if (rc == 0)
            rc = compute(c, all, c->n_tokens, all, &out->token);
    }
    out->us = bench_now_us() - p.start_us;
    out->split_block = at / BT;
    return rc;
}

int cake_load(struct cake *c, struct cake_loaded *out)
{
    struct pull p = {.alone = true, .out = out};
    uint32_t all = cake_blocks(c) * BT;
    uint32_t at;
    int rc = meet(c, &p, &at);
    double loaded_us = bench_now_us();

    if (rc == 0)
        rc = compute(c, all, c->n_tokens, all, &out->token);
    out->suffix_us = bench_now_us() - loaded_us;
    out->us = bench_now_us() - p.start_us;
    return rc;
}

int cake_compute(struct cake *c, struct cake_computed *out)
{
    double start_us = bench_now_us();

    out->n_steps = 0;
    for (uint32_t at = 0; at < c->n_tokens; at += c->budget) {
        uint32_t to =
            at + c->budget < c->n_tokens ? at + c->budget : c->n_tokens;
        double us = bench_step_us(c->b, c->prompt, &c->kv, at, to, 0,
                                  to == c->n_tokens ? &out->token : NULL);

        if (us < 0)
            return (int)us;
        out->step_us[out->n_steps++] = us;
    }
    out->us = bench_now_us() - start_us;
    return 0;
}

/* us = alpha + beta position, for steps of `budget` tokens: with n tokens a
 * step that is c1 n + c3 n (position + n / 2). */
void cake_learn(struct cake *c, const struct cake_computed *computed)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    double tokens = c->budget;

    for (uint32_t i = 0; (i + 1) * c->budget <= c->n_tokens; i++) {
        double x = i * tokens;

        n += 1;
        sx += x;
        sy += computed->step_us[i];
        sxx += x * x;
        sxy += x * computed->step_us[i];
    }
    double spread = n * sxx - sx * sx;
    double beta = spread > 0 ? fmax(0, (n * sxy - sx * sy) / spread) : 0;
    /* A prompt of less than one step has its mean. */
    double alpha =
        n > 0 ? (sy - beta * sx) / n : computed->us * tokens / c->n_tokens;
    double c3 = beta / tokens;
    double c1 = fmax(0.001, alpha / tokens - c3 * tokens / 2);

    c->cost = (struct cost_model){.prefill = {0, c1, c3 / 2, c3}};
    c->pace = (struct step_pace){.cost = &c->cost};
}

/* Measured time to compute the first `tokens`. */
static double computed_us(const struct cake *c,
                          const struct cake_computed *computed, uint32_t tokens)
{
    double us = 0;
    uint32_t i = 0;

    for (; (i + 1) * c->budget <= tokens; i++)
        us += computed->step_us[i];
    uint32_t rest = tokens - i * c->budget;
    return rest ? us + computed->step_us[i] * rest / c->budget : us;
}

double cake_ideal_us(const struct cake *c, const struct cake_computed *computed,
                     const struct cake_loaded *loaded)
{
    uint32_t all = cake_blocks(c);
    double best = fmin(computed->us, loaded->us);

    for (uint32_t m = 0; m <= all; m++) {
        double compute = computed_us(c, computed, m * BT);
        double load = m < all ? loaded->arrived_us[all - 1 - m] : 0;

        best = fmin(best, fmax(compute, load) + loaded->suffix_us);
    }
    return best;
}
