/* Makes a scheduler, decides, admits. */
#include "conductor/core/schedule/schedule.h"

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
    [SCHEDULE_LINK_BUSY] = "link_busy",
    [SCHEDULE_QUEUE_FULL] = "queue_full",
    [SCHEDULE_TOO_LONG] = "too_long",
};

/* Sets the policy's rules, without those that this cluster cannot use. */
static void set_rules(struct scheduler *s)
{
    const struct estimate_model *model = &s->model;
    int64_t slower = model->simulated.slowdown;
    struct schedule_rules *r = &s->rules;

    *r = policy_rules(s->policy, s->options);
    r->spares_decodes = r->spares_decodes && model->step_tokens > 0;
    r->sees_links = r->sees_links && !model->simulated.links_unshared;
    r->sees_pushes = r->sees_links;
    if (!r->sees_links)
        r->link_wait = 0.0;
    if (model->coupled) {
        r->predicts_decodes = r->sees_pushes = r->link_last = false;
        r->lend.most = 0;
        r->switch_us = 0;
    }
    r->link_last = r->link_last && r->link_wait > 0.0;
    r->holds_first = r->holds_first && r->sees_pushes;
    if (slower > 0) {
        r->switch_us *= slower;
        r->lend.from_us *= slower;
    }
}

struct scheduler *scheduler_new(const struct schedule_config *config,
                                const struct estimate_model *model,
                                struct pool *pool, struct prefix_index *index)
{
    const struct prefix_index *expected = model->simulated.expected;
    size_t n = pool_config(pool)->max_instances;
    struct scheduler *s;

    if (prefix_index_max_instances(index) < n || model->block_tokens == 0 ||
        /* The results have a place for each instance of the index. */
        (expected && prefix_index_max_instances(expected) !=
                         prefix_index_max_instances(index)) ||
        model->kv_bytes_per_token < 1 || !config->policy)
        return NULL;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->model = *model;
    if (!model->coupled)
        s->model.step_tokens = 0; /* prefills share no step with decodes */
    s->policy = config->policy;
    s->admission = admission_policy_by_name(
        config->admission ? config->admission : "plain");
    policy_options_init(s->policy, s->options);
    if (config->options)
        memcpy(s->options, config->options, sizeof(s->options));
    schedule_pace_init(&s->pace, model->simulated.slowdown);
    set_rules(s);
    s->state = calloc(1, s->policy->state_bytes + 1);
    s->pool = pool;
    s->index = index;
    s->candidates = calloc(n, sizeof(*s->candidates));
    s->decode_candidates = calloc(n, sizeof(*s->decode_candidates));
    s->decode_ends =
        calloc(pool_config(pool)->max_decodes, sizeof(*s->decode_ends));
    if (!s->admission || !s->state || !s->candidates || !s->decode_candidates ||
        !s->decode_ends || schedule_evicted_init(s) < 0 ||
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
    asked_fini(&scheduler->evicted.seen);
    price_free(scheduler->price);
    free(scheduler->decode_ends);
    free(scheduler->decode_candidates);
    free(scheduler->candidates);
    prefix_match_fini(&scheduler->expected);
    prefix_match_fini(&scheduler->stored);
    free(scheduler->state);
    free(scheduler);
}

/* Time until a request that misses its TTFT SLO would meet it if sent again,
 * with its full SLO; -1 = never. */
static int64_t again_fits_in_us(const struct scheduler *s,
                                const struct schedule_request *request,
                                const struct schedule_decision *decision)
{
    struct schedule_request again = *request;

    again.slo_ttft_us += request->waited_us;
    return schedule_fits_in_us(s, &again, decision);
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

    ask.tbt_us -= schedule_hold_first(s, request, decision);
    decision->tested_us = ask.ttft_us;
    switch (s->admission->decide(&ask)) {
    case ADMISSION_ACCEPT:
        decision->verdict = SCHEDULE_ACCEPT;
        decision->retry_after_us = 0;
        break;
    case ADMISSION_REJECT_TTFT:
        decision->verdict = SCHEDULE_REJECT_TTFT;
        fits_in_us = again_fits_in_us(s, request, decision);
        decision->never = fits_in_us < 0;
        decision->retry_after_us = schedule_pace_in_us(
            s, decision->chosen.queue_most_us, fits_in_us, request->now_us);
        break;
    case ADMISSION_REJECT_TBT:
        decision->verdict = SCHEDULE_REJECT_TBT;
        if (s->rules.spares_decodes) /* unknown: other decodes will run then */
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

int64_t schedule_shortest_us(const struct schedule_decision *decision)
{
    int64_t least_us = INT64_MAX / 256;

    for (size_t i = 0; i < decision->n_candidates; i++)
        if (decision->candidates[i].prefill_us < least_us)
            least_us = decision->candidates[i].prefill_us;
    return least_us;
}

int64_t schedule_rank(const struct scheduler *scheduler,
                      const struct schedule_decision *decision,
                      int64_t arrived_us)
{
    const struct queue_item least = {.cost_us = schedule_shortest_us(decision),
                                     .arrived_us = arrived_us};

    if (!pool_config(scheduler->pool)->order ||
        pool_config(scheduler->pool)->order->by_age)
        return 0;
    return shortest_rank(&least);
}

int64_t schedule_expected_us(const struct scheduler *s,
                             const struct schedule_request *request,
                             const struct schedule_decision *decision)
{
    const struct prefill_estimate *e = &decision->chosen;
    const struct pool_instance *i = pool_get(s->pool, e->instance);
    struct queue_item item = {.cost_us = e->prefill_us,
                              .arrived_us = request->now_us,
                              .has_slo = request->slo_ttft_us > 0};
    int64_t us = 0;

    if (i && e->local_blocks > decision->stored_blocks)
        us = pool_followed_us(s->pool, i, request->keys, e->local_blocks, &item,
                              request->now_us) -
             request->now_us + e->prefill_us;
    return us > e->ttft_us ? us : e->ttft_us;
}

bool schedule_admits_late(const struct scheduler *scheduler)
{
    const struct admission_request late = {.ttft_us = 2, .slo_ttft_us = 1};

    return scheduler->admission->decide(&late) == ADMISSION_ACCEPT;
}

/* A request is not rejected because of the policy's preference: if another
 * candidate serves it in time, the first one to finish takes it. */
static void choose_in_time(struct scheduler *s,
                           const struct schedule_request *request,
                           struct schedule_decision *decision)
{
    const struct prefill_estimate *best = NULL;

    if (s->rules.by_score || meets_ttft(s, request, decision->chosen.most_us))
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
    schedule_lend(scheduler, request, decision);
    decision->stored_blocks =
        schedule_lesser(scheduler->stored.blocks[decision->chosen.slot],
                        decision->chosen.local_blocks);
    if (schedule_choose_decode(scheduler, request, decision) &&
        !schedule_waits_for_link(scheduler, request, decision)) {
        admit(scheduler, request, decision);
        schedule_wait_instead(scheduler, request, decision);
    }
}

const char *schedule_verdict_name(enum schedule_verdict verdict)
{
    return (unsigned)verdict < SCHEDULE_VERDICTS ? verdict_names[verdict] : "?";
}
