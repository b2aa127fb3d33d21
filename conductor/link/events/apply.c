/*
 * Applies messages to the map of their engine, in pieces: the first at once,
 * and then one in each of the engine's turns of the loop. Messages of other
 * engines are taken in between. Forgetting blocks goes in pieces, too.
 *
 * Invariants:
 * 1. A feed has a decoder of its own exactly while a message is unfinished;
 *    then its map has a batch under way.
 * 2. Between two calls from outside a feed is busy exactly while it has such a
 *    decoder, or its map has something to forget (busy.c).
 */
#include <inttypes.h>

#include "base/loop/loop.h"
#include "conductor/link/events/feed_state.h"

void applying_drop(struct applying *a)
{
    zmq_msg_close(&a->message);
    zmq_msg_init(&a->message);
}

/* Ends the message being applied, finished or not. */
static void end(struct kv_feed *feed)
{
    struct kv_feeds *feeds = feed->feeds;
    struct applying *a = &feed->applying;

    applying_drop(a);
    if (a->decoder) {
        feeds->n_unfinished--;
        kv_decoder_free(feeds->spare);
        feeds->spare = a->decoder;
    }
    a->decoder = NULL;
    a->stream = NULL;
}

/* Does one more piece. Returns whether there is work left. */
static bool go_on(struct kv_feed *feed, uint32_t max_blocks)
{
    struct applying *a = &feed->applying;
    struct stream *stream = a->stream;

    if (kv_map_work(feed->map, max_blocks))
        return true;
    if (!stream)
        return false;
    kv_sequence_applied(&stream->sequence, a->number, a->batch.time_s);
    feed->stats.messages++;
    feed->stats.bytes += a->bytes;
    feed->stats.events += a->batch.n_events;
    feed->stats.unknown_events += a->batch.n_unknown;
    feed->stats.last_event_us = loop_now_us(feed->feeds->base);
    stream->quiet_since_us = feed->stats.last_event_us;
    stream->quiet_us = FEED_QUIET_MIN_US;
    return false;
}

/* Keeps the decoder of an unfinished message, which holds its events, and takes
 * another for the next message. Returns false: out of memory. */
static bool keep(struct kv_feed *feed)
{
    struct kv_feeds *feeds = feed->feeds;
    struct kv_decoder *next = feeds->spare ? feeds->spare : kv_decoder_new();

    if (!next)
        return false;
    feeds->spare = NULL;
    feed->applying.decoder = feeds->decoder;
    feeds->decoder = next;
    feeds->n_unfinished++;
    feed_look(feed);
    return true;
}

void stream_apply(struct stream *stream, uint64_t number, zmq_msg_t *payload,
                  const struct kv_batch *batch)
{
    struct kv_feed *feed = stream->feed;
    struct applying *a = &feed->applying;
    struct kv_batch_error error;

    if (payload != &a->message)
        zmq_msg_move(&a->message, payload);
    a->bytes = zmq_msg_size(&a->message);
    if (batch) {
        a->batch = *batch;
    } else if (kv_decoder_batch(feed->feeds->decoder, zmq_msg_data(&a->message),
                                a->bytes, &a->batch, &error)) {
        stream_malformed(stream, number, &error);
        applying_drop(a);
        return;
    }
    if (feed->config.only && a->batch.has_rank &&
        !feed_has_rank(feed, a->batch.rank)) {
        feed->stats.other_ranks++;
        a->batch.n_events = 0; /* only its number is needed */
    }
    a->stream = stream;
    a->number = number;
    a->pieces = 0;
    kv_map_begin(feed->map, stream->rank, &a->batch);
    if (go_on(feed, FEED_PIECE_BLOCKS)) {
        if (keep(feed))
            return;
        while (go_on(feed, UINT32_MAX))
            ;
    }
    end(feed);
    if (feed->busy)
        feed_look(feed); /* perhaps nothing is left to forget */
}

/* Applies the held message, unless a replay brought it. Messages missing before
 * it are lost. */
static void apply_held(struct stream *stream)
{
    struct kv_feed *feed = stream->feed;
    uint64_t number = stream->held_number;
    uint64_t wanted = kv_sequence_wanted(&stream->sequence);

    if (number < wanted) {
        feed->stats.duplicates++;
    } else {
        if (number > wanted && stream->sequence.any_applied)
            stream_lost(stream, wanted, number);
        stream->partial |= number > wanted && number > 1;
        stream_apply(stream, number, &stream->held, NULL);
    }
    stream_drop_held(stream);
}

void stream_resume(struct stream *stream)
{
    if (stream->has_held)
        apply_held(stream);
    stream->quiet_since_us = loop_now_us(stream->feed->feeds->base);
    feed_update_pauses(stream->feed);
}

static void rest(struct kv_feed *feed)
{
    int64_t now_us = loop_now_us(feed->feeds->base);
    int64_t rest_us = 2 * feed->rest_us;

    /* After a long time without a slow message the pause is short again. */
    if (now_us - feed->rested_us > FEED_REST_MAX_US)
        rest_us = 0;
    if (rest_us < FEED_REST_MIN_US)
        rest_us = FEED_REST_MIN_US;
    if (rest_us > FEED_REST_MAX_US)
        rest_us = FEED_REST_MAX_US;
    feed->rest_us = rest_us;
    feed->rests_until_us = now_us + rest_us;
}

void feed_tick(struct kv_feed *feed, int64_t now_us)
{
    if (feed->rests_until_us == 0 || now_us < feed->rests_until_us)
        return;
    feed->rested_us = now_us;
    feed->rests_until_us = 0;
    feed_update_pauses(feed);
}

/* Drops the rest of a message that takes too long, and forgets the rank's
 * blocks, since the rest is unknown. */
static void give_up(struct kv_feed *feed)
{
    struct stream *stream = feed->applying.stream;
    uint64_t number = feed->applying.number;

    rest(feed);
    feed->stats.too_long++;
    if (log_rate_takes(&feed->feeds->told, FEED_LINES_PER_S))
        log_warn("engine %s: rank %u: KV event message %" PRIu64
                 " takes too long: the engine's blocks are forgotten, and its "
                 "events are ignored for %lld s",
                 feed->config.name, stream_rank(stream), number,
                 (long long)(feed->rest_us / 1000000));
    feed_abandon(feed);
    stream_forget(stream);
    stream->partial = stream->hole = true;
    kv_sequence_applied(&stream->sequence, number, 0);
}

/* Returns the feed whose message had most pieces, if too many, or NULL. */
static struct kv_feed *too_long(const struct kv_feeds *feeds)
{
    uint32_t most = feeds->n_unfinished < FEED_UNFINISHED_MAX
                        ? FEED_PIECES_MAX
                        : FEED_PIECES_CROWDED;
    struct kv_feed *feed, *found = NULL;

    TAILQ_FOREACH(feed, &feeds->busy, in_busy)
    {
        if (feed->applying.decoder && feed->applying.pieces > most) {
            most = feed->applying.pieces;
            found = feed;
        }
    }
    return found;
}

void feeds_work(void *arg)
{
    struct kv_feeds *feeds = arg;
    struct kv_feed *feed = TAILQ_FIRST(&feeds->busy);

    if (!go_on(feed, FEED_PIECE_BLOCKS)) {
        end(feed);
        feed_look(feed);
        return;
    }
    feed->applying.pieces++;
    if (feeds->n_unfinished < FEED_UNFINISHED_MAX) {
        TAILQ_REMOVE(&feeds->busy, feed, in_busy);
        TAILQ_INSERT_TAIL(&feeds->busy, feed, in_busy);
    }
    feed = too_long(feeds);
    if (feed)
        give_up(feed);
}

void feed_abandon(struct kv_feed *feed)
{
    if (!feed->applying.stream)
        return;
    kv_map_abandon(feed->map);
    end(feed);
    feed_look(feed);
}

void feed_leave(struct kv_feed *feed)
{
    feed_abandon(feed);
    feed_set_busy(feed, false);
}
