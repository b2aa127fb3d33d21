/*
 * Those who watch: the status page, and GET /admin/events, which sends what the
 * views of the same names answer, as server-sent events:
 *
 *   event: overview     every interval    GET /admin/overview
 *   event: instances    every interval    GET /admin/instances, the first 256
 *   event: decisions    after decisions   GET /admin/decisions
 *   event: history      every 10th        GET /admin/history
 *
 * All of them come once at the beginning.
 *
 * A viewer that has not taken everything gets nothing more until it has, and
 * then what it missed as it is by then; one that takes it for longer than
 * WATCH_STALLED intervals is closed. So it costs at most one of each event.
 */
#ifndef CONDUCTOR_FRONT_WATCH_WATCH_H
#define CONDUCTOR_FRONT_WATCH_WATCH_H

#include "conductor/front/internal.h"

#define WATCH_VIEWERS_MAX 8
#define WATCH_STALLED 10

struct watch;

/* GET. */
front_serve_fn watch_page;   /* the page itself, which says nothing */
front_serve_fn watch_events; /* takes the call's connection until it ends */

/* Ends all streams. NULL is a no-op. */
void watch_stop(struct watch *watch);

/* After watch_stop(), or when all connections are gone. NULL is a no-op. */
void watch_free(struct watch *watch);

#endif
