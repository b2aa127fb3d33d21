/* Connects a data connection: does the handshake of all connections between
 * workers on the loop, and then gives the socket to a thread. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "workers/transfer/engine/tcp/internal.h"

struct tcp_dial {
    struct tcp_path *path;
    uint32_t number; /* in path.dials */
    struct frame_conn *conn;
    struct handshake handshake;
};

void tcp_dial_free(struct tcp_dial *d)
{
    if (!d)
        return;
    d->path->dials[d->number] = NULL;
    frame_conn_free(d->conn);
    free(d);
}

/* Gives up one stream. Fails the path if it has no other. */
static void give_up(struct tcp_dial *d, int rc)
{
    struct tcp_path *p = d->path;
    bool other = false;

    tcp_dial_free(d);
    for (uint32_t i = 0; i < TCP_STREAMS_MAX; i++)
        if (p->dials[i])
            other = true;
    pthread_mutex_lock(&p->tcp->set.lock);
    if (!other && p->base.n_users == 0)
        op_path_fail(&p->base, rc);
    pthread_mutex_unlock(&p->tcp->set.lock);
}

/* Gives the socket to a thread after WELCOME: the peer sends nothing more until
 * asked. */
static void stand(struct tcp_dial *d)
{
    struct tcp_path *p = d->path;
    int fd = frame_conn_detach(d->conn);

    pthread_mutex_lock(&p->tcp->set.lock);
    p->base.n_users++;
    pthread_mutex_unlock(&p->tcp->set.lock);
    int rc = fd < 0 ? fd : tcp_io_add(p->tcp, fd, p);
    if (rc < 0) {
        pthread_mutex_lock(&p->tcp->set.lock);
        p->base.n_users--;
        pthread_mutex_unlock(&p->tcp->set.lock);
        give_up(d, rc);
        return;
    }
    tcp_dial_free(d);
    if (p->stands)
        return;
    p->stands = true;
    p->base.ops->stands(p->base.arg);
}

static int on_frame(void *arg, const struct frame_header *h,
                    const uint8_t *payload)
{
    struct tcp_dial *d = arg;
    struct msg_welcome m;
    char why[MSG_TEXT_MAX];

    if (h->type == FRAME_ERROR)
        return handshake_refused(d->conn, payload, h->length,
                                 "refused by the peer");
    int rc = handshake_answer(&d->handshake, d->conn, h, payload, &m, why);
    if (rc == -EACCES)
        frame_conn_fail(d->conn, why);
    else if (rc > 0)
        stand(d);
    return rc > 0 || rc == -EACCES ? 0 : rc;
}

static void on_closed(void *arg, const char *reason)
{
    struct tcp_dial *d = arg;

    log_info("data connection to %s ended: %s", frame_conn_peer(d->conn),
             reason);
    give_up(d, -ENOTCONN);
}

static const struct frame_conn_ops dial_ops = {.frame = on_frame,
                                               .closed = on_closed};

int tcp_dial(struct tcp_path *p, const char *host, uint16_t port, uint32_t i)
{
    const struct frame_conn_limits limits = {
        .payload_bytes = HANDSHAKE_PAYLOAD_BYTES,
        .output_watermark_bytes = 4096,
        .output_limit_bytes = 65536,
    };
    const struct tcp *t = p->tcp;
    struct tcp_dial *d = calloc(1, sizeof(*d));

    if (!d)
        return -ENOMEM;
    d->path = p;
    d->number = i;
    d->conn = frame_conn_connect(t->config.stream_loop, t->config.dns, host,
                                 port, &limits, &dial_ops, d);
    if (!d->conn) {
        free(d);
        return -ENOMEM;
    }
    p->dials[i] = d;
    if (handshake_connect(&d->handshake, t->config.secret, &t->hello, d->conn))
        frame_conn_fail(d->conn, "no random numbers for HELLO");
    return 0;
}
