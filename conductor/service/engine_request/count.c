/* Counts the prompt of a forwarded request when the request ends, and charges
 * its tenant for it. */
#include "conductor/service/engine_request/count.h"

#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"

/* Most prompt tokens beyond the body's: of a template, of pictures, of an
 * earlier answer. */
#define UNSEEN_TOKENS_MAX 32768

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct count count_prompt(const struct count_facts *facts)
{
    int64_t known = facts->known > 1 ? facts->known : 1;
    int64_t had = smaller(facts->cached > 0 ? facts->cached : 0, known);
    struct count c = {.prompt = known,
                      .predicted = had,
                      .prompt_told = facts->told_prompt > 0,
                      .cached_told = facts->told_cached >= 0};

    if (c.prompt_told) {
        c.prompt = smaller(facts->told_prompt, facts->most);
        if (!facts->exact)
            c.predicted = (had * c.prompt + known / 2) / known;
    } else if (!facts->exact && facts->told_cached > known) {
        c.prompt = smaller(facts->told_cached, facts->most);
        c.prompt = c.prompt > known ? c.prompt : known;
    }
    c.predicted = smaller(c.predicted, c.prompt);
    c.cached =
        smaller(c.cached_told ? facts->told_cached : c.predicted, c.prompt);
    c.comparable = c.cached_told && (c.prompt_told || facts->exact);
    return c;
}

/* Whether the prompt's tokens are known exactly, as the engine will count them.
 */
static bool is_exact(const struct service_request *request)
{
    const struct service_forward *what = &request->forward->what;

    return what->ids && !what->several;
}

/* Counts a prompt's tokens and the cached ones among them. An engine's numbers
 * count only up to a bound, so that a false one cannot starve a tenant. A
 * ticket has no body: the bound takes four bytes for each token. */
static struct count count_of(const struct service_request *request)
{
    const struct forward *f = request->forward;
    int64_t n = request->prompt.n_tokens, bytes = (int64_t)f->what.n;

    return count_prompt(&(struct count_facts){
        .known = n,
        .cached = request->attempt.plan.cached_tokens,
        .exact = is_exact(request),
        .most = (bytes > 4 * n ? bytes : 4 * n) + UNSEEN_TOKENS_MAX,
        .told_prompt = f->told.prompt,
        .told_cached = f->told.cached,
    });
}

/* Adds the predicted and the told cached tokens to the engine's counts, if both
 * are known in the same tokens. */
static void compare(const struct service_request *request,
                    const struct count *c)
{
    struct engine *e = engine_of(request->service, request->attempt.prefill);

    if (!c->comparable || !e)
        return;
    e->count.told_tokens += (uint64_t)c->cached;
    e->count.predicted_tokens += (uint64_t)c->predicted;
}

/* Charges the tenant for the tokens that were computed, in place of those that
 * the decision expected. */
static void charge(struct service_request *request, const struct count *c)
{
    struct service *s = request->service;
    int64_t thought =
        request->prompt.n_tokens - request->attempt.plan.cached_tokens;

    tenants_sent(s->models->tenants, request->dispatch.tenant,
                 (uint64_t)(c->prompt - c->cached));
    if (c->prompt_told && !is_exact(request) && thought > 0)
        dispatch_told(&s->dispatch, &request->dispatch, thought,
                      c->prompt - c->cached, loop_now_us(s->loop));
}

void forward_count(struct service_request *request)
{
    struct service_result *r = &request->result;

    if (request->forward->what.looks || !request->output.first_token_us)
        return;
    struct count c = count_of(request);
    r->prompt_by = c.prompt_told ? SERVICE_BY_TOLD : request_known_by(request);
    r->cached_by = c.cached_told ? SERVICE_BY_TOLD : SERVICE_BY_INDEX;
    r->prompt_tokens = (uint32_t)c.prompt;
    r->local_tokens = (uint32_t)c.cached;
    r->computed_tokens = (uint32_t)(c.prompt - c.cached);
    observe_prompt(request);
    compare(request, &c);
    charge(request, &c);
}
