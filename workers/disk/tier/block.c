/* The disk tier's blocks: metadata, checksums, matches, pieces of a job. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "workers/disk/tier/internal.h"

struct slot_meta *disk_slot_meta(const struct disk_tier *t, uint32_t slot)
{
    return kv_store_data(t->index, slot);
}

uint64_t disk_layer_sum(const struct disk_tier *t, const char *block,
                        uint32_t layer)
{
    return XXH3_64bits(block + layer * t->layer_bytes, t->layer_bytes);
}

bool disk_job_begun(const struct disk_job *j)
{
    return j->next_layer == j->to_layer;
}

void disk_job_begin(struct disk_tier *t, struct disk_job *j,
                    struct disk_piece *p)
{
    uint64_t most = DISK_PIECE_BYTES / t->layer_bytes;
    uint32_t left = j->to_layer - j->next_layer;
    uint64_t at = j->next_layer * t->layer_bytes;

    p->job = j;
    p->layer = j->next_layer;
    p->n_layers = most < 1 ? 1 : most < left ? (uint32_t)most : left;
    p->op = (struct disk_op){
        .write = j->write,
        .buf = j->block + at,
        .bytes = p->n_layers * t->layer_bytes,
        .offset = disk_slab_data_offset(&t->slab, j->ref.slot) + at,
    };
    j->next_layer += p->n_layers;
    j->under_way++;
}

uint32_t disk_tier_align(const struct disk_tier *t)
{
    return t->slab.direct ? DISK_ALIGN_BYTES : 1;
}

uint32_t disk_tier_match(struct disk_tier *t, const uint64_t *keys,
                         const uint32_t *tokens, uint32_t n_blocks,
                         struct disk_ref *refs)
{
    uint32_t block_tokens = t->slab.geometry.block_tokens;
    uint32_t parent = DISK_SLOT_NONE;
    uint32_t n = 0;

    for (; n < n_blocks; n++) {
        uint32_t slot = kv_store_find(t->index, keys[n], parent,
                                      tokens + (size_t)n * block_tokens);

        if (slot == KV_BLOCK_NONE)
            break;
        kv_store_pin(t->index, slot);
        refs[n] = (struct disk_ref){.slot = slot,
                                    .number = kv_store_number(t->index, slot)};
        parent = slot;
    }
    return n;
}

void disk_tier_unpin(struct disk_tier *t, struct disk_ref ref)
{
    kv_store_release(t->index, ref.slot);
}

bool disk_tier_has(const struct disk_tier *t, struct disk_ref ref)
{
    const struct disk_job *w;

    if (ref.slot >= t->slab.slots ||
        kv_store_number(t->index, ref.slot) != ref.number)
        return false;
    if (kv_store_is_held(t->index, ref.slot))
        return true;
    TAILQ_FOREACH(w, &t->writes, link)
    {
        if (w->ref.slot == ref.slot)
            return w->error == 0;
    }
    return false;
}
