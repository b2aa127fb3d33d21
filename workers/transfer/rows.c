/* Finds the rows of KV of tokens in blocks. */
#include "workers/transfer/internal.h"

uint32_t rows_blocks(const struct engine_kv_layout *l, uint32_t from,
                     uint32_t n)
{
    return (from + n - 1) / l->block_tokens - from / l->block_tokens + 1;
}

/* Adds a slice of n K or V rows of `block`, from token slot `slot` on. */
static void add(const struct engine_kv_layout *l, struct rows *rows,
                char *block, enum engine_which which, uint32_t slot, uint32_t n)
{
    uint64_t row = ((uint64_t)rows->layer * 2 + which) * l->block_tokens + slot;

    rows->slices[rows->n_slices++] = (struct row_slice){
        .block = rows->n_blocks,
        .offset = row * l->kv_row_bytes,
        .bytes = (uint64_t)n * l->kv_row_bytes,
        .at = block + row * l->kv_row_bytes,
    };
}

void rows_pin(const struct transfer *t, const struct request *r, uint32_t layer,
              uint32_t from, uint32_t n, struct rows *rows)
{
    const struct engine_kv_layout *l = t->config.layout;
    uint32_t bt = l->block_tokens;

    *rows = (struct rows){.layer = layer, .from_token = from, .n_tokens = n};
    while (n > 0) {
        uint32_t slot = from % bt, id = r->blocks.ids[from / bt];
        uint32_t k = n < bt - slot ? n : bt - slot;
        char *block = kv_store_data(t->config.store, id);

        kv_store_pin(t->config.store, id);
        if (k == bt) { /* a layer's V rows follow its K rows */
            add(l, rows, block, ENGINE_K, 0, 2 * bt);
        } else {
            add(l, rows, block, ENGINE_K, slot, k);
            add(l, rows, block, ENGINE_V, slot, k);
        }
        rows->ids[rows->n_blocks++] = id;
        from += k;
        n -= k;
    }
}

void rows_unpin(const struct transfer *t, struct rows *rows)
{
    while (rows->n_blocks > 0)
        kv_store_release(t->config.store, rows->ids[--rows->n_blocks]);
}

uint64_t rows_offset(const struct transfer *t, const void *block)
{
    const char *first = kv_store_data(t->config.store, 0);

    return (uint64_t)((const char *)block - first);
}
