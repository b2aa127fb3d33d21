/*
 * In the place of conductor/link/worker_link.c and base/clock.c: worker links
 * without sockets, and a clock that the test sets. What the service sends is
 * handed to the test, which answers as a worker would.
 */
#ifndef TESTS_UNIT_FAKE_LINKS_H
#define TESTS_UNIT_FAKE_LINKS_H

#include <stdint.h>

#include "conductor/link/worker_link.h"

/* The time that clock_now_us() tells. */
extern int64_t fake_now_us;

struct worker_link {
    struct worker_links *links;
    void *owner;
    int number; /* the test's */
    int turns;  /* of the loop that its frames waited for */
    bool resumed;
    const struct wire_buf *offered; /* a frame that is taken in parts */
};

/* A frame was sent to a worker; borrowed for the call. */
typedef void fake_sent_fn(void *arg, struct worker_link *link,
                          const struct frame_header *h, const uint8_t *payload);

/* Sets the function that receives frames from now on. */
void fake_links_watch(fake_sent_fn *sent, void *arg);

/* A link has a frame, borrowed: what can be taken of it is taken now, the rest
 * when the service resumes the link; then link->offered becomes NULL. */
void fake_link_offer(struct worker_link *link, const struct wire_buf *buf);

/* The links of the service that was made last. */
struct worker_links *fake_links(void);

/* A worker says HELLO on a link. Returns joined()'s answer. */
uint16_t fake_link_join(struct worker_link *link,
                        const struct msg_hello *hello);

/* Hands the frames in buf to the service, as from the link's worker, and
 * empties it; those that come again at once. Returns 0 or the first negative
 * answer. */
int fake_link_deliver(struct worker_link *link, struct wire_buf *buf);

#endif
