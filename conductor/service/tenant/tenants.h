/*
 * Who asks: the key of a request, a name of it where the configuration's
 * tenants_file has one, and what is counted of each name. Keys themselves are
 * not kept: what stays is a number that is drawn from SHA-256 of one.
 *
 * Without a file every key is a tenant of weight 1. With one, keys that are not
 * in it are one tenant together, as anybody can make some up.
 */
#ifndef CONDUCTOR_SERVICE_TENANT_TENANTS_H
#define CONDUCTOR_SERVICE_TENANT_TENANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/config/config.h"
#include "conductor/core/dispatch/dispatch.h"
#include "conductor/core/share/joint.h"
#include "conductor/service/metrics.h"
#include "conductor/service/tenant/terms.h"

struct evbuffer;
struct tenants;

/* tenants_new(path, out, err): reads the tenants of the file at path; "": no
 * file. Returns 0 with *out owned, or a negative errno with a message. */
[[nodiscard]] int tenants_new(const char *path, struct tenants **out,
                              char err[CONFIG_ERROR_MAX]);

/* tenants_free(t): NULL is a no-op. */
void tenants_free(struct tenants *t);

/* tenants_take(t, next): replaces the tenants of t by those of next, which it
 * takes over. Counts of a name stay. Requests in work still count for their
 * key's tenant, also if a reload removes it and a later one brings it back. */
void tenants_take(struct tenants *t, struct tenants *next);

/* tenants_share(t): from now on limits count what all conductors have taken,
 * as somebody tells tenants_joint(). */
void tenants_share(struct tenants *t);

/* tenants_joint(t, i): what the tenant number i of the file has of its limits,
 * lent until the next reload; NULL: there are no more. */
struct joint_key *tenants_joint(struct tenants *t, size_t i);

/* tenants_size(t): the names of the file. */
size_t tenants_size(const struct tenants *t);

/*
 * Whether who has the key (n bytes) may ask, where keys are required.
 *   step      which limits count
 *   terms     written, but where it is unknown
 *   retry_us  of a limit: in how long it may ask again
 * Cost: SHA-256 of the key.
 */
enum tenant_refusal tenants_enter(struct tenants *t, const char *key, size_t n,
                                  enum tenant_step step, int64_t now_us,
                                  struct tenant_terms *terms,
                                  int64_t *retry_us);

/* tenants_began(t, tenant): a request of the tenant is in work until
 * tenants_count(). Without memory it is not counted. O(log tenants with
 * requests). */
void tenants_began(struct tenants *t, uint64_t tenant);

/* tenants_spent(t, tenant, tokens, now_us): charges the tenant for the tokens
 * of a prompt and its answer. */
void tenants_spent(struct tenants *t, uint64_t tenant, uint64_t tokens,
                   int64_t now_us);

/* Writes tenant, weight and priority of a request.
 *   key       (n), borrowed; n 0: it has none
 *   priority  what the client says; kept only where nobody else is of the same
 *             tenant
 * Cost: SHA-256 of the key. */
void tenants_find(const struct tenants *t, const char *key, size_t n,
                  int32_t priority, struct dispatch_request *request);

/* tenants_name(t, tenant): its name in the file, or "other". Valid until the
 * next reload. */
const char *tenants_name(const struct tenants *t, uint64_t tenant);

/* tenants_count(t, tenant, outcome): a request of the tenant that began has
 * ended. */
void tenants_count(struct tenants *t, uint64_t tenant,
                   enum metrics_outcome outcome);

/* tenants_sent(t, tenant, tokens): counts a sent request of the tenant, with so
 * many prompt tokens to compute. */
void tenants_sent(struct tenants *t, uint64_t tenant, uint64_t tokens);

/* tenants_weigh(t, d, now_us): the standings in these shares count for the
 * gauges of the next tenants_write(). */
void tenants_weigh(struct tenants *t, struct dispatch *d, int64_t now_us);

/* tenants_write(t, out): metrics, a line for each name and "other". Returns 0
 * or -ENOMEM. */
[[nodiscard]] int tenants_write(struct tenants *t, struct evbuffer *out);

#endif
