/*
 * Why the last requests went where they went, and how they ended, for GET
 * /admin/explain/ID. It is a ring, indexed by the number of the request:
 * nothing is searched, and new requests replace the oldest.
 */
#ifndef CONDUCTOR_SERVICE_EXPLAIN_EXPLAIN_H
#define CONDUCTOR_SERVICE_EXPLAIN_EXPLAIN_H

#include <stdint.h>

#include "conductor/core/schedule/schedule.h"
#include "proto/message.h"

struct evbuffer;
struct explain;
struct service_request;

/* explain_new(n_requests): remembers n_requests requests; may be 0. Returns it
 * owned, or NULL: out of memory. */
[[nodiscard]] struct explain *explain_new(uint32_t n_requests);

/* explain_free(explain): NULL is a no-op. */
void explain_free(struct explain *explain);

/* explain_decided(explain, request, decision): remembers the decision on a
 * request, with its candidates (the best ones if there are many). It replaces
 * an earlier attempt's. Everything is copied. O(candidates). */
void explain_decided(struct explain *explain,
                     const struct service_request *request,
                     const struct schedule_decision *decision);

/* explain_prefilled(explain, request, done): remembers what the worker reported
 * about the prefill.
 */
void explain_prefilled(struct explain *explain,
                       const struct service_request *request,
                       const struct msg_prefill_done *done);

/* explain_first_token(explain, request, ttft_us): as the daemon saw it. */
void explain_first_token(struct explain *explain,
                         const struct service_request *request,
                         int64_t ttft_us);

/* explain_warmed(explain, request): it is refused, and its prompt is computed
 * in the background. */
void explain_warmed(struct explain *explain,
                    const struct service_request *request);

/* explain_ended(explain, request, how, reason): how is "completed", "failed",
 * "rejected" or "cancelled", static; reason a code, static, or NULL. */
void explain_ended(struct explain *explain,
                   const struct service_request *request, const char *how,
                   const char *reason);

/* The decisions that are found by when they were made: the last of each
 * request, and of these the last 16. */
#define EXPLAIN_RECENT 16u

/* explain_decided_before(explain, before): of these decisions, all models have
 * counted from 1 on (models->decided), the last one below `before`; 0: none. */
uint64_t explain_decided_before(const struct explain *explain, uint64_t before);

/* explain_write_decided(explain, decided, out): as explain_write(), without a
 * line end, of the decision of that count. */
[[nodiscard]] int explain_write_decided(const struct explain *explain,
                                        uint64_t decided, struct evbuffer *out);

/* explain_write(explain, id, out): appends the record of the request with that
 * id as JSON. Returns 0; -ENOENT: there is none; -ENOMEM. */
[[nodiscard]] int explain_write(const struct explain *explain, const char *id,
                                struct evbuffer *out);

#endif
