/* Reads the usage, in tokens, at the end of an engine's answer. */
#include <string.h>

#include "conductor/service/engine/engine.h"

#define CACHED "\"cached_tokens\":"
#define USAGE "\"usage\":"
#define META_INFO "\"meta_info\":" /* SGLang's */
/* The usage object in an answer's tail; at NULL = none. */
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
    if (f->what.apart)
        meta_info_read(&f->read.meta, bytes, n);
}

/* Whether the object at `at` is the member `name`. */
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

/* Finds the usage object: a member of the answer, or, in a stream, of an object
 * in an event. Deeper ones may be the client's own text, which some APIs
 * repeat. Depths are counted from the end, because the tail may begin anywhere.
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

/* Returns the number behind `"name":` in the usage; -1 = none, or too large. */
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

void forward_told(struct service_request *request, int64_t prompt,
                  int64_t cached)
{
    struct forward *f = request->forward;

    if (f->told.prompt < 1)
        f->told.prompt = prompt;
    if (f->told.cached < 0)
        f->told.cached = cached;
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

/* Learns the length of the answer, from which lengths of later ones are
 * expected: from its usage, in the words of any API. A stream without usage has
 * an event for each token and one after the last. */
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
    if (n <= 0)
        return;
    request_answered(request, n);
    forward_learn_whole(request, n);
}

/* Returns the cached tokens of a usage that tells its prompt's, -1 = not told.
 * vLLM and SGLang leave a 0 out: where an engine has told cached tokens of this
 * API before, a usage without them says that there were none. */
static int64_t cached_or_none(const struct forward *f, struct told told,
                              int64_t prompt, int64_t cached)
{
    struct engine *e = f->engine;
    bool chat = f->what.path && strstr(f->what.path, "/chat/");

    /* Usages of embeddings and of other APIs have other members. */
    if (!e || prompt < 0 || told_tokens(told, "\"completion_tokens\":") <= 0)
        return cached;
    if (cached >= 0)
        e->tells_cached[chat] = true;
    return cached < 0 && e->tells_cached[chat] ? 0 : cached;
}

void forward_take_usage(struct service_request *request, bool tells_cached)
{
    struct told told = told_of(request->forward);
    int64_t prompt = told_tokens(told, "\"prompt_tokens\":");
    int64_t cached = told_tokens(told, CACHED);
    const struct forward *f = request->forward;

    if (f->what.apart && f->read.meta.n > 0) {
        prompt = f->read.meta.prompt;
        cached = f->read.meta.cached_told ? f->read.meta.cached : -1;
    }
    if (!f->refused && f->what.prompt && tells_cached)
        cached = cached_or_none(f, told, prompt, cached);
    forward_count_unheard(request, cached);
    if (f->refused)
        return;
    if (prompt < 0)
        prompt = told_tokens(told, "\"input_tokens\":");
    forward_told(request, prompt, tells_cached ? cached : -1);
    learn_length(request, told);
}
