/*
 * Which engine keeps which answer, and whose that is. Engines keep answers of
 * /v1/responses under ids that they make; who asks for one again must get to
 * that engine, and, where keys are required, must be its tenant.
 *
 * A table for each owner, with one place for each of KEPT_IDS remainders of an
 * id's digest: where two ids of an owner meet, the later one stays. So nobody
 * pushes another owner's ids out, whatever he asks for, and all of it has a
 * bound. An id that is noted for one owner is noted for no other as long as it
 * is known: an engine that lets clients choose ids gives nobody another's.
 *
 * Ids are compared by 128 bits of SHA-256, byte for byte as they came: the same
 * id spelled otherwise is another one.
 */
#ifndef CONDUCTOR_SERVICE_KEPT_H
#define CONDUCTOR_SERVICE_KEPT_H

#include <stddef.h>
#include <stdint.h>

#define KEPT_IDS 16384u
/* The tenants of a file, and those who need no key. */
#define KEPT_OWNERS 64u

struct kept_id;

/* All zero is an empty one. */
struct kept {
    struct kept_owner {
        uint64_t owner;
        uint64_t noted_at;   /* `notes` when it last got one */
        struct kept_id *ids; /* owned, (KEPT_IDS) */
    } owners[KEPT_OWNERS];
    uint32_t n;
    uint64_t notes;
};

/* kept_fini(k): frees what it owns. */
void kept_fini(struct kept *k);

/* kept_find(k, owner, id, n): the pool id of the engine that keeps an owner's
 * answer of that id (n bytes, borrowed); POOL_NO_INSTANCE: none is known. */
uint32_t kept_find(const struct kept *k, uint64_t owner, const char *id,
                   size_t n);

/* kept_note(k, owner, id, n, instance): it is the owner's, unless it is known
 * as another's. Of more than KEPT_OWNERS owners, as after reloads of
 * tenants_file, the one that noted nothing for longest is forgotten. Nothing
 * without memory. O(owners). */
void kept_note(struct kept *k, uint64_t owner, const char *id, size_t n,
               uint32_t instance);

#endif
