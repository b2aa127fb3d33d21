/*
 * The longest turn of a loop that an engine's KV events can take: while its map
 * grows, and when one of its two ranks is forgotten. The map alone, with
 * nothing behind it. Prints a table; judges nothing. Run it alone:
 *   build/tests/bench/bench_turns [BLOCKS]    (900,000 unless told)
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "conductor/link/events/map/block_map.h"

enum { MESSAGE_BLOCKS = 32, PIECE_BLOCKS = 512, BLOCK_TOKENS = 16 };

static void on_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *keys, size_t n)
{
    (void)arg;
    (void)tier;
    (void)parent_key;
    (void)keys;
    (void)n;
}

static void on_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                       size_t n)
{
    (void)arg;
    (void)tier;
    (void)keys;
    (void)n;
}

static void on_cleared(void *arg)
{
    (void)arg;
}

static const struct kv_map_sink sink = {on_stored, on_removed, on_cleared};

/* Works until nothing is left. Returns the longest turn. */
static double work(struct kv_map *map)
{
    double longest = 0;

    for (bool more = true; more;) {
        double turn = now_s();

        more = kv_map_work(map, PIECE_BLOCKS);
        turn = now_s() - turn;
        longest = turn > longest ? turn : longest;
    }
    return longest;
}

/* The n-th message of a rank stores blocks that begin a prompt. */
static double store(struct kv_map *map, uint16_t rank, uint64_t n)
{
    static uint32_t tokens[MESSAGE_BLOCKS * BLOCK_TOKENS];
    uint64_t hashes[MESSAGE_BLOCKS];
    const struct kv_event event = {.kind = KV_STORED,
                                   .groups = 1,
                                   .hashes = hashes,
                                   .tokens = tokens,
                                   .n_hashes = MESSAGE_BLOCKS,
                                   .n_tokens = MESSAGE_BLOCKS * BLOCK_TOKENS,
                                   .block_size = BLOCK_TOKENS};

    for (uint32_t i = 0; i < MESSAGE_BLOCKS; i++)
        hashes[i] = mix(n * MESSAGE_BLOCKS + i);
    tokens[0] = (uint32_t)n;
    kv_map_begin(map, rank,
                 &(struct kv_batch){.events = &event, .n_events = 1});
    return work(map);
}

/* Returns the longest turn in which a message was taken, and which it was. */
static double grow(struct kv_map *map, uint64_t messages, uint64_t *at)
{
    double longest = 0;

    for (uint64_t n = 0; n < messages; n++) {
        double turn = store(map, 0, n);

        if (turn > longest)
            *at = n;
        longest = turn > longest ? turn : longest;
    }
    return longest;
}

static double forget(struct kv_map *map)
{
    double began = now_s(), first, rest = 0;

    kv_map_clear_rank(map, 0);
    first = now_s() - began;
    if (kv_map_forgets(map))
        rest = work(map);
    return first > rest ? first : rest;
}

int main(int argc, char **argv)
{
    uint64_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 900000, at = 0;
    struct kv_map *map =
        kv_map_new(&(struct kv_map_config){.model = "m",
                                           .block_tokens = BLOCK_TOKENS,
                                           .max_blocks = 2 * blocks,
                                           .max_waiting_bytes = 1u << 20,
                                           .seed = 1},
                   &sink, NULL);
    double grown, forgotten;

    if (!map)
        return 1;
    (void)store(map, 1, UINT64_C(1) << 40);
    grown = grow(map, blocks / MESSAGE_BLOCKS, &at);
    blocks = kv_map_stats(map).entries;
    forgotten = forget(map);
    printf("the longest turn, ms\n"
           "  32 blocks more, up to %llu: %.3f (the %lluth)\n"
           "  a rank that held them is forgotten beside another: %.3f\n",
           (unsigned long long)blocks, grown * 1e3,
           (unsigned long long)at * MESSAGE_BLOCKS, forgotten * 1e3);
    kv_map_free(map);
    return 0;
}
