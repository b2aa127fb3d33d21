/*
 * A request on two engines: the leg that computes the prompt, and what follows
 * from it. The leg that answers is an ordinary forwarded request of the decode
 * engine. Private to the files of conductor/service.
 *
 *   pair_send -> the prefill leg is forward->exchange, forward->engine has it
 *     -> its reply: forward->engine is the decode engine, which is asked
 *     -> it fails: as any engine that fails
 *   concurrent: both legs are sent. forward->exchange is the decode leg, and
 * forward->engine still the prefill engine, which has the prompt, until its leg
 * or the first byte of the answer says that it is computed. Where one leg
 * fails, the other one is cancelled.
 *   the request goes before that engine has asked for the KV: a leg of one
 * token has it fetched, so that the prefill engine does not keep it until its
 *     lease ends. Parameters are sent once.
 */
#ifndef CONDUCTOR_SERVICE_PAIR_PAIR_H
#define CONDUCTOR_SERVICE_PAIR_PAIR_H

#include "conductor/service/engine/engine.h"

/* Begins the prefill leg of a request, whose forward->engine is chosen. Returns
 * 0, or -ENOMEM with nothing under way. */
[[nodiscard]] int pair_send(struct service_request *request);

/* The request's attempt is given up: frees its pair, or lets it release what
 * the prefill engine keeps. Nothing if it has none. */
void pair_abort(struct service_request *request);

/* The decode engine answers with that status, or has seen the request, status
 * 0: it releases the KV itself, unless it had no room for the request. */
void pair_heard(struct service_request *request, int status);

/* Called when the request has been answered: frees the pair as soon as the KV
 * at the prefill engine is released and a prefill leg that still runs has
 * ended. NULL is a no-op. */
void pair_end(struct pair *pair);

/* Whether a request is lost if the engine goes. Ends a prefill leg there that
 * the request does not need any more. */
bool pair_lost_with(struct service_request *request, const struct engine *e);

/* The decode leg of a concurrent pair fails: the decode engine is blamed from
 * now on. */
void pair_blames_decode(struct service_request *request);

/* The engine of a concurrent pair that had said nothing when the other engine
 * refused, perhaps only because it does not reach this one. NULL: none. */
struct engine *pair_silent(const struct service_request *request);

/* Whether the decode leg reads KV that the prefill engine keeps only until a
 * lease ends. */
bool pair_is_leased(const struct service_request *request);

/* Whether its decode leg may still have to fetch KV from that engine, the
 * prefill one. Not where the first byte of its answer would have told, and
 * the engine was well for three times engine_timeout_ms since it was sent: it
 * is being answered. */
bool pair_fetches_from(const struct service_request *request,
                       const struct engine *e);

/* Returns the engine whose answer the client gets. */
struct engine *pair_answerer(const struct service_request *request);

/* Whether the prefill leg's reply tells the prompt's cached tokens, and not the
 * answer. */
bool pair_tells_cached(const struct forward *f);

/* pair_changes(): whether the decode engine's answer is rewritten for the
 * client. pair_rewrite(): appends to `out` what the client gets of the next n
 * bytes; last: and all that was held back. */
bool pair_changes(const struct forward *f);
void pair_rewrite(struct service_request *request, const char *bytes, size_t n,
                  bool last, struct text_buf *out);

/* The first byte of the decode engine's answer has come. */
void pair_answered(struct service_request *request, int64_t now_us);

/* Gives up releases: those that take too long; those at an engine that goes;
 * all. */
void pairs_tick(struct service *s, int64_t now_us);
void pairs_cut_off(struct engine *e);
void pairs_end(struct service *s);

#endif
