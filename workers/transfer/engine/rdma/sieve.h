/*
 * Chooses the end point to end when there are too many: a table of a fixed
 * number of places with SIEVE eviction (Zhang et al., "SIEVE is Simpler than
 * LRU", NSDI 2024). A hand moves from the oldest place to the newest, around
 * and around, and evicts the first place not used since it last passed there.
 * It skips pinned places, which have work under way. Pure.
 */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_SIEVE_H
#define WORKERS_TRANSFER_ENGINE_RDMA_SIEVE_H

#include <stdbool.h>
#include <stdint.h>

/* No place. */
#define SIEVE_NONE UINT32_MAX

struct sieve;

/* Makes a table of n places, at least 1. Returns 0 and *out, owned; -EINVAL, or
 * -ENOMEM. */
[[nodiscard]] int sieve_new(uint32_t n, struct sieve **out);

/* Frees it. NULL is a no-op. */
void sieve_free(struct sieve *s);

/* Gives `owner`, borrowed and not NULL, a free place as the newest. Returns the
 * place, or SIEVE_NONE: all are taken, make room first. O(1). */
uint32_t sieve_add(struct sieve *s, void *owner);

/* Frees the place. O(1). */
void sieve_remove(struct sieve *s, uint32_t place);

/* Notes that the place was used. O(1). */
void sieve_touch(struct sieve *s, uint32_t place);

/* Pins or unpins the place. O(1). */
void sieve_pin(struct sieve *s, uint32_t place, bool pinned);

/* Moves the hand to the place to remove next. Returns it, or SIEVE_NONE: no
 * place is taken and unpinned. O(places), O(1) on average. */
uint32_t sieve_victim(struct sieve *s);

/* Returns the owner of the place; NULL = free. */
void *sieve_owner(const struct sieve *s, uint32_t place);

#endif
