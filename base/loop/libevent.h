/* The loop's libevent, for base/ and for the files that base/DESIGN.md lists
 * as users of libevent's own connections. */
#ifndef BASE_LOOP_LIBEVENT_H
#define BASE_LOOP_LIBEVENT_H

struct event_base;
struct loop;

/* Returns the event base of a loop of loop_new(), borrowed. */
struct event_base *loop_event_base(struct loop *loop);

#endif
