/*
 * Requests that other gateways send: they occupy what was decided, as if they
 * were forwarded from here, until the gateway or a time-out ends them. Private
 * to the files of conductor/service.
 *
 * Invariants:
 *   - a ticket counts from its submission until its request is freed;
 *   - a request is in tickets.open exactly from service_ticket_take() on.
 */
#ifndef CONDUCTOR_SERVICE_GATEWAY_TICKET_H
#define CONDUCTOR_SERVICE_GATEWAY_TICKET_H

#include "conductor/service/gateway/gateway.h"
#include "conductor/service/state.h"

/* count.c: tickets_init(t): none is open. */
void tickets_init(struct tickets *t);

/* Counts one ticket more for the tenant. Returns whether there was room. */
[[nodiscard]] bool tickets_enter(struct service *s, uint64_t tenant);

/* tickets_leave(s, request): it is freed. */
void tickets_leave(struct service *s, struct service_request *request);

/* count.c: ticket_let_go(f): its engines do not have the request any more. No-
 * op without a ticket. */
struct forward;
void ticket_let_go(struct forward *f);

/* ticket_sent(request): the gateway sends the request to the instances that
 * were chosen. */
void ticket_sent(struct service_request *request);

/* legs.c: what the gateway must put into both legs of its pair. */
void ticket_legs(const struct service_request *request,
                 struct service_legs *out);

/* holdings.c: writes the block keys of n hashes, by which an engine names the
 * blocks of a prompt in order. A hash that no engine has published gets a key
 * that matches nothing. */
void hashes_keys(const struct service *s, const uint64_t *hashes, size_t n,
                 uint64_t seed, uint64_t *keys);

/* tickets_tick(s): ends tickets without a report for too long. */
void tickets_tick(struct service *s);

#endif
