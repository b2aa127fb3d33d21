/*
 * Asks an engine for missing messages. The engine answers a question with each
 * message it keeps from that number on, then with one that marks the end:
 *
 *   ["", first number]  ->  ["", number, payload]...  or, since 2026,
 *                           ["", topic, number, payload]...
 *                           ["", (topic,) ff ff ff ff ff ff ff ff, ""]
 *
 * An engine drops answers that are not read fast enough. Messages missing
 * behind the first answer are asked for again; earlier ones are lost.
 *
 * Limits: a try ends after 2 s without an answer, a replay after 3 tries
 * without any answer or after 2 minutes. After a failed replay the next one
 * waits 30 s, and twice as long after each further failure, up to 10 minutes.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/link/events/feed_state.h"

#define SILENCE_US 2000000
#define TRIES_MAX 3
#define REPLAY_US 120000000
#define PAUSE_MIN_US 30000000
#define PAUSE_MAX_US 600000000
#define LAST_NUMBER UINT64_MAX

static void replay_over(struct stream *stream, const char *why);
static void ask(struct stream *stream);

/* Whether answers before this number were dropped on the way. */
static bool dropped(const struct stream *stream, uint64_t number)
{
    return stream->answers > 1 && stream->sequence.any_applied &&
           number > kv_sequence_wanted(&stream->sequence);
}

static void take_answer(struct stream *stream, uint64_t number,
                        zmq_msg_t *payload)
{
    uint64_t wanted = kv_sequence_wanted(&stream->sequence);

    if (stream->from_zero) {
        stream->from_zero = false;
        stream_forget(stream);
        stream->hole = number > 1; /* some count from 1 */
    } else if (number < wanted) {
        return;
    } else if (number > wanted && stream->sequence.any_applied) {
        stream_lost(stream, wanted, number);
        stream->hole = true;
    }
    stream_apply(stream, number, payload, NULL);
}

static void on_answer(void *arg, zmq_msg_t *frames, size_t n)
{
    struct stream *stream = arg;
    uint64_t number;

    stream->heard_us = loop_now_us(stream->feed->feeds->base);
    if ((n != 3 && n != 4) || zmq_msg_size(&frames[0]) != 0 ||
        zmq_msg_size(&frames[n - 2]) != sizeof(number)) {
        replay_over(stream, "its answers have no known form");
        return;
    }
    memcpy(&number, zmq_msg_data(&frames[n - 2]), sizeof(number));
    number = be64toh(number);
    stream->answers++;
    if (number == LAST_NUMBER && stream->has_held &&
        dropped(stream, stream->held_number))
        ask(stream);
    else if (number == LAST_NUMBER)
        replay_over(stream, NULL);
    else if (dropped(stream, number))
        ask(stream);
    else
        take_answer(stream, number, &frames[n - 1]);
}

static const struct kv_socket_ops answer_ops = {.message = on_answer};

static void leave(struct stream *stream)
{
    struct kv_feeds *feeds = stream->feed->feeds;

    if (stream->replay == REPLAY_WANTED)
        TAILQ_REMOVE(&feeds->want_replay, stream, entry);
    if (stream->replay == REPLAY_RUNS)
        feeds->n_replays--;
    stream->replay = REPLAY_NONE;
    kv_socket_close(stream->dealer);
    stream->dealer = NULL;
}

void replay_stop(struct stream *stream)
{
    leave(stream);
}

/* Ends a failed replay and pauses before the next. Only the first failure is
 * logged. */
static void failed(struct stream *stream, const char *why)
{
    struct kv_feed *feed = stream->feed;

    if (stream->pause_us == 0)
        log_warn("engine %s: rank %u: no replay of KV events from %s: %s",
                 feed->config.name, stream_rank(stream),
                 feed->config.replay_endpoint, why);
    stream->pause_us *= 2;
    if (stream->pause_us < PAUSE_MIN_US)
        stream->pause_us = PAUSE_MIN_US;
    if (stream->pause_us > PAUSE_MAX_US)
        stream->pause_us = PAUSE_MAX_US;
    stream->not_before_us = loop_now_us(feed->feeds->base) + stream->pause_us;
    feed->stats.replays_failed++;
}

/* Ends a replay; why: its failure, or NULL. */
static void replay_over(struct stream *stream, const char *why)
{
    leave(stream);
    if (why)
        failed(stream, why);
    else
        stream->pause_us = 0;
    if (!stream->check) {
        stream->unanswered = why;
        stream->partial =
            why || stream->hole || (stream->partial && !stream->all);
    } else if (!why && stream->unanswered && replay_want(stream, true, false)) {
        feed_update_pauses(stream->feed);
        return; /* the engine answers again: ask for all */
    }
    stream_resume(stream);
}

/* Opens a new connection and asks. Closing the earlier one drops its remaining
 * answers. */
static void ask(struct stream *stream)
{
    struct kv_feed *feed = stream->feed;
    char endpoint[FEED_ENDPOINT_MAX];
    uint64_t first = 0;

    kv_socket_close(stream->dealer);
    stream->dealer = NULL;
    if (!stream->from_zero)
        first = htobe64(kv_sequence_wanted(&stream->sequence));
    feed_endpoint(feed->config.replay_endpoint, (uint16_t)stream_rank(stream),
                  endpoint);
    stream->heard_us = loop_now_us(feed->feeds->base);
    stream->answers = 0;
    stream->dealer = kv_socket_open(feed->feeds->loop, KV_SOCKET_DEALER,
                                    endpoint, "", &answer_ops, stream);
    /* A question that cannot be sent counts as without an answer. */
    if (stream->dealer) {
        kv_socket_pause(stream->dealer, feed_waits(feed));
        (void)!kv_socket_ask(stream->dealer, &first, sizeof(first));
    }
}

static void begin(struct stream *stream)
{
    struct kv_feeds *feeds = stream->feed->feeds;

    TAILQ_REMOVE(&feeds->want_replay, stream, entry);
    feeds->n_replays++;
    stream->replay = REPLAY_RUNS;
    stream->tries = 0;
    stream->hole = false;
    stream->began_us = loop_now_us(feeds->base);
    stream->feed->stats.replays++;
    ask(stream);
}

bool replay_want(struct stream *stream, bool all, bool check)
{
    struct kv_feeds *feeds = stream->feed->feeds;

    if (!*stream->feed->config.replay_endpoint ||
        loop_now_us(feeds->base) < stream->not_before_us)
        return false;
    leave(stream);
    stream->all = stream->from_zero = all;
    stream->check = check;
    stream->replay = REPLAY_WANTED;
    TAILQ_INSERT_TAIL(&feeds->want_replay, stream, entry);
    if (feeds->n_replays < FEED_REPLAYS_MAX)
        begin(stream);
    return true;
}

void replay_hurry(struct stream *stream)
{
    if (stream->check)
        replay_stop(stream);
    stream->not_before_us = 0;
    stream->pause_us = PAUSE_MIN_US / 2;
}

/* Checks the time limits of a running replay. */
static void limits(struct stream *stream, int64_t now_us)
{
    const struct kv_feed *feed = stream->feed;

    if (feed_waits(feed) ||
        feed->feeds->n_unfinished >= FEED_UNFINISHED_MAX) { /* answers wait */
        stream->heard_us = now_us;
        return;
    }
    if (now_us - stream->began_us > REPLAY_US) {
        replay_over(stream, "the replay does not end");
        return;
    }
    if (now_us - stream->heard_us <= SILENCE_US)
        return;
    stream->tries = stream->answers > 0 ? 1 : stream->tries + 1;
    if (stream->tries >= TRIES_MAX || stream->check)
        replay_over(stream, "it does not answer");
    else
        ask(stream);
}

void replay_tick(struct kv_feeds *feeds, int64_t now_us)
{
    struct kv_feed *feed;

    TAILQ_FOREACH(feed, &feeds->feeds, entry)
    {
        for (uint16_t r = 0; r < feed->config.ranks; r++)
            if (feed->streams[r].replay == REPLAY_RUNS)
                limits(&feed->streams[r], now_us);
    }
    while (feeds->n_replays < FEED_REPLAYS_MAX &&
           !TAILQ_EMPTY(&feeds->want_replay))
        begin(TAILQ_FIRST(&feeds->want_replay));
}
