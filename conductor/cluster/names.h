/* Instances between conductors: each knows them by pool ids of its own, so that
 * they tell each other a number that is drawn from the name. Pure. */
#ifndef CONDUCTOR_CLUSTER_NAMES_H
#define CONDUCTOR_CLUSTER_NAMES_H

#include <stdint.h>

struct pool;
struct names;

/* names_new(pool): of its instances, which come and go. Borrows it. Returns it
 * owned, or NULL: out of memory. */
[[nodiscard]] struct names *names_new(const struct pool *pool);

/* names_free(n): NULL is a no-op. */
void names_free(struct names *n);

/* names_number(n, id): of the instance of a pool id; 0: none. */
uint64_t names_number(struct names *n, uint32_t id);

/* names_id(n, number): the pool id; POOL_NO_INSTANCE: there is none of that
 * name. O(instances), some of them in a nanosecond. */
uint32_t names_id(struct names *n, uint64_t number);

/* A number of any text, never 0. */
uint64_t names_of_text(const char *text);

#endif
