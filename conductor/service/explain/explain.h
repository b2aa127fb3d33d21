/*
 * Decisions on the last requests and how these ended, for GET
 * /admin/explain/ID. A ring, indexed by the request's number: new requests
 * replace the oldest.
 */
#ifndef CONDUCTOR_SERVICE_EXPLAIN_EXPLAIN_H
#define CONDUCTOR_SERVICE_EXPLAIN_EXPLAIN_H

#include <stdint.h>

#include "conductor/core/schedule/schedule.h"
#include "proto/message.h"

struct explain;
struct request_outcome;
struct service_request;
struct text_buf;

/* explain_new(n_requests): creates a ring of n_requests records; may be 0.
 * Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct explain *explain_new(uint32_t n_requests);

/* explain_free(explain): NULL is a no-op. */
void explain_free(struct explain *explain);

/* Observers, see conductor/service/observe.h. Each copies what it records. A
 * decision is recorded with its EXPLAIN_CANDIDATES_MAX best candidates, in
 * place of an earlier attempt's. O(candidates). */
void explain_decided(struct service_request *request,
                     const struct schedule_decision *decision);
void explain_warmed(struct service_request *request);
void explain_prefilled(struct service_request *request,
                       const struct msg_prefill_done *done);
void explain_first_token(struct service_request *request, int64_t ttft_us,
                         int64_t now_us);
void explain_ended(struct service_request *request,
                   const struct request_outcome *end);

/* Decisions that can be found by their count: the last ones of a service, and
 * only the last of each request. */
#define EXPLAIN_RECENT 16u

/* explain_decided_before(explain, before): returns the largest count (as in
 * models->decided, from 1 on) below `before` among these decisions; 0 =
 * none. */
uint64_t explain_decided_before(const struct explain *explain, uint64_t before);

/* Refused requests that are remembered, however many came after them. */
#define EXPLAIN_REFUSED 4u

/* explain_refused_before(explain, before): as explain_decided_before(), among
 * the last refused requests. */
uint64_t explain_refused_before(const struct explain *explain, uint64_t before);

/* explain_write_decided(explain, decided, out): as explain_write(), for the
 * decision with this count, and without a line end. */
[[nodiscard]] int explain_write_decided(const struct explain *explain,
                                        uint64_t decided, struct text_buf *out);

/* explain_write(explain, id, out): appends as JSON the record with this request
 * id, client's id or trace id. Returns 0, -ENOENT or -ENOMEM. */
[[nodiscard]] int explain_write(const struct explain *explain, const char *id,
                                struct text_buf *out);

#endif
