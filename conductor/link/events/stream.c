/* One rank's messages, from bytes to the engine's map. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conductor/link/events/feed_state.h"

bool feed_endpoint(const char *endpoint, uint16_t rank,
                   char out[FEED_ENDPOINT_MAX])
{
    const char *colon = strrchr(endpoint, ':');
    unsigned long port;
    char *end;
    int n;

    if (!colon || colon[1] < '0' || colon[1] > '9')
        return false;
    port = strtoul(colon + 1, &end, 10) + rank;
    n = snprintf(out, FEED_ENDPOINT_MAX, "%.*s:%lu", (int)(colon - endpoint),
                 endpoint, port);
    return !*end && port <= UINT16_MAX && n < FEED_ENDPOINT_MAX;
}

unsigned stream_rank(const struct stream *stream)
{
    return (unsigned)stream->feed->config.first_rank + stream->rank;
}

bool feed_has_rank(const struct kv_feed *feed, uint64_t rank)
{
    return rank >= feed->config.first_rank &&
           rank < feed->config.first_rank + feed->config.ranks;
}

void stream_forget(struct stream *stream)
{
    kv_map_clear_rank(stream->feed->map, stream->rank);
    kv_sequence_forget(&stream->sequence);
    feed_look(stream->feed);
}

void stream_drop_held(struct stream *stream)
{
    if (stream->has_held)
        zmq_msg_close(&stream->held);
    stream->has_held = false;
}

void stream_malformed(struct stream *stream, uint64_t number,
                      const struct kv_batch_error *error)
{
    struct kv_feed *feed = stream->feed;

    if (feed->stats.malformed++ == 0)
        log_warn("engine %s: rank %u: KV event message %" PRIu64
                 " is malformed at byte %zu: expected %s; its blocks are "
                 "forgotten",
                 feed->config.name, stream_rank(stream), number, error->offset,
                 error->expected);
    stream_forget(stream);
    stream->partial = stream->hole = true;
    kv_sequence_applied(&stream->sequence, number, 0);
}

void stream_lost(struct stream *stream, uint64_t wanted, uint64_t number)
{
    struct kv_feed *feed = stream->feed;

    if (log_rate_takes(&feed->feeds->told, FEED_LINES_PER_S))
        log_warn("engine %s: rank %u: KV events %" PRIu64 " to %" PRIu64
                 " are lost; blocks that it reported before are forgotten",
                 feed->config.name, stream_rank(stream), wanted, number - 1);
    feed->stats.lost += number - wanted;
    stream_forget(stream);
}
