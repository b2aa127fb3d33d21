/*
 * The KV events of one engine: subscribes, notices lost messages, asks for them
 * again, and keeps the engine's block map.
 *
 * While the feed is whole, the sink knows the blocks of all events. If messages
 * are lost for good, all blocks of their rank are forgotten: from then on the
 * sink knows only some blocks, but none wrongly.
 */
#ifndef CONDUCTOR_LINK_EVENTS_FEED_H
#define CONDUCTOR_LINK_EVENTS_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/link/events/map/block_map.h"

struct kv_feed;
struct kv_feeds;
struct loop;

struct kv_feed_config {
    const char *name; /* the engine's name for logs; borrowed, like all texts */
    const char *endpoint; /* "tcp://host:port": rank r publishes at port + r */
    bool bind;            /* the engine connects to us at endpoint: vLLM's rank
                             r to port + r, other engines with all ranks to one
                             port */
    const char *replay_endpoint; /* where rank r replays, port + r; "" = none */
    const char *topic;           /* prefix of the messages' topic */
    uint16_t ranks;              /* data-parallel; at least 1 */
    uint16_t first_rank;         /* the engine's number of the first rank */
    bool only;                   /* skip batches that name other ranks */
    struct kv_map_config map;
};

enum kv_feed_state {
    KV_FEED_WHOLE,     /* knows all blocks the engine has published */
    KV_FEED_SILENT,    /* no message came, and no replay confirmed that none
                          exists */
    KV_FEED_PARTIAL,   /* some was lost for good */
    KV_FEED_REPLAYING, /* asking for missed messages */
};

/* Counts since the feed was made. */
struct kv_feed_stats {
    enum kv_feed_state state; /* the highest of all ranks */
    uint64_t messages, bytes; /* applied */
    uint64_t events;          /* in applied messages */
    uint64_t unknown_events;  /* with unknown tags */
    uint64_t malformed;       /* messages */
    uint64_t too_long;        /* dropped messages that took too long */
    uint64_t duplicates;      /* live messages already replayed */
    uint64_t gaps, missing;   /* holes in the numbers; messages in them */
    uint64_t lost;            /* missing messages never recovered */
    uint64_t restarts;        /* of the engine, as its numbers show */
    uint64_t reconnects;      /* to the engine, after a lost connection */
    uint64_t replays;         /* asked for */
    uint64_t replays_failed;
    uint64_t other_ranks;  /* messages of other ranks than the feed's */
    uint64_t unfinished;   /* 1 = a message or a forgetting is unfinished */
    int64_t last_event_us; /* loop_now_us() of the last message; 0 = none */
    struct kv_map_stats map;
};

/* Makes the state that all feeds share. Returns owned, or NULL: out of memory.
 * kv_feeds_free(NULL) is a no-op; free its feeds first. */
[[nodiscard]] struct kv_feeds *kv_feeds_new(struct loop *base);
void kv_feeds_free(struct kv_feeds *feeds);

/*
 * Subscribes to an engine, which need not run yet. Asks for a replay of all
 * messages that it still has.
 *   sink, arg  as in kv_map_new(); called from the event loop.
 * Returns owned, or NULL with errno: a bad endpoint, a port in use, or out of
 * memory.
 */
[[nodiscard]] struct kv_feed *kv_feed_new(struct kv_feeds *feeds,
                                          const struct kv_feed_config *config,
                                          const struct kv_map_sink *sink,
                                          void *arg);

/* Closes a feed's connections, without calls to the sink. NULL is a no-op. */
void kv_feed_free(struct kv_feed *feed);

/* Tells the feed that the engine has lost its cache: forgets its blocks, tells
 * the sink, and asks for a replay of all messages since. */
void kv_feed_forget(struct kv_feed *feed);

/* Tells the feed that the engine is well: ranks whose replay failed are asked
 * again soon, without the pause after a failure. */
void kv_feed_ask_again(struct kv_feed *feed);

/* Writes the numbers of the first and last message from which the known blocks
 * of a rank (below config.ranks) come; none between them is missing. Returns
 * false: no blocks are known. */
bool kv_feed_known(const struct kv_feed *feed, uint16_t rank, uint64_t *first,
                   uint64_t *last);

/* Returns a feed's map, borrowed while the feed lives. */
struct kv_map *kv_feed_map(const struct kv_feed *feed);

/* Returns a feed's counts so far. O(ranks). */
struct kv_feed_stats kv_feed_stats(const struct kv_feed *feed);

/* Returns "whole", "silent", "partial" or "replaying". */
const char *kv_feed_state_name(enum kv_feed_state state);

#endif
