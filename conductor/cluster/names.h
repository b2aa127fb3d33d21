/* Numbers of instances between conductors: pool ids are each conductor's own,
 * so events have a hash of the instance's name. Pure. */
#ifndef CONDUCTOR_CLUSTER_NAMES_H
#define CONDUCTOR_CLUSTER_NAMES_H

#include <stdint.h>

struct pool;
struct names;

/* names_new(pool): for its instances, which come and go. Borrows it. Returns it
 * owned, or NULL: out of memory. */
[[nodiscard]] struct names *names_new(const struct pool *pool);

/* names_free(n): NULL is a no-op. */
void names_free(struct names *n);

/* names_number(n, id): returns the number of a pool id; 0 = no instance. */
uint64_t names_number(struct names *n, uint32_t id);

/* names_id(n, number): returns the pool id; POOL_NO_INSTANCE if no instance has
 * that name. O(instances), under a nanosecond each. */
uint32_t names_id(struct names *n, uint64_t number);

/* Returns a hash of a text, never 0. */
uint64_t names_of_text(const char *text);

#endif
