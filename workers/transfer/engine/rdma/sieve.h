/*
 * Which end point has to go when there are too many: a table of a fixed number
 * of places, from which SIEVE takes (Zhang et al., "SIEVE is Simpler than LRU",
 * NSDI 2024). A hand goes from the oldest place to the newest and around: what
 * was used since it came by last stays, the first that was not goes. Pure.
 *
 * Pinned places are passed over: something is under way there.
 */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_SIEVE_H
#define WORKERS_TRANSFER_ENGINE_RDMA_SIEVE_H

#include <stdbool.h>
#include <stdint.h>

/* No place. */
#define SIEVE_NONE UINT32_MAX

struct sieve;

/* A table of n places, at least 1. Returns 0 and *out, owned; -EINVAL, -ENOMEM.
 */
[[nodiscard]] int sieve_new(uint32_t n, struct sieve **out);

/* NULL is a no-op. */
void sieve_free(struct sieve *s);

/* A free place for `owner`, borrowed and not NULL, as the newest; SIEVE_NONE:
 * all are taken, make room first. O(1). */
uint32_t sieve_add(struct sieve *s, void *owner);

/* The place is free again. O(1). */
void sieve_remove(struct sieve *s, uint32_t place);

/* Something was sent there. O(1). */
void sieve_touch(struct sieve *s, uint32_t place);

/* The place must stay, or need not any more. O(1). */
void sieve_pin(struct sieve *s, uint32_t place, bool pinned);

/* The place to remove, if it is to be one; SIEVE_NONE: all are pinned, or there
 * is none. Moves the hand. O(places), O(1) in the mean. */
uint32_t sieve_victim(struct sieve *s);

/* Who has that place; NULL: nobody. */
void *sieve_owner(const struct sieve *s, uint32_t place);

/* Places that are taken. */
uint32_t sieve_used(const struct sieve *s);

#endif
