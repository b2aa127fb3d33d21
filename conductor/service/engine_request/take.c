/* Takes what a new request has for engines: see struct instance_ops. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "conductor/connector/pair.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/ticket/ticket.h"

/* Guesses a prompt's tokens: one for four bytes of the body, as in English. In
 * a larger body most bytes are no prompt text: sounds, pictures, or further
 * prompts. */
static uint32_t guess_tokens(const struct service_forward *f)
{
    size_t n = f->n / 4;

    if (f->looks || n == 0)
        return 1;
    return n < SCHEDULE_PIECE_TOKENS ? (uint32_t)n : SCHEDULE_PIECE_TOKENS;
}

/* Returns a bit for each group of engines whose pairs cannot share the request.
 */
static uint32_t apart(const struct service_forward *f)
{
    return f->prompt ? pair_apart(f->pairs) : UINT32_MAX;
}

/* Returns the most tokens to decode. One token needs no decode leg, unless a
 * prefill engine cannot answer alone. */
static int64_t decoded_tokens(const struct service *s, uint32_t max_tokens)
{
    for (uint32_t i = 0; max_tokens == 1 && i < pool_slots(s->pool); i++) {
        const struct engine *e = engine_at(s, i);
        const struct pair_protocol *pair =
            e ? pair_protocol(e->config->kv_connector) : NULL;

        if (pair && !pair->alone)
            return 2;
    }
    return max_tokens;
}

/* Sets the block keys of a prompt of tokens, or of an engine's hashes. */
static int set_keys(struct service_request *request,
                    const struct service_request_params *p)
{
    const struct service_forward *f = p->forward;
    struct request_prompt *prompt = &request->prompt;

    prompt->known_by = f->n_hashes ? SERVICE_BY_HASHES
                       : f->ids    ? SERVICE_BY_TOKENS
                                   : SERVICE_BY_BYTES;
    if (!f->hashes)
        return request_compute_keys(request, p->tokens, p->n_tokens);
    prompt->n_keys = f->n_hashes;
    prompt->keys = malloc((prompt->n_keys + 1) * sizeof(*prompt->keys));
    if (!prompt->keys)
        return -ENOMEM;
    hashes_keys(request->service, f->hashes, prompt->n_keys, prompt->key_seed,
                prompt->keys);
    return 0;
}

int forward_take(struct service_request *request,
                 const struct service_request_params *p)
{
    const struct service *s = request->service;
    const struct service_forward *what = p->forward;
    struct dispatch_request *d = &request->dispatch;
    struct forward *f = request->forward = calloc(1, sizeof(*f));

    if (!f || set_keys(request, p))
        return -ENOMEM;
    if (p->n_tokens == 0)
        request->prompt.n_tokens = guess_tokens(what);
    f->what = *what;
    f->what.hashes = NULL;
    text_copy(f->cache_salt, sizeof(f->cache_salt), what->cache_salt);
    text_copy(f->adapter, sizeof(f->adapter), p->adapter ? p->adapter : "");
    if (!what->ticket)
        request->method = what->method;
    d->ask.only =
        kept_find(&s->requests.kept, what->owner, what->kept, what->n_kept);
    d->ask.max_output_tokens = decoded_tokens(s, p->max_tokens);
    d->ask.whole = apart(what);
    if (what->looks)
        d->slo_ttft_us = d->slo_tbt_us = 0;
    return 0;
}
