/* Where rows of KV lie in blocks. */
#include "workers/transfer/internal.h"

uint32_t rows_blocks(const struct engine_kv_layout *l, uint32_t from,
                     uint32_t n)
{
    return (from + n - 1) / l->block_tokens - from / l->block_tokens + 1;
}

/* Of the K and the V rows of a layer, `which`. */
static struct row_slice slice_of(const struct engine_kv_layout *l,
                                 uint32_t layer, enum engine_which which,
                                 uint32_t slot, uint32_t rows)
{
    uint64_t row = ((uint64_t)layer * 2 + which) * l->block_tokens + slot;

    return (struct row_slice){
        .offset = row * l->kv_row_bytes,
        .bytes = (uint64_t)rows * l->kv_row_bytes,
    };
}

uint32_t rows_cut(const struct engine_kv_layout *l, uint32_t layer,
                  uint32_t from, uint32_t n, struct row_slice *out)
{
    uint32_t bt = l->block_tokens, count = 0;

    for (uint32_t block = 0; n > 0; block++) {
        uint32_t slot = from % bt;
        uint32_t k = n < bt - slot ? n : bt - slot;
        uint32_t begun = count;

        if (k == bt) { /* its V rows lie behind its K rows */
            out[count++] = slice_of(l, layer, ENGINE_K, 0, 2 * bt);
        } else {
            out[count++] = slice_of(l, layer, ENGINE_K, slot, k);
            out[count++] = slice_of(l, layer, ENGINE_V, slot, k);
        }
        while (begun < count)
            out[begun++].block = block;
        from += k;
        n -= k;
    }
    return count;
}

uint64_t rows_offset(const struct transfer *t, const void *block)
{
    const char *first = kv_store_data(t->config.store, 0);

    return (uint64_t)((const char *)block - first);
}
