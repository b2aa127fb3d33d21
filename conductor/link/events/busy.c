/* Keeps a list of the busy feeds, whose new messages wait. */
#include "conductor/link/events/feed_state.h"

static void say_left(const struct kv_feeds *feeds)
{
    kv_loop_set_left(feeds->loop, TAILQ_EMPTY(&feeds->busy) ? KV_WORK_NONE
                                  : feeds->n_unfinished < FEED_UNFINISHED_MAX
                                      ? KV_WORK_MORE
                                      : KV_WORK_FIRST);
}

void feed_set_busy(struct kv_feed *feed, bool busy)
{
    struct kv_feeds *feeds = feed->feeds;

    if (feed->busy && !busy)
        TAILQ_REMOVE(&feeds->busy, feed, in_busy);
    if (!feed->busy && busy)
        TAILQ_INSERT_TAIL(&feeds->busy, feed, in_busy);
    feed->busy = busy;
    say_left(feeds);
}

bool feed_waits(const struct kv_feed *feed)
{
    return feed->busy || feed->rests_until_us != 0;
}

void feed_update_pauses(struct kv_feed *feed)
{
    for (uint16_t r = 0; r < feed->config.ranks; r++)
        if (feed->streams[r].dealer)
            kv_socket_pause(feed->streams[r].dealer, feed_waits(feed));
    for (uint32_t i = 0; i < feed->n_intakes; i++) {
        bool pause = feed_waits(feed);

        for (uint16_t r = 0; r < feed->config.ranks; r++) {
            const struct stream *stream = &feed->streams[r];

            if (feed->config.bind || feed->intakes[i].rank == r)
                pause |= stream->replay != REPLAY_NONE && !stream->check;
        }
        kv_socket_pause(feed->intakes[i].socket, pause);
    }
}

void feed_look(struct kv_feed *feed)
{
    feed_set_busy(feed, feed->applying.decoder || kv_map_forgets(feed->map));
    feed_update_pauses(feed);
}
