/*
 * A request on two engines: the leg that computes the prompt, and what follows
 * from it. The leg that answers is an ordinary forwarded request of the decode
 * engine. Private to the files of conductor/service.
 *
 *   pair_send -> the prefill leg is forward->exchange, forward->engine has it
 *     -> its reply: forward->engine is the decode engine, which is asked
 *     -> it fails: as any engine that fails
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

/* Frees it. Nothing is under way. NULL is a no-op. */
void pair_free(struct pair *pair);

/* Whether the client's answer is not quite the decode engine's; then: appends
 * what it gets of the next n bytes, of the last ones all. */
bool pair_changes(const struct forward *f);
void pair_rewrite(struct service_request *request, const char *bytes, size_t n,
                  bool last, struct text_buf *out);

/* The first byte of the decode engine's answer has come. */
void pair_answered(struct service_request *request, int64_t now_us);

/* Ends releases that take too long; those at an engine that goes; all. */
void pairs_tick(struct service *s, int64_t now_us);
void pairs_cut_off(struct engine *e);
void pairs_end(struct service *s);

#endif
