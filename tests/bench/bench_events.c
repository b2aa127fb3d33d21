/*
 * What an engine's KV events cost: messages as vLLM sends them, 32 blocks of
 * 16 tokens each, decoded, mapped to block keys and put into the prefix index.
 * Prints a table of the parts; measures and judges nothing. Run it alone:
 *   build/tests/bench/bench_events [BLOCKS [INDEX_TOKENS]]
 * 2,000,000 blocks unless told. An index whose blocks have not 16 tokens makes
 * the map cut them.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "base/loop/loop.h"
#include "bench.h"
#include "conductor/core/index/block_key.h"
#include "conductor/core/index/prefix_index.h"
#include "conductor/link/events/feed.h"
#include "tests/unit/kv_map_test.h"

enum { BATCH_BLOCKS = 32, BLOCK_TOKENS = 16, CHAIN_BATCHES = 8, INSTANCES = 8 };

struct message {
    uint8_t *bytes;
    size_t n;
};

struct bench {
    struct message *messages;
    size_t n_messages;
    uint64_t n_blocks;
    struct kv_decoder *decoder;
    uint32_t index_tokens;
    struct kv_map *maps[INSTANCES];
    struct prefix_index *index;
};

struct target {
    struct prefix_index *index;
    uint32_t instance;
};

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_events: %s failed\n", what);
    exit(1);
}

/* An encoder of what is needed. */

static uint8_t *put_number(uint8_t *p, uint64_t value, uint32_t width)
{
    while (width-- > 0)
        *p++ = (uint8_t)(value >> (8 * width));
    return p;
}

static uint8_t *put_integer(uint8_t *p, uint64_t value)
{
    uint32_t form = value < 256 ? 0 : value < 65536 ? 1 : value >> 32 ? 3 : 2;

    if (value < 128) {
        *p++ = (uint8_t)value;
        return p;
    }
    *p++ = (uint8_t)(0xcc + form);
    return put_number(p, value, 1u << form);
}

static uint8_t *put_text(uint8_t *p, const char *text)
{
    size_t n = strlen(text);

    *p++ = (uint8_t)(0xa0 | n);
    memcpy(p, text, n);
    return p + n;
}

static uint8_t *put_array(uint8_t *p, uint32_t n)
{
    *p++ = 0xdc;
    return put_number(p, n, 2);
}

static uint8_t *put_tail(uint8_t *p)
{
    p = put_text(p, "medium");
    p = put_text(p, "GPU");
    p = put_text(p, "group_idx");
    *p++ = 0;
    return p;
}

static uint64_t hash_at(uint64_t batch, uint32_t block)
{
    return mix(batch * BATCH_BLOCKS + block) | 1;
}

/* The fields that vLLM 0.32 sends. */
static uint8_t *put_stored(uint8_t *p, uint64_t batch)
{
    *p++ = 0x8b;
    p = put_text(p, "type");
    p = put_text(p, "BlockStored");
    p = put_text(p, "block_hashes");
    p = put_array(p, BATCH_BLOCKS);
    for (uint32_t i = 0; i < BATCH_BLOCKS; i++)
        p = put_integer(p, hash_at(batch, i));
    p = put_text(p, "parent_block_hash");
    if (batch % CHAIN_BATCHES == 0)
        *p++ = 0xc0;
    else
        p = put_integer(p, hash_at(batch - 1, BATCH_BLOCKS - 1));
    p = put_text(p, "token_ids");
    p = put_array(p, BATCH_BLOCKS * BLOCK_TOKENS);
    for (uint32_t i = 0; i < BATCH_BLOCKS * BLOCK_TOKENS; i++)
        p = put_integer(p, mix(batch << 20 | i) % 128000);
    p = put_text(p, "block_size");
    p = put_integer(p, BLOCK_TOKENS);
    p = put_text(p, "lora_id");
    *p++ = 0xc0;
    p = put_text(p, "lora_name");
    *p++ = 0xc0;
    p = put_text(p, "extra_keys");
    p = put_array(p, BATCH_BLOCKS);
    memset(p, 0xc0, BATCH_BLOCKS);
    p = put_text(p + BATCH_BLOCKS, "kv_cache_spec_kind");
    p = put_text(p, "full_attention");
    return put_tail(p);
}

/* vLLM says each block that it removes in an event of its own. */
static uint8_t *put_removed(uint8_t *p, uint64_t batch, uint32_t block)
{
    *p++ = 0x84;
    p = put_text(p, "type");
    p = put_text(p, "BlockRemoved");
    p = put_text(p, "block_hashes");
    *p++ = 0x91;
    p = put_integer(p, hash_at(batch, block));
    return put_tail(p);
}

/* A message that stores a batch and, if asked, removes another one. */
static struct message make_message(uint64_t batch, bool removes, uint64_t old)
{
    uint8_t *bytes = malloc(16384), *p = bytes;
    struct message message;

    must(bytes, "malloc");
    *p++ = 0x93;
    *p++ = 0xcb;
    p = put_number(p, 0x41dac08f69d81baa, 8);
    p = put_array(p, removes ? 1 + BATCH_BLOCKS : 1);
    for (uint32_t i = 0; removes && i < BATCH_BLOCKS; i++)
        p = put_removed(p, old, BATCH_BLOCKS - 1 - i);
    p = put_stored(p, batch);
    *p++ = 0;
    message.n = (size_t)(p - bytes);
    message.bytes = realloc(bytes, message.n);
    must(message.bytes, "realloc");
    return message;
}

/* Chains of batches, one instance after the other. With `resident` batches
 * held, each new one takes the place of the oldest. */
static void make_messages(struct bench *b, uint64_t blocks, uint64_t resident)
{
    b->n_messages = blocks / BATCH_BLOCKS;
    b->n_blocks = b->n_messages * BATCH_BLOCKS;
    b->messages = calloc(b->n_messages, sizeof(*b->messages));
    must(b->messages, "calloc");
    for (uint64_t i = 0; i < b->n_messages; i++)
        b->messages[i] =
            make_message(i, resident && i >= resident, i - resident);
}

static void free_messages(struct bench *b)
{
    for (size_t i = 0; i < b->n_messages; i++)
        free(b->messages[i].bytes);
    free(b->messages);
}

static uint32_t instance_of(size_t message)
{
    return (uint32_t)(message / CHAIN_BATCHES % INSTANCES);
}

/* The parts, each with all before it. */

static void walk(const struct bench *b, size_t i)
{
    struct unpack u;

    unpack_init(&u, b->messages[i].bytes, b->messages[i].n);
    must(unpack_skip(&u, 1), "unpack_skip");
}

static struct kv_batch decoded(const struct bench *b, size_t i)
{
    struct kv_batch_error error;
    struct kv_batch batch;

    must(kv_decoder_batch(b->decoder, b->messages[i].bytes, b->messages[i].n,
                          &batch, &error) == 0,
         "kv_decoder_batch");
    return batch;
}

static void decode(const struct bench *b, size_t i)
{
    (void)decoded(b, i);
}

static uint64_t sum;

static void keys(const struct bench *b, size_t i)
{
    struct kv_batch batch = decoded(b, i);
    const struct kv_event *e = &batch.events[batch.n_events - 1];
    uint64_t out[BATCH_BLOCKS];

    block_keys_continue(1, e->tokens, e->n_tokens, BLOCK_TOKENS, 7, out);
    sum += out[0];
    sum += out[BATCH_BLOCKS - 1];
}

static void map(const struct bench *b, size_t i)
{
    struct kv_batch batch = decoded(b, i);

    kv_map_batch(b->maps[instance_of(i)], 0, &batch);
}

static void no_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *block_keys, size_t n)
{
    (void)arg;
    (void)tier;
    sum += parent_key + block_keys[n - 1];
}

static void no_removed(void *arg, enum block_tier tier,
                       const uint64_t *block_keys, size_t n)
{
    (void)arg;
    (void)tier;
    sum += block_keys[n - 1];
}

static void no_cleared(void *arg)
{
    (void)arg;
}

static void to_index(void *arg, enum block_tier tier, uint64_t parent_key,
                     const uint64_t *block_keys, size_t n)
{
    const struct target *t = arg;

    must(prefix_index_stored(t->index, t->instance, tier, parent_key,
                             block_keys, n) == 0,
         "prefix_index_stored");
}

static void from_index(void *arg, enum block_tier tier,
                       const uint64_t *block_keys, size_t n)
{
    const struct target *t = arg;

    must(prefix_index_removed(t->index, t->instance, tier, block_keys, n) == 0,
         "prefix_index_removed");
}

static const struct kv_map_sink no_sink = {no_stored, no_removed, no_cleared};
static const struct kv_map_sink index_sink = {to_index, from_index, no_cleared};

static void make_maps(struct bench *b, const struct kv_map_sink *sink,
                      struct target targets[INSTANCES])
{
    for (uint32_t i = 0; i < INSTANCES; i++) {
        targets[i] = (struct target){b->index, i};
        b->maps[i] =
            kv_map_new(&(struct kv_map_config){.model = "m",
                                               .block_tokens = b->index_tokens,
                                               .engine_tokens = BLOCK_TOKENS,
                                               .max_blocks = 1u << 24,
                                               .max_waiting_bytes = 1u << 20,
                                               .seed = 12345 + i},
                       sink, &targets[i]);
        must(b->maps[i], "kv_map_new");
    }
}

static void free_maps(struct bench *b)
{
    for (uint32_t i = 0; i < INSTANCES; i++)
        kv_map_free(b->maps[i]);
}

static double run(const struct bench *b, const char *what, double before_ns,
                  void (*part)(const struct bench *, size_t))
{
    double begin = now_s(), ns;

    for (size_t i = 0; i < b->n_messages; i++)
        part(b, i);
    ns = (now_s() - begin) * 1e9 / (double)b->n_blocks;
    printf("  %-28s %6.1f ns a block, this part %6.1f, %5.2f M blocks/s\n",
           what, ns, ns - before_ns, 1e3 / ns);
    return ns;
}

/* Over a socket: another process publishes, and the feed drains it. */

static uint16_t free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    must(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 &&
             getsockname(fd, (struct sockaddr *)&at, &n) == 0,
         "a free port");
    close(fd);
    return ntohs(at.sin_port);
}

/* The publisher: an engine that connects, waits for the subscription and sends
 * all it has. Never returns. */
static void publish(const struct bench *b, const char *endpoint)
{
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_XPUB);
    const int no_limit = 0;
    char subscription[16];

    zmq_setsockopt(socket, ZMQ_SNDHWM, &no_limit, sizeof(no_limit));
    zmq_connect(socket, endpoint);
    must(zmq_recv(socket, subscription, sizeof(subscription), 0) > 0, "recv");
    for (size_t i = 0; i < b->n_messages; i++) {
        uint8_t number[8];

        (void)put_number(number, i, 8);
        zmq_send(socket, "", 0, ZMQ_SNDMORE);
        zmq_send(socket, number, 8, ZMQ_SNDMORE);
        zmq_send(socket, b->messages[i].bytes, b->messages[i].n, 0);
    }
    zmq_close(socket);
    zmq_ctx_term(context); /* when all of it is sent */
    _exit(0);
}

static double cpu_s(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static void bench_drain(struct bench *b, double all_ns)
{
    struct loop *loop = loop_new();
    struct kv_feeds *feeds = kv_feeds_new(loop);
    struct target target = {b->index, 0};
    struct kv_feed_config config = {.name = "bench",
                                    .bind = true,
                                    .replay_endpoint = "",
                                    .topic = "",
                                    .ranks = 1,
                                    .map = {.model = "m",
                                            .block_tokens = b->index_tokens,
                                            .engine_tokens = BLOCK_TOKENS,
                                            .max_blocks = 1u << 24,
                                            .max_waiting_bytes = 1u << 20,
                                            .seed = 12345}};
    char endpoint[64];
    struct kv_feed *feed;
    double begin, cpu, ns;
    pid_t child;

    snprintf(endpoint, sizeof(endpoint), "tcp://127.0.0.1:%u", free_port());
    config.endpoint = endpoint;
    child = fork();
    if (child == 0)
        publish(b, endpoint);
    feed = feeds ? kv_feed_new(feeds, &config, &index_sink, &target) : NULL;
    must(child > 0 && feed, "kv_feed_new");
    while (kv_feed_stats(feed).messages == 0)
        loop_turn(loop, -1);
    begin = now_s();
    cpu = cpu_s();
    while (kv_feed_stats(feed).messages < b->n_messages)
        loop_turn(loop, -1);
    ns = (cpu_s() - cpu) * 1e9 / (double)b->n_blocks;
    printf("  %-28s %6.1f ns a block, this part %6.1f, %5.2f M blocks/s "
           "of CPU, %.2f M blocks/s in all\n",
           "drain, and all of that", ns, ns - all_ns, 1e3 / ns,
           (double)b->n_blocks / (now_s() - begin) / 1e6);
    kv_feed_free(feed);
    kv_feeds_free(feeds);
    loop_free(loop);
    waitpid(child, NULL, 0);
}

static void bench_all(uint64_t blocks, uint64_t resident, uint32_t index_tokens)
{
    struct target targets[INSTANCES];
    struct bench b = {.decoder = kv_decoder_new(),
                      .index_tokens = index_tokens};
    uint64_t index_blocks = blocks * BLOCK_TOKENS / index_tokens;
    double decode_ns, map_ns, all_ns;

    must(b.decoder, "kv_decoder_new");
    make_messages(&b, blocks, resident);
    printf("%llu blocks of %d in an index of %u, %s, %.0f bytes a message\n",
           (unsigned long long)b.n_blocks, BLOCK_TOKENS, index_tokens,
           resident ? "each takes the place of another" : "none removed",
           (double)b.messages[b.n_messages - 1].n);
    (void)run(&b, "walk over the bytes", 0, walk);
    decode_ns = run(&b, "decode", 0, decode);
    (void)run(&b, "decode, keys", decode_ns, keys);
    make_maps(&b, &no_sink, targets);
    map_ns = run(&b, "decode, keys, map", decode_ns, map);
    free_maps(&b);
    b.index = prefix_index_new(&(struct prefix_index_config){
        .max_instances = INSTANCES,
        .max_bytes = index_blocks * 24 + (1u << 20),
        .seed = 1});
    must(b.index, "prefix_index_new");
    make_maps(&b, &index_sink, targets);
    all_ns = run(&b, "decode, keys, map, index", map_ns, map);
    free_maps(&b);
    prefix_index_cleared(b.index, 0);
    bench_drain(&b, all_ns);
    prefix_index_free(b.index);
    free_messages(&b);
    kv_decoder_free(b.decoder);
}

int main(int argc, char **argv)
{
    uint64_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000;

    uint64_t index_tokens = argc > 2 ? strtoull(argv[2], NULL, 10) : 16;

    must(index_tokens >= 1 && index_tokens <= 512, "INDEX_TOKENS");
    bench_all(blocks, 0, (uint32_t)index_tokens);
    bench_all(blocks, 16384,
              (uint32_t)index_tokens); /* batches: 524,288 blocks */
    return sum == 42;
}
