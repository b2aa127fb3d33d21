/* Lending idle instances for one long prefill: it is cut into stages, each of
 * which computes its share of the layers, chunk after chunk
 * (workers/pipeline). */
#include <errno.h>

#include "conductor/core/schedule/internal.h"

static bool idle(const struct pool_instance *i)
{
    return i->n_waiting == 0 && i->n_running == 0;
}

/* Whether the chosen instance computes all of a long prompt at once. */
static bool may_lead(const struct scheduler *s,
                     const struct schedule_decision *d)
{
    const struct prefill_estimate *e = &d->chosen;
    const struct pool_instance *i = pool_get(s->pool, d->prefill);

    return s->rules.lend.most > 0 && i && idle(i) && i->most_stages > 1 &&
           !e->queue_full && !e->too_long && e->queue_us == 0 &&
           e->transfer_us == 0 && e->used_blocks == e->local_blocks &&
           d->plan.n_pieces == 0 && e->prefill_us >= s->rules.lend.from_us;
}

/* Whether half of the room to decode is free. If not, requests wait for room
 * and not for prefills (measured in decision 159). */
static bool is_roomy(const struct pool *pool)
{
    int64_t used = 0, all = 0;

    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        const struct pool_instance *i = pool_at(pool, slot);

        if (!i || (i->role & ROLE_DECODE) == 0)
            continue;
        used += i->decode_reserved_tokens + i->running_kv_tokens;
        all += i->kv_whole_tokens;
    }
    return used <= all / 2;
}

static bool may_be_lent(const struct schedule_request *request,
                        const struct pool_instance *leader,
                        const struct pool_instance *i)
{
    return schedule_takes_work(request, i, ROLE_PREFILL) && i != leader &&
           idle(i) && i->n_decodes == 0 &&
           i->most_stages == leader->most_stages && i->cost == leader->cost &&
           i->link_bytes_per_s > 0.0 && !pool_too_long(i, request->n_tokens, 1);
}

/* Inserts `i` into the members, ordered by last use, oldest first. */
static void enter(const struct pool *pool, struct schedule_lent *lent,
                  uint32_t most, const struct pool_instance *i)
{
    uint32_t at = lent->n;

    while (at > 0 && pool_get(pool, lent->members[at - 1])->last_prefill >
                         i->last_prefill)
        at--;
    if (at == most)
        return;
    if (lent->n < most)
        lent->n++;
    for (uint32_t k = lent->n - 1; k > at; k--)
        lent->members[k] = lent->members[k - 1];
    lent->members[at] = i->id;
}

/* Chooses at most half of the idle instances, so that the next requests still
 * find some. */
static void find_members(const struct scheduler *s,
                         const struct schedule_request *request,
                         const struct pool_instance *leader,
                         struct schedule_lent *lent)
{
    uint32_t most =
        schedule_lesser(s->rules.lend.most, leader->most_stages - 1);
    uint32_t n_idle = 0;

    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *i = pool_at(s->pool, slot);

        if (!may_be_lent(request, leader, i))
            continue;
        n_idle++;
        enter(s->pool, lent, most, i);
    }
    lent->n = schedule_lesser(lent->n, n_idle / 2);
}

/* Time that KV of the members, each with an equal part of the layers, takes
 * over the leader's link. */
static double kv_us(const struct scheduler *s,
                    const struct pool_instance *leader,
                    const struct schedule_request *request,
                    const struct prefill_estimate *e,
                    const struct schedule_lent *lent)
{
    double bytes = (double)(request->n_tokens - e->cached_tokens) *
                   (double)s->model.kv_bytes_per_token / (lent->n + 1);
    double us = 0.0;

    for (uint32_t i = 0; i < lent->n; i++)
        us += bytes * 1e6 / schedule_path_rate(s, leader, lent->members[i]);
    return us;
}

/* The time of the longest of n stages, as a share of the whole. */
static double stage_share(const struct schedule_rules *rules, uint32_t layers,
                          uint32_t n)
{
    return (double)((layers + n - 1) / n) / (double)layers /
           rules->lend.efficiency;
}

/* The time of one chunk at the end of the prompt on one instance. */
static double last_chunk_us(const struct cost_model *cost, int64_t uncached,
                            int64_t cached)
{
    int64_t n =
        uncached < SCHEDULE_CHUNK_TOKENS ? uncached : SCHEDULE_CHUNK_TOKENS;

    return (double)cost_model_chunk_us(cost, n, uncached - n, cached);
}

int64_t schedule_least_us(const struct schedule_rules *rules,
                          const struct cost_model *cost, uint32_t layers,
                          int64_t uncached, int64_t cached, int64_t alone_us)
{
    double least_us = (double)alone_us;

    if (alone_us < rules->lend.from_us)
        return alone_us;
    for (uint32_t n = 1; n <= rules->lend.most && n < layers; n++) {
        double us =
            ((double)alone_us + n * last_chunk_us(cost, uncached, cached)) *
            stage_share(rules, layers, n + 1);

        if (us <= SCHEDULE_LEND_GAIN * (double)alone_us && us < least_us)
            least_us = us;
    }
    return (int64_t)least_us;
}

/* Replaces the leader's times by the group's. */
static void quicken(struct prefill_estimate *e, int64_t group_us)
{
    int64_t saved_us = e->prefill_us - group_us;

    e->predicted_us = (int64_t)((double)e->predicted_us * (double)group_us /
                                (double)e->prefill_us);
    e->prefill_us = group_us;
    e->ttft_us -= saved_us;
    e->most_us -= saved_us;
}

void schedule_lend(const struct scheduler *s,
                   const struct schedule_request *request,
                   struct schedule_decision *d)
{
    struct prefill_estimate *e = &d->chosen;
    struct schedule_lent lent = {0};

    if (!may_lead(s, d) || !is_roomy(s->pool))
        return;
    const struct pool_instance *leader = pool_get(s->pool, d->prefill);
    find_members(s, request, leader, &lent);
    if (lent.n == 0)
        return;
    double chunk_us =
        last_chunk_us(estimate_cost(&s->model, leader),
                      request->n_tokens - e->cached_tokens, e->cached_tokens);
    if (e->predicted_us > 0) /* corrected as the whole is */
        chunk_us *= (double)e->prefill_us / (double)e->predicted_us;
    double alone_us = (double)e->prefill_us + lent.n * chunk_us;
    double us =
        alone_us * stage_share(&s->rules, leader->most_stages, lent.n + 1);
    double link_us = kv_us(s, leader, request, e, &lent);
    if (us < link_us)
        us = link_us;
    lent.share = us / alone_us;
    if (us + link_us > SCHEDULE_LEND_GAIN * (double)e->prefill_us)
        return;
    quicken(e, (int64_t)us);
    d->lent = lent;
}

int schedule_take_lent(struct pool *pool, const struct schedule_lent *lent,
                       const struct pool_prefill_request *request,
                       int64_t now_us)
{
    struct pool_prefill_request part = *request;

    part.n_keys = 0;
    part.work = (struct pool_work){0};
    part.stage = true;
    for (uint32_t i = 0; i < lent->n; i++) {
        int rc = pool_prefill_accept(pool, lent->members[i], &part);

        if (rc < 0) {
            struct schedule_lent taken = *lent;

            taken.n = i;
            schedule_give_back(pool, &taken, request->request_id, now_us);
            return rc;
        }
        /* Just accepted; with no place to run it stays in the queue. */
        (void)!pool_prefill_started(pool, lent->members[i], request->request_id,
                                    now_us);
    }
    return 0;
}

void schedule_give_back(struct pool *pool, struct schedule_lent *lent,
                        uint64_t request_id, int64_t now_us)
{
    for (uint32_t i = 0; i < lent->n; i++) /* one that left has none */
        (void)!pool_prefill_cancel(pool, lent->members[i], request_id, now_us);
    lent->n = 0;
}
