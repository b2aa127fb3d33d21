/*
 * Viewers: the status page, and GET /admin/events, which sends the answers of
 * the views of the same names as server-sent events:
 *
 *   event: overview     every interval    GET /admin/overview
 *   event: instances    every interval    GET /admin/instances, the first 256
 *   event: decisions    after decisions   GET /admin/decisions
 *   event: history/5m   every 5th         GET /admin/history/5m
 *   event: history      every 10th        GET /admin/history
 *   event: history/24h  every 60th        GET /admin/history/24h
 *
 * All of them come once at the beginning.
 *
 * A viewer with unread events gets no more until it has read them, and then the
 * latest state of what it missed; after WATCH_STALLED intervals it is closed.
 * So it costs at most one of each event.
 */
#ifndef CONDUCTOR_FRONT_WATCH_WATCH_H
#define CONDUCTOR_FRONT_WATCH_WATCH_H

#include "conductor/front/internal.h"

#define WATCH_VIEWERS_MAX 8
#define WATCH_STALLED 10

struct watch;

/* GET. */
front_serve_fn watch_page;   /* the page itself, without data */
front_serve_fn watch_events; /* takes the call's connection until it ends */

/* The page as embed.py has made it. */
extern const char page_html[]; /* (page_bytes) */
extern const size_t page_bytes;
extern const char page_policy[]; /* its Content-Security-Policy */

/* Ends all streams. NULL is a no-op. */
void watch_close_all(struct watch *watch);

/* After watch_close_all(), or when all connections are gone. NULL is a no-op.
 */
void watch_free(struct watch *watch);

#endif
