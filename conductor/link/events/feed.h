/*
 * The KV events of one engine: subscribes, notices what is lost, asks for it
 * again, and keeps the engine's block map.
 *
 * What the sink was told follows from the events that came, as long as the
 * feed is whole. It is not whole when events are missing that cannot be had
 * again; then all that was known of that rank has been forgotten, and what
 * came after is right, but not all.
 */
#ifndef CONDUCTOR_LINK_EVENTS_FEED_H
#define CONDUCTOR_LINK_EVENTS_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/link/events/map/block_map.h"

struct event_base;
struct kv_feed;
struct kv_feeds;

#define KV_FEED_RANKS_MAX KV_MAP_RANKS_MAX

struct kv_feed_config {
    const char *name; /* of the engine, for logs; borrowed, like all texts */
    const char *endpoint; /* "tcp://host:port": rank r publishes at port + r */
    bool bind;            /* endpoint is ours, and the engine connects there:
                             vLLM's rank r to port + r, others' all to one */
    const char *replay_endpoint; /* where rank r replays, port + r; "": none */
    const char *topic;           /* prefix of the messages' topic */
    uint16_t ranks;              /* data-parallel; at least 1 */
    uint16_t first_rank;         /* of them; they are counted from it */
    bool only; /* others' batches are left out, whatever port they come from */
    struct kv_map_config map;
};

enum kv_feed_state {
    KV_FEED_WHOLE,     /* knows all that the engine has said */
    KV_FEED_SILENT,    /* nothing has come, and no replay said that there is
                          nothing */
    KV_FEED_PARTIAL,   /* some was lost for good */
    KV_FEED_REPLAYING, /* asks for what it has missed */
};

/* Counts since the feed was made. */
struct kv_feed_stats {
    enum kv_feed_state state; /* of the worst rank: the last one */
    uint64_t messages, bytes; /* applied */
    uint64_t events;          /* in these */
    uint64_t unknown_events;  /* with tags that nobody knows */
    uint64_t malformed;       /* messages */
    uint64_t too_long;        /* messages that were dropped, unfinished */
    uint64_t duplicates;      /* messages that a replay had */
    uint64_t gaps, missing;   /* holes in the numbers; messages in them */
    uint64_t lost;            /* of these, never had again */
    uint64_t restarts;        /* of the engine, seen by its numbers */
    uint64_t reconnects;      /* to it, after a connection that ended */
    uint64_t replays;         /* asked for */
    uint64_t replays_failed;
    uint64_t other_ranks;  /* messages of ranks that there are none of */
    uint64_t unfinished;   /* 1: something is left of a message, or of what is
                              to be forgotten, now */
    int64_t last_event_us; /* clock_now_us() of the last message; 0: none */
    struct kv_map_stats map;
};

/* Makes what all feeds share. Returns owned, or NULL: out of memory.
 * kv_feeds_free(NULL) is a no-op; its feeds are freed before. */
[[nodiscard]] struct kv_feeds *kv_feeds_new(struct event_base *base);
void kv_feeds_free(struct kv_feeds *feeds);

/*
 * Subscribes to an engine, which need not be there yet. Asks for a replay of
 * all that it still has.
 *   sink, arg  as in kv_map_new(); called from the event loop.
 * Returns owned, or NULL with errno: an endpoint that is none, a port in use,
 * or out of memory.
 */
[[nodiscard]] struct kv_feed *kv_feed_new(struct kv_feeds *feeds,
                                          const struct kv_feed_config *config,
                                          const struct kv_map_sink *sink,
                                          void *arg);

/* Closes its connections, and says nothing to the sink. NULL is a no-op. */
void kv_feed_free(struct kv_feed *feed);

/* The engine has lost its cache, as others know: forgets what it held, tells
 * the sink, and asks for a replay of what it has said since. */
void kv_feed_forget(struct kv_feed *feed);

/* The engine is well, as others know: where it did not answer when it was asked
 * for a replay, it is asked again soon, without the pause after a failure. */
void kv_feed_ask_again(struct kv_feed *feed);

/* The numbers of the first and the last message, none missing between them,
 * that what is known of a rank (below config.ranks) follows from. Returns
 * false: nothing is known. */
bool kv_feed_known(const struct kv_feed *feed, uint16_t rank, uint64_t *first,
                   uint64_t *last);

/* Its map, borrowed, as long as the feed lives. */
struct kv_map *kv_feed_map(const struct kv_feed *feed);

/* What is counted of it so far. O(ranks). */
struct kv_feed_stats kv_feed_stats(const struct kv_feed *feed);

/* "whole", "silent", "partial", "replaying". */
const char *kv_feed_state_name(enum kv_feed_state state);

#endif
