/* Describes a group of segments to the card: rows, page tables, attention
 * tiles and splits. Prompts first, then decodes. */
#include "workers/engine/cuda/engine.h"

static void add_row(struct cuda_batch *b, uint32_t row, uint32_t token,
                    uint32_t position, uint32_t page)
{
    b->tokens[row] = token;
    b->positions[row] = position;
    b->pages[row] = page;
}

static void pad_rows(struct cuda_batch *b, uint32_t from, uint32_t to)
{
    for (uint32_t row = from; row < to; row++)
        add_row(b, row, 0, 0, CUDA_NO_PAGE);
}

static void add_tiles(const struct cuda_engine *e, struct cuda_batch *b,
                      const struct engine_segment *s, uint32_t row,
                      uint32_t table)
{
    uint32_t most = CUDA_TILE_ROWS / e->group_heads;

    for (uint32_t i = 0; i < s->n_tokens; i += most)
        b->tiles[b->n_tiles++] = (struct cuda_tile){
            row + i, cuda_min(most, s->n_tokens - i), s->position + i, table};
}

static void add_splits(struct cuda_batch *b, const struct engine_segment *s,
                       uint32_t table)
{
    uint32_t end = s->position + 1;

    b->decodes[b->n_decodes] =
        (struct cuda_decode){b->n_splits, cuda_splits_of(s)};
    for (uint32_t key = 0; key < end; key += CUDA_SPLIT_KEYS)
        b->splits[b->n_splits++] = (struct cuda_split){
            b->n_decodes, key, cuda_min(key + CUDA_SPLIT_KEYS, end), table};
    b->n_decodes++;
}

static void add_segment(struct cuda_engine *e, struct cuda_batch *b, size_t n,
                        uint32_t row)
{
    const struct engine_segment *s = &e->group.segments[n];
    uint32_t bt = e->base.layout.block_tokens;
    uint32_t table = b->n_table;

    for (uint32_t i = 0; i < cuda_blocks_of(e, s); i++)
        b->table[b->n_table++] = page_cache_find(e->pages, s->blocks[i]);
    for (uint32_t i = 0; i < s->n_tokens; i++)
        add_row(b, row + i, s->tokens[i], s->position + i,
                b->table[table + (s->position + i) / bt]);
    if (cuda_decodes(s))
        add_splits(b, s, table);
    else
        add_tiles(e, b, s, row, table);
    if (s->want_token) {
        e->answer_of[b->n_wanted] = n;
        b->wanted[b->n_wanted++] = row + s->n_tokens - 1;
    }
}

void cuda_describe_group(struct cuda_engine *e)
{
    struct cuda_batch *b = cuda_card_batch(e->card);
    const struct cuda_group *g = &e->group;
    uint32_t row = 0;

    b->n_table = b->n_tiles = b->n_splits = b->n_decodes = b->n_wanted = 0;
    for (size_t i = g->first; i < g->end; i++) {
        if (cuda_decodes(&g->segments[i]))
            continue;
        add_segment(e, b, i, row);
        row += g->segments[i].n_tokens;
    }
    b->prefill_rows = cuda_round_up(row, CUDA_PREFILL_ROWS);
    pad_rows(b, row, b->prefill_rows);
    row = b->prefill_rows;
    for (size_t i = g->first; i < g->end; i++)
        if (cuda_decodes(&g->segments[i]))
            add_segment(e, b, i, row++);
    b->decode_rows = cuda_round_up(row - b->prefill_rows, CUDA_DECODE_ROWS);
    pad_rows(b, row, b->prefill_rows + b->decode_rows);
}
