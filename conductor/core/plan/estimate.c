/* Estimates of one prefill on one instance. */
#include "conductor/core/plan/estimate.h"

#include <string.h>

static int64_t later(int64_t a_us, int64_t b_us)
{
    return a_us > b_us ? a_us : b_us;
}

static int64_t at_most_never(int64_t us)
{
    return us < ESTIMATE_NEVER_US ? us : ESTIMATE_NEVER_US;
}

uint32_t estimate_usable_blocks(const struct estimate_model *model,
                                uint32_t matched_blocks, int64_t n_tokens)
{
    int64_t last = n_tokens > 0 ? n_tokens - 1 : 0;
    int64_t most = last / model->block_tokens;

    if (model->simulated.whole_prompt_reuse && n_tokens > 0)
        most++;
    return matched_blocks < most ? matched_blocks : (uint32_t)most;
}

/* Returns how long (us) a fetch takes from now on: the sender first ends the
 * sends that it has accepted, then sends these blocks at its link rate.
 * ESTIMATE_NEVER_US if it cannot send. */
static int64_t fetch_us(const struct estimate_model *model,
                        const struct pool_instance *sender, uint32_t n_blocks,
                        int64_t now_us)
{
    double bytes = (double)n_blocks * model->block_tokens *
                   (double)model->kv_bytes_per_token;
    double us = bytes * 1e6 / sender->link_bytes_per_s;
    int64_t busy_us = sender->egress_free_us - now_us;

    if (model->simulated.links_unshared)
        busy_us = 0;
    if (!(us < (double)ESTIMATE_NEVER_US)) /* a rate of 0 comes here too */
        return ESTIMATE_NEVER_US;
    return at_most_never((busy_us > 0 ? busy_us : 0) + (int64_t)(us + 0.5));
}

static int64_t predict_us(const struct cost_model *cost, int64_t n_tokens,
                          int64_t cached_tokens, struct estimate_memo *memo)
{
    if (memo->predicted && memo->cached_tokens == cached_tokens &&
        memo->cost == cost)
        return memo->predicted_us;
    memo->predicted = true;
    memo->cost = cost;
    memo->cached_tokens = cached_tokens;
    memo->predicted_us = 0;
    memo->extrapolated = false;
    if (cached_tokens < n_tokens)
        memo->predicted_us = cost_model_prefill_us(
            cost, n_tokens - cached_tokens, cached_tokens, &memo->extrapolated);
    return memo->predicted_us;
}

static int64_t transfer_us(const struct estimate_model *model,
                           const struct pool_instance *sender,
                           uint32_t n_blocks, int64_t now_us,
                           struct estimate_memo *memo)
{
    if (n_blocks > 0 && memo->sent_blocks != n_blocks) {
        memo->sent_blocks = n_blocks;
        memo->transfer_us = fetch_us(model, sender, n_blocks, now_us);
    }
    return n_blocks > 0 ? memo->transfer_us : 0;
}

static const struct prefill_estimate nothing;

/* Returns the time (us) to compute blocks again that waiting prefills rely on
 * and the tiers have no room for, at this prompt's cost per block. */
static int64_t again_us(const struct estimate_model *model,
                        const struct pool_instance *instance,
                        const struct estimate_prefill_request *request)
{
    int64_t all_us;
    double us;

    if (request->over_blocks == 0 || request->n_tokens <= 0)
        return 0;
    all_us = correction_apply_us(
        &instance->correction,
        cost_model_prefill_us(estimate_cost(model, instance), request->n_tokens,
                              0, NULL));
    us = (double)all_us * request->over_blocks * model->block_tokens /
         (double)request->n_tokens;
    return us < (double)ESTIMATE_NEVER_US ? (int64_t)us : ESTIMATE_NEVER_US;
}

/* Returns the place of a prefill that can begin at ready_us. While it waits for
 * room to decode, the queue goes on. */
static struct pool_place
place_of(const struct estimate_model *model, const struct pool *pool,
         const struct pool_instance *instance,
         const struct estimate_prefill_request *request, int64_t ready_us,
         const struct prefill_estimate *e)
{
    const struct pool_place place =
        pool_queue_place(pool, instance, ready_us, e->prefill_us,
                         request->deadline_us, request->now_us);
    int64_t wait_us = place.wait_us;

    if (model->step_tokens > 0)
        wait_us += beside_shared_us(estimate_cost(model, instance),
                                    model->step_tokens, instance, &e->beside,
                                    wait_us, e->prefill_us, request->now_us);
    return (struct pool_place){
        .wait_us = at_most_never(later(wait_us, e->room_us)),
        .most_us = at_most_never(later(place.most_us, e->room_us)),
        .doubt_us = place.doubt_us,
        .behind = place.behind,
    };
}

/* Writes the members for an instance that also decodes the request. */
static void estimate_coupled(const struct estimate_model *model,
                             const struct pool_instance *instance,
                             const struct estimate_prefill_request *request,
                             struct prefill_estimate *out)
{
    const struct cost_model *cost = estimate_cost(model, instance);
    int64_t n_output = request->max_output_tokens;

    out->too_long = pool_too_long(instance, request->n_tokens, n_output);
    out->beside = beside_of(cost, model->step_tokens, instance);
    if (beside_any(&out->beside) && out->cached_tokens < request->n_tokens)
        out->beside_us = cost_model_prefill_beside_us(
                             cost, request->n_tokens - out->cached_tokens,
                             out->cached_tokens, out->beside.prompt_us,
                             out->beside.token_us) -
                         out->predicted_us;
    if (model->step_tokens > 0)
        out->last_us = correction_apply_us(
            &instance->correction,
            cost_model_prefill_beside_us(cost, model->step_tokens, 0, 0.0,
                                         out->beside.token_us));
    if (n_output > 1 && !out->too_long &&
        !pool_decode_has_room(instance, request->n_tokens, n_output))
        out->room_us =
            beside_room_us(cost, instance, request->n_tokens, n_output);
}

int64_t estimate_push_us(const struct estimate_model *model, int64_t n_tokens)
{
    return model->push
               ? at_most_never((int64_t)(model->push[0] +
                                         model->push[1] * (double)n_tokens))
               : 0;
}

/* Returns whether another instance of the pair will decode the request. */
static bool hands_over(const struct pool_instance *instance,
                       int64_t max_output_tokens)
{
    return instance->pair > 0 && (instance->role & ROLE_DECODE) == 0 &&
           max_output_tokens > 1;
}

static void set_ttft(struct prefill_estimate *out,
                     const struct pool_place *place)
{
    int64_t own_us = out->prefill_us + out->beside.step_us + out->push_us;

    out->ttft_us = place->wait_us + own_us;
    out->doubt_us = place->doubt_us;
    out->most_us =
        at_most_never(place->most_us + own_us + out->doubt_us + out->again_us);
}

void estimate_prefill(const struct estimate_model *model,
                      const struct pool *pool,
                      const struct pool_instance *instance,
                      const struct estimate_prefill_request *request,
                      struct estimate_memo *memo, struct prefill_estimate *out)
{
    const struct pool_instance *sender = request->sender;
    int64_t n_tokens = request->n_tokens, now_us = request->now_us;
    struct pool_place place;

    /* Clears padding too: decisions are compared as bytes. A memset() may be a
     * string instruction, slower to start than the rest of this function. */
    memcpy(out, &nothing, sizeof(*out));
    out->instance = instance->id;
    out->slot = instance->slot;
    out->local_blocks = request->local_blocks;
    out->used_blocks = request->used_blocks;
    out->cached_tokens = (int64_t)request->used_blocks * model->block_tokens;
    if (out->cached_tokens > n_tokens) /* a partial last block */
        out->cached_tokens = n_tokens;
    if (sender) {
        out->fetch_from = sender->id;
        out->transfer_us = transfer_us(
            model, sender, request->used_blocks - request->local_blocks, now_us,
            memo);
    }
    out->transfer_end_us = now_us + out->transfer_us;
    out->ready_us = out->transfer_end_us;
    out->predicted_us = predict_us(estimate_cost(model, instance), n_tokens,
                                   out->cached_tokens, memo);
    out->extrapolated = memo->extrapolated;
    if (estimate_decodes_here(model, instance))
        estimate_coupled(model, instance, request, out);
    else
        out->too_long = pool_too_long(instance, n_tokens, 1);
    out->prefill_us = correction_apply_us(&instance->correction,
                                          out->predicted_us + out->beside_us);
    if (hands_over(instance, request->max_output_tokens)) {
        out->push_tokens =
            n_tokens - (int64_t)request->there_blocks * model->block_tokens;
        out->push_us = estimate_push_us(model, out->push_tokens);
        out->room_us = request->pair_room_us;
    }
    place = place_of(model, pool, instance, request, now_us, out);
    out->queue_us = place.wait_us;
    out->queue_most_us = place.most_us;
    out->again_us = again_us(model, instance, request);
    out->behind = place.behind;
    out->beside.step_us = out->beside.step_us > out->queue_us
                              ? out->beside.step_us - out->queue_us
                              : 0;
    out->score_us =
        out->transfer_us + out->queue_us + out->prefill_us + out->push_us;
    if (out->transfer_us > 0)
        place =
            place_of(model, pool, instance, request, out->transfer_end_us, out);
    set_ttft(out, &place);
    out->queue_full = pool_prefill_full(instance);
}

void estimate_add_own_load(const struct estimate_model *model,
                           const struct pool *pool,
                           const struct pool_instance *instance,
                           const struct estimate_prefill_request *request,
                           int64_t own_ready_us, struct prefill_estimate *out)
{
    struct pool_place place;

    if (own_ready_us <= out->ready_us)
        return;
    out->ready_us = own_ready_us;
    place = place_of(model, pool, instance, request, own_ready_us, out);
    set_ttft(out, &place);
}

/* Returns the predicted time of a plan's computing, before and after its load.
 */
static int64_t plan_predicted_us(const struct estimate_model *model,
                                 const struct cost_model *cost,
                                 const struct estimate_plan_request *request,
                                 const struct load_plan *plan,
                                 bool *extrapolated)
{
    int64_t from = (int64_t)request->resident_blocks * model->block_tokens;
    int64_t split = (int64_t)plan->split_block * model->block_tokens;
    int64_t cached = (int64_t)plan->cached_blocks * model->block_tokens;
    bool beyond = false;
    int64_t us = 0;

    *extrapolated = false;
    if (split > from)
        us = cost_model_prefill_us(cost, split - from, from, extrapolated);
    if (cached < request->n_tokens)
        us += cost_model_prefill_us(cost, request->n_tokens - cached, cached,
                                    &beyond);
    *extrapolated |= beyond;
    return us;
}

/* Returns when a plan's prefill is ready to begin: if it has to load first, as
 * late as it still ends in time, which leaves the engine to others. */
static int64_t plan_ready_us(const struct load_plan *plan, int64_t begin_us)
{
    switch (plan->mode) {
    case LOAD_MODE_LOAD:
        return plan->load_end_us;
    case LOAD_MODE_LAYERWISE:
        return plan->finish_us - plan->compute_us;
    case LOAD_MODE_COMPUTE:
    case LOAD_MODE_BOTH:
        break;
    }
    return begin_us;
}

void estimate_plan(const struct estimate_model *model,
                   const struct pool_instance *instance,
                   const struct estimate_plan_request *request,
                   struct load_plan *plan, struct prefill_estimate *out)
{
    const struct cost_model *cost = estimate_cost(model, instance);
    struct cost_model beside;
    bool beyond;
    struct load_plan_request ask = {
        .cost = cost,
        .cost_ratio = correction_factor(&instance->correction),
        .n_tokens = request->n_tokens,
        .block_tokens = model->block_tokens,
        .block_bytes = model->block_tokens * model->kv_bytes_per_token,
        .layers = model->layers,
        .resident_blocks = request->resident_blocks,
        .usable_blocks = request->usable_blocks,
        .now_us = request->now_us,
        .compute_free_us = request->now_us + request->queue_us,
        .sources = request->sources,
        .n_sources = request->n_sources,
        .modes = request->modes,
    };

    if (beside_any(&request->beside)) {
        beside = *cost;
        beside.prefill[0] += request->beside.prompt_us;
        beside.prefill[1] += request->beside.token_us;
        ask.cost = &beside;
    }
    if (load_plan_make(&ask, plan) < 0) {
        /* Only a source can be out of range, and computing needs none. */
        ask.n_sources = 0;
        (void)!load_plan_make(&ask, plan);
    }
    out->planned = true;
    out->at_least = false;
    out->load_mode = plan->mode;
    out->local_blocks = request->resident_blocks;
    out->split_block = plan->split_block;
    out->used_blocks = plan->cached_blocks;
    out->cached_tokens = (int64_t)plan->cached_blocks * model->block_tokens;
    if (out->cached_tokens > request->n_tokens) /* a partial last block */
        out->cached_tokens = request->n_tokens;
    out->cached_tokens -=
        (int64_t)(plan->split_block - request->resident_blocks) *
        model->block_tokens;
    out->transfer_end_us = plan->load_end_us;
    out->transfer_us = plan->load_end_us - request->now_us;
    out->ready_us = plan_ready_us(plan, request->now_us);
    out->predicted_us =
        plan_predicted_us(model, cost, request, plan, &out->extrapolated);
    out->beside_us = 0;
    if (beside_any(&request->beside))
        out->beside_us =
            plan_predicted_us(model, &beside, request, plan, &beyond) -
            out->predicted_us;
    out->prefill_us = plan->compute_us;
    out->score_us = plan->finish_us - request->now_us + out->push_us;
    out->ttft_us = out->score_us + request->beside.step_us;
    out->most_us =
        at_most_never(out->ttft_us + out->queue_most_us - request->queue_us +
                      out->doubt_us + out->again_us);
    out->late = false;
    out->last_prefill = instance->last_prefill;
}
