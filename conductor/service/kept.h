/*
 * Kept answers: their engines and owners. Engines keep answers of /v1/responses
 * under ids of their own; a request for a kept answer must go to its engine,
 * and, where keys are required, come from its owner.
 *
 * One table of KEPT_IDS places for each owner, indexed by the id's digest; of
 * two ids at one place the later stays. So memory is bounded, and no owner can
 * push out another's ids. A known id is never noted for a second owner: where
 * an engine lets clients choose ids, nobody can claim another's.
 *
 * Ids are compared by 128 bits of their SHA-256, so another spelling is another
 * id.
 */
#ifndef CONDUCTOR_SERVICE_KEPT_H
#define CONDUCTOR_SERVICE_KEPT_H

#include <stddef.h>
#include <stdint.h>

#define KEPT_IDS 16384u
/* The tenants of a file, and one owner for requests without keys. */
#define KEPT_OWNERS 64u

struct kept_id;

/* Zeros = empty. */
struct kept {
    struct kept_owner {
        uint64_t owner;
        uint64_t noted_at;   /* k->notes at the owner's last id */
        struct kept_id *ids; /* owned, (KEPT_IDS) */
    } owners[KEPT_OWNERS];
    uint32_t n;
    uint64_t notes;
};

/* kept_fini(k): frees the tables. */
void kept_fini(struct kept *k);

/* kept_find(k, owner, id, n): returns the pool id of the engine that keeps this
 * owner's answer with the id (n bytes, borrowed), or POOL_NO_INSTANCE. */
uint32_t kept_find(const struct kept *k, uint64_t owner, const char *id,
                   size_t n);

/* kept_note(k, owner, id, n, instance): notes the engine of an owner's answer,
 * unless the id is known as another owner's. Beyond KEPT_OWNERS owners (after
 * reloads of tenants_file) it forgets the owner whose last id is the oldest.
 * No-op if memory runs out. O(owners). */
void kept_note(struct kept *k, uint64_t owner, const char *id, size_t n,
               uint32_t instance);

#endif
