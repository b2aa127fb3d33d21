/*
 * A request on two engines: the prefill leg, and the release of its KV. The
 * decode leg is an ordinary forwarded request. Private to the files of
 * conductor/service.
 *
 *   pair_ops.send: forward->exchange is the prefill leg, at forward->engine
 *     -> its reply: forward->engine is the decode engine, which is asked
 *     -> it fails: as any engine that fails
 *
 * Concurrent: both legs are sent. forward->exchange is the decode leg;
 * forward->engine stays the prefill engine until its leg ends, or the first
 * byte of the answer comes. If one leg fails, the other one is cancelled.
 *
 * If the request ends before the decode engine has asked for the KV, a leg of
 * one token fetches it, so that the prefill engine need not keep it until its
 * lease ends. The KV's parameters are sent once.
 */
#ifndef CONDUCTOR_SERVICE_PAIR_PAIR_H
#define CONDUCTOR_SERVICE_PAIR_PAIR_H

#include "conductor/service/engine/engine.h"

/* Give up releases of KV: pairs_tick() late ones, pairs_cut_off() those at an
 * engine that is leaving, pairs_end() all. */
void pairs_tick(struct service *s, int64_t now_us);
void pairs_cut_off(struct engine *e);
void pairs_end(struct service *s);

#endif
