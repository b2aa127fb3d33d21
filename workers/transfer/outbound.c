/* A connection to another worker, shared by fetches and pushes: opening,
 * frames, timeouts, end. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/transfer/internal.h"

/* Begins the jobs that waited for WELCOME. */
static void on_welcome(struct peer *p)
{
    struct request *r;
    struct fetch *f;

    TAILQ_FOREACH(f, &p->fetches, link)
    {
        fetch_send(p, f);
    }
    TAILQ_FOREACH(r, &p->pushes, push.link)
    {
        push_send_begin(p, r);
    }
}

/* Takes a frame before WELCOME, or WELCOME itself. */
static int on_opening(struct peer *p, const struct frame_header *h,
                      const uint8_t *payload)
{
    struct msg_welcome m;
    char why[MSG_TEXT_MAX];
    int rc = handshake_answer(&p->handshake, p->conn, h, payload, &m, why);

    if (rc == -EACCES)
        frame_conn_fail(p->conn, why);
    if (rc <= 0)
        return rc == -EACCES ? 0 : rc;
    p->welcome = true;
    frame_conn_take(p->conn, p->transfer->limits.payload_bytes);
    on_welcome(p);
    return 0;
}

/* Takes the peer's offer of transports to its memory, or its choice of one to
 * this worker's memory. */
static int on_transports(struct peer *p, const struct frame_header *h,
                         const uint8_t *payload)
{
    const struct route_to to = {
        .conn = p->conn,
        .id = TRANSFER_ACCEPTED,
        .host = p->host,
        .port = p->port,
        .ready = fetch_ready,
        .arg = p,
    };

    if (h->request_id == TRANSFER_CONNECTED)
        return guest_on_transports(p->guest, payload, h->length);
    return route_on_transports(p->transfer, &p->route, &to, payload, h->length);
}

static int on_frame(void *arg, const struct frame_header *h,
                    const uint8_t *payload)
{
    struct peer *p = arg;
    int64_t now_us = loop_now_us(p->transfer->config.loop);

    if (h->type == FRAME_ERROR)
        return handshake_refused(p->conn, payload, h->length,
                                 "refused by the peer");
    if (!p->welcome)
        return on_opening(p, h, payload);
    switch (h->type) {
    case FRAME_TRANSPORTS:
        return on_transports(p, h, payload);
    case FRAME_FETCH_GRANT:
        return move_on_grant(p, h->request_id, payload, h->length, now_us);
    case FRAME_FETCH_CHAIN:
        return fetch_on_chain(p, h->request_id, payload, h->length, now_us);
    case FRAME_FETCH_END:
        return fetch_on_end(p, h->request_id, payload, h->length);
    case FRAME_KV_GRANT:
        if (h->length != 0)
            return -EBADMSG;
        return push_on_grant(p, h->request_id, now_us);
    case FRAME_KV_REFUSE:
        return push_on_refuse(p, h->request_id, payload, h->length);
    case FRAME_KV_TAKEN:
        return push_on_taken(p, h->request_id, payload, h->length, now_us);
    default:
        return -EPROTO;
    }
}

static void on_writable(void *arg)
{
    push_pump(arg);
}

static void on_closed(void *arg, const char *reason)
{
    struct peer *p = arg;
    struct transfer *t = p->transfer;

    log_info("connection to worker %s:%u ended: %s", p->host, p->port, reason);
    TAILQ_REMOVE(&t->peers, p, link);
    t->n_peers--;
    while (!TAILQ_EMPTY(&p->fetches))
        fetch_lose(TAILQ_FIRST(&p->fetches), reason);
    while (!TAILQ_EMPTY(&p->pushes))
        push_end(t, TAILQ_FIRST(&p->pushes), reason);
    route_shut(p->route);
    guest_shut(p->guest);
    frame_conn_free(p->conn);
    free(p);
}

const struct frame_conn_ops outbound_ops = {
    .frame = on_frame,
    .writable = on_writable,
    .closed = on_closed,
};

static int64_t later(int64_t a_us, int64_t b_us)
{
    return a_us > b_us ? a_us : b_us;
}

/* Returns whether a job made no progress for too long: the connection is then
 * closed, and the next request tries a new one. Time counts from the last
 * progress of any job, because jobs on one connection wait for each other. */
static bool stalled(const struct peer *p, int64_t now_us)
{
    const struct transfer_config *c = &p->transfer->config;
    const struct request *r;
    const struct fetch *f;

    TAILQ_FOREACH(f, &p->fetches, link)
    {
        if ((!f->chain || !TAILQ_EMPTY(&f->moves)) &&
            now_us - later(f->since_us, p->progress_us) >= c->fetch_timeout_us)
            return true;
    }
    TAILQ_FOREACH(r, &p->pushes, push.link)
    {
        if (r->n_output > 0 && (r->push.granted || !p->welcome) &&
            now_us - later(r->push.since_us, p->progress_us) >=
                c->push_timeout_us)
            return true;
    }
    return false;
}

/* Ends pushes without a KV_GRANT in time. Otherwise pushes of two workers to
 * each other could wait for room for ever. */
static void end_ungranted(struct peer *p, int64_t now_us)
{
    struct transfer *t = p->transfer;
    struct request *r = TAILQ_FIRST(&p->pushes);

    while (r) {
        struct request *next = TAILQ_NEXT(r, push.link);

        if (r->n_output > 0 && !r->push.granted &&
            now_us - r->push.since_us >= t->config.push_timeout_us)
            push_end(t, r, "the decode worker found no room in time");
        r = next;
    }
}

void outbound_tick(struct peer *p, int64_t now_us)
{
    uint64_t moved_bytes = route_moved_bytes(p->route);

    if (moved_bytes != p->moved_bytes)
        p->progress_us = now_us;
    p->moved_bytes = moved_bytes;
    if (stalled(p, now_us)) {
        frame_conn_fail(p->conn, "no progress in time");
        return;
    }
    end_ungranted(p, now_us);
    fetch_keep(p, now_us);
}
