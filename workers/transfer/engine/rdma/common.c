/* For all files of the module: the log, registered memory, and marks on paths
 * and offers for the next turn. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/internal.h"

void rdma_log(const struct rdma *r, int level, const char *format, ...)
{
    char line[300];
    va_list args;

    if (!r->config.log)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    r->config.log(level, line);
}

struct ibv_mr *rdma_register(struct ibv_pd *pd, const struct rdma_memory *m)
{
    errno = 0;
    if (m->fd < 0)
        return ibv_reg_mr(pd, m->at, m->bytes,
                          IBV_ACCESS_LOCAL_WRITE | RDMA_PEERS_MAY);
    return ibv_reg_dmabuf_mr(pd, 0, m->bytes, (uintptr_t)m->at, m->fd,
                             IBV_ACCESS_LOCAL_WRITE | RDMA_PEERS_MAY);
}

int rdma_region_of(const struct rdma *r, const void *memory, uint64_t bytes)
{
    const uint8_t *first = memory;

    for (uint32_t i = 0; i < r->n_regions; i++) {
        const struct region *of = &r->regions[i];

        if (first >= of->memory &&
            bytes <= of->bytes - (uint64_t)(first - of->memory) &&
            first < of->memory + of->bytes)
            return (int)i;
    }
    return -1;
}

void rdma_turn_soon(struct rdma *r)
{
    loop_defer(&r->turn);
}

void path_mark(struct rdma_path *p)
{
    if (!p->dirty)
        TAILQ_INSERT_TAIL(&p->rdma->dirty_paths, p, dirty_link);
    p->dirty = true;
    rdma_turn_soon(p->rdma);
}

void offer_mark(struct rdma_offer *o)
{
    if (!o->dirty)
        TAILQ_INSERT_TAIL(&o->rdma->dirty_offers, o, dirty_link);
    o->dirty = true;
    rdma_turn_soon(o->rdma);
}
