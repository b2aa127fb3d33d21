/*
 * Tenants: finds the tenant of a request's API key, by tenants_file if there is
 * one, and counts its requests and tokens. Keys are not kept, only a number
 * taken from a key's SHA-256. Without a file every key is a tenant of weight 1.
 * With a file, all unlisted keys are one tenant, since anybody can invent keys.
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

struct tenants;
struct text_buf;

/* tenants_new(path, out, err): reads the tenants of the file at path; "" = no
 * file. Returns 0 with *out owned, or a negative errno with a message. */
[[nodiscard]] int tenants_new(const char *path, struct tenants **out,
                              char err[CONFIG_ERROR_MAX]);

/* tenants_free(t): NULL is a no-op. */
void tenants_free(struct tenants *t);

/* tenants_take(t, next): replaces the tenants of t by those of `next`, and
 * frees `next`. Counts of a name stay. Requests in flight still count for their
 * tenant, even if one reload removes it and a later one brings it back. */
void tenants_take(struct tenants *t, struct tenants *next);

/* tenants_share(t): makes limits count the requests and tokens of all
 * conductors, which the caller enters with tenants_joint(). */
void tenants_share(struct tenants *t);

/* tenants_joint(t, i): returns the joint limits of the file's i-th tenant,
 * borrowed until the next reload; NULL = there are no more. */
struct joint_key *tenants_joint(struct tenants *t, size_t i);

/* tenants_size(t): returns the number of tenants in the file. */
size_t tenants_size(const struct tenants *t);

/*
 * Returns whether a request with this key (n bytes) is allowed, where keys are
 * required.
 *   step      decides which limits are checked
 *   terms     written, unless the key is unknown
 *   retry_us  us until the next try, if a limit refuses
 * Cost: SHA-256 of the key.
 */
enum tenant_refusal tenants_enter(struct tenants *t, const char *key, size_t n,
                                  enum tenant_step step, int64_t now_us,
                                  struct tenant_terms *terms,
                                  int64_t *retry_us);

/* tenants_began(t, tenant): counts a request as in flight until
 * tenants_count(); no-op if memory runs out. O(log tenants with requests). */
void tenants_began(struct tenants *t, uint64_t tenant);

/* tenants_spent(t, tenant, tokens, now_us): charges the tokens of a prompt and
 * its answer to the tenant's limit. */
void tenants_spent(struct tenants *t, uint64_t tenant, uint64_t tokens,
                   int64_t now_us);

/* Writes tenant, weight and priority of a request.
 *   key       (n), borrowed; n 0 = no key
 *   priority  the client's; ignored for the tenant of unlisted keys
 * Cost: SHA-256 of the key. */
void tenants_find(const struct tenants *t, const char *key, size_t n,
                  int32_t priority, struct dispatch_request *request);

/* tenants_name(t, tenant): returns the tenant's name in the file, or "other".
 * Valid until the next reload. */
const char *tenants_name(const struct tenants *t, uint64_t tenant);

/* tenants_count(t, tenant, outcome): counts the end of a request counted by
 * tenants_began(). */
void tenants_count(struct tenants *t, uint64_t tenant,
                   enum metrics_outcome outcome);

/* tenants_sent(t, tenant, tokens): counts the prompt tokens that an instance
 * got to compute. */
void tenants_sent(struct tenants *t, uint64_t tenant, uint64_t tokens);

/* tenants_weigh(t, d, now_us): enters one model's waiting requests and
 * standings for the next tenants_write(). */
void tenants_weigh(struct tenants *t, struct dispatch *d, int64_t now_us);

/* tenants_write(t, out): appends metrics, a line for each name and "other".
 * Returns 0 or -ENOMEM. */
[[nodiscard]] int tenants_write(struct tenants *t, struct text_buf *out);

#endif
