/* The inside of a feed, for the files that keep it. */
#ifndef CONDUCTOR_LINK_EVENTS_FEED_STATE_H
#define CONDUCTOR_LINK_EVENTS_FEED_STATE_H

#include <event2/event.h>
#include <sys/queue.h>

#include "base/log.h"
#include "conductor/link/events/feed.h"
#include "conductor/link/events/sequence.h"
#include "conductor/link/events/socket.h"

/* Replays at once, of all feeds: each is as much as an engine remembers. */
#define FEED_REPLAYS_MAX 8u
#define FEED_ENDPOINT_MAX 512
/* When nothing comes, the engine is asked whether something is missing, since
 * a message may be lost with none behind it: after so long, and again after
 * twice as long. */
#define FEED_QUIET_MIN_US 1000000
/* Of a message, taken in one go; what is left of it waits for the next turn. */
#define FEED_PIECE_BLOCKS 512u
/* Messages of which something is left, of all feeds: each has its events in a
 * decoder of its own. While there are as many, no other message is taken. */
#define FEED_UNFINISHED_MAX 32u
/* Pieces of a message after which it is dropped, for its engine may never end
 * it: 4 million blocks. While no other message can be taken, the one that has
 * had the most is dropped earlier. */
#define FEED_PIECES_MAX 8192u
#define FEED_PIECES_CROWDED 256u
/* Then nothing of that engine is taken for so long, and for twice as long after
 * each one that follows. */
#define FEED_REST_MIN_US 1000000
#define FEED_REST_MAX_US 600000000
/* Of the log's, of what engines can cause, all feeds together. */
#define FEED_LINES_PER_S 4

struct stream;

TAILQ_HEAD(stream_list, stream);
TAILQ_HEAD(feed_list, kv_feed);

struct kv_feeds {
    struct event_base *base;
    struct kv_loop *loop;
    struct kv_decoder *decoder; /* of the next message */
    struct kv_decoder *spare;   /* NULL: none */
    struct event *tick;
    struct feed_list feeds;
    struct feed_list busy; /* whose turn it is first */
    uint32_t n_unfinished; /* of these, messages of which something is left */
    struct stream_list want_replay; /* first come, first served */
    uint32_t n_replays;
    struct log_rate told; /* of restarts, of losses */
};

enum replay_state {
    REPLAY_NONE,
    REPLAY_WANTED, /* in feeds->want_replay */
    REPLAY_RUNS,
};

/* One data-parallel rank: its numbers, and its replay. */
struct stream {
    TAILQ_ENTRY(stream) entry; /* feeds->want_replay */
    struct kv_feed *feed;
    uint16_t rank; /* counted from config.first_rank */
    struct kv_sequence sequence;
    bool partial; /* something was lost for good */
    /* A live message that came before those that are missing. */
    bool has_held;
    uint64_t held_number;
    zmq_msg_t held;
    enum replay_state replay;
    bool check;      /* it only asks whether something is missing */
    bool all;        /* it asks for all that there is */
    bool from_zero;  /* likewise, and nothing has come: what is known is
                        forgotten with the first message */
    bool hole;       /* it could not give all that was asked for, or some of it
                        was malformed */
    bool unanswered; /* the last one that was no check failed */
    struct kv_socket *dealer;
    uint32_t tries;             /* without an answer */
    uint64_t answers;           /* in this replay */
    int64_t began_us, heard_us; /* the replay */
    int64_t not_before_us;      /* of the next one */
    int64_t pause_us;           /* after the next one that fails */
    int64_t quiet_since_us;     /* nothing came, and nothing was asked */
    int64_t quiet_us;           /* for so long, before it is asked */
};

/* A socket that messages come from. */
struct intake {
    struct kv_feed *feed;
    uint16_t rank; /* of its port, likewise */
    struct kv_socket *socket;
};

/* A message that is being applied. */
struct applying {
    struct stream *stream; /* NULL: none is */
    uint64_t number;
    zmq_msg_t message; /* of this one, or one that was not judged yet: texts of
                          the batch are in it */
    size_t bytes;
    uint32_t pieces; /* that were applied, after the first */
    struct kv_batch batch;
    struct kv_decoder *decoder; /* NULL: nothing is left of it */
};

struct kv_feed {
    TAILQ_ENTRY(kv_feed) entry;
    TAILQ_ENTRY(kv_feed) in_busy; /* feeds->busy, if `busy` */
    struct kv_feeds *feeds;
    /* Something is left of a message, or of what is to be forgotten: nothing
     * else of its engine is taken. No socket of the feed is read, and no replay
     * ends. */
    bool busy;
    int64_t rests_until_us; /* likewise; 0: it does not rest */
    int64_t rest_us;        /* the last one; 0: there was none */
    int64_t rested_us;      /* when that ended */
    struct applying applying;
    struct kv_feed_config config;
    struct kv_map *map;
    struct stream *streams; /* (config.ranks) */
    struct intake *intakes; /* (n_intakes) */
    uint32_t n_intakes;
    struct kv_feed_stats stats;
};

/* apply.c */

/* Applies a message with this number; takes it.
 *   batch  its events, if it is feed->applying.message and was decoded; else
 *          NULL. */
void stream_apply(struct stream *stream, uint64_t number, zmq_msg_t *payload,
                  const struct kv_batch *batch);

/* A replay has ended: what was held is applied, and live messages count
 * again. */
void stream_resume(struct stream *stream);

/* Goes on with a message of which something is left, or with what is to be
 * forgotten. */
void feeds_work(void *feeds);

/* Time goes by: a feed has rested. */
void feed_tick(struct kv_feed *feed, int64_t now_us);

/* Drops a message that was not applied, if there is one. */
void applying_drop(struct applying *applying);

/* Leaves what is left of the message that is being applied, if any. */
void feed_abandon(struct kv_feed *feed);

/* Likewise, and of what is to be forgotten: it is about to be freed. */
void feed_leave(struct kv_feed *feed);

/* busy.c */

/* Whether it has something left to do, which the loop is told. */
void feed_set_busy(struct kv_feed *feed, bool busy);

/* Looks whether the feed is busy by now: after each call that may leave
 * something. */
void feed_look(struct kv_feed *feed);

/* Whether its messages wait. */
bool feed_waits(const struct kv_feed *feed);

/* Live messages wait while one of the ranks that come that way is replayed, and
 * all messages while something is left of one. */
void feed_update_pauses(struct kv_feed *feed);

/* stream.c */

/* Its rank as the engine counts. */
unsigned stream_rank(const struct stream *stream);

/* Whether the engine's rank of this number is one of the feed's. */
bool feed_has_rank(const struct kv_feed *feed, uint64_t rank);

/* Nobody knows what a message has said: what is known may be wrong. */
void stream_malformed(struct stream *stream, uint64_t number,
                      const struct kv_batch_error *error);

/* Drops the live message that is held, if there is one. */
void stream_drop_held(struct stream *stream);

/* Messages from wanted to number - 1 are lost for good: what the rank has is
 * forgotten. */
void stream_lost(struct stream *stream, uint64_t wanted, uint64_t number);

/* Forgets what the rank has; its next message may have any number. */
void stream_forget(struct stream *stream);

/* "tcp://host:port" with rank added to the port; false: no port there. */
bool feed_endpoint(const char *endpoint, uint16_t rank,
                   char out[FEED_ENDPOINT_MAX]);

/* replay.c */

/* Asks for what is missing as soon as it is this stream's turn. Live messages
 * wait, unless it only checks. Returns false: the engine has no replay, or one
 * has failed a short time ago. */
bool replay_want(struct stream *stream, bool all, bool check);

/* Ends a replay without a word. */
void replay_stop(struct stream *stream);

/* Somebody may answer by now: the pause after one that failed is over, and the
 * next one is the shortest. A check that runs is asked anew. */
void replay_hurry(struct stream *stream);

/* Time goes by: limits of replays, and those that wait for their turn. */
void replay_tick(struct kv_feeds *feeds, int64_t now_us);

#endif
