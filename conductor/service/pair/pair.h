/*
 * A request on two engines: the prefill leg, and the release of its KV. The
 * decode leg is an ordinary forwarded request. Private to the files of
 * conductor/service.
 *
 *   pair_send(): forward->exchange is the prefill leg, at forward->engine
 *     -> its reply: forward->engine is the decode engine, which is asked
 *     -> it fails: as any engine that fails
 *
 * Concurrent: both legs are sent. forward->exchange is the decode leg;
 * forward->engine stays the prefill engine until its leg ends, or the first
 * byte of the answer comes. If one leg fails, the other one is cancelled.
 *
 * If the request ends before the decode engine has asked for the KV, a leg of
 * one token has it fetched, so that the prefill engine does not keep it until
 * its lease ends. The KV's parameters are sent once.
 */
#ifndef CONDUCTOR_SERVICE_PAIR_PAIR_H
#define CONDUCTOR_SERVICE_PAIR_PAIR_H

#include "conductor/service/engine/engine.h"

/* Begins the prefill leg of a request, whose forward->engine is chosen. Returns
 * 0 or -ENOMEM; pair_abort() cleans up. */
[[nodiscard]] int pair_send(struct service_request *request);

/* Gives up the attempt's pair: frees it, or lets it release the KV that the
 * prefill engine keeps. No-op without a pair. */
void pair_abort(struct service_request *request);

/* Called when the decode engine has answered with that status, or has seen the
 * request (0): it releases the KV itself, unless it had no room. */
void pair_heard(struct service_request *request, int status);

/* Called when the request has been answered: frees the pair as soon as the KV
 * at the prefill engine is released and a prefill leg that still runs has
 * ended. NULL is a no-op. */
void pair_end(struct pair *pair);

/* Whether a request is lost with an engine that leaves. Cancels a prefill leg
 * there that is needed no more. */
bool pair_lost_with(struct service_request *request, const struct engine *e);

/* Called when the decode leg of a concurrent pair fails: the decode engine, not
 * the prefill engine, is blamed from then on. */
void pair_blames_decode(struct service_request *request);

/* Returns the engine of a concurrent pair that had not answered when the other
 * one refused, perhaps only for not reaching it. NULL = none. */
struct engine *pair_silent(const struct service_request *request);

/* Whether the decode leg reads KV that the prefill engine keeps only until a
 * lease ends. */
bool pair_is_leased(const struct service_request *request);

/* Whether its decode leg may still fetch KV from prefill engine e. Assumed over
 * if the answer is not streamed and e was well for ENGINE_FAILURES_MAX times
 * engine_timeout_ms after the leg was sent. */
bool pair_fetches_from(const struct service_request *request,
                       const struct engine *e);

/* Returns the engine whose answer the client gets. */
struct engine *pair_answerer(const struct service_request *request);

/* Whether the prompt's cached tokens stand in the prefill leg's reply, not in
 * the answer. */
bool pair_tells_cached(const struct forward *f);

/* pair_changes(): whether the decode engine's answer is rewritten for the
 * client. pair_rewrite(): rewrites the next n bytes and appends them to `out`;
 * last: appends all bytes held back, too. */
bool pair_changes(const struct forward *f);
void pair_rewrite(struct service_request *request, const char *bytes, size_t n,
                  bool last, struct text_buf *out);

/* Called at the first byte of the decode engine's answer. */
void pair_answered(struct service_request *request, int64_t now_us);

/* Give up releases of KV: pairs_tick() late ones, pairs_cut_off() those at an
 * engine that leaves, pairs_end() all. */
void pairs_tick(struct service *s, int64_t now_us);
void pairs_cut_off(struct engine *e);
void pairs_end(struct service *s);

#endif
