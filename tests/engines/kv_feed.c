/*
 * An engine's KV events, subscribed to and put into a prefix index, for tests
 * in Python.
 *
 * usage: kv_feed connect|bind ENDPOINT REPLAY_ENDPOINT RANKS
 *                BLOCK_TOKENS[/ENGINE_TOKENS] [OTHER_ENDPOINT [COPIES]]
 *
 * COPIES: so many feeds more of the first endpoint, which are not looked at.
 * The other endpoint is of a second engine, whose messages are only counted.
 *
 * Reads commands, one a line, and answers each with a line:
 *   stats                    -> a JSON object
 *   match SALT|- TOKEN ...   -> the number of leading blocks that are held
 *   forget                   -> "done"
 *   ask again                -> "done"
 * Ends with its standard input.
 */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/libevent.h"
#include "base/loop/loop.h"
#include "conductor/core/index/block_key.h"
#include "conductor/core/index/prefix_index.h"
#include "conductor/link/events/feed.h"

enum { TOKENS_MAX = 1 << 20, COPIES_MAX = 64 };

struct program {
    struct loop *loop;
    struct prefix_index *index;
    struct prefix_match match;
    struct kv_feeds *feeds;
    struct kv_feed *feed, *other, *copies[COPIES_MAX];
    uint32_t block_tokens;
    struct loop_timer next_turn; /* of the loop */
    uint64_t turn_blocks;        /* told in this one, */
    uint64_t most_blocks;        /* and at most in any */
    uint64_t between;      /* messages of the other, while something was left
                              of one of the first */
    uint64_t forgot_parts; /* times that such a rest was forgotten */
};

static void on_next_turn(void *arg)
{
    struct program *p = arg;

    p->turn_blocks = 0;
}

/* Blocks are told. */
static void count_turn(struct program *p, size_t n)
{
    if (p->turn_blocks == 0)
        loop_timer_start(&p->next_turn, 0);
    p->turn_blocks += n;
    if (p->turn_blocks > p->most_blocks)
        p->most_blocks = p->turn_blocks;
}

static void on_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *keys, size_t n)
{
    struct program *p = arg;

    count_turn(p, n);
    if (prefix_index_stored(p->index, 0, tier, parent_key, keys, n))
        abort();
}

static void on_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                       size_t n)
{
    struct program *p = arg;

    count_turn(p, n);
    if (prefix_index_removed(p->index, 0, tier, keys, n))
        abort();
}

static void on_cleared(void *arg)
{
    struct program *p = arg;

    prefix_index_cleared(p->index, 0);
    while (prefix_index_work(p->index, UINT32_MAX))
        ;
}

static const struct kv_map_sink sink = {on_stored, on_removed, on_cleared};

static void on_other(void *arg, enum block_tier tier, uint64_t parent_key,
                     const uint64_t *keys, size_t n)
{
    struct program *p = arg;

    (void)tier;
    (void)parent_key;
    (void)keys;
    (void)n;
    if (p)
        p->between += kv_feed_stats(p->feed).unfinished;
}

static void on_other_removed(void *, enum block_tier, const uint64_t *, size_t)
{
}

static void on_other_cleared(void *)
{
}

static const struct kv_map_sink other_sink = {on_other, on_other_removed,
                                              on_other_cleared};

static void print_stats(const struct program *p)
{
    struct kv_feed_stats s = kv_feed_stats(p->feed);
    uint64_t crowded_out = 0;

    for (int i = 0; i < COPIES_MAX && p->copies[i]; i++)
        crowded_out += kv_feed_stats(p->copies[i]).too_long;

#define SAY(name) printf("\"" #name "\": %" PRIu64 ", ", s.name)
#define SAY_MAP(name) printf("\"" #name "\": %" PRIu64 ", ", s.map.name)
    printf("{\"state\": \"%s\", ", kv_feed_state_name(s.state));
    SAY(messages);
    SAY(events);
    SAY(unknown_events);
    SAY(malformed);
    SAY(too_long);
    SAY(duplicates);
    SAY(gaps);
    SAY(missing);
    SAY(lost);
    SAY(restarts);
    SAY(reconnects);
    SAY(replays);
    SAY(replays_failed);
    SAY(other_ranks);
    SAY(unfinished);
    SAY_MAP(stored);
    SAY_MAP(removed);
    SAY_MAP(unknown_removed);
    SAY_MAP(waited);
    SAY_MAP(waiting_events);
    SAY_MAP(wrong_size);
    SAY_MAP(wrong_tokens);
    SAY_MAP(contradictions);
    SAY_MAP(entries);
    printf("\"crowded_out\": %" PRIu64 ", ", crowded_out);
    printf("\"most_blocks\": %" PRIu64 ", \"between\": %" PRIu64
           ", \"forgot_parts\": %" PRIu64 ", \"held\": %" PRIu64 "}\n",
           p->most_blocks, p->between, p->forgot_parts,
           prefix_index_held(p->index, 0));
}

static void match(struct program *p, char *text)
{
    uint32_t *tokens = malloc(TOKENS_MAX * sizeof(*tokens));
    uint64_t *keys = malloc(TOKENS_MAX * sizeof(*keys));
    char *salt = strtok(text, " "), *token;
    size_t n = 0;

    if (!tokens || !keys || !salt)
        abort();
    while ((token = strtok(NULL, " ")) && n < TOKENS_MAX)
        tokens[n++] = (uint32_t)strtoul(token, NULL, 10);
    n = block_keys_compute(
        tokens, n, p->block_tokens,
        block_key_seed("tiny", "", strcmp(salt, "-") ? salt : ""), keys);
    prefix_index_match(p->index, keys, n, &p->match);
    printf("%u\n", p->match.blocks[0]);
    free(tokens);
    free(keys);
}

static void on_input(struct bufferevent *input, void *arg)
{
    struct evbuffer *buffer = bufferevent_get_input(input);
    struct program *p = arg;
    char *line;

    while ((line = evbuffer_readln(buffer, NULL, EVBUFFER_EOL_LF))) {
        if (strcmp(line, "stats") == 0) {
            print_stats(p);
        } else if (strcmp(line, "forget") == 0) {
            p->forgot_parts += kv_feed_stats(p->feed).unfinished;
            kv_feed_forget(p->feed);
            puts("done");
        } else if (strcmp(line, "ask again") == 0) {
            kv_feed_ask_again(p->feed);
            puts("done");
        } else if (strncmp(line, "match ", 6) == 0)
            match(p, line + 6);
        fflush(stdout);
        free(line);
    }
}

static void on_end(struct bufferevent *input, short what, void *arg)
{
    struct program *p = arg;

    (void)input;
    (void)what;
    loop_stop(p->loop);
}

static int start(struct program *p, int argc, char **argv)
{
    struct kv_feed_config config = {
        .name = "tested",
        .endpoint = argv[2],
        .bind = strcmp(argv[1], "bind") == 0,
        .replay_endpoint = argv[3],
        .topic = "",
        .ranks = (uint16_t)atoi(argv[4]),
        .map = {.model = "tiny",
                .max_blocks = 1u << 20,
                .max_waiting_bytes = 1u << 20,
                .seed = 1},
    };

    p->block_tokens = config.map.block_tokens = config.map.engine_tokens =
        (uint32_t)atoi(argv[5]);
    if (strchr(argv[5], '/'))
        config.map.engine_tokens = (uint32_t)atoi(strchr(argv[5], '/') + 1);
    p->loop = loop_new();
    p->index = prefix_index_new(&(struct prefix_index_config){
        .max_instances = 1, .max_bytes = 1u << 26, .seed = 1});
    p->feeds = p->loop ? kv_feeds_new(p->loop) : NULL;
    if (!p->index || !p->feeds || prefix_match_init(&p->match, 1))
        return -1;
    loop_timer_init(p->loop, &p->next_turn, on_next_turn, p);
    p->feed = kv_feed_new(p->feeds, &config, &sink, p);
    if (!p->feed || argc == 6)
        return p->feed ? 0 : -1;
    for (int i = 0; argc > 7 && i < atoi(argv[7]) && i < COPIES_MAX; i++)
        p->copies[i] = kv_feed_new(p->feeds, &config, &other_sink, NULL);
    config.endpoint = argv[6];
    config.replay_endpoint = "";
    p->other = kv_feed_new(p->feeds, &config, &other_sink, p);
    return p->other ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct program program = {0};
    struct bufferevent *input;

    if (argc < 6 || argc > 8 || start(&program, argc, argv)) {
        fprintf(stderr, "kv_feed: %s\n", strerror(errno));
        return 1;
    }
    evutil_make_socket_nonblocking(0);
    input = bufferevent_socket_new(loop_event_base(program.loop), 0, 0);
    bufferevent_setcb(input, on_input, NULL, on_end, &program);
    bufferevent_enable(input, EV_READ);
    loop_run(program.loop);
    bufferevent_free(input);
    kv_feed_free(program.feed);
    kv_feed_free(program.other);
    for (int i = 0; i < COPIES_MAX; i++)
        kv_feed_free(program.copies[i]);
    kv_feeds_free(program.feeds);
    prefix_match_fini(&program.match);
    prefix_index_free(program.index);
    loop_timer_stop(&program.next_turn);
    loop_free(program.loop);
    return 0;
}
