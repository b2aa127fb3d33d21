/*
 * Requests that other gateways send: each occupies its instances as a forwarded
 * request does, until the gateway or a time-out ends it. Private to the files
 * of conductor/service.
 *
 * Invariants:
 *   - a ticket counts from its submission until its request is freed;
 *   - a request is in tickets.open exactly from service_ticket_take() on.
 */
#ifndef CONDUCTOR_SERVICE_TICKET_TICKET_H
#define CONDUCTOR_SERVICE_TICKET_TICKET_H

#include "conductor/service/internal.h"
#include "conductor/service/ticket/gateway.h"

/* count.c: tickets_init(t, seed): sets up without open tickets. A random seed
 * keeps tenants from choosing whose count they share. */
void tickets_init(struct tickets *t, uint64_t seed);

/* Counts one more ticket of the tenant. Returns whether there was room. */
[[nodiscard]] bool tickets_enter(struct service *s, uint64_t tenant);

/* count.c: does instance_ops.free; the ticket no longer counts. */
void ticket_free(struct service_request *request);

/* count.c: ticket_let_go(f): stops counting the ticket at its engines. No-op
 * without a ticket. */
struct forward;
void ticket_let_go(struct forward *f);

/* legs.c: writes the instructions for both legs of its pair. */
void ticket_legs(const struct service_request *request,
                 struct service_legs *out);

/* holdings.c: writes the block keys of a prompt's n hashes, which are an
 * engine's names of its blocks. A hash that no engine has published gets a key
 * without a match, as do all later ones. */
void hashes_keys(const struct service *s, const uint64_t *hashes, size_t n,
                 uint64_t seed, uint64_t *keys);

/* tickets_tick(s): ends tickets that had no report for too long. */
void tickets_tick(struct service *s);

#endif
