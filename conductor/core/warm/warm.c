/* Decides which refused prompts are computed, where, and when. See warm.h. */
#include "conductor/core/warm/warm.h"

#include <errno.h>
#include <math.h>

void warm_init(struct warm *w, struct dispatch *d, int64_t slowdown)
{
    *w = (struct warm){.dispatch = d,
                       .begin_us =
                           WARM_BEGIN_US * (slowdown > 0 ? slowdown : 1)};
    TAILQ_INIT(&w->jobs);
}

bool warm_wants(const struct warm *w, const struct dispatch_request *request,
                const struct dispatch_order *order)
{
    return request->ask.n_keys > 0 && !w->dispatch->unpredicted &&
           w->dispatch->scheduler &&
           schedule_rules_of(w->dispatch->scheduler)->warms &&
           (order->reason == DISPATCH_MISSES_TTFT ||
            order->reason == DISPATCH_MISSES_TBT ||
            order->reason == DISPATCH_PRICE);
}

static struct schedule_look look_at(const struct warm *w,
                                    const struct warm_job *job)
{
    return schedule_look(w->dispatch->scheduler, job->keys, job->n_keys,
                         job->n_tokens, true);
}

/* Counts an instance's jobs and adds up their work. */
static uint32_t jobs_of(const struct warm *w, uint32_t instance,
                        int64_t *cost_us)
{
    const struct warm_job *job;
    uint32_t n = 0;

    *cost_us = 0;
    TAILQ_FOREACH(job, &w->jobs, entry)
    {
        if (job->instance != instance || job->over)
            continue;
        *cost_us += job->cost_us;
        n++;
    }
    return n;
}

/* Corrected time to compute a prompt of `tokens` behind `cached` ones. */
static int64_t work_us(const struct schedule_look *look,
                       const struct pool_instance *i, int64_t tokens,
                       int64_t cached)
{
    return llround((double)cost_model_prefill_us(estimate_cost(look->model, i),
                                                 tokens - cached, cached,
                                                 NULL) *
                   correction_factor(&i->correction));
}

/* Tokens of a prompt's first blocks, of which the last may not be full. */
static int64_t tokens_of(const struct schedule_look *look,
                         const struct warm_job *job, uint32_t blocks)
{
    int64_t tokens = (int64_t)blocks * look->model->block_tokens;

    return tokens < job->n_tokens ? tokens : job->n_tokens;
}

/* Whether an instance's cache has room for WARM_OF_INSTANCE such prompts. */
static bool has_room(const struct pool_instance *i, const struct warm_job *job)
{
    int64_t tokens =
        i->cache_tokens > 0 ? i->cache_tokens : i->kv_capacity_tokens;

    return job->n_tokens <= tokens / WARM_OF_INSTANCE;
}

static bool takes(const struct pool_instance *i, const struct warm_job *job)
{
    return i && (i->role & ROLE_PREFILL) != 0 && pool_takes_work(i) &&
           !pool_too_long(i, job->n_tokens, 1);
}

static bool may_go_to(const struct warm *w, uint32_t instance,
                      const struct warm_job *job)
{
    const struct pool_instance *i =
        pool_get(schedule_pool(w->dispatch->scheduler), instance);

    return takes(i, job) && has_room(i, job);
}

/* Chooses the cheapest instance, counting the earlier jobs there. Returns
 * whether one has room for another job. */
static bool choose(const struct warm *w, struct warm_job *job)
{
    struct schedule_look look = look_at(w, job);
    int64_t best_us = INT64_MAX;

    for (uint32_t slot = 0; slot < pool_slots(look.pool); slot++) {
        const struct pool_instance *i = pool_at(look.pool, slot);
        int64_t before_us, us;

        if (!takes(i, job) || !has_room(i, job) ||
            jobs_of(w, i->id, &before_us) >= WARM_OF_INSTANCE)
            continue;
        us = work_us(&look, i, job->n_tokens,
                     tokens_of(&look, job, schedule_looked(&look, slot)));
        if (before_us + us >= best_us)
            continue;
        best_us = before_us + us;
        job->instance = i->id;
        job->cost_us = us;
    }
    return best_us < INT64_MAX;
}

/* Whether the blocks of a are the first blocks of b. */
static bool begins(const struct warm_job *a, const struct warm_job *b)
{
    return a->n_keys <= b->n_keys &&
           a->keys[a->n_keys - 1] == b->keys[a->n_keys - 1];
}

/* Gives a job the place of a job whose prompt begins its own. */
static void take_place(struct warm *w, struct warm_job *job,
                       struct warm_job *before)
{
    job->instance = before->instance;
    job->begun = before->begun;
    job->cost_us += before->cost_us;
    before->over = true;
    TAILQ_INSERT_BEFORE(before, job, entry);
    w->n_jobs++;
    w->counts.joined++;
}

bool warm_add(struct warm *w, struct warm_job *job, int64_t now_us)
{
    struct warm_job *other;

    job->blocks = 0;
    job->refused_us = now_us;
    job->begun = job->computes = job->over = false;
    job->cost_us = 0;
    TAILQ_FOREACH(other, &w->jobs, entry)
    {
        if (!other->over && begins(job, other)) {
            w->counts.joined++;
            return false;
        }
        if (!other->over && begins(other, job) && w->n_jobs < WARM_JOBS &&
            may_go_to(w, other->instance, job)) {
            take_place(w, job, other);
            return true;
        }
    }
    if (w->n_jobs >= WARM_JOBS || !choose(w, job)) {
        w->counts.crowded++;
        return false;
    }
    TAILQ_INSERT_TAIL(&w->jobs, job, entry);
    w->n_jobs++;
    w->counts.jobs++;
    return true;
}

void warm_forget(struct warm *w, struct warm_job *job)
{
    TAILQ_REMOVE(&w->jobs, job, entry);
    w->n_jobs--;
}

static bool is_late(const struct warm *w, const struct warm_job *job,
                    int64_t now_us)
{
    return !job->begun && now_us - job->refused_us > w->begin_us;
}

/* Whether requests without a TTFT SLO keep coming: warming, and the requests
 * admitted because of it, would slow them down. */
static bool all_is_theirs(const struct warm *w, int64_t now_us)
{
    int64_t came_us = w->dispatch->limitless_us;

    return came_us > INT64_MIN && now_us - came_us < w->begin_us;
}

/* Whether an instance has no accepted work at all. */
static bool is_idle(const struct pool_instance *i)
{
    return i->n_waiting + i->n_running + i->n_decodes == 0 &&
           i->other_decodes == 0;
}

/* Whether an instance has or will have all blocks of a job. */
static bool is_held(const struct schedule_look *look,
                    const struct warm_job *job)
{
    for (uint32_t slot = 0; slot < pool_slots(look->pool); slot++)
        if (pool_at(look->pool, slot) &&
            schedule_looked(look, slot) >= job->n_keys)
            return true;
    return false;
}

/* Cuts the next piece of a job for its idle instance. Returns false if the job
 * is over. */
static bool cut(struct warm *w, struct warm_job *job,
                const struct pool_instance *i, struct warm_piece *piece)
{
    struct schedule_look look = look_at(w, job);
    uint32_t from = schedule_looked(&look, i->slot);
    uint32_t n = WARM_PIECE_TOKENS / look.model->block_tokens;
    int64_t to_do_us;

    if (is_held(&look, job)) {
        w->counts.done++;
        return false;
    }
    if ((job->begun && from <= job->blocks) ||
        schedule_looked_slow(&look, i, job->keys, from)) {
        w->counts.dropped++;
        return false;
    }
    n = n > 0 ? n : 1;
    *piece = (struct warm_piece){
        .instance = i->id,
        .slot = i->slot,
        .from_block = from,
        .end_block = job->n_keys - from > n ? from + n : (uint32_t)job->n_keys};
    piece->cached_tokens = tokens_of(&look, job, from);
    piece->tokens = tokens_of(&look, job, piece->end_block);
    piece->predicted_us = cost_model_prefill_us(
        estimate_cost(look.model, i), piece->tokens - piece->cached_tokens,
        piece->cached_tokens, NULL);
    to_do_us = work_us(&look, i, job->n_tokens, piece->cached_tokens);
    job->cost_us = to_do_us;
    return true;
}

struct warm_job *warm_next(struct warm *w, int64_t now_us,
                           struct warm_piece *piece)
{
    struct dispatch *d = w->dispatch;
    struct warm_job *job, *next;

    piece->tokens = 0;
    for (job = TAILQ_FIRST(&w->jobs); job; job = next) {
        const struct pool_instance *i =
            d->scheduler ? pool_get(schedule_pool(d->scheduler), job->instance)
                         : NULL;

        next = TAILQ_NEXT(job, entry);
        if (job->computes)
            continue;
        if (!job->over && is_late(w, job, now_us)) {
            w->counts.late++;
            job->over = true;
        } else if (!job->over && !takes(i, job)) {
            w->counts.dropped++;
            job->over = true;
        }
        if (!job->over &&
            (d->n_waiting > 0 || !is_idle(i) || all_is_theirs(w, now_us)))
            continue;
        if (!job->over && cut(w, job, i, piece))
            return job;
        warm_forget(w, job);
        return job;
    }
    return NULL;
}

int warm_begin(struct warm *w, struct warm_job *job,
               const struct warm_piece *piece, uint64_t request_id,
               int64_t now_us)
{
    struct dispatch *d = w->dispatch;
    int rc = schedule_accept_piece(
        d->scheduler,
        &(struct pool_prefill_request){
            .request_id = request_id,
            .predicted_us = piece->predicted_us,
            .ready_at_us = now_us,
            .arrived_us = now_us,
            .uncached_tokens = piece->tokens - piece->cached_tokens,
            .cached_tokens = piece->cached_tokens,
            .keys = job->keys,
            .n_keys = piece->end_block,
        },
        piece->instance);

    if (rc < 0)
        return rc;
    /* The first place, which tenants may share, is charged only to its own. */
    if (job->place == 0 || d->share.tenants[job->place].name == job->tenant)
        share_use(&d->share, job->place, SHARE_PREFILL,
                  (double)piece->predicted_us, now_us);
    w->counts.begun += !job->begun;
    w->counts.pieces++;
    w->counts.tokens += (uint64_t)(piece->tokens - piece->cached_tokens);
    job->begun = job->computes = true;
    job->blocks = piece->from_block;
    return 0;
}

void warm_end(struct warm *w, struct warm_job *job, bool failed)
{
    job->computes = false;
    w->counts.dropped += failed && !job->over;
    job->over |= failed;
}
