/*
 * Decides how many further holders of a hot beginning are worth their copies.
 *
 * With k holders, busy with other work for b_1 .. b_k of the time, and requests
 * that keep w engines busy, each is busy for
 *
 *     U = (b_1 + ... + b_k + w) / k, at most 1
 *
 * of the time, and a request finds all of them busy with a probability of P =
 * U^k, as if they were busy independently. Such a request loses the time to
 * fetch or to compute the blocks elsewhere, whichever is shorter: the scheduler
 * makes it wait no longer. So n further holders save
 *
 *     rate * horizon * miss * (P_k - P_(k+n)).
 *
 * The n with the largest difference between this and REPLICATION_WORTH times
 * the copies' time on links is taken. Every n is tried: where requests keep
 * several engines busy, one more holder alone saves nothing.
 */
#include <math.h>
#include <string.h>

#include "conductor/core/replication/internal.h"

#define LN2 0.69314718055994530942

/* The weighing of one tip. */
struct weighing {
    const struct access_tip *tip;
    struct schedule_look look;
    int64_t now_us;
    double engines;    /* engines that the tip's requests keep busy */
    uint32_t holders;  /* instances that have or will have its blocks */
    double busy;       /* sum of holders' busy_ratio, other requests only */
    int64_t egress_us; /* until a holder can send */
    uint32_t n;        /* candidates in r->order */
};

bool replication_look(struct replication *r, const struct access_tip *tip,
                      struct schedule_look *look)
{
    int64_t tokens;

    if (!access_chain(r->asked, tip, r->keys))
        return false;
    *look = schedule_look(r->dispatch->scheduler, r->keys, 0, 1, false);
    tokens = (int64_t)tip->n_blocks * look->model->block_tokens + 1;
    *look = schedule_look(r->dispatch->scheduler, r->keys, tip->n_blocks,
                          tokens, false);
    return true;
}

uint32_t replication_sendable(const struct schedule_look *look,
                              const uint64_t *keys,
                              const struct pool_instance *i, uint32_t n)
{
    uint32_t blocks = look->stored[i->slot];

    blocks = blocks < n ? blocks : n;
    if (i->link_bytes_per_s <= 0.0 ||
        (i->health != HEALTH_READY && i->health != HEALTH_DRAINING) ||
        schedule_looked_slow(look, i, keys, blocks))
        return 0;
    return blocks;
}

/* Time to prefill `tokens` behind `behind` cached ones, by the cost model. */
static double compute_us(const struct weighing *w,
                         const struct pool_instance *i, double tokens,
                         double behind)
{
    return (double)cost_model_prefill_us(estimate_cost(&*w->look.model, i),
                                         llround(tokens), llround(behind),
                                         NULL);
}

static double tip_tokens(const struct weighing *w)
{
    return (double)w->tip->n_blocks * (double)w->look.model->block_tokens;
}

/* Engines that the tip's requests keep busy where its blocks are. */
static double engines(const struct weighing *w, const struct pool_instance *i)
{
    double own = w->tip->mean_tokens - tip_tokens(w);
    double us = compute_us(w, i, own > 1.0 ? own : 1.0, tip_tokens(w));

    return w->tip->per_s * us / 1e6;
}

/* Sorts instances into holders and candidates for a copy. */
static void find_holders(struct replication *r, struct weighing *w)
{
    const struct pool *pool = w->look.pool;

    w->holders = w->n = 0;
    w->busy = 0.0;
    w->egress_us = INT64_MAX;
    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        const struct pool_instance *i = pool_at(pool, slot);
        int64_t us;

        if (!replication_takes(i))
            continue;
        if (schedule_looked(&w->look, slot) < w->tip->n_blocks) {
            r->order[w->n++] = slot;
            continue;
        }
        if (w->holders++ == 0)
            w->engines = engines(w, i);
        w->busy += r->sides[slot].busy_ratio;
        us = i->egress_free_us > w->now_us ? i->egress_free_us - w->now_us : 0;
        if (us < w->egress_us &&
            replication_sendable(&w->look, r->keys, i, w->tip->n_blocks) > 0)
            w->egress_us = us;
    }
    /* busy_ratio includes the tip's own requests. */
    w->busy = w->busy > w->engines ? w->busy - w->engines : 0.0;
}

/* Whether an instance has room for the tip and can take copies. */
static bool may_have(const struct replication *r, const struct weighing *w,
                     const struct pool_instance *i)
{
    double room = (double)pool_decode_room_tokens(i);

    return i->link_bytes_per_s > 0.0 &&
           r->sides[i->slot].failed_us <= w->now_us &&
           2.0 * tip_tokens(w) <= room &&
           (i->window_tokens == 0 ||
            tip_tokens(w) <= (double)i->window_tokens) &&
           !schedule_looked_slow(&w->look, i, r->keys, w->tip->n_blocks);
}

/* Whether candidate a comes before b: more of the blocks, then less busy. */
static bool comes_before(const struct replication *r, const struct weighing *w,
                         uint32_t a, uint32_t b)
{
    uint32_t x = w->look.stored[a], y = w->look.stored[b];

    if (x != y)
        return x > y;
    if (r->sides[a].busy_ratio != r->sides[b].busy_ratio)
        return r->sides[a].busy_ratio < r->sides[b].busy_ratio;
    return a < b;
}

static void sort(struct replication *r, struct weighing *w)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < w->n; k++) {
        uint32_t slot = r->order[k], at = n;

        if (!may_have(r, w, pool_at(w->look.pool, slot)))
            continue;
        while (at > 0 && comes_before(r, w, slot, r->order[at - 1])) {
            r->order[at] = r->order[at - 1];
            at--;
        }
        r->order[at] = slot;
        n++;
    }
    w->n = n;
}

/* Share of requests that find all holders busy. */
static double all_busy(double busy, double engines, uint32_t holders)
{
    double u = (busy + engines) / holders;

    return u < 1.0 ? pow(u, holders) : 1.0;
}

/* Time that a request loses on an instance that lacks the tip's last blocks. */
static double miss_us(const struct weighing *w, const struct pool_instance *i,
                      double bytes)
{
    uint32_t has = w->look.stored[i->slot];
    double bt = (double)w->look.model->block_tokens;
    double compute = compute_us(w, i, (w->tip->n_blocks - has) * bt, has * bt);
    double fetch = (double)w->egress_us + bytes * 1e6 / i->link_bytes_per_s;

    return fetch < compute ? fetch : compute;
}

static void add_job(struct replication *r, const struct replication_job *job)
{
    uint32_t at = r->n_jobs;

    while (at > 0 && r->jobs[at - 1].us_per_byte < job->us_per_byte)
        at--;
    if (at == REPLICATION_JOBS)
        return;
    if (r->n_jobs < REPLICATION_JOBS)
        r->n_jobs++;
    memmove(&r->jobs[at + 1], &r->jobs[at],
            (r->n_jobs - 1 - at) * sizeof(*r->jobs));
    r->jobs[at] = *job;
}

/* The number of instances of r->order to copy to; *reason says why. */
static uint32_t worth(const struct replication *r, const struct weighing *w,
                      struct replication_reason *reason)
{
    double requests =
        w->tip->per_s * (double)replication_us(r, REPLICATION_HORIZON_US) / 1e6;
    double before = all_busy(w->busy, w->engines, w->holders);
    double busy = w->busy, bytes = 0.0, link_us = 0.0, miss = 0.0;
    double best_us = 0.0;
    uint32_t best = 0;

    for (uint32_t k = 0; k < w->n; k++) {
        const struct pool_instance *i = pool_at(w->look.pool, r->order[k]);
        double b = (w->tip->n_blocks - w->look.stored[i->slot]) *
                   replication_block_bytes(&w->look);
        double m = miss_us(w, i, b);
        double after, saved_us;

        bytes += b;
        link_us += b * 1e6 / i->link_bytes_per_s;
        busy += r->sides[i->slot].busy_ratio;
        miss = k == 0 || m < miss ? m : miss;
        after = all_busy(busy, w->engines, w->holders + k + 1);
        saved_us = requests * miss * (before - after);
        if (saved_us - REPLICATION_WORTH * link_us <= best_us)
            continue;
        best_us = saved_us - REPLICATION_WORTH * link_us;
        best = k + 1;
        *reason = (struct replication_reason){
            .per_s = w->tip->per_s,
            .busy_ratio = before,
            .after_ratio = after,
            .holders = w->holders,
            .wanted = best,
            .miss_us = llround(miss),
            .saved_us = llround(saved_us < 9e15 ? saved_us : 9e15),
            .copy_bytes = llround(bytes),
        };
    }
    return best;
}

/* A lower bound of a rate: less its standard error, sqrt(n) for n requests, so
 * that two chance requests do not count as a crowd. */
static double surely_per_s(const struct replication *r, double per_s)
{
    double n =
        per_s * (double)replication_us(r, REPLICATION_HALF_US) / 1e6 / LN2;

    return n > 1.0 ? per_s * (1.0 - 1.0 / sqrt(n)) : 0.0;
}

void replication_weigh(struct replication *r, const struct access_tip *found,
                       int64_t now_us)
{
    struct access_tip tip = *found;
    struct weighing w = {.tip = &tip, .now_us = now_us};
    struct replication_reason reason = {0};
    uint32_t n;

    tip.per_s = surely_per_s(r, found->per_s);
    if (tip.per_s < REPLICATION_LEAST_PER_S / (double)r->slowdown ||
        !replication_look(r, &tip, &w.look))
        return;
    find_holders(r, &w);
    if (w.holders == 0 || w.egress_us == INT64_MAX)
        return;
    sort(r, &w);
    n = worth(r, &w, &reason);
    r->counts.wanted += n;
    for (uint32_t k = 0; k < n; k++)
        add_job(r, &(struct replication_job){
                       .tip = tip,
                       .to = pool_at(w.look.pool, r->order[k])->id,
                       .us_per_byte = (double)reason.saved_us /
                                      ((double)reason.copy_bytes + 1.0),
                       .reason = reason,
                   });
}
