/*
 * Connections from native workers: accept, opening, heartbeats, silence. The
 * owner interprets the frames.
 *
 * Invariants: `joined` precedes every other callback of a link; `left` comes
 * exactly once for every link that joined; a connection that does not open in
 * time, or proves no secret, is closed and was never seen by the owner.
 */
#ifndef CONDUCTOR_LINK_WORKER_LINK_H
#define CONDUCTOR_LINK_WORKER_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/frame_conn.h"
#include "proto/message.h"

struct loop;
struct secret;
struct worker_link;
struct worker_links;

struct worker_link_ops {
    /* Called when a worker opens a link. Accepts it: fills in
     * welcome->instance_id and returns 0. Refuses it: returns a proto_code and
     * writes the reason to text. */
    uint16_t (*joined)(void *arg, struct worker_link *link,
                       const struct msg_hello *hello, const char *peer_host,
                       struct msg_welcome *welcome, char text[MSG_TEXT_MAX]);
    /* Called for any later frame. Returns 0, FRAME_AGAIN, or a negative errno:
     * the frame was malformed or out of place, and the link is closed. */
    int (*frame)(void *arg, struct worker_link *link,
                 const struct frame_header *h, const uint8_t *payload);
    /* Called when the link is gone; it is freed afterwards. Returns whether
     * work was lost with the worker. */
    bool (*left)(void *arg, struct worker_link *link, const char *reason);
    /* Called, for counting, when a connection was refused, or closed for a bad
     * frame (was_frame). */
    void (*refused)(void *arg, int was_frame);
};

struct worker_links_config {
    const char *host;
    uint16_t port;               /* 0 = any free one */
    const struct secret *secret; /* borrowed; NULL = none needed */
    int64_t heartbeat_ms, timeout_ms;
};

/* worker_links_new(loop, config, ops, arg, err): listens. Borrows loop, ops
 * and arg. Returns owned, or NULL with a reason in err (MSG_TEXT_MAX). */
struct worker_links *worker_links_new(struct loop *loop,
                                      const struct worker_links_config *config,
                                      const struct worker_link_ops *ops,
                                      void *arg, char err[MSG_TEXT_MAX]);

/* worker_links_tls(l, certificate): requires TLS of later connections, with
 * this certificate; l takes a reference. NULL = no TLS. */
struct ssl_ctx_st;
void worker_links_tls(struct worker_links *l, struct ssl_ctx_st *certificate);

/* worker_links_free(l): closes everything without callbacks. */
void worker_links_free(struct worker_links *l);

/* worker_links_port(l): returns the port that it listens on. */
uint16_t worker_links_port(const struct worker_links *l);

/* worker_link_send(link, buf): sends the frames in buf, in order. A failure
 * shows as `left`. */
void worker_link_send(struct worker_link *link, const struct wire_buf *buf);

/* worker_link_resume(link): continues after FRAME_AGAIN. Not inside a callback
 * of the link. */
void worker_link_resume(struct worker_link *link);

/* worker_link_set_owner(link, p), worker_link_owner(link): set and return the
 * owner's own object for this link. */
void worker_link_set_owner(struct worker_link *link, void *p);
void *worker_link_owner(const struct worker_link *link);

/* worker_link_last_frame_us(link): returns when its last frame came
 * (loop_now_us()). */
int64_t worker_link_last_frame_us(const struct worker_link *link);

#endif
