/* The grants of a path: allowed, being revoked, and revoked ones. */
#include <errno.h>
#include <stdlib.h>

#include "workers/transfer/engine/rdma/internal.h"

static uint32_t find(const uint64_t *ids, uint32_t n, uint64_t id)
{
    uint32_t i = n;

    while (i > 0 && ids[i - 1] != id)
        i--;
    return i; /* its index plus 1; 0 = not found */
}

static int grow(uint64_t **ids, uint32_t *room)
{
    uint32_t more = *room > 0 ? *room * 2 : 64;
    uint64_t *grown = realloc(*ids, more * sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    *ids = grown;
    *room = more;
    return 0;
}

static int push(uint64_t **ids, uint32_t *n, uint32_t *room, uint64_t id)
{
    if (*n >= RDMA_GRANTS_MAX)
        return -ENOBUFS;
    if (*n == *room && grow(ids, room) < 0)
        return -ENOMEM;
    (*ids)[*n] = id;
    ++*n;
    return 0;
}

static bool take(uint64_t *ids, uint32_t *n, uint64_t id)
{
    uint32_t at = find(ids, *n, id);

    if (at == 0)
        return false;
    ids[at - 1] = ids[--*n];
    return true;
}

int path_may(const struct rdma_path *p, uint64_t grant)
{
    uint32_t n =
        p->n_revoked < RDMA_REVOKED_MAX ? p->n_revoked : RDMA_REVOKED_MAX;

    if (find(p->grants, p->n_grants, grant) > 0)
        return 1;
    if (find(p->leaving, p->n_leaving, grant) > 0 ||
        find(p->revoked, n, grant) > 0)
        return -EACCES;
    return 0;
}

int path_granted(struct rdma_path *p, uint64_t id)
{
    int rc = push(&p->grants, &p->n_grants, &p->grants_room, id);

    if (rc == 0)
        spread_allow(p->spread, id);
    return rc;
}

int path_revoke(struct rdma_path *p, uint64_t id)
{
    if (!take(p->grants, &p->n_grants, id))
        return -EPROTO;
    p->revoked[p->n_revoked % RDMA_REVOKED_MAX] = id;
    if (++p->n_revoked == 2 * RDMA_REVOKED_MAX)
        p->n_revoked = RDMA_REVOKED_MAX;
    spread_deny(p->spread, id, -EACCES);
    return push(&p->leaving, &p->n_leaving, &p->leaving_room, id);
}

void path_revoked(struct rdma_path *p)
{
    for (uint32_t i = p->n_leaving; i-- > 0;) {
        struct wire_message m = {.type = WIRE_REVOKED, .id = p->leaving[i]};

        if (spread_uses(p->spread, m.id))
            continue;
        p->leaving[i] = p->leaving[--p->n_leaving];
        channel_send(&p->channel, &m);
    }
}
