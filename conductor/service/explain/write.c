/* Writes records as JSON. See explain.h. */
#include <errno.h>
#include <inttypes.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/explain/explain.h"
#include "conductor/service/explain/state.h"

/* JSON being written; the first failure sticks. */
struct writer {
    struct text_buf *out;
    bool first;    /* next member is the object's first: no comma */
    bool predicts; /* estimates hold times */
    bool failed;
};

#define PUT(w, ...) \
    ((w)->failed = (w)->failed || text_buf_printf((w)->out, __VA_ARGS__) < 0)

/* A member's name, behind a comma if it needs one. */
static void put_key(struct writer *w, const char *key)
{
    PUT(w, "%s\"%s\":", w->first ? "" : ",", key);
    w->first = false;
}

/* Writes the name of an instance, which is printable. */
static void put_text(struct writer *w, const char *name)
{
    PUT(w, "\"");
    for (; *name; name++)
        PUT(w, *name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
    PUT(w, "\"");
}

/* Writes the name as a member, or null. */
static void put_name(struct writer *w, const char *key, const char *name)
{
    put_key(w, key);
    if (name[0])
        put_text(w, name);
    else
        PUT(w, "null");
}

/* Writes us as ms, or null if it is not known. */
static void put_known(struct writer *w, const char *key, int64_t us, bool known)
{
    put_key(w, key);
    if (known)
        PUT(w, "%.3f", (double)us / 1e3);
    else
        PUT(w, "null");
}

static void put_ms(struct writer *w, const char *key, int64_t us)
{
    put_known(w, key, us, true);
}

/* Writes a limit in ms; 0 = not set, null. */
static void put_limit(struct writer *w, const char *key, int64_t us)
{
    put_known(w, key, us, us > 0);
}

/* Returns the us until the last block is loaded. Without a plan transfer_us
 * covers only the link; reads of the instance's own tiers come on top. */
static int64_t load_us(const struct prefill_estimate *e)
{
    return e->planned ? e->transfer_us
                      : e->transfer_us + e->ready_us - e->transfer_end_us;
}

static void put_estimate(struct writer *w, const struct prefill_estimate *e)
{
    put_known(w, "ttft_ms", e->ttft_us, w->predicts);
    put_known(w, "queue_ms", e->queue_us, w->predicts);
    put_known(w, "load_ms", load_us(e), w->predicts);
    put_known(w, "prefill_ms", e->prefill_us, w->predicts);
    put_known(w, "beside_ms", e->beside_us, w->predicts);
    put_known(w, "room_ms", e->room_us, w->predicts);
    put_known(w, "push_ms", e->push_us, w->predicts);
    put_known(w, "score_ms", e->score_us, w->predicts);
    PUT(w,
        ",\"local_blocks\":%u,\"used_blocks\":%u,\"evicted_tokens\":%lld,"
        "\"at_least\":%s",
        e->local_blocks, e->used_blocks, (long long)e->evicted_tokens,
        e->at_least ? "true" : "false");
}

static void put_candidate(struct writer *w, const struct explain_candidate *c)
{
    const struct prefill_estimate *e = &c->estimate;
    bool planned = e->planned && !e->at_least;

    PUT(w, "{");
    w->first = true;
    put_name(w, "instance", c->name);
    put_name(w, "cost_model", c->cost_model);
    put_estimate(w, e);
    put_limit(w, "tested_ttft_ms", c->tested_us);
    put_name(w, "fetch_from", c->fetch_from);
    PUT(w, ",\"mode\":%s%s%s", planned ? "\"" : "",
        planned ? load_mode_name(e->load_mode) : "null", planned ? "\"" : "");
    PUT(w,
        ",\"late\":%s,\"extrapolated\":%s,\"queue_full\":%s,"
        "\"too_long\":%s,\"spared\":%s",
        e->late ? "true" : "false", e->extrapolated ? "true" : "false",
        e->queue_full ? "true" : "false", e->too_long ? "true" : "false",
        e->spared ? "true" : "false");
    if (c->block_tokens)
        PUT(w, ",\"block_tokens\":%u,\"unseen_tokens\":%u", c->block_tokens,
            c->unseen_tokens);
    PUT(w, "}");
}

static void put_decode(struct writer *w, const struct explain_decode *d)
{
    const struct decode_estimate *e = &d->estimate;

    PUT(w, "{");
    w->first = true;
    put_name(w, "instance", d->name);
    put_known(w, "tbt_ms", e->tbt_us, w->predicts);
    put_known(w, "load_ms", e->load_us, w->predicts);
    put_known(w, "push_ms", e->push_us, w->predicts);
    PUT(w,
        ",\"push_tokens\":%" PRId64 ",\"room_tokens\":%" PRId64
        ",\"no_room\":%s,\"too_long\":%s}",
        e->push_tokens, e->room_tokens, e->no_room ? "true" : "false",
        e->too_long ? "true" : "false");
}

static void put_source(struct writer *w, const struct explain_source *s)
{
    PUT(w, "{");
    w->first = true;
    put_name(w, "instance", s->name);
    PUT(w, ",\"from\":\"%s\",\"from_block\":%u,\"to_block\":%u",
        s->own ? block_tiers[s->tier].name : "link", s->from_block,
        s->to_block);
    put_known(w, "start_ms", s->start_us, s->start_us >= 0);
    put_ms(w, "end_ms", s->end_us);
    PUT(w, "}");
}

static void put_plan(struct writer *w, const struct explain_record *r)
{
    const struct prefill_estimate *c = &r->chosen;

    PUT(w,
        ",\"plan\":{\"mode\":\"%s\",\"engine_price\":%.3f,"
        "\"evicted_us_per_token\":%.3f",
        c->planned ? load_mode_name(c->load_mode) : "auto", r->engine_price,
        r->evicted_us);
    put_known(w, "equal_ms", r->equal_us, c->planned);
    PUT(w,
        ",\"resident_blocks\":%u,\"split_block\":%u,\"cached_blocks\":%u,"
        "\"sources\":[",
        c->local_blocks, c->planned ? c->split_block : c->local_blocks,
        c->used_blocks);
    for (uint32_t i = 0; i < r->n_sources; i++) {
        PUT(w, "%s", i ? "," : "");
        put_source(w, &r->sources[i]);
    }
    PUT(w, "]}");
}

static void put_lent(struct writer *w, const struct explain_record *r)
{
    put_key(w, "lent");
    PUT(w, "[");
    for (uint32_t i = 0; i < r->n_lent; i++) {
        PUT(w, "%s", i ? "," : "");
        put_text(w, r->lent[i]);
    }
    PUT(w, "]");
}

/* Writes why reused blocks were copied to the instance before, or null. */
static void put_copied(struct writer *w, const struct note_why *why)
{
    put_key(w, "copied");
    if (!why->from[0]) {
        PUT(w, "null");
        return;
    }
    PUT(w, "{");
    w->first = true;
    put_name(w, "from", why->from);
    PUT(w, ",\"first_block\":%u,\"end_block\":%u,\"age_s\":%.3f,\"reason\":",
        why->first_block, why->end_block, (double)why->age_us / 1e6);
    w->failed = w->failed || note_write_reason(&why->reason, w->out);
    PUT(w, "}");
    w->first = false;
}

static void put_decision(struct writer *w, const struct explain_record *r)
{
    PUT(w, ",\"verdict\":\"%s\",\"warmed\":%s",
        schedule_verdict_name(r->verdict), r->warmed ? "true" : "false");
    put_name(w, "prefill", r->prefill);
    put_lent(w, r);
    put_copied(w, &r->copied);
    put_name(w, "decode", r->decode);
    put_name(w, "cost", r->cost);
    put_limit(w, "price_ms", (int64_t)r->price_us);
    put_limit(w, "price_limit_ms", (int64_t)r->price_limit_us);
    if (!r->prefill[0]) {
        PUT(w, ",\"predicted\":null,\"plan\":null");
        return;
    }
    PUT(w, ",\"predicted\":{");
    w->first = true;
    put_name(w, "cost_model", r->cost_model);
    put_limit(w, "total_ttft_ms", r->forecast.ttft_us);
    put_limit(w, "p50_ttft_ms", r->forecast.p50_us);
    put_limit(w, "p90_ttft_ms", r->forecast.p90_us);
    put_limit(w, "tested_ttft_ms", r->tested_us);
    put_limit(w, "tbt_ms", r->predicted_tbt_us);
    put_estimate(w, &r->chosen);
    PUT(w, ",\"stored_blocks\":%u}", r->stored_blocks);
    if (r->heard)
        PUT(w, ",\"events\":{\"first\":%" PRIu64 ",\"last\":%" PRIu64 "}",
            r->first_message, r->last_message);
    put_plan(w, r);
}

static void put_tokens(struct writer *w, const struct service_result *t)
{
    PUT(w,
        ",\"prompt_tokens\":%u,\"prompt_known_by\":\"%s\","
        "\"cached_known_by\":\"%s\",\"local_tokens\":%u,"
        "\"fetched_tokens\":%u,\"disk_tokens\":%u,\"shared_tokens\":%u,"
        "\"computed_tokens\":%u",
        t->prompt_tokens, service_known_name(t->prompt_by),
        service_known_name(t->cached_by), t->local_tokens, t->fetched_tokens,
        t->disk_tokens, t->shared_tokens, t->computed_tokens);
}

static void put_actual(struct writer *w, const struct explain_record *r)
{
    const struct msg_prefill_done *m = &r->done;

    PUT(w, ",\"actual\":{");
    w->first = true;
    put_limit(w, "ttft_ms", r->ttft_us);
    if (r->prefilled) {
        PUT(w, ",\"mode\":\"%s\"",
            load_mode_name(
                (enum load_mode)(m->load_mode - PROTO_LOAD_COMPUTE)));
        put_ms(w, "queue_ms", (int64_t)m->queue_us);
        put_ms(w, "prefill_ms", (int64_t)m->prefill_us);
        put_ms(w, "load_ms", (int64_t)(m->load_us ? m->load_us : m->fetch_us));
    }
    if (r->counted.prompt_tokens)
        put_tokens(w, &r->counted);
    PUT(w, "}");
}

static int write_record(const struct explain_record *r, struct text_buf *out)
{
    struct writer w = {.out = out, .predicts = r->predicts};

    PUT(&w,
        "{\"request_id\":\"%s\",\"policy\":\"%s\",\"state\":\"%s\","
        "\"attempt\":%u,\"prompt_tokens\":%u,\"known_by\":\"%s\","
        "\"max_tokens\":%u,\"expected_tokens\":%" PRId64 ",\"block_tokens\":%u",
        r->request_id, r->policy, r->state, r->attempt, r->prompt_tokens,
        r->of_bytes ? "bytes" : "tokens", r->max_tokens, r->expected_tokens,
        r->block_tokens);
    PUT(&w, ",\"decided_ms\":%" PRId64, r->decided_ms);
    put_name(&w, "client_request_id", r->client_id);
    put_name(&w, "traceparent", r->trace);
    put_name(&w, "session", r->session);
    put_name(&w, "name", r->named);
    put_name(&w, "reason", r->reason);
    put_limit(&w, "slo_ttft_ms", r->slo_ttft_us);
    put_limit(&w, "slo_tbt_ms", r->slo_tbt_us);
    put_name(&w, "tenant", r->tenant);
    PUT(&w, ",\"priority\":%d", r->priority);
    put_key(&w, "standing");
    if (r->standing > 0.0)
        PUT(&w, "%.3f", r->standing);
    else
        PUT(&w, "null");
    put_decision(&w, r);
    put_actual(&w, r);
    PUT(&w, ",\"candidates\":[");
    for (uint32_t i = 0; i < r->n_candidates; i++) {
        PUT(&w, "%s", i ? "," : "");
        put_candidate(&w, &r->candidates[i]);
    }
    PUT(&w, "],\"candidates_left_out\":%u,\"decode_candidates\":[",
        r->n_left_out);
    for (uint32_t i = 0; i < r->n_decodes; i++) {
        PUT(&w, "%s", i ? "," : "");
        put_decode(&w, &r->decodes[i]);
    }
    PUT(&w, "],\"decode_candidates_left_out\":%u}", r->n_decodes_left_out);
    return w.failed ? -ENOMEM : 0;
}

int explain_write(const struct explain *explain, const char *id,
                  struct text_buf *out)
{
    const struct explain_record *r = explain_find(explain, id);

    if (!r)
        return -ENOENT;
    return write_record(r, out) || text_buf_printf(out, "\n") ? -ENOMEM : 0;
}

int explain_write_decided(const struct explain *explain, uint64_t decided,
                          struct text_buf *out)
{
    const struct explain_record *r = explain_find_decided(explain, decided);

    return r ? write_record(r, out) : -ENOENT;
}
