/* See event.h. */
#include "conductor/cluster/event.h"

#include <string.h>

#include "conductor/cluster/names.h"
#include "predictor/cost_model.h"
#include "proto/wire.h"

#define NEVER 0u
#define TIME_BIAS (UINT64_C(1) << 63)
/* Times further away are refused. */
#define TIME_MAX_US (INT64_C(30) * 86400 * 1000000)
#define TOKENS_MAX (INT64_C(1) << 40)
/* Longest prompt that is priced, at a step for each 512 tokens. */
#define PRICED_TOKENS_MAX (INT64_C(1) << 24)
#define BYTES_MAX (INT64_C(1) << 50)

static int64_t within(int64_t us, int64_t most_us)
{
    if (us > most_us)
        return most_us;
    return us < -most_us ? -most_us : us;
}

/* A time relative to now, of at most TIME_MAX_US; 0 stays 0. */
static void time_field(struct codec *c, const struct cluster_wire *wire,
                       int64_t *us)
{
    int64_t from_now_us = within(*us - wire->now_us, TIME_MAX_US - 1);
    uint64_t told = *us ? (uint64_t)from_now_us + TIME_BIAS : NEVER;

    codec_u64(c, &told);
    if (c->out)
        return;
    from_now_us = (int64_t)(told - TIME_BIAS);
    codec_require(c, told == NEVER || (from_now_us > -TIME_MAX_US &&
                                       from_now_us < TIME_MAX_US));
    *us = told == NEVER || c->failed ? 0 : wire->now_us + from_now_us;
}

static void number_field(struct codec *c, int64_t *n, int64_t least,
                         int64_t most)
{
    uint64_t told = (uint64_t)*n;

    codec_u64(c, &told);
    if (c->out)
        return;
    codec_require(c, (int64_t)told >= least && (int64_t)told <= most);
    *n = c->failed ? 0 : (int64_t)told;
}

static void real_field(struct codec *c, double *x)
{
    uint64_t told;

    memcpy(&told, x, sizeof(told));
    codec_u64(c, &told);
    if (c->out)
        return;
    memcpy(x, &told, sizeof(told));
    codec_require(c, *x >= 0.0 && *x <= 1e30);
}

static void flag_field(struct codec *c, bool *flag)
{
    uint8_t told = *flag;

    codec_u8(c, &told);
    codec_require(c, told <= 1);
    *flag = told == 1;
}

static void instance_field(struct codec *c, const struct cluster_wire *wire,
                           uint32_t *id)
{
    uint64_t number = c->out ? names_number(wire->names, *id) : 0;

    codec_u64(c, &number);
    if (!c->out)
        *id = names_id(wire->names, number);
}

static void work_fields(struct codec *c, struct pool_work *w)
{
    number_field(c, &w->tokens, 0, TOKENS_MAX);
    number_field(c, &w->us, 0, COST_MODEL_MAX_US);
    real_field(c, &w->own_tokens);
    real_field(c, &w->own_us);
    real_field(c, &w->own_square);
}

static void keys_field(struct codec *c, const struct cluster_wire *wire,
                       const uint64_t **all, size_t *n_all)
{
    const uint8_t *keys = (const uint8_t *)*all;
    uint32_t n =
        *n_all < CLUSTER_KEYS_MAX ? (uint32_t)*n_all : CLUSTER_KEYS_MAX;

    codec_array(c, 8, &keys, &n);
    if (c->out)
        return;
    codec_require(c, n <= CLUSTER_KEYS_MAX);
    *n_all = c->failed ? 0 : n;
    *all = wire->keys;
    for (uint32_t i = 0; i < *n_all; i++)
        wire->keys[i] = wire_u64_at(keys, i);
}

static void booked_fields(struct codec *c, const struct cluster_wire *wire,
                          struct pool_record_booked *b)
{
    uint8_t channel = (uint8_t)b->channel;

    instance_field(c, wire, &b->holder);
    codec_u8(c, &channel);
    codec_require(c, channel <= POOL_INGRESS);
    b->channel = channel;
    time_field(c, wire, &b->from_us);
    time_field(c, wire, &b->until_us);
}

static void prefill_fields(struct codec *c, const struct cluster_wire *wire,
                           struct pool_record_prefill *p)
{
    struct pool_prefill_request *r = &p->request;
    uint8_t n = (uint8_t)p->n_booked;

    instance_field(c, wire, &p->instance);
    flag_field(c, &p->started);
    time_field(c, wire, &p->started_us);
    number_field(c, &p->worked_us, 0, TIME_MAX_US);
    number_field(c, &r->predicted_us, 0, COST_MODEL_MAX_US);
    number_field(c, &r->shared_us, 0, COST_MODEL_MAX_US);
    time_field(c, wire, &r->ready_at_us);
    time_field(c, wire, &r->loading_until_us);
    time_field(c, wire, &r->arrived_us);
    time_field(c, wire, &r->deadline_us);
    flag_field(c, &r->implied);
    number_field(c, &r->uncached_tokens, 0, TOKENS_MAX);
    number_field(c, &r->cached_tokens, 0, TOKENS_MAX);
    flag_field(c, &r->stage);
    work_fields(c, &r->work);
    codec_u8(c, &n);
    codec_require(c, n <= POOL_RECORD_BOOKED_MAX);
    p->n_booked = c->failed ? 0 : n;
    for (size_t i = 0; i < p->n_booked; i++)
        booked_fields(c, wire, &p->booked[i]);
    keys_field(c, wire, &r->keys, &r->n_keys);
}

static void decode_fields(struct codec *c, const struct cluster_wire *wire,
                          struct pool_record_decode *d)
{
    struct pool_decode_request *r = &d->request;

    instance_field(c, wire, &d->instance);
    number_field(c, &r->prompt_tokens, 0, TOKENS_MAX);
    number_field(c, &r->max_output_tokens, 0, TOKENS_MAX);
    number_field(c, &r->expected_tokens, 0, TOKENS_MAX);
    codec_require(c, r->expected_tokens <= r->max_output_tokens);
    time_field(c, wire, &r->comes_us);
    instance_field(c, wire, &r->prefill);
    number_field(c, &r->prefill_us, 0, COST_MODEL_MAX_US);
    number_field(c, &d->produced_tokens, 0, TOKENS_MAX);
    number_field(c, &d->likely_tokens, 0, TOKENS_MAX);
    flag_field(c, &d->coming);
    flag_field(c, &d->started);
    instance_field(c, wire, &d->push.from);
    number_field(c, &d->push.bytes, 0, BYTES_MAX);
    time_field(c, wire, &d->push.due_us);
}

static void asked_fields(struct codec *c, const struct cluster_wire *wire,
                         struct schedule_asked *a)
{
    struct price_work *w = &a->work;

    number_field(c, &w->n_tokens, 1, PRICED_TOKENS_MAX);
    number_field(c, &w->from, 0, PRICED_TOKENS_MAX);
    number_field(c, &w->split, 0, PRICED_TOKENS_MAX);
    number_field(c, &w->cached, 0, PRICED_TOKENS_MAX);
    real_field(c, &w->us);
    real_field(c, &a->times);
    number_field(c, &a->slo_ttft_us, 0, TIME_MAX_US);
    flag_field(c, &a->feasible);
    keys_field(c, wire, &w->keys, &w->n_keys);
}

void cluster_head_fields(struct codec *c, struct cluster_head *head)
{
    uint8_t version = CLUSTER_VERSION;

    codec_u8(c, &version);
    codec_require(c, version == CLUSTER_VERSION);
    codec_u64(c, &head->owner);
    codec_u64(c, &head->token);
    codec_u64(c, &head->number);
    codec_require(c, head->owner > 0);
}

void cluster_event_fields(struct codec *c, const struct cluster_wire *wire,
                          struct cluster_event *e)
{
    uint8_t kind = (uint8_t)e->kind;

    codec_u8(c, &kind);
    codec_require(c, kind >= 1 && kind <= CLUSTER_KINDS);
    e->kind = kind;
    codec_u64(c, &e->request);
    switch (e->kind) {
    case CLUSTER_PREFILL:
        prefill_fields(c, wire, &e->prefill);
        e->prefill.request.request_id = e->request;
        break;
    case CLUSTER_DECODE:
        decode_fields(c, wire, &e->decode);
        e->decode.request.request_id = e->request;
        break;
    case CLUSTER_PREFILLED:
        number_field(c, &e->value, -1, COST_MODEL_MAX_US);
        break;
    case CLUSTER_PRODUCED:
        number_field(c, &e->value, 0, TOKENS_MAX);
        break;
    case CLUSTER_LEARNT:
        number_field(c, &e->value, 1, TOKENS_MAX);
        number_field(c, &e->most, 1, TOKENS_MAX);
        break;
    case CLUSTER_ASKED:
        asked_fields(c, wire, &e->asked);
        break;
    default:
        break;
    }
}
