/* What the usage at an answer's end tells. */
#include <string.h>

#include "base/clock.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"
#include "conductor/service/pair/pair.h"

#define CACHED "\"cached_tokens\":"
#define USAGE "\"usage\":"
#define META_INFO "\"meta_info\":" /* SGLang's */
/* Of a template, or of what a body names and does not hold: pictures, an
 * earlier answer. */
#define UNSEEN_TOKENS_MAX 32768

/* What an answer tells of its tokens, in its tail; NULL: nothing. */
struct told {
    const char *at, *end;
};

void forward_keep_tail(struct forward *f, const char *bytes, size_t n)
{
    size_t some = n < sizeof(f->tail) ? n : sizeof(f->tail);
    size_t old = sizeof(f->tail) - some;

    if (old > f->n_tail)
        old = f->n_tail;
    memmove(f->tail, f->tail + f->n_tail - old, old);
    memcpy(f->tail + old, bytes + n - some, some);
    f->n_tail = old + some;
}

/* Whether the object at `at` is what stands under a name. */
static bool is_of(const struct forward *f, const char *at, const char *name)
{
    size_t n = strlen(name);

    while (at > f->tail && at[-1] == ' ')
        at--;
    return (size_t)(at - f->tail) >= n && memcmp(at - n, name, n) == 0;
}

static bool is_escaped(const struct forward *f, const char *at)
{
    const char *first = at;

    while (first > f->tail && first[-1] == '\\')
        first--;
    return (at - first) % 2;
}

static bool holds(const struct forward *f, const char *name)
{
    return memmem(f->tail, f->n_tail, name, strlen(name));
}

/* The usage of an answer, which is a member of it, or, in a stream, of what an
 * event brings; deeper ones may be the client's own words, which some APIs
 * repeat. Depths are counted from the end on: what is kept may begin anywhere.
 */
static struct told told_of(const struct forward *f)
{
    const char *ends[4] = {0}, *at = f->tail + f->n_tail;
    struct told brought = {0};
    bool in_text = false;
    size_t depth = 0;

    if (!holds(f, USAGE) && !holds(f, META_INFO))
        return brought;
    while (at > f->tail) {
        at--;
        if (*at == '"' && !is_escaped(f, at))
            in_text = !in_text;
        if (in_text)
            continue;
        if (*at == '}' || *at == ']') {
            if (++depth <= 3)
                ends[depth] = at;
        } else if ((*at == '{' || *at == '[') && depth > 0) {
            bool usage = is_of(f, at, USAGE) || is_of(f, at, META_INFO);

            if (usage && depth == 2)
                return (struct told){at, ends[2]};
            if (usage && depth == 3 && f->what.stream && !brought.at)
                brought = (struct told){at, ends[3]};
            depth--;
        }
    }
    return brought;
}

/* The number behind a name in the usage, `"name":`; -1: none, or one that no
 * request has. */
static int64_t told_tokens(struct told told, const char *name)
{
    const char *end = told.end, *at;
    int64_t n = 0;

    if (!told.at ||
        !(at = memmem(told.at, (size_t)(end - told.at), name, strlen(name))))
        return -1;
    at += strlen(name);
    while (at < end && *at == ' ')
        at++;
    if (at == end || *at < '0' || *at > '9')
        return -1;
    for (; at < end && *at >= '0' && *at <= '9' && n <= INT32_MAX; at++)
        n = n * 10 + (*at - '0');
    return n <= INT32_MAX ? n : -1;
}

void forward_told_cached(struct service_request *request, int64_t told)
{
    struct engine *e = engine_of(request->service, request->attempt.prefill);

    if (told < 0 || !e || request->forward->what.looks) /* of another answer */
        return;
    e->count.told_tokens += (uint64_t)told;
    e->count.predicted_tokens += (uint64_t)request->attempt.plan.cached_tokens;
    request->service->metrics.local_tokens += (uint64_t)told;
}

void forward_count_unheard(struct service_request *request, int64_t told)
{
    struct forward *f = request->forward;
    uint64_t cached =
        told > 0 ? (uint64_t)(told / request->service->config.block_tokens) : 0;

    if (f->refused || f->what.looks ||
        (told >= 0 && !expect_stores(request, cached)))
        f->engine->count.excused++;
    else if (f->what.ids &&
             expect_stores(request, request->attempt.plan.used_blocks))
        engine_unheard(f->engine);
}

/* How long the answer is, so that others' lengths are expected by it: as its
 * usage tells, in one of the APIs' words. A stream without it has an event for
 * each token, and one behind the last. */
static void learn_length(struct service_request *request, struct told told)
{
    struct forward *f = request->forward;
    int64_t n = told_tokens(told, "\"completion_tokens\":");

    if (!f->what.prompt)
        return;
    if (n < 0)
        n = told_tokens(told, "\"output_tokens\":");
    if (n < 0 && f->what.stream)
        n = (int64_t)request->output.n_tokens - 2;
    if (n > 0)
        request_answered(request, n);
}

/* Of a prompt whose tokens were guessed by its bytes, the usage tells how many
 * there were, which is believed up to so many beside one a byte: an engine that
 * lies must not starve a tenant. As large a part of them is taken to have been
 * cached as was thought, unless that is told, too. */
static void charge_told(struct service_request *request, struct told told,
                        int64_t cached)
{
    struct service *s = request->service;
    const struct forward *f = request->forward;
    int64_t n = told_tokens(told, "\"prompt_tokens\":");
    int64_t all = request->prompt.n_tokens;
    int64_t guessed = all - request->attempt.plan.cached_tokens;
    int64_t most = (int64_t)f->what.n + UNSEEN_TOKENS_MAX;

    if (n < 0)
        n = told_tokens(told, "\"input_tokens\":");
    if (n < 0 || f->what.ids || f->what.looks || guessed < 1)
        return;
    n = n < most ? n : most;
    n = cached >= 0 ? n - cached : n * guessed / all;
    dispatch_told(&s->dispatch, &request->dispatch, guessed, n, clock_now_us());
    if (n > guessed)
        tenants_sent(s->models->tenants, request->dispatch.tenant,
                     (uint64_t)(n - guessed));
}

void forward_take_usage(struct service_request *request)
{
    struct told told = told_of(request->forward);
    int64_t cached = told_tokens(told, CACHED);

    forward_count_unheard(request, cached);
    if (request->forward->refused)
        return;
    if (!pair_tells_cached(request->forward)) /* else when it was computed */
        forward_told_cached(request, cached);
    charge_told(request, told, cached);
    learn_length(request, told);
}
