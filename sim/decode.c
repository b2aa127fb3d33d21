/*
 * Batches of decodes. Between joins and ends only the KV changes: it grows by a
 * token per request and step. So many steps are one event:
 *
 *   k steps of n requests with v tokens of KV take
 *   k (d0 + d1 n + d2 v) + d2 n k (k - 1) / 2
 *
 * The duration of a step is kept, for TBTs, while a request that was in it is
 * in the batch.
 */
#include "sim/decode.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/tail_mean.h"
#include "sim/copies.h"
#include "sim/views/views.h"

#define LOG_FIRST 1024u

int sim_batch_init(struct sim_node *node)
{
    struct sim_batch *batch = &node->batch;

    TAILQ_INIT(&batch->ready);
    TAILQ_INIT(&batch->kv_waits);
    batch->requests =
        calloc(node->has.decode_max_batch, sizeof(struct sim_request *));
    batch->log_us = calloc(LOG_FIRST, sizeof(*batch->log_us));
    batch->log_mask = LOG_FIRST - 1;
    batch->cost_us = node->has.cost.decode;
    batch->error = 1.0;
    return batch->requests && batch->log_us ? 0 : -ENOMEM;
}

void sim_batch_fini(struct sim_batch *batch)
{
    free(batch->requests);
    free(batch->log_us);
}

/* Returns the memory (tokens) that a request needs at its end. */
static int64_t all_tokens(const struct sim *sim, const struct sim_node *node,
                          const struct sim_request *r)
{
    return pool_kv_tokens(pool_get(sim->views[0].pool, node->id), r->n_tokens,
                          r->n_output);
}

static void grant(struct sim *sim, struct sim_node *node)
{
    struct sim_batch *b = &node->batch;
    struct sim_request *r;

    while ((r = TAILQ_FIRST(&b->kv_waits))) {
        int64_t tokens = b->granted_tokens + all_tokens(sim, node, r);

        if (tokens > node->has.decode_kv_tokens && b->granted_tokens > 0)
            return;
        b->granted_tokens = tokens;
        TAILQ_REMOVE(&b->kv_waits, r, link);
        r->push.granted = true;
        if (!sim_push_granted(sim, r))
            sim_decode_add(sim, r);
    }
}

void sim_decode_ask(struct sim *sim, struct sim_request *request)
{
    struct sim_node *node = &sim->nodes[request->record.decode_node];

    request->push.asked = true;
    TAILQ_INSERT_TAIL(&node->batch.kv_waits, request, link);
    grant(sim, node);
}

static void give_back(struct sim *sim, struct sim_node *node,
                      const struct sim_request *r)
{
    if (!r->push.granted)
        return; /* prefill and decode share the node */
    node->batch.granted_tokens -= all_tokens(sim, node, r);
    grant(sim, node);
}

/* Sends a held first token when its KV has come, or at its TTFT limit. */
static void release_first(const struct sim *sim, struct sim_request *r)
{
    int64_t until_us = dispatch_holds_until_us(&r->dispatch);

    if (!r->holds_first)
        return;
    if (until_us > sim->now_us)
        until_us = sim->now_us;
    if (r->record.first_token_us < until_us)
        r->record.first_token_us = until_us;
}

void sim_first_token(struct sim_request *r)
{
    if (r->forecast.estimated_us == 0)
        return;
    dispatch_first_token(&r->view->dispatch, &r->forecast,
                         r->record.first_token_us - r->dispatch.arrived_us);
    r->forecast.estimated_us = 0;
}

/* Ends a request whose client allowed more tokens than its answer has: the
 * first token was the last. Frees its place on the decode node. */
static void end_without_decode(struct sim *sim, struct sim_node *node,
                               struct sim_request *r)
{
    sim_views_ended(sim, r);
    if (node->shares) {
        node->decode_tokens -= sim_decode_tokens(sim, node, r);
        sim_copies_share_memory(sim, node);
    }
    give_back(sim, node, r);
    release_first(sim, r);
    sim_first_token(r);
    r->record.decode_node = SIM_NO_NODE;
    sim_end(sim, r, SIM_COMPLETED, NULL);
}

void sim_decode_add(struct sim *sim, struct sim_request *request)
{
    struct sim_node *node = &sim->nodes[request->record.decode_node];

    if (request->n_output <= 1) {
        end_without_decode(sim, node, request);
        return;
    }
    TAILQ_INSERT_TAIL(&node->batch.ready, request, link);
    sim_mark_node(sim, node);
}

/* Returns whether the decode node sends the first token. */
static bool sends_first(const struct sim *sim, const struct sim_request *r)
{
    return r->push.asked && (sim->cluster.coupled_nodes > 0 ||
                             sim->cluster.reality.first_token_at_decode);
}

void sim_decode_join(struct sim *sim, struct sim_node *node)
{
    struct sim_batch *b = &node->batch;
    struct sim_request *r;

    while ((r = TAILQ_FIRST(&b->ready)) && b->n < node->has.decode_max_batch) {
        TAILQ_REMOVE(&b->ready, r, link);
        b->requests[b->n++] = r;
        b->kv_tokens += (int64_t)r->n_tokens + 1;
        r->decode.join_step = b->step;
        r->decode.finish_step = b->step + r->n_output - 2;
        if (sends_first(sim, r)) {
            sim_push_observe(sim, r);
            r->record.first_token_us = sim->now_us;
        }
        release_first(sim, r);
        sim_first_token(r);
        r->decode.first_gap_us = sim->now_us - r->record.first_token_us;
        /* The pool keeps it on this node until it ends. */
        sim_views_decodes(sim, r);
    }
}

/* Faster llround(): inline for us >= 0. */
static int64_t rounded(double us)
{
    int64_t whole = (int64_t)us;

    return us < 0.0 ? llround(us) : whole + (us - (double)whole >= 0.5);
}

/* A run of steps: the time of the first, and how much longer each step is than
 * the one before. */
struct run {
    double first_us;
    double more_us;
};

static struct run run_of(const struct sim_batch *batch)
{
    const double *d = batch->cost_us;
    double n = (double)batch->n;
    double kv = (double)batch->kv_tokens;

    return (struct run){
        .first_us = (d[0] + d[1] * n + d[2] * kv) * batch->error,
        .more_us = d[2] * n * batch->error,
    };
}

void sim_decode_begin(const struct sim *sim, struct sim_batch *batch)
{
    double sum = 0.0;

    if (!(sim->cluster.reality.decode_error_sigma > 0.0) || batch->n == 0)
        return;
    for (uint32_t i = 0; i < batch->n; i++)
        sum += batch->requests[i]->decode.error;
    batch->error = sum / (double)batch->n;
}

static int64_t run_us(const struct run *run, uint64_t steps)
{
    double k = (double)steps;

    return rounded(
        sim_bounded_us(k * run->first_us + run->more_us * k * (k - 1.0) / 2.0));
}

int64_t sim_decode_run_us(const struct sim_batch *batch, uint64_t steps)
{
    struct run run = run_of(batch);

    return run_us(&run, steps);
}

uint64_t sim_decode_steps_to_finish(const struct sim_batch *batch)
{
    uint64_t last = UINT64_MAX;

    for (uint32_t i = 0; i < batch->n; i++)
        if (batch->requests[i]->decode.finish_step < last)
            last = batch->requests[i]->decode.finish_step;
    return last - batch->step + 1;
}

uint64_t sim_decode_steps_in(const struct sim_batch *batch, int64_t us)
{
    uint64_t low = 1;
    uint64_t high = batch->run_steps;

    while (low < high) {
        uint64_t mid = low + (high - low) / 2;

        if (sim_decode_run_us(batch, mid) >= us)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

uint64_t sim_decode_steps_ended(const struct sim *sim,
                                const struct sim_node *node)
{
    const struct sim_batch *b = &node->batch;
    int64_t spent_us = sim->now_us - b->run_start_us;
    uint64_t steps;

    if (!node->in_step || b->n == 0 || b->run_steps == 1)
        return 0;
    steps = sim_decode_steps_in(b, spent_us);
    return sim_decode_run_us(b, steps) > spent_us ? steps - 1 : steps;
}

/* Makes room in the log for the run, behind the steps still needed. */
static int log_reserve(struct sim_batch *b)
{
    uint64_t oldest = b->step;
    uint64_t need, size = b->log_mask + 1;
    int64_t *log_us;

    for (uint32_t i = 0; i < b->n; i++)
        if (b->requests[i]->decode.join_step < oldest)
            oldest = b->requests[i]->decode.join_step;
    need = b->step + b->run_steps - oldest;
    if (need <= size)
        return 0;
    while (size < need)
        size *= 2;
    log_us = calloc(size, sizeof(*log_us));
    if (!log_us)
        return -ENOMEM;
    for (uint64_t s = oldest; s < b->step; s++)
        log_us[s & (size - 1)] = b->log_us[s & b->log_mask];
    free(b->log_us);
    b->log_us = log_us;
    b->log_mask = size - 1;
    return 0;
}

static int64_t request_tbt_us(struct sim *sim, const struct sim_batch *b,
                              const struct sim_request *r)
{
    size_t n = (size_t)(r->decode.finish_step - r->decode.join_step) + 1;

    if (array_reserve(sim->scratch_us, sim->n_scratch, n)) {
        sim_fail(sim, -ENOMEM, "out of memory");
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        sim->scratch_us[i] = b->log_us[(r->decode.join_step + i) & b->log_mask];
    sim->scratch_us[0] += r->decode.first_gap_us;
    return tail_mean(sim->scratch_us, n);
}

int64_t sim_decode_tokens(const struct sim *sim, const struct sim_node *node,
                          const struct sim_request *request)
{
    int64_t bt = sim->cluster.block_tokens;

    return pool_kv_tokens(pool_get(sim->views[0].pool, node->id),
                          request->n_tokens, request->n_output) -
           request->n_tokens / bt * bt;
}

static void finish(struct sim *sim, struct sim_node *node,
                   struct sim_request *r)
{
    node->batch.kv_tokens -= (int64_t)r->n_tokens + r->n_output;
    if (node->shares)
        node->decode_tokens -= sim_decode_tokens(sim, node, r);
    sim_views_ended(sim, r);
    give_back(sim, node, r);
    r->record.tbt_us = request_tbt_us(sim, &node->batch, r);
    sim_end(sim, r, SIM_COMPLETED, NULL);
}

void sim_decode_advance(struct sim *sim, struct sim_node *node,
                        int64_t extra_us)
{
    struct sim_batch *b = &node->batch;
    struct run run = run_of(b);
    int64_t before_us = 0;
    uint32_t kept = 0;
    uint64_t left = b->n > 0 ? b->run_steps : 0;

    if (left == 0)
        return;
    if (log_reserve(b) < 0) {
        sim_fail(sim, -ENOMEM, "out of memory");
        return;
    }
    for (uint64_t k = 1; k <= left; k++) {
        int64_t until_us = run_us(&run, k);

        b->log_us[(b->step + k - 1) & b->log_mask] =
            until_us - before_us + extra_us;
        before_us = until_us;
    }
    b->step += left;
    b->kv_tokens += (int64_t)(left * b->n);
    /* Several conductors get the steps before they decide (dispatch.c, tell()):
     * most runs end without a decision. */
    if (sim->n_views == 1)
        sim_views_steps(&sim->views[0], node, b->step);
    for (uint32_t i = 0; i < b->n; i++) {
        struct sim_request *r = b->requests[i];

        if (r->decode.finish_step < b->step)
            finish(sim, node, r);
        else
            b->requests[kept++] = r;
    }
    if (kept < b->n)
        sim_copies_share_memory(sim, node);
    b->n = kept;
}
