/* Attention of engine "cpu": brings queries and KV blocks to the kernel.
 *
 * A KV head serves heads / kv_heads query heads. Query heads and tokens of one
 * segment that share a KV head share its keys, so they are the lanes of one
 * kernel call: full with a chunk of a prompt, partly empty with one decoded
 * token. */
#include <math.h>

#include "workers/engine/cpu/cpu.h"

/* Lanes of a tile that belong to one segment, and one KV head. */
struct run {
    const struct engine_segment *segment;
    const struct cpu_lane *lanes; /* of the tile */
    const float *q;               /* queries, from the group's first head on */
    float *out;                   /* the same place in the result */
    uint32_t first;               /* lane of the tile */
    uint32_t n;
};

/* Offset (floats) in a tile of the first feature of a run's i-th (head, lane)
 * pair. */
static size_t pair_offset(const struct run *r, uint32_t head_dim, uint32_t i)
{
    return cpu_tile(1, head_dim) * (i / r->n) + r->first + i % r->n;
}

/* Computes pairs [from, from + count) of a run as lanes of one kernel call. */
static void attend_pairs(struct cpu_engine *e, const struct run *r,
                         struct attend_args *a, uint32_t from, uint32_t count)
{
    uint32_t dim = e->shape.head_dim;
    float *q = e->scratch.attend_q;
    uint32_t limit[CPU_ATTEND_MAX_LANES];
    float scale = (float)(1.4426950408889634 / sqrt((double)dim));

    a->lanes =
        count > e->kernels->narrow ? e->kernels->wide : e->kernels->narrow;
    a->n_keys = 1;
    for (uint32_t l = 0; l < a->lanes; l++) {
        /* A lane without work repeats the last pair. */
        uint32_t i = from + (l < count ? l : count - 1);
        size_t offset = pair_offset(r, dim, i);

        for (size_t d = 0; d < dim; d++)
            q[d * a->lanes + l] = r->q[offset + d * CPU_LANES] * scale;
        limit[l] = r->lanes[r->first + i % r->n].position + 1;
        if (limit[l] > a->n_keys)
            a->n_keys = limit[l];
    }
    a->q = q;
    a->limit = limit;
    a->out = e->scratch.attend_out;
    e->kernels->attend(a);
    for (uint32_t l = 0; l < count; l++) {
        size_t offset = pair_offset(r, dim, from + l);

        for (size_t d = 0; d < dim; d++)
            r->out[offset + d * CPU_LANES] = a->out[d * a->lanes + l];
    }
}

static void attend_run(struct cpu_engine *e, struct run *r, size_t tile,
                       uint32_t layer)
{
    const struct engine_kv_layout *layout = &e->base.layout;
    uint32_t dim = e->shape.head_dim;
    uint32_t group = e->shape.heads / e->shape.kv_heads;
    uint32_t pairs = group * r->n;
    uint32_t wide = e->kernels->wide;

    for (uint32_t h = 0; h < e->shape.kv_heads; h++) {
        size_t k = (size_t)layer * 2 * layout->block_tokens * e->kv_dim +
                   (size_t)h * dim;
        struct attend_args a = {
            .head_dim = dim,
            .blocks = r->segment->blocks,
            .block_tokens = layout->block_tokens,
            .k_offset = k,
            .v_offset = k + (size_t)layout->block_tokens * e->kv_dim,
            .stride = e->kv_dim,
        };
        r->q = e->scratch.q + cpu_tile(tile, e->q_dim) +
               cpu_tile(1, dim) * h * group;
        r->out = e->scratch.attended + cpu_tile(1, dim) * h * group;
        for (uint32_t i = 0; i < pairs; i += wide)
            attend_pairs(e, r, &a, i, pairs - i < wide ? pairs - i : wide);
    }
}

void cpu_attend_tile(struct cpu_engine *e,
                     const struct engine_segment *segments, size_t tile,
                     uint32_t layer)
{
    const struct cpu_lane *lanes = e->scratch.lanes + tile * CPU_LANES;
    uint32_t first = 0;

    /* The padding may hold any value except NaN. */
    for (size_t i = 0; i < cpu_tile(1, e->q_dim); i++)
        e->scratch.attended[i] = 0;
    while (first < CPU_LANES && lanes[first].segment != CPU_NO_SEGMENT) {
        uint32_t n = 1;

        while (first + n < CPU_LANES &&
               lanes[first + n].segment == lanes[first].segment)
            n++;
        struct run r = {
            .segment = &segments[lanes[first].segment],
            .lanes = lanes,
            .first = first,
            .n = n,
        };
        attend_run(e, &r, tile, layer);
        first += n;
    }
}
