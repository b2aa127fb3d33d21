/* The KV events of an engine: its messages, live ones and missing ones. */
#include "conductor/link/events/feed.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/link/events/feed_state.h"

#define TICK_US 250000
/* The pause, FEED_QUIET_MIN_US at first, doubles up to this. */
#define QUIET_MAX_US 30000000

/* Asks for all messages: later ones may come from another process. */
static void begin_anew(struct stream *stream)
{
    replay_stop(stream);
    stream_drop_held(stream);
    kv_sequence_begin(&stream->sequence);
    stream->not_before_us = 0;
    replay_want(stream, true, false);
}

/* Keeps a live message until the missing ones before it have come. */
static void hold(struct stream *stream, uint64_t number, zmq_msg_t *payload)
{
    stream_drop_held(stream);
    zmq_msg_init(&stream->held);
    zmq_msg_move(&stream->held, payload);
    stream->has_held = true;
    stream->held_number = number;
    if (!replay_want(stream, !stream->sequence.any_applied, false))
        stream_resume(stream);
    feed_update_pauses(stream->feed);
}

static void gap(struct stream *stream, uint64_t number, zmq_msg_t *payload)
{
    struct kv_feed *feed = stream->feed;

    if (stream->sequence.any_applied) {
        feed->stats.gaps++;
        feed->stats.missing += number - kv_sequence_wanted(&stream->sequence);
    }
    hold(stream, number, payload);
}

/* Handles a live message with number 0: no message came before it. */
static void begins(struct stream *stream)
{
    stream->partial = stream->unanswered = false;
}

static void restart(struct stream *stream, uint64_t number, zmq_msg_t *payload)
{
    struct kv_feed *feed = stream->feed;

    if (log_rate_takes(&feed->feeds->told, FEED_LINES_PER_S))
        log_info("engine %s: rank %u: its KV events start over: it was "
                 "restarted, and its blocks are forgotten",
                 feed->config.name, stream_rank(stream));
    feed->stats.restarts++;
    stream_forget(stream);
    stream->partial = false;
    if (number == 0) {
        begins(stream);
        stream_apply(stream, number, payload, NULL);
    } else
        hold(stream, number, payload);
}

static void live(struct stream *stream, uint64_t number,
                 const struct kv_batch *batch, zmq_msg_t *payload)
{
    /* Drops a check, since this message tells more, unless the check asks
     * whether the engine answers again. */
    if (stream->replay != REPLAY_NONE && (!stream->unanswered || number == 0))
        replay_stop(stream);
    switch (kv_sequence_live(&stream->sequence, number, batch->time_s)) {
    case KV_SEQUENCE_NEXT:
        if (number == 0)
            begins(stream);
        stream_apply(stream, number, payload, batch);
        break;
    case KV_SEQUENCE_DUPLICATE:
        stream->feed->stats.duplicates++;
        break;
    case KV_SEQUENCE_GAP:
        gap(stream, number, payload);
        break;
    case KV_SEQUENCE_RESTART:
        restart(stream, number, payload);
        break;
    }
}

/* Decides on a live message, which is in feed->applying. */
static void judge(struct kv_feed *feed, uint16_t rank, uint64_t number)
{
    zmq_msg_t *payload = &feed->applying.message;
    struct stream *stream = &feed->streams[rank];
    struct kv_batch_error error;
    struct kv_batch batch;

    if (kv_decoder_batch(feed->feeds->decoder, zmq_msg_data(payload),
                         zmq_msg_size(payload), &batch, &error)) {
        kv_sequence_live(&stream->sequence, number, 0);
        stream_malformed(stream, number, &error);
        return;
    }
    if (feed->config.bind && batch.has_rank) {
        if (!feed_has_rank(feed, batch.rank)) {
            feed->stats.other_ranks++;
            return;
        }
        stream = &feed->streams[batch.rank - feed->config.first_rank];
    }
    live(stream, number, &batch, payload);
}

/* Takes a message of three frames: topic, number, events. */
static void on_message(void *arg, zmq_msg_t *frames, size_t n)
{
    const struct intake *intake = arg;
    struct kv_feed *feed = intake->feed;
    struct stream *stream = &feed->streams[intake->rank];
    struct kv_batch_error error = {0,
                                   "a topic, a number of 8 bytes and events"};
    uint64_t number;

    if (n != 3 || zmq_msg_size(&frames[1]) != sizeof(number)) {
        stream_malformed(stream, 0, &error);
        kv_sequence_forget(&stream->sequence);
        return;
    }
    memcpy(&number, zmq_msg_data(&frames[1]), sizeof(number));
    /* Moved before it is decoded: a short zmq_msg_t has its bytes inside. */
    zmq_msg_move(&feed->applying.message, &frames[2]);
    judge(feed, intake->rank, be64toh(number));
    if (!feed->applying.stream)
        applying_drop(&feed->applying);
}

/* The engine is connected again. It may be another process whose numbers have
 * overtaken the earlier ones, so that they do not show it. If the engine
 * connects to us, its rank is unknown. */
static void on_again(void *arg)
{
    const struct intake *intake = arg;
    struct kv_feed *feed = intake->feed;

    feed->stats.reconnects++;
    if (log_rate_takes(&feed->feeds->told, FEED_LINES_PER_S))
        log_info("engine %s: rank %u: reconnected for KV events: its blocks "
                 "are forgotten, and a replay is requested",
                 feed->config.name, stream_rank(&feed->streams[intake->rank]));
    if (feed->config.bind) {
        kv_feed_forget(feed);
        return;
    }
    if (feed->applying.stream == &feed->streams[intake->rank])
        feed_abandon(feed);
    kv_map_clear_rank(feed->map, intake->rank);
    begin_anew(&feed->streams[intake->rank]);
    feed_look(feed);
}

static const struct kv_socket_ops live_ops = {on_message, on_again};

/* Asks the engine of a quiet stream, or after a failed replay. */
static void stream_tick(struct stream *stream, int64_t now_us)
{
    bool due = now_us - stream->quiet_since_us > stream->quiet_us;

    if (stream->replay != REPLAY_NONE || feed_waits(stream->feed) ||
        !*stream->feed->config.replay_endpoint)
        return;
    if (!due && !stream->unanswered)
        return;
    if (!replay_want(stream, false, true))
        return;
    stream->quiet_since_us = now_us;
    stream->quiet_us *= 2;
    if (stream->quiet_us > QUIET_MAX_US)
        stream->quiet_us = QUIET_MAX_US;
}

static void on_tick(void *arg)
{
    struct kv_feeds *feeds = arg;
    int64_t now_us = loop_now_us(feeds->base);
    struct kv_feed *feed;

    replay_tick(feeds, now_us);
    TAILQ_FOREACH(feed, &feeds->feeds, entry)
    {
        feed_tick(feed, now_us);
        for (uint16_t r = 0; r < feed->config.ranks; r++)
            stream_tick(&feed->streams[r], now_us);
    }
}

struct kv_feeds *kv_feeds_new(struct loop *base)
{
    struct kv_feeds *feeds = calloc(1, sizeof(*feeds));

    if (!feeds)
        return NULL;
    feeds->base = base;
    TAILQ_INIT(&feeds->feeds);
    TAILQ_INIT(&feeds->want_replay);
    TAILQ_INIT(&feeds->busy);
    feeds->loop = kv_loop_new(base);
    feeds->decoder = kv_decoder_new();
    loop_timer_init(base, &feeds->tick, on_tick, feeds);
    if (feeds->loop && feeds->decoder &&
        loop_timer_repeat(&feeds->tick, TICK_US) == 0) {
        kv_loop_set_work(feeds->loop, feeds_work, feeds);
        return feeds;
    }
    kv_feeds_free(feeds);
    return NULL;
}

void kv_feeds_free(struct kv_feeds *feeds)
{
    if (!feeds)
        return;
    loop_timer_stop(&feeds->tick);
    kv_decoder_free(feeds->decoder);
    kv_decoder_free(feeds->spare);
    kv_loop_free(feeds->loop);
    free(feeds);
}

static int open_intakes(struct kv_feed *feed)
{
    const struct kv_feed_config *c = &feed->config;
    char endpoint[FEED_ENDPOINT_MAX];

    for (uint16_t i = 0; i < c->ranks; i++) {
        struct intake *intake = &feed->intakes[i];

        *intake = (struct intake){.feed = feed, .rank = i};
        errno = EINVAL;
        if (!feed_endpoint(c->endpoint, (uint16_t)(c->first_rank + i),
                           endpoint) ||
            (*c->replay_endpoint &&
             !feed_endpoint(c->replay_endpoint,
                            (uint16_t)(c->first_rank + c->ranks - 1),
                            (char[FEED_ENDPOINT_MAX]){0})))
            return -1;
        intake->socket = kv_socket_open(
            feed->feeds->loop, c->bind ? KV_SOCKET_SUB_BIND : KV_SOCKET_SUB,
            endpoint, c->topic, &live_ops, intake);
        if (!intake->socket)
            return -1;
        feed->n_intakes++;
    }
    return 0;
}

struct kv_feed *kv_feed_new(struct kv_feeds *feeds,
                            const struct kv_feed_config *config,
                            const struct kv_map_sink *sink, void *arg)
{
    struct kv_feed *feed = calloc(1, sizeof(*feed));
    int error = ENOMEM;

    if (!feed)
        return NULL;
    feed->feeds = feeds;
    feed->config = *config;
    zmq_msg_init(&feed->applying.message);
    TAILQ_INSERT_TAIL(&feeds->feeds, feed, entry);
    feed->streams = calloc(config->ranks, sizeof(*feed->streams));
    feed->intakes = calloc(config->ranks, sizeof(*feed->intakes));
    feed->map = kv_map_new(&config->map, sink, arg);
    if (!feed->streams || !feed->intakes || !feed->map)
        goto fail;
    for (uint16_t r = 0; r < config->ranks; r++) {
        feed->streams[r].feed = feed;
        feed->streams[r].rank = r;
        feed->streams[r].quiet_since_us = loop_now_us(feeds->base);
        feed->streams[r].quiet_us = FEED_QUIET_MIN_US;
    }
    if (open_intakes(feed)) {
        error = errno;
        goto fail;
    }
    for (uint16_t r = 0; r < config->ranks; r++)
        replay_want(&feed->streams[r], true, false);
    feed_update_pauses(feed);
    return feed;
fail:
    kv_feed_free(feed);
    errno = error;
    return NULL;
}

void kv_feed_free(struct kv_feed *feed)
{
    if (!feed)
        return;
    feed_leave(feed);
    for (uint16_t r = 0; feed->streams && r < feed->config.ranks; r++) {
        if (feed->streams[r].feed)
            replay_stop(&feed->streams[r]);
        stream_drop_held(&feed->streams[r]);
    }
    for (uint32_t i = 0; i < feed->n_intakes; i++)
        kv_socket_close(feed->intakes[i].socket);
    TAILQ_REMOVE(&feed->feeds->feeds, feed, entry);
    kv_map_free(feed->map);
    free(feed->streams);
    free(feed->intakes);
    free(feed);
}

void kv_feed_forget(struct kv_feed *feed)
{
    feed_abandon(feed);
    kv_map_clear(feed->map);
    for (uint16_t r = 0; r < feed->config.ranks; r++)
        begin_anew(&feed->streams[r]);
    feed_look(feed);
}

void kv_feed_ask_again(struct kv_feed *feed)
{
    for (uint16_t r = 0; r < feed->config.ranks; r++)
        if (feed->streams[r].unanswered)
            replay_hurry(&feed->streams[r]);
}

bool kv_feed_known(const struct kv_feed *feed, uint16_t rank, uint64_t *first,
                   uint64_t *last)
{
    const struct kv_sequence *s = &feed->streams[rank].sequence;

    *first = s->first;
    *last = s->applied;
    return s->any_applied;
}

struct kv_map *kv_feed_map(const struct kv_feed *feed)
{
    return feed->map;
}

static enum kv_feed_state state_of(const struct stream *stream)
{
    if (stream->replay != REPLAY_NONE && !stream->check)
        return KV_FEED_REPLAYING;
    if (!stream->sequence.any_applied &&
        (stream->unanswered || !*stream->feed->config.replay_endpoint))
        return KV_FEED_SILENT;
    return stream->partial ? KV_FEED_PARTIAL : KV_FEED_WHOLE;
}

struct kv_feed_stats kv_feed_stats(const struct kv_feed *feed)
{
    struct kv_feed_stats stats = feed->stats;

    stats.map = kv_map_stats(feed->map);
    stats.unfinished = feed->busy;
    stats.state = KV_FEED_WHOLE;
    for (uint16_t r = 0; r < feed->config.ranks; r++) {
        enum kv_feed_state state = state_of(&feed->streams[r]);

        if (state > stats.state)
            stats.state = state;
    }
    return stats;
}

const char *kv_feed_state_name(enum kv_feed_state state)
{
    static const char *const names[] = {"whole", "silent", "partial",
                                        "replaying"};

    return names[state];
}
