/* Fences: what a lost write waits for. */
#include <errno.h>
#include <stdlib.h>

#include "workers/transfer/engine/rdma/internal.h"

uint64_t path_unpair(struct rdma_path *p, uint64_t id)
{
    struct wire_message m = {.type = WIRE_UNPAIR, .id = id};
    struct fence *f = calloc(1, sizeof(*f));

    channel_send(&p->channel, &m);
    p->n_fences++;
    if (!f) /* nobody would know when it is over */
        return UINT64_MAX;
    f->id = id;
    f->number = p->n_fences;
    TAILQ_INSERT_TAIL(&p->fences, f, link);
    return f->number;
}

int path_unpaired(struct rdma_path *p, uint64_t id)
{
    struct fence *f;

    TAILQ_FOREACH(f, &p->fences, link)
    if (f->id == id)
        break;
    if (!f)
        return -EPROTO;
    TAILQ_REMOVE(&p->fences, f, link);
    free(f);
    f = TAILQ_FIRST(&p->fences);
    spread_fenced(p->spread, f ? f->number - 1 : p->n_fences);
    return 0;
}
