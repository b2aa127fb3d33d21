/* Blocks of the shared store, put and read over one line by the functions that
 * the worker's threads call: sums, copies and commands are theirs.
 *
 * usage: bench_shared_tier URL LAYER_BYTES LAYERS BLOCKS
 *
 * Prints what was put and read, in MB/s. tests/bench/shared_tier runs it beside
 * redis-benchmark. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "workers/shared/commands.h"

#define TTL_S 600
#define TIMEOUT_US 10000000

static char *data;
static struct shared_head *heads;

static void demand(const char *what, int rc, const struct shared_store *s)
{
    if (rc == 0)
        return;
    fprintf(stderr, "bench_shared_tier: %s: %s: %s %s\n", what, strerror(-rc),
            shared_line_why(s->line), s->why);
    exit(1);
}

static void say(const char *what, int64_t from_us, double bytes)
{
    double s = (double)(clock_now_us() - from_us) / 1e6;

    printf("%s %.0f MB/s\n", what, bytes / s / 1e6);
}

static void put_all(struct shared_store *s, uint32_t blocks)
{
    int64_t from_us = clock_now_us();

    for (uint32_t i = 0; i < blocks; i++) {
        struct shared_block b = {.known = {i + 1, i}, .data = data};
        struct shared_gone gone;

        memcpy(data, &i, sizeof(i)); /* no two are equal */
        demand("put", shared_put(s, &b, &gone), s);
    }
    say("put", from_us, (double)blocks * (double)s->shape.block_bytes);
}

static void read_all(struct shared_store *s, uint32_t blocks)
{
    uint64_t *keys = calloc(blocks, sizeof(*keys));
    uint32_t found;

    if (!keys)
        exit(1);
    for (uint32_t i = 0; i < blocks; i++)
        keys[i] = i + 1;
    int64_t from_us = clock_now_us();
    demand("heads", shared_heads(s, keys, blocks, heads, &found), s);
    if (found != blocks) {
        fprintf(stderr, "bench_shared_tier: %u of %u blocks are there\n", found,
                blocks);
        exit(1);
    }
    for (uint32_t i = blocks; i-- > 0;)
        demand("read", shared_read(s, &heads[i], 0, s->shape.layers, data), s);
    say("read", from_us, (double)blocks * (double)s->shape.block_bytes);
    free(keys);
}

int main(int argc, char **argv)
{
    char why[256] = "usage: bench_shared_tier URL LAYER_BYTES LAYERS BLOCKS";
    struct redis_url url;
    uint64_t id;

    if (argc != 5 || redis_url_parse(argv[1], &url, why, sizeof(why)) < 0) {
        fprintf(stderr, "%s\n", why);
        return 2;
    }
    uint32_t layers = (uint32_t)atoi(argv[3]);
    uint32_t blocks = (uint32_t)atoi(argv[4]);
    struct shared_store s = {
        .line = shared_line_new(&url, NULL, TIMEOUT_US, SIZE_MAX),
        .shape = {.fingerprint = 1,
                  .block_bytes = (uint64_t)atol(argv[2]) * layers,
                  .block_tokens = 16,
                  .layers = layers},
        .max_blocks = blocks,
        .ttl_s = TTL_S,
    };
    data = calloc(1, s.shape.block_bytes);
    heads = shared_heads_new(&s.shape, blocks);
    if (!s.line || !data || !heads || layers == 0 || layers > SHARED_LAYERS_MAX)
        return 2;
    demand("check", shared_check(&s, true, &id), &s);
    put_all(&s, blocks);
    for (int i = 0; i < 3; i++)
        read_all(&s, blocks);
    shared_line_free(s.line);
    free(data);
    free(heads);
    return 0;
}
