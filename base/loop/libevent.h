/* The loop's libevent, for base/ and for the files that base/DESIGN.md lists
 * as users of libevent's own connections. */
#ifndef BASE_LOOP_LIBEVENT_H
#define BASE_LOOP_LIBEVENT_H

#include <stdbool.h>

struct evdns_base;
struct event_base;
struct loop;
struct loop_dns;

/* Returns the event base of a loop of loop_new(), borrowed. */
struct event_base *loop_event_base(struct loop *loop);

/* Returns libevent's resolver, borrowed. NULL gives NULL. */
struct evdns_base *loop_dns_base(struct loop_dns *dns);

#endif
