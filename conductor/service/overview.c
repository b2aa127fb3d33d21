/* Totals over all models: counts since the start, the pools, the last minute
 * and the history. */
#include <errno.h>
#include <string.h>

#include "base/loop/loop.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/history/history.h"
#include "conductor/service/models.h"

#define MINUTE_POINTS 6u
#define MODELS_SHOWN 32u

/* The load of all instances of a role. */
struct role_sums {
    unsigned instances, ready;
    size_t waiting, running, decodes;
    int64_t kv_used, kv_capacity;
};

static void sum_role(const struct models *models, unsigned role,
                     struct role_sums *sums)
{
    for (const struct service *s = models->first; s; s = s->next)
        for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
            const struct pool_instance *in = pool_at(s->pool, i);

            if (!in || (in->role & role) == 0)
                continue;
            sums->instances++;
            sums->ready += pool_takes_work(in);
            sums->waiting += in->n_waiting;
            sums->running += in->n_running;
            sums->decodes += in->n_decodes;
            if (engine_of(s, in->id))
                continue; /* an engine's KV is its own matter */
            sums->kv_used += in->kv_used_tokens;
            sums->kv_capacity += in->kv_capacity_tokens;
        }
}

static int put_pools(const struct models *models, struct text_buf *out)
{
    struct role_sums p = {0}, d = {0};

    sum_role(models, ROLE_PREFILL, &p);
    sum_role(models, ROLE_DECODE, &d);
    return text_buf_printf(
               out,
               ",\"pools\":{\"prefill\":{\"instances\":%u,\"ready\":%u,"
               "\"waiting\":%zu,\"running\":%zu,\"kv_used_tokens\":%lld,"
               "\"kv_capacity_tokens\":%lld},\"decode\":{\"instances\":%u,"
               "\"ready\":%u,\"decodes\":%zu,\"kv_used_tokens\":%lld,"
               "\"kv_capacity_tokens\":%lld}}",
               p.instances, p.ready, p.waiting, p.running, (long long)p.kv_used,
               (long long)p.kv_capacity, d.instances, d.ready, d.decodes,
               (long long)d.kv_used, (long long)d.kv_capacity) < 0;
}

static int put_models(const struct models *models, struct text_buf *out)
{
    char name[2 * ENGINE_MODEL_MAX];
    unsigned n = 0;
    int bad = text_buf_printf(out, "\"models\":[") < 0;

    for (const struct service *s = models->first; s; s = s->next, n++) {
        if (n >= MODELS_SHOWN)
            continue;
        metrics_escape(s->model.name, name);
        bad |= text_buf_printf(
                   out, "%s{\"name\":\"%s\",\"policy\":\"%s\",\"ready\":%s}",
                   n ? "," : "", name, s->model.policy,
                   service_ready(s) ? "true" : "false") < 0;
    }
    return bad | (text_buf_printf(out, "],\"models_left_out\":%u",
                                  n > MODELS_SHOWN ? n - MODELS_SHOWN : 0) < 0);
}

#define REJECTIONS(reason, metric, ...) {#metric, m.rejected_##metric},

static int put_counts(const struct models *models, struct text_buf *out)
{
    struct metrics m = models->past.metrics;
    uint32_t in_flight = 0;

    for (const struct service *s = models->first; s; s = s->next) {
        metrics_add(&m, &s->metrics);
        in_flight += s->requests.size - s->requests.n_free;
    }
    const uint64_t late = m.broken_retried + m.broken_other;
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"requests{", 0},
        {"in_flight", in_flight},
        {"completed", m.requests[METRICS_COMPLETED]},
        {"rejected", m.requests[METRICS_REJECTED]},
        {"failed", m.requests[METRICS_FAILED]},
        {"cancelled", m.requests[METRICS_CANCELLED]},
        {"invalid", m.requests[METRICS_INVALID]},
        {"retries", m.retries},
        {"rejections{", 0},
        /* clang-format off */
        REFUSALS(REJECTIONS, REFUSALS_NONE, REFUSALS_NONE, REJECTIONS)
        /* clang-format on */
        {"promises{", 0},
        {"kept", m.promises - late},
        {"late", late},
        {"tokens{", 0},
        {"prompt", m.prompt_tokens},
        {"local", m.local_tokens},
        {"fetched", m.fetched_tokens},
        {"disk", m.disk_tokens},
        {"shared", m.shared_tokens},
        {"computed", m.computed_tokens},
        {"output", m.output_tokens},
        {"guessed{", 0},
        {"length", m.guessed_length_tokens},
        {"cached", m.guessed_cached_tokens},
        {"transfers{", 0},
        {"fetched_blocks", m.fetched_blocks},
        {"fetched_bytes", m.fetched_bytes},
        {"disk_bytes", m.disk_bytes},
        {"shared_bytes", m.shared_bytes},
    };
    int bad = 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        size_t n = strcspn(all[i].name, "{");

        if (all[i].name[n]) /* an object begins, whose members follow */
            bad |= text_buf_printf(out, "%s\"%.*s\":{", i > 0 ? "}," : ",",
                                   (int)n, all[i].name) < 0;
        else
            bad |= text_buf_printf(out, "%s\"%s\":%llu",
                                   strchr(all[i - 1].name, '{') ? "" : ",",
                                   all[i].name,
                                   (unsigned long long)all[i].value) < 0;
    }
    return bad | (text_buf_printf(out, "}") < 0);
}

int models_overview(const struct models *models, struct text_buf *out)
{
    int bad = text_buf_printf(out, "{") < 0;

    bad |= put_models(models, out);
    bad |= put_counts(models, out);
    bad |= put_pools(models, out);
    bad |= text_buf_printf(out, ",\"last_minute\":{") < 0;
    bad |= history_write_last(models->history, MINUTE_POINTS,
                              loop_now_us(models->loop), out) != 0;
    bad |= text_buf_printf(out, "}}\n") < 0;
    return bad ? -ENOMEM : 0;
}

int models_history(const struct models *models, enum history_span span,
                   struct text_buf *out)
{
    int bad = text_buf_printf(out, "{") < 0;

    bad |= history_write(models->history, span, loop_now_us(models->loop), out);
    bad |= text_buf_printf(out, "}\n") < 0;
    return bad ? -ENOMEM : 0;
}

uint64_t models_decided(const struct models *models)
{
    return models->decided;
}

typedef uint64_t before_fn(const struct explain *explain, uint64_t before);

/* Returns the newest decision before `before` of those that `newest_of` finds,
 * or 0. */
static uint64_t decided_before(const struct models *models,
                               before_fn *newest_of, uint64_t before,
                               const struct service **of)
{
    uint64_t newest = 0;

    for (const struct service *s = models->first; s; s = s->next) {
        uint64_t at = newest_of(s->explain, before);

        if (at > newest) {
            newest = at;
            *of = s;
        }
    }
    return newest;
}

/* Appends the newest n of these decisions as the members of an array. */
static int put_decisions(const struct models *models, before_fn *newest_of,
                         unsigned n, struct text_buf *out)
{
    const struct service *of = NULL;
    uint64_t at = UINT64_MAX;
    int bad = 0;

    for (unsigned i = 0; i < n; i++) {
        at = decided_before(models, newest_of, at, &of);
        if (!at)
            break;
        bad |= text_buf_printf(out, i ? "," : "") < 0;
        bad |= explain_write_decided(of->explain, at, out) != 0;
    }
    return bad;
}

int models_decisions(const struct models *models, unsigned n,
                     struct text_buf *out)
{
    int bad = text_buf_printf(out, "{\"decisions\":[") < 0;

    bad |= put_decisions(models, explain_decided_before, n, out);
    bad |= text_buf_printf(out, "],\"refused\":[") < 0;
    bad |= put_decisions(models, explain_refused_before, EXPLAIN_REFUSED, out);
    bad |= text_buf_printf(out, "]}\n") < 0;
    return bad ? -ENOMEM : 0;
}
