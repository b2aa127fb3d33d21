/*
 * Feeds a message of KV events to the decoder and, twice, to a map whose sink
 * is a prefix index. The first byte chooses the block size, and whether it is a
 * store's, with blocks of so many parts. Whatever is said, map and index keep
 * their invariants and bounds, and the index holds no more than the map.
 */
#include <stdlib.h>

#include "conductor/core/index/prefix_index.h"
#include "tests/unit/kv_map_test.h"
#include "tests/unit/prefix_check.h"

enum { BLOCKS_MAX = 1000, WAITING_BYTES = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void on_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *keys, size_t n)
{
    require(n > 0);
    (void)!prefix_index_stored(arg, 0, tier, parent_key, keys, n);
}

static void on_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                       size_t n)
{
    require(n > 0);
    require(prefix_index_removed(arg, 0, tier, keys, n) == 0);
}

static void on_cleared(void *arg)
{
    prefix_index_cleared(arg, 0);
}

static void apply(const struct kv_batch *batch, uint32_t block_tokens,
                  uint32_t parts)
{
    static const struct kv_map_sink sink = {on_stored, on_removed, on_cleared};
    struct prefix_index *index = prefix_index_new(&(struct prefix_index_config){
        .max_instances = 1, .max_bytes = 1u << 17, .evicts = true, .seed = 1});
    struct kv_map *map =
        kv_map_new(&(struct kv_map_config){.model = "m",
                                           .block_tokens = block_tokens,
                                           .max_blocks = BLOCKS_MAX,
                                           .max_waiting_bytes = WAITING_BYTES,
                                           .seed = 1,
                                           .parts = parts},
                   &sink, index);

    require(index && map);
    for (uint16_t rank = 0; rank < 2; rank++) {
        struct kv_map_stats stats;

        kv_map_batch(map, rank, batch);
        stats = kv_map_stats(map);
        require(kv_map_check(map) && prefix_index_check(index));
        require(stats.entries <= BLOCKS_MAX);
        require(stats.waiting_bytes <= WAITING_BYTES);
        require(prefix_index_held(index, 0) <=
                stats.entries * (kv_map_engine_tokens(map) / block_tokens + 1));
        require(stats.pieces <= 16 * BLOCKS_MAX);
    }
    kv_map_clear_rank(map, 0);
    require(kv_map_check(map) && prefix_index_check(index));
    kv_map_free(map);
    prefix_index_free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t sizes[] = {16, 32, 4, 1};
    static struct kv_decoder *decoder; /* for all inputs: it is large */
    struct kv_batch_error error = {0};
    struct kv_batch batch;

    if (size == 0)
        return 0;
    decoder = decoder ? decoder : kv_decoder_new();
    require(decoder);
    if (kv_decoder_batch(decoder, data + 1, size - 1, &batch, &error) == 0)
        apply(&batch, sizes[data[0] % 4], data[0] >> 2 & 3);
    else
        require(error.expected && error.offset <= size - 1);
    return 0;
}
