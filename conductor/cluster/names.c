/* See names.h. Numbers are kept by slot, with the id of their instance. */
#include "conductor/cluster/names.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "conductor/core/pool/pool.h"

struct names {
    const struct pool *pool;
    uint32_t *ids;     /* (max_instances) */
    uint64_t *numbers; /* likewise; 0 = no instance */
};

uint64_t names_of_text(const char *text)
{
    uint64_t number = XXH3_64bits(text, strlen(text));

    return number ? number : 1;
}

struct names *names_new(const struct pool *pool)
{
    struct names *n = calloc(1, sizeof(*n));
    uint32_t most = pool_config(pool)->max_instances;

    if (!n)
        return NULL;
    n->pool = pool;
    n->ids = calloc(most, sizeof(*n->ids));
    n->numbers = calloc(most, sizeof(*n->numbers));
    if (n->ids && n->numbers)
        return n;
    names_free(n);
    return NULL;
}

void names_free(struct names *n)
{
    if (!n)
        return;
    free(n->ids);
    free(n->numbers);
    free(n);
}

static uint64_t at_slot(struct names *n, uint32_t slot)
{
    const struct pool_instance *in = pool_at(n->pool, slot);
    uint32_t id = in ? in->id : POOL_NO_INSTANCE;

    if (n->ids[slot] != id) {
        n->ids[slot] = id;
        n->numbers[slot] = in ? names_of_text(in->name) : 0;
    }
    return n->numbers[slot];
}

uint64_t names_number(struct names *n, uint32_t id)
{
    const struct pool_instance *in = pool_get(n->pool, id);

    return in ? at_slot(n, in->slot) : 0;
}

uint32_t names_id(struct names *n, uint64_t number)
{
    uint32_t slots = pool_slots(n->pool);

    for (uint32_t slot = 0; number && slot < slots; slot++)
        if (at_slot(n, slot) == number)
            return n->ids[slot];
    return POOL_NO_INSTANCE;
}
