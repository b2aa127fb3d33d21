/* The inside of a feed, for the files that keep it. */
#ifndef CONDUCTOR_LINK_EVENTS_FEED_STATE_H
#define CONDUCTOR_LINK_EVENTS_FEED_STATE_H

#include <sys/queue.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/link/events/feed.h"
#include "conductor/link/events/sequence.h"
#include "conductor/link/events/socket.h"

/* Replays at once, over all feeds: each brings all that an engine keeps. */
#define FEED_REPLAYS_MAX 8u
#define FEED_ENDPOINT_MAX 512
/* After this long without a message the engine is asked whether one is missing,
 * since the last one may be lost; the time doubles with each question. */
#define FEED_QUIET_MIN_US 1000000
/* Blocks of a message applied at once; the rest waits for the next turn. */
#define FEED_PIECE_BLOCKS 512u
/* Unfinished messages, over all feeds: each has a decoder of its own. At this
 * number no other message is taken. */
#define FEED_UNFINISHED_MAX 32u
/* A message is dropped after this many pieces (4 million blocks), since it may
 * be endless. While FEED_UNFINISHED_MAX are unfinished, the one with the most
 * pieces is dropped after FEED_PIECES_CROWDED. */
#define FEED_PIECES_MAX 8192u
#define FEED_PIECES_CROWDED 256u
/* Then nothing is taken from the engine for this long; the pause doubles with
 * each further dropped message. */
#define FEED_REST_MIN_US 1000000
#define FEED_REST_MAX_US 600000000
/* Log lines that engines can cause, over all feeds. */
#define FEED_LINES_PER_S 4

struct stream;

TAILQ_HEAD(stream_list, stream);
TAILQ_HEAD(feed_list, kv_feed);

struct kv_feeds {
    struct loop *base;
    struct kv_loop *loop;
    struct kv_decoder *decoder; /* of the next message */
    struct kv_decoder *spare;   /* NULL = none */
    struct loop_timer tick;
    struct feed_list feeds;
    struct feed_list busy;          /* next turn's feed first */
    uint32_t n_unfinished;          /* of these: messages not finished */
    struct stream_list want_replay; /* first come, first served */
    uint32_t n_replays;
    struct log_rate told; /* log lines on restarts and losses */
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
    /* A live message that waits for missing ones before it. */
    bool has_held;
    uint64_t held_number;
    zmq_msg_t held;
    enum replay_state replay;
    bool check;      /* only asks whether messages are missing */
    bool all;        /* asks for all messages */
    bool from_zero;  /* the same, before its first answer, which makes known
                        blocks be forgotten */
    bool hole;       /* messages were missing, or one was malformed */
    bool unanswered; /* the last replay failed, checks aside */
    struct kv_socket *dealer;
    uint32_t tries;             /* in a row without an answer */
    uint64_t answers;           /* to the current question */
    int64_t began_us, heard_us; /* replay began, last answer */
    int64_t not_before_us;      /* earliest next replay */
    int64_t pause_us;           /* after the last failure; 0 = none */
    int64_t quiet_since_us;     /* no message and no question */
    int64_t quiet_us;           /* ask after this long without a message */
};

/* A socket that receives messages. */
struct intake {
    struct kv_feed *feed;
    uint16_t rank; /* rank at this port, counted from first_rank */
    struct kv_socket *socket;
};

/* A message that is being applied. */
struct applying {
    struct stream *stream; /* NULL = none */
    uint64_t number;
    zmq_msg_t message; /* bytes of this message, or of one not judged yet; the
                          batch's texts point into them */
    size_t bytes;
    uint32_t pieces; /* applied after the first */
    struct kv_batch batch;
    struct kv_decoder *decoder; /* NULL = the message is finished */
};

struct kv_feed {
    TAILQ_ENTRY(kv_feed) entry;
    TAILQ_ENTRY(kv_feed) in_busy; /* feeds->busy, if `busy` */
    struct kv_feeds *feeds;
    /* A message, or forgetting blocks, is unfinished: no socket of the feed is
     * read, and no replay ends. */
    bool busy;
    int64_t rests_until_us; /* no socket is read until then; 0 = not resting */
    int64_t rest_us;        /* length of the last rest; 0 = none */
    int64_t rested_us;      /* when the last rest ended */
    struct applying applying;
    struct kv_feed_config config;
    struct kv_map *map;
    struct stream *streams; /* (config.ranks) */
    struct intake *intakes; /* (n_intakes) */
    uint32_t n_intakes;
    struct kv_feed_stats stats;
};

/* apply.c */

/* Applies a message with this number, and takes it over.
 *   batch  its events, if it is feed->applying.message and was decoded; else
 *          NULL. */
void stream_apply(struct stream *stream, uint64_t number, zmq_msg_t *payload,
                  const struct kv_batch *batch);

/* Ends a replay: applies the held message, and takes live messages again. */
void stream_resume(struct stream *stream);

/* Does a piece of an unfinished message, or of forgetting blocks. */
void feeds_work(void *feeds);

/* Ends the feed's rest when it is due. */
void feed_tick(struct kv_feed *feed, int64_t now_us);

/* Frees the message's bytes, if there are any. */
void applying_drop(struct applying *applying);

/* Drops the rest of the message being applied, if any. */
void feed_abandon(struct kv_feed *feed);

/* Does the same, and stops forgetting blocks: the feed is about to be freed. */
void feed_leave(struct kv_feed *feed);

/* busy.c */

/* Sets whether the feed has work left, and tells the loop. */
void feed_set_busy(struct kv_feed *feed, bool busy);

/* Updates `busy` and the pauses: call it after anything that may leave work. */
void feed_look(struct kv_feed *feed);

/* Returns whether a feed's messages wait: it is busy or rests. */
bool feed_waits(const struct kv_feed *feed);

/* Pauses or resumes a feed's sockets: live ones wait while one of their ranks
 * is replayed, and all wait while the feed is busy or rests. */
void feed_update_pauses(struct kv_feed *feed);

/* stream.c */

/* Returns a stream's rank as the engine counts. */
unsigned stream_rank(const struct stream *stream);

/* Returns whether the engine's rank of this number belongs to the feed. */
bool feed_has_rank(const struct kv_feed *feed, uint64_t rank);

/* Forgets the rank's blocks, since a message could not be read. */
void stream_malformed(struct stream *stream, uint64_t number,
                      const struct kv_batch_error *error);

/* Drops the live message that is held, if there is one. */
void stream_drop_held(struct stream *stream);

/* Handles the final loss of messages wanted to number - 1: forgets the rank's
 * blocks. */
void stream_lost(struct stream *stream, uint64_t wanted, uint64_t number);

/* Forgets the rank's blocks; its next message may have any number. */
void stream_forget(struct stream *stream);

/* Writes "tcp://host:port" with rank added to the port. Returns false: the
 * endpoint has no valid port. */
bool feed_endpoint(const char *endpoint, uint16_t rank,
                   char out[FEED_ENDPOINT_MAX]);

/* replay.c */

/* Queues a question for missing messages; `all`: for all messages; `check`:
 * only whether some are missing. Live messages wait for it, unless it is a
 * check, once the caller has called feed_update_pauses(). Returns false: the
 * engine has no replay, or one failed a short time ago. */
bool replay_want(struct stream *stream, bool all, bool check);

/* Stops a replay, if any, without other effects. */
void replay_stop(struct stream *stream);

/* Ends the pause after a failed replay, since the engine may answer now, and
 * makes the next one the shortest. Stops a running check, to be asked anew. */
void replay_hurry(struct stream *stream);

/* Ends replays at their limits, and begins those whose turn it is. */
void replay_tick(struct kv_feeds *feeds, int64_t now_us);

#endif
