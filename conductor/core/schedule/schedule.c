/* Making a scheduler, deciding, admitting and committing. */
#include "conductor/core/schedule/schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/price/price.h"
#include "conductor/core/schedule/internal.h"
#include "conductor/core/step/shortest.h"

static const char *const verdict_names[SCHEDULE_VERDICTS] = {
    [SCHEDULE_ACCEPT] = "accept",
    [SCHEDULE_REJECT_TTFT] = "reject_slo_ttft",
    [SCHEDULE_REJECT_TBT] = "reject_slo_tbt",
    [SCHEDULE_REJECT_PRICE] = "reject_price",
    [SCHEDULE_REJECT_SHARE] = "reject_share",
    [SCHEDULE_NO_PREFILL_INSTANCE] = "no_prefill_instance",
    [SCHEDULE_NO_DECODE_INSTANCE] = "no_decode_instance",
    [SCHEDULE_DECODE_FULL] = "decode_full",
    [SCHEDULE_QUEUE_FULL] = "queue_full",
    [SCHEDULE_TOO_LONG] = "too_long",
};

struct scheduler *scheduler_new(const struct schedule_config *config,
                                const struct estimate_model *model,
                                struct pool *pool, struct prefix_index *index)
{
    const struct prefix_index *expected = model->simulated.expected;
    size_t n = pool_config(pool)->max_instances;
    struct scheduler *s;

    if (prefix_index_max_instances(index) < n || model->block_tokens == 0 ||
        /* The results have room for the index's instances. */
        (expected && prefix_index_max_instances(expected) !=
                         prefix_index_max_instances(index)) ||
        model->kv_bytes_per_token < 1 || !config->policy)
        return NULL;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->model = *model;
    s->policy = config->policy;
    s->admission = admission_policy_by_name(
        config->admission ? config->admission : "plain");
    policy_options_init(s->policy, s->options);
    if (config->options)
        memcpy(s->options, config->options, sizeof(s->options));
    schedule_pace_init(&s->pace, model->simulated.slowdown);
    s->by_score =
        policy_option_value(s->policy, s->options, POLICY_RESCUE, 1.0) == 0.0;
    s->predicts_decodes =
        !s->model.coupled &&
        policy_option_value(s->policy, s->options, "lengths", 0.0) > 0.0;
    s->overhang_steps =
        policy_option_value(s->policy, s->options, "overhang_steps", 0.0);
    s->bypass =
        (uint32_t)policy_option_value(s->policy, s->options, "bypass", 0.0);
    s->sees_links =
        !model->simulated.links_unshared &&
        policy_option_value(s->policy, s->options, "links", 0.0) > 0.0;
    s->shares = policy_option_value(s->policy, s->options, "shares", 0.0) > 0.0;
    s->warms =
        policy_option_value(s->policy, s->options, "warm_on_reject", 0.0) > 0.0;
    s->spares_decodes =
        s->model.coupled && s->model.step_tokens > 0 &&
        policy_option_value(s->policy, s->options, "beside_tbt", 0.0) > 0.0;
    s->state = calloc(1, s->policy->state_bytes + 1);
    s->pool = pool;
    s->index = index;
    s->candidates = calloc(n, sizeof(*s->candidates));
    s->decode_candidates = calloc(n, sizeof(*s->decode_candidates));
    s->decode_ends =
        calloc(pool_config(pool)->max_decodes, sizeof(*s->decode_ends));
    if (!s->admission || !s->state || !s->candidates || !s->decode_candidates ||
        !s->decode_ends ||
        schedule_price_init(s, model->simulated.slowdown) < 0 ||
        prefix_match_init(&s->stored, prefix_index_max_instances(index)) < 0 ||
        prefix_match_init(&s->expected, prefix_index_max_instances(index)) <
            0) {
        scheduler_free(s);
        return NULL;
    }
    if (s->policy->init)
        s->policy->init(s->state, s->options);
    return s;
}

void scheduler_free(struct scheduler *scheduler)
{
    if (!scheduler)
        return;
    price_free(scheduler->price);
    free(scheduler->decode_ends);
    free(scheduler->decode_candidates);
    free(scheduler->candidates);
    prefix_match_fini(&scheduler->expected);
    prefix_match_fini(&scheduler->stored);
    free(scheduler->state);
    free(scheduler);
}

static void admit(struct scheduler *s, const struct schedule_request *request,
                  struct schedule_decision *decision)
{
    struct admission_request ask = {
        .ttft_us = schedule_tested_us(s, &decision->chosen),
        .tbt_us = decision->tbt_us,
        .slo_ttft_us = request->slo_ttft_us,
        .slo_tbt_us = request->slo_tbt_us,
    };
    int64_t fits_in_us;

    switch (s->admission->decide(&ask)) {
    case ADMISSION_ACCEPT:
        decision->verdict = SCHEDULE_ACCEPT;
        decision->retry_after_us = 0;
        break;
    case ADMISSION_REJECT_TTFT:
        decision->verdict = SCHEDULE_REJECT_TTFT;
        fits_in_us = schedule_fits_in_us(s, request, decision);
        decision->never = fits_in_us < 0;
        decision->retry_after_us = schedule_pace_in_us(
            &s->pace, (uint32_t)decision->n_candidates,
            decision->chosen.queue_most_us, fits_in_us, request->now_us);
        break;
    case ADMISSION_REJECT_TBT:
        decision->verdict = SCHEDULE_REJECT_TBT;
        if (s->spares_decodes) /* others will decode then: nobody knows */
            break;
        for (size_t c = 0; c < decision->n_decode_candidates; c++)
            if (s->decode_candidates[c].instance == decision->decode)
                decision->retry_after_us = schedule_decode_fits_in_us(
                    s, request, &s->decode_candidates[c],
                    decision->chosen.ttft_us);
        break;
    }
}

static bool meets_ttft(const struct scheduler *s,
                       const struct schedule_request *request, int64_t ttft_us)
{
    const struct admission_request ask = {.ttft_us = ttft_us,
                                          .slo_ttft_us = request->slo_ttft_us};

    return s->admission->decide(&ask) == ADMISSION_ACCEPT;
}

bool schedule_predicts_decodes(const struct scheduler *scheduler)
{
    return scheduler->predicts_decodes;
}

uint32_t schedule_bypass(const struct scheduler *scheduler)
{
    return scheduler->bypass;
}

int64_t schedule_rank(const struct scheduler *scheduler,
                      const struct schedule_decision *decision,
                      int64_t arrived_us)
{
    struct queue_item least = {.cost_us = INT64_MAX / 256,
                               .arrived_us = arrived_us};

    if (!pool_config(scheduler->pool)->order ||
        pool_config(scheduler->pool)->order->by_age)
        return 0;
    for (size_t i = 0; i < decision->n_candidates; i++)
        if (decision->candidates[i].prefill_us < least.cost_us)
            least.cost_us = decision->candidates[i].prefill_us;
    return shortest_rank(&least);
}

bool schedule_shares(const struct scheduler *scheduler)
{
    return scheduler->shares;
}

bool schedule_admits_late(const struct scheduler *scheduler)
{
    const struct admission_request late = {.ttft_us = 2, .slo_ttft_us = 1};

    return scheduler->admission->decide(&late) == ADMISSION_ACCEPT;
}

/* Whatever the policy prefers, a request is not rejected if another candidate
 * would serve it in time: the first one to finish takes it. */
static void choose_in_time(struct scheduler *s,
                           const struct schedule_request *request,
                           struct schedule_decision *decision)
{
    const struct prefill_estimate *best = NULL;

    if (s->by_score || meets_ttft(s, request, decision->chosen.most_us))
        return;
    for (size_t c = 0; c < decision->n_candidates; c++) {
        const struct prefill_estimate *e = &decision->candidates[c];

        if (policy_may_take(e) && (!best || e->most_us < best->most_us))
            best = e;
    }
    if (!best || !meets_ttft(s, request, best->most_us))
        return;
    decision->chosen = *best;
    decision->prefill = best->instance;
}

void schedule_decide(struct scheduler *scheduler,
                     const struct schedule_request *request,
                     struct schedule_decision *decision)
{
    memset(decision, 0, sizeof(*decision));
    decision->retry_after_us = -1;
    if (!schedule_choose_prefill(scheduler, request, decision))
        return;
    choose_in_time(scheduler, request, decision);
    decision->stored_blocks =
        schedule_lesser(scheduler->stored.blocks[decision->chosen.slot],
                        decision->chosen.local_blocks);
    if (schedule_choose_decode(scheduler, request, decision))
        admit(scheduler, request, decision);
}

/* Whether the sources that a plan uses are still there. */
static bool sources_live(const struct pool *pool,
                         const struct schedule_decision *decision)
{
    for (size_t i = 0; i < decision->n_sources; i++)
        if (decision->plan.of_source[i].n_blocks > 0 &&
            !pool_get(pool, decision->sources[i].instance))
            return false;
    return true;
}

static void book(struct scheduler *s, const struct schedule_request *request,
                 const struct schedule_decision *decision, uint32_t holder,
                 unsigned channel, int64_t until_us)
{
    (void)!pool_book(s->pool, &(struct pool_booking){holder, channel, until_us},
                     decision->prefill, request->request_id, request->now_us);
}

/* Both ends of a fetch. */
static void book_fetch(struct scheduler *s,
                       const struct schedule_request *request,
                       const struct schedule_decision *decision,
                       uint32_t sender, int64_t until_us)
{
    book(s, request, decision, sender, POOL_EGRESS, until_us);
    book(s, request, decision, decision->prefill, POOL_INGRESS, until_us);
}

/* The links and tiers that a plan uses are busy until it is through. */
static void book_sources(struct scheduler *s,
                         const struct schedule_request *request,
                         const struct schedule_decision *decision)
{
    for (size_t i = 0; i < decision->n_sources; i++) {
        const struct schedule_source *source = &decision->sources[i];
        const struct load_share *share = &decision->plan.of_source[i];

        if (share->n_blocks == 0)
            continue;
        if (source->instance != decision->prefill &&
            !s->model.simulated.links_unshared)
            book_fetch(s, request, decision, source->instance, share->end_us);
        if (pool_get(s->pool, source->instance)
                ->tier_bytes_per_s[source->tier] > 0.0)
            book(s, request, decision, source->instance, source->tier,
                 share->end_us);
    }
}

/* Without a plan all that its own slow tiers hold is read from there. */
static void book_own(struct scheduler *s,
                     const struct schedule_request *request,
                     const struct schedule_decision *decision)
{
    const struct prefill_estimate *chosen = &decision->chosen;
    const struct pool_instance *i = pool_get(s->pool, chosen->instance);
    struct schedule_own own;

    if (chosen->ready_us <= request->now_us)
        return;
    schedule_own_blocks(
        s, i, schedule_lesser(s->stored.blocks[i->slot], chosen->local_blocks),
        &own);
    for (size_t o = 0; o < own.n_sources; o++)
        book(s, request, decision, i->id, own.sources[o].tier,
             chosen->ready_us);
}

static int accept_decode(struct scheduler *s,
                         const struct schedule_request *request,
                         const struct schedule_decision *decision)
{
    if (!schedule_predicts_decode(s, request))
        return pool_decode_accept(s->pool, decision->decode,
                                  request->request_id, request->n_tokens,
                                  request->max_output_tokens);
    return pool_decode_expect(
        s->pool, decision->decode,
        &(struct pool_decode_request){
            .request_id = request->request_id,
            .prompt_tokens = request->n_tokens,
            .max_output_tokens = request->max_output_tokens,
            .expected_tokens = request->expected_tokens,
            .comes_us = request->now_us + schedule_kv_in_us(&decision->chosen),
            .prefill = decision->prefill,
            .prefill_us = decision->chosen.prefill_us,
        });
}

int schedule_commit(struct scheduler *scheduler,
                    const struct schedule_request *request,
                    const struct schedule_decision *decision)
{
    const struct prefill_estimate *chosen = &decision->chosen;
    struct pool *pool = scheduler->pool;
    int error = 0;

    if (decision->verdict != SCHEDULE_ACCEPT)
        return -EINVAL;
    if ((chosen->fetch_from != POOL_NO_INSTANCE &&
         !pool_get(pool, chosen->fetch_from)) ||
        !sources_live(pool, decision))
        return -ESTALE;
    if (decision->decode != POOL_NO_INSTANCE)
        error = accept_decode(scheduler, request, decision);
    if (error < 0)
        return error;
    /* Last, since a prefill once accepted leaves a trace: whose turn it was. */
    error = pool_prefill_accept(
        pool, decision->prefill,
        &(struct pool_prefill_request){
            .request_id = request->request_id,
            .predicted_us = chosen->predicted_us + chosen->beside_us,
            .ready_at_us = chosen->ready_us,
            .loading_until_us = chosen->planned &&
                                        decision->plan.n_pieces > 0 &&
                                        decision->plan.mode == LOAD_MODE_BOTH
                                    ? chosen->transfer_end_us
                                    : 0,
            .arrived_us = request->now_us,
            .deadline_us = schedule_due_us(request, chosen),
            .uncached_tokens = request->n_tokens - chosen->cached_tokens,
            .cached_tokens = chosen->cached_tokens,
            .work = schedule_work_of(scheduler, request, chosen),
            .keys = request->keys,
            .n_keys = !scheduler->model.simulated.expected &&
                              !scheduler->model.assumes_stored
                          ? request->n_keys
                          : 0,
        });
    if (error < 0) {
        if (decision->decode != POOL_NO_INSTANCE)
            (void)pool_decode_done(pool, decision->decode, request->request_id);
        return error;
    }
    if (scheduler->spares_decodes && decision->decode != POOL_NO_INSTANCE)
        (void)pool_decode_likely(pool, decision->decode, request->request_id,
                                 request->expected_tokens > 0
                                     ? request->expected_tokens
                                     : request->max_output_tokens);
    schedule_pace_add(&scheduler->pace, chosen->prefill_us, request->now_us);
    if (chosen->fetch_from != POOL_NO_INSTANCE &&
        !scheduler->model.simulated.links_unshared)
        book_fetch(scheduler, request, decision, chosen->fetch_from,
                   chosen->transfer_end_us);
    if (decision->decode != POOL_NO_INSTANCE &&
        decision->decode != decision->prefill && !scheduler->model.coupled &&
        !scheduler->model.simulated.links_unshared)
        (void)!pool_book_push(pool,
                              &(struct pool_push){
                                  .from = decision->prefill,
                                  .bytes = request->n_tokens *
                                           scheduler->model.kv_bytes_per_token,
                                  .due_us = request->now_us + chosen->ttft_us,
                              },
                              decision->decode, request->request_id);
    if (chosen->planned)
        book_sources(scheduler, request, decision);
    else
        book_own(scheduler, request, decision);
    return 0;
}

const char *schedule_verdict_name(enum schedule_verdict verdict)
{
    return (unsigned)verdict < SCHEDULE_VERDICTS ? verdict_names[verdict] : "?";
}
