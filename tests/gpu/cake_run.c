#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <time.h>

#include "conductor/core/load_plan.h"
#include "tests/gpu/cake_run.h"

#define BT CAKE_BLOCK_TOKENS
#define POLL_US 50

/* A load under way, and how far the computing is. */
struct pull {
    struct cake *c;
    bool alone; /* load everything, whatever the plan says */
    double start_us;
    struct cake_loaded *out; /* NULL: nobody asks when blocks came */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. Blocks [loaded_from, all) are there; [0, claimed) are
     * computed, or will be when the step ends that is running. */
    uint32_t loaded_from;
    uint32_t claimed;
    bool engine_waits;      /* it will not compute the next block */
    bool busy;              /* block loaded_from - 1 is on its way */
    double arrives_us;      /* when the one on its way, or the last one, came */
    double compute_free_us; /* when the running step should end */
    int rc;
};

uint32_t cake_blocks(const struct cake *c)
{
    return (c->n_tokens - 1) / BT;
}

static void sleep_until(double us)
{
    const struct timespec ts = {(time_t)(us * 1e-6), (long)fmod(us * 1e3, 1e9)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        continue;
}

/* Where the two should meet: blocks [from, result) are for the engine, the
 * ones behind it, up to `to`, for the link. Under the lock. */
static uint32_t plan_split(const struct pull *p, uint32_t from, uint32_t to,
                           double compute_free_us, double link_free_us)
{
    const struct cake *c = p->c;
    const struct load_source source = {
        .from_block = from,
        .to_block = to,
        .bytes_per_s = c->bytes_per_s,
        .free_at_us = (int64_t)link_free_us,
    };
    const struct load_plan_request request = {
        .cost = &c->cost,
        .cost_ratio = 1,
        .n_tokens = (int64_t)to * BT + c->n_tokens - cake_blocks(c) * BT,
        .block_tokens = BT,
        .block_bytes = (int64_t)c->b->layout->block_bytes,
        .resident_blocks = from,
        .usable_blocks = to,
        .now_us = (int64_t)bench_now_us(),
        .compute_free_us = (int64_t)compute_free_us,
        .sources = &source,
        .n_sources = 1,
        .modes = LOAD_MODE_BIT(LOAD_MODE_COMPUTE) |
                 LOAD_MODE_BIT(LOAD_MODE_LOAD) | LOAD_MODE_BIT(LOAD_MODE_BOTH),
    };
    struct load_plan plan;

    if (load_plan_make(&request, &plan) != 0)
        return to;
    return plan.mode == LOAD_MODE_COMPUTE ? to : plan.split_block;
}

static int bring_block(struct cake *c, uint32_t block)
{
    uint64_t ticket = 0;
    int rc = engine_kv_upload(c->b->engine, &c->kv.blocks[block], 1, 0,
                              c->b->layout->layers, &ticket);

    /* Looking again and again, as the worker does: waiting in the engine would
     * keep a step from beginning. */
    while (rc == 0 &&
           (rc = engine_kv_upload_done(c->b->engine, ticket, false)) == 0)
        sleep_until(bench_now_us() + POLL_US);
    /* Without room the step brings it. */
    return rc == -EBUSY || rc > 0 ? 0 : rc;
}

/* Whether the next block is the link's. Waits while the engine should have it.
 * Under the lock. */
static bool may_load(struct pull *p)
{
    while (p->loaded_from > p->claimed && p->rc == 0) {
        double now_us = bench_now_us();
        double free_us = fmax(now_us, p->compute_free_us);

        /* Ties must not leave both waiting for the other. */
        if (p->alone || p->engine_waits ||
            plan_split(p, p->claimed, p->loaded_from, free_us, now_us) <
                p->loaded_from)
            return true;
        pthread_cond_wait(&p->changed, &p->lock);
    }
    return false;
}

static void *load_blocks(void *arg)
{
    struct pull *p = arg;
    double each_us =
        (double)p->c->b->layout->block_bytes / p->c->bytes_per_s * 1e6;
    uint32_t all = p->loaded_from;

    pthread_mutex_lock(&p->lock);
    while (may_load(p)) {
        uint32_t block = p->loaded_from - 1;
        /* The link goes on at once when a block is through, not when this
         * thread wakes up, unless it had nothing to do. */
        double from_us = fmax(p->arrives_us, p->start_us);
        if (bench_now_us() - from_us > each_us)
            from_us = bench_now_us();
        p->busy = true;
        p->arrives_us = from_us + each_us;
        double until_us = p->arrives_us;
        pthread_mutex_unlock(&p->lock);
        sleep_until(until_us);
        int rc = bring_block(p->c, block);
        pthread_mutex_lock(&p->lock);
        p->busy = false;
        p->rc = rc < 0 ? rc : p->rc;
        p->loaded_from = block;
        if (p->out)
            p->out->arrived_us[all - 1 - block] = bench_now_us() - p->start_us;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int pull_start(struct pull *p, struct cake *c, pthread_t *thread)
{
    p->c = c;
    p->loaded_from = cake_blocks(c);
    bench_kv_forget(c->b, &c->kv, 0, bench_blocks(c->b, c->n_tokens));
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->start_us = bench_now_us();
    p->arrives_us = p->start_us;
    p->compute_free_us = p->start_us;
    return -pthread_create(thread, NULL, load_blocks, p);
}

/* Ends the load, which needs no more blocks than it began. */
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

/* The step from `at` on: up to the end of what the plan gives the engine. Waits
 * while it gives nothing. 0: the two have met, or the load failed. */
static uint32_t next_step(struct pull *p, uint32_t at)
{
    const struct cake *c = p->c;
    uint32_t here = at / BT;
    uint32_t n = 0;

    pthread_mutex_lock(&p->lock);
    while (p->rc == 0 && here < p->loaded_from) {
        uint32_t free_to = p->busy ? p->loaded_from - 1 : p->loaded_from;
        double now_us = bench_now_us();
        uint32_t split = here;
        /* A block that was begun is finished. */
        if (at % BT != 0)
            split = here + 1;
        else if (here < free_to)
            split = plan_split(p, here, free_to, now_us,
                               p->busy ? p->arrives_us : now_us);
        n = split * BT > at ? split * BT - at : 0;
        n = n < c->budget ? n : c->budget;
        if (n > 0) {
            p->claimed = (at + n + BT - 1) / BT;
            p->compute_free_us =
                now_us + (double)cost_model_prefill_us(&c->cost, n, at, NULL);
            pthread_cond_broadcast(&p->changed);
            break;
        }
        p->engine_waits = true;
        pthread_cond_broadcast(&p->changed);
        pthread_cond_wait(&p->changed, &p->lock);
        p->engine_waits = false;
    }
    pthread_mutex_unlock(&p->lock);
    return n;
}

int cake_both(struct cake *c, struct cake_both *out)
{
    struct pull p = {0};
    pthread_t thread;
    uint32_t at = 0;
    uint32_t n;
    int rc = pull_start(&p, c, &thread);

    if (rc != 0)
        return rc;
    while (rc == 0 && (n = next_step(&p, at)) > 0) {
        double us = bench_step_us(c->b, c->prompt, &c->kv, at, at + n, 0, NULL);
        rc = us < 0 ? (int)us : 0;
        at += n;
    }
    rc = pull_stop(&p, thread, rc);
    if (rc != 0)
        return rc;
    /* The suffix may be longer than a step's budget. */
    uint32_t from = cake_blocks(c) * BT;
    for (uint32_t i = from; rc == 0 && i < c->n_tokens; i += c->budget) {
        uint32_t to = i + c->budget < c->n_tokens ? i + c->budget : c->n_tokens;
        double us = bench_step_us(c->b, c->prompt, &c->kv, i, to, from,
                                  to == c->n_tokens ? &out->token : NULL);
        rc = us < 0 ? (int)us : 0;
    }
    out->us = bench_now_us() - p.start_us;
    out->split_block = at / BT;
    return rc;
}

int cake_load(struct cake *c, struct cake_loaded *out)
{
    struct pull p = {.alone = true, .out = out};
    pthread_t thread;
    int rc = pull_start(&p, c, &thread);

    if (rc != 0)
        return rc;
    pthread_mutex_lock(&p.lock);
    while (p.loaded_from > 0 && p.rc == 0)
        pthread_cond_wait(&p.changed, &p.lock);
    pthread_mutex_unlock(&p.lock);
    rc = pull_stop(&p, thread, 0);
    double loaded_us = bench_now_us();
    uint32_t from = cake_blocks(c) * BT;
    for (uint32_t i = from; rc == 0 && i < c->n_tokens; i += c->budget) {
        uint32_t to = i + c->budget < c->n_tokens ? i + c->budget : c->n_tokens;
        double us = bench_step_us(c->b, c->prompt, &c->kv, i, to, from,
                                  to == c->n_tokens ? &out->token : NULL);
        rc = us < 0 ? (int)us : 0;
    }
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
    double alpha = n > 0 ? (sy - beta * sx) / n : 0;
    double c3 = beta / tokens;
    double c1 = fmax(0.001, alpha / tokens - c3 * tokens / 2);

    c->cost = (struct cost_model){.prefill = {0, c1, c3 / 2, c3}};
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
