/* See explain.h. */
#include "conductor/service/explain/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/text.h"
#include "conductor/service/engine/costs.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/explain/state.h"
#include "conductor/service/models.h"

struct explain {
    uint32_t n;
    struct explain_record *records; /* (n), by number % n */
    /* recent[i % EXPLAIN_RECENT]: number of the request of the service's i-th
     * decision. */
    uint64_t recent[EXPLAIN_RECENT];
    uint64_t n_decided;
    /* The last refused ones, copied: under load their places are soon taken. */
    struct explain_record refused[EXPLAIN_REFUSED];
    uint64_t n_refused;
};

struct explain *explain_new(uint32_t n_requests)
{
    struct explain *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->n = n_requests;
    e->records = calloc((size_t)n_requests + 1, sizeof(*e->records));
    if (!e->records) {
        free(e);
        return NULL;
    }
    return e;
}

void explain_free(struct explain *explain)
{
    if (!explain)
        return;
    free(explain->records);
    free(explain);
}

/* Returns the record of a request, or NULL if it was not decided, or a later
 * request has replaced its record. */
static struct explain_record *record_of(const struct service_request *request)
{
    struct explain *explain = request->service->explain;

    if (explain->n == 0)
        return NULL;
    struct explain_record *r = &explain->records[request->number % explain->n];
    return r->request_id[0] && r->number == request->number ? r : NULL;
}

/* Whether the id is the record's trace id, as in "00-TRACE-SPAN-FLAGS". */
static bool is_traced(const struct explain_record *r, const char *id)
{
    size_t n = strlen(id);

    return n == 32 && strlen(r->trace) > 3 + n &&
           memcmp(r->trace + 3, id, n) == 0 && r->trace[3 + n] == '-';
}

const struct explain_record *explain_find(const struct explain *explain,
                                          const char *id)
{
    const struct explain_record *last = NULL;
    const char *dash = strrchr(id, '-');

    if (explain->n == 0 || !*id)
        return NULL;
    uint64_t number = dash ? strtoull(dash + 1, NULL, 16) : 0;
    const struct explain_record *r = &explain->records[number % explain->n];
    if (strcmp(r->request_id, id) == 0)
        return r;
    for (uint32_t i = 0; i < explain->n; i++) {
        r = &explain->records[i];
        if ((strcmp(r->client_id, id) == 0 || is_traced(r, id)) &&
            (!last || r->number > last->number))
            last = r;
    }
    return last;
}

uint64_t explain_decided_before(const struct explain *explain, uint64_t before)
{
    uint64_t n = explain->n_decided, newest = 0;

    for (uint64_t i = n > EXPLAIN_RECENT ? n - EXPLAIN_RECENT : 0;
         explain->n && i < n; i++) {
        const struct explain_record *r =
            &explain->records[explain->recent[i % EXPLAIN_RECENT] % explain->n];

        if (r->decided < before && r->decided > newest)
            newest = r->decided;
    }
    return newest;
}

uint64_t explain_refused_before(const struct explain *explain, uint64_t before)
{
    uint64_t newest = 0;

    for (unsigned i = 0; i < EXPLAIN_REFUSED; i++) {
        uint64_t decided = explain->refused[i].decided;

        if (decided < before && decided > newest)
            newest = decided;
    }
    return newest;
}

const struct explain_record *explain_find_decided(const struct explain *explain,
                                                  uint64_t decided)
{
    for (unsigned i = 0; explain->n && i < EXPLAIN_RECENT; i++) {
        const struct explain_record *r =
            &explain->records[explain->recent[i] % explain->n];

        if (decided && r->decided == decided)
            return r;
    }
    for (unsigned i = 0; decided && i < EXPLAIN_REFUSED; i++)
        if (explain->refused[i].decided == decided)
            return &explain->refused[i];
    return NULL;
}

static void put_name(const struct service *s, uint32_t id,
                     char name[POOL_NAME_BYTES])
{
    const struct pool_instance *in = pool_get(s->pool, id);

    text_copy(name, POOL_NAME_BYTES, in ? in->name : "");
}

/* Sorts the chosen candidate first, then eligible ones, then excluded ones. */
static int rank_of(const struct schedule_decision *d,
                   const struct prefill_estimate *c)
{
    if (c->instance == d->prefill)
        return 0;
    return c->queue_full || c->too_long || c->spared ? 2 : 1;
}

static bool better(const struct schedule_decision *d,
                   const struct prefill_estimate *a,
                   const struct prefill_estimate *b)
{
    int rank_a = rank_of(d, a), rank_b = rank_of(d, b);

    if (rank_a != rank_b)
        return rank_a < rank_b;
    if (a->late != b->late)
        return b->late;
    return a->late ? a->ttft_us < b->ttft_us : a->score_us < b->score_us;
}

/* Sets block_tokens and unseen_tokens of an engine whose block size differs
 * from the index's. */
static void put_size(const struct explain_record *r, const struct service *s,
                     struct explain_candidate *c)
{
    const struct engine *e = engine_of(s, c->estimate.instance);

    if (!e || e->block_tokens == r->block_tokens)
        return;
    c->block_tokens = e->block_tokens;
    c->unseen_tokens =
        engine_unseen_tokens(e, r->prompt_tokens, c->estimate.cached_tokens);
}

/* Keeps the best candidates. */
static void put_candidates(struct explain_record *r, const struct service *s,
                           const struct schedule_decision *d)
{
    const struct prefill_estimate *kept[EXPLAIN_CANDIDATES_MAX];
    uint32_t n = 0;

    for (size_t i = 0; i < d->n_candidates; i++) {
        uint32_t at = n;

        if (n == EXPLAIN_CANDIDATES_MAX) {
            r->n_left_out++;
            if (!better(d, &d->candidates[i], kept[n - 1]))
                continue;
            at = n - 1;
        } else {
            n++;
        }
        for (; at > 0 && better(d, &d->candidates[i], kept[at - 1]); at--)
            kept[at] = kept[at - 1];
        kept[at] = &d->candidates[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        struct explain_candidate *c = &r->candidates[i];

        c->estimate = *kept[i];
        c->block_tokens = c->unseen_tokens = 0;
        c->tested_us = 0;
        if (r->tested_us > 0)
            c->tested_us = r->tested_us - d->tested_us +
                           schedule_tested_us(s->dispatch.scheduler, kept[i]);
        put_name(s, kept[i]->instance, c->name);
        put_name(s, kept[i]->fetch_from, c->fetch_from);
        costs_name(s, kept[i]->slot, c->cost_model);
        put_size(r, s, c);
    }
    r->n_candidates = n;
}

/* Keeps the chosen candidate, then others. */
static void put_decodes(struct explain_record *r, const struct service *s,
                        const struct schedule_decision *d)
{
    for (int others = 0; others < 2; others++) {
        for (size_t i = 0; i < d->n_decode_candidates; i++) {
            const struct decode_estimate *c = &d->decode_candidates[i];

            if ((c->instance != d->decode) != others)
                continue;
            if (r->n_decodes == EXPLAIN_CANDIDATES_MAX) {
                r->n_decodes_left_out++;
                continue;
            }
            r->decodes[r->n_decodes].estimate = *c;
            put_name(s, c->instance, r->decodes[r->n_decodes++].name);
        }
    }
}

/* Keeps the plan's pieces, or the one fetch of Algorithm 1. */
static void put_sources(struct explain_record *r, const struct service *s,
                        const struct schedule_decision *d)
{
    const struct prefill_estimate *c = &d->chosen;
    /* The time of the decision: a rejected request has no planned_us. */
    int64_t now_us = c->transfer_end_us - c->transfer_us;

    if (!c->planned && c->fetch_from != POOL_NO_INSTANCE) {
        r->sources[0] = (struct explain_source){.from_block = c->local_blocks,
                                                .to_block = c->used_blocks,
                                                .start_us = -1,
                                                .end_us = c->transfer_us};
        put_name(s, c->fetch_from, r->sources[0].name);
        r->n_sources = 1;
    }
    for (uint32_t i = 0; c->planned && i < d->plan.n_pieces; i++) {
        const struct load_piece *piece = &d->plan.pieces[i];
        const struct load_share *share = &d->plan.of_source[piece->source];
        const struct schedule_source *from = &d->sources[piece->source];

        r->sources[i] =
            (struct explain_source){.own = from->instance == d->prefill,
                                    .tier = from->tier,
                                    .from_block = piece->from_block,
                                    .to_block = piece->to_block,
                                    .start_us = share->start_us - now_us,
                                    .end_us = share->end_us - now_us};
        put_name(s, from->instance, r->sources[i].name);
        r->n_sources = i + 1;
    }
}

static void put_messages(struct explain_record *r, const struct service *s,
                         uint32_t id)
{
    const struct engine *e = engine_of(s, id);

    if (e && e->events.feed)
        r->heard = kv_feed_known(e->events.feed, 0, &r->first_message,
                                 &r->last_message);
}

void explain_decided(struct service_request *request,
                     const struct schedule_decision *d)
{
    const struct service *s = request->service;
    struct explain *explain = s->explain;
    const struct engine *e = engine_of(s, d->prefill);

    if (explain->n == 0)
        return;
    struct explain_record *r = &explain->records[request->number % explain->n];
    if (r->request_id[0] && r->number > request->number)
        return; /* a later request has replaced its record */
    memset(r, 0, offsetof(struct explain_record, sources));
    text_copy(r->request_id, sizeof(r->request_id), request->request_id);
    r->number = request->number;
    r->decided = ++s->models->decided;
    r->decided_ms = loop_wall_us(s->loop) / 1000;
    explain->recent[explain->n_decided++ % EXPLAIN_RECENT] = request->number;
    memcpy(r->session, request->session_id, sizeof(r->session));
    text_copy(r->named, sizeof(r->named),
              request->named ? request->named->name.name : "");
    memcpy(r->client_id, request->client_id, sizeof(r->client_id));
    memcpy(r->trace, request->trace, sizeof(r->trace));
    r->policy = s->config.policy;
    r->state = "running";
    r->attempt = request->dispatch.retries + 1;
    r->of_bytes = request->prompt.known_by == SERVICE_BY_BYTES;
    r->prompt_tokens = request->prompt.n_tokens;
    r->max_tokens = request->prompt.max_tokens;
    r->expected_tokens = request->dispatch.ask.expected_tokens;
    r->block_tokens = (uint32_t)s->config.block_tokens;
    r->slo_ttft_us = request->dispatch.slo_ttft_us;
    r->slo_tbt_us = request->dispatch.slo_tbt_us;
    text_copy(r->tenant, sizeof(r->tenant),
              tenants_name(s->models->tenants, request->dispatch.tenant));
    r->priority = request->dispatch.priority;
    r->standing = request->dispatch.standing;
    r->verdict = d->verdict;
    put_name(s, d->prefill, r->prefill);
    r->n_lent = d->lent.n;
    for (uint32_t i = 0; i < d->lent.n; i++)
        put_name(s, d->lent.members[i], r->lent[i]);
    put_name(s, d->decode, r->decode);
    r->chosen = d->chosen;
    notes_why(&s->native.copy_notes, d->prefill, request->prompt.keys,
              d->chosen.local_blocks < request->prompt.n_keys
                  ? d->chosen.local_blocks
                  : request->prompt.n_keys,
              loop_now_us(s->loop), &r->copied);
    if (d->prefill != POOL_NO_INSTANCE)
        costs_name(s, d->chosen.slot, r->cost_model);
    /* Blocks counted as stored were only predicted, so none was reported. */
    if (!e || !engine_predicts(e, !r->of_bytes))
        r->stored_blocks = d->stored_blocks;
    put_messages(r, s, d->prefill);
    r->engine_price = d->engine_price;
    r->evicted_us = d->evicted_us;
    r->equal_us = d->equal_us;
    r->price_us = d->price_us;
    r->price_limit_us = d->price_limit_us;
    if (d->verdict == SCHEDULE_ACCEPT)
        r->forecast = request->attempt.forecast;
    r->tested_us = 0;
    if (s->costs.predicts && request->dispatch.ask.slo_ttft_us > 0 &&
        d->tested_us > 0)
        r->tested_us = d->tested_us + request->dispatch.slo_ttft_us -
                       request->dispatch.ask.slo_ttft_us;
    r->predicts = s->costs.predicts;
    r->cost = s->costs.source;
    r->predicted_tbt_us = s->costs.predicts ? d->tbt_us : 0;
    r->ttft_us = -1;
    put_candidates(r, s, d);
    put_decodes(r, s, d);
    put_sources(r, s, d);
}

void explain_prefilled(struct service_request *request,
                       const struct msg_prefill_done *done)
{
    struct explain_record *r = record_of(request);

    if (!r)
        return;
    r->done = *done;
    r->prefilled = true;
    r->counted = request->result;
}

void explain_first_token(struct service_request *request, int64_t ttft_us,
                         int64_t)
{
    struct explain_record *r = record_of(request);

    if (r)
        r->ttft_us = ttft_us;
}

void explain_warmed(struct service_request *request)
{
    struct explain_record *r = record_of(request);

    if (r)
        r->warmed = true;
}

void explain_ended(struct service_request *request,
                   const struct request_outcome *end)
{
    struct explain_record *r = record_of(request);

    if (!r)
        return;
    r->state = outcome_name(end->outcome);
    r->counted = request->result;
    text_copy(r->reason, sizeof(r->reason), end->reason ? end->reason : "");
    if (end->outcome == METRICS_REJECTED)
        request->service->explain
            ->refused[request->service->explain->n_refused++ %
                      EXPLAIN_REFUSED] = *r;
}
