/* See kept.h. */
#include "conductor/service/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/secret.h"
#include "conductor/core/pool/pool.h"

#define DIGEST_BYTES 32
#define KEPT_BYTES 16

struct kept_id {
    uint8_t digest[KEPT_BYTES];
    uint32_t instance; /* POOL_NO_INSTANCE = empty */
};

void kept_fini(struct kept *k)
{
    for (uint32_t i = 0; i < k->n; i++)
        free(k->owners[i].ids);
    *k = (struct kept){0};
}

/* Returns 0, or a negative error: no digest. */
static int digest_of(const char *id, size_t n, uint8_t digest[DIGEST_BYTES])
{
    return n == 0 ? -1 : secret_digest(id, n, digest);
}

static struct kept_id *place(const struct kept_owner *o,
                             const uint8_t digest[DIGEST_BYTES])
{
    uint32_t at;

    /* Uses bytes of the digest that are not compared. */
    memcpy(&at, digest + KEPT_BYTES, sizeof(at));
    return &o->ids[at % KEPT_IDS];
}

/* Returns the entry of an id, or NULL. */
static const struct kept_id *find(const struct kept_owner *o,
                                  const uint8_t digest[DIGEST_BYTES])
{
    const struct kept_id *one = place(o, digest);

    return one->instance != POOL_NO_INSTANCE &&
                   memcmp(one->digest, digest, KEPT_BYTES) == 0
               ? one
               : NULL;
}

uint32_t kept_find(const struct kept *k, uint64_t owner, const char *id,
                   size_t n)
{
    const struct kept_id *one = NULL;
    uint8_t digest[DIGEST_BYTES];

    if (k->n == 0 || digest_of(id, n, digest))
        return POOL_NO_INSTANCE;
    for (uint32_t i = 0; i < k->n; i++)
        if (k->owners[i].owner == owner)
            one = find(&k->owners[i], digest);
    return one ? one->instance : POOL_NO_INSTANCE;
}

/* Adds an owner, in place of the oldest one if there is no room. NULL = out of
 * memory. */
static struct kept_owner *add_owner(struct kept *k, uint64_t owner)
{
    struct kept_owner *o = &k->owners[0];

    if (k->n < KEPT_OWNERS) {
        o = &k->owners[k->n];
        o->ids = calloc(KEPT_IDS, sizeof(*o->ids));
        if (!o->ids)
            return NULL;
        k->n++;
    } else {
        for (uint32_t i = 1; i < k->n; i++)
            if (k->owners[i].noted_at < o->noted_at)
                o = &k->owners[i];
        memset(o->ids, 0, KEPT_IDS * sizeof(*o->ids));
    }
    o->owner = owner;
    return o;
}

void kept_note(struct kept *k, uint64_t owner, const char *id, size_t n,
               uint32_t instance)
{
    struct kept_owner *own = NULL;
    uint8_t digest[DIGEST_BYTES];

    if (digest_of(id, n, digest))
        return;
    for (uint32_t i = 0; i < k->n; i++)
        if (k->owners[i].owner == owner)
            own = &k->owners[i];
        else if (find(&k->owners[i], digest))
            return;
    if (!own)
        own = add_owner(k, owner);
    if (!own)
        return;
    own->noted_at = ++k->notes;
    struct kept_id *one = place(own, digest);

    memcpy(one->digest, digest, KEPT_BYTES);
    one->instance = instance;
}
