/* Connections from native workers. */
#include "conductor/link/worker_link.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/certificate.h"
#include "base/frame_conn.h"
#include "base/handshake.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "base/strangers.h"
#include "base/stream/stream.h"

/* A prompt of 126,000 tokens takes half a megabyte. */
#define OUTPUT_LIMIT_BYTES (256u << 20)
#define PAYLOAD_LIMIT_BYTES (512u << 10)

struct worker_link {
    TAILQ_ENTRY(worker_link) link; /* list of all connections */
    struct worker_links *links;
    struct frame_conn *conn;
    void *owner;
    int64_t last_frame_us; /* before joining: time of connecting */
    bool joined;
    struct handshake handshake; /* until the worker has joined */
    struct stranger stranger;   /* until the worker has joined */
    char name[MSG_NAME_MAX];
};

struct worker_links {
    struct loop *loop;
    struct stream_loop *streams;
    struct listener *listener;
    struct loop_timer tick;
    int64_t tick_us; /* when on_tick() last ran */
    const struct worker_link_ops *ops;
    void *arg;
    struct worker_links_config config;
    SSL_CTX *certificate; /* NULL = no TLS */
    TAILQ_HEAD(, worker_link) links;
    struct strangers strangers; /* links that have not joined yet */
};

static void link_free(struct worker_link *link)
{
    TAILQ_REMOVE(&link->links->links, link, link);
    if (!link->joined)
        strangers_remove(&link->links->strangers, &link->stranger);
    frame_conn_free(link->conn);
    free(link);
}

static void on_closed(void *arg, const char *reason)
{
    struct worker_link *link = arg;

    if (link->joined) {
        bool lost = link->links->ops->left(link->links->arg, link, reason);

        if (lost || strcmp(reason, FRAME_CONN_ENDED) != 0)
            log_warn("worker %s (%s) is gone: %s", link->name,
                     frame_conn_peer(link->conn), reason);
        else
            log_info("worker %s (%s) left", link->name,
                     frame_conn_peer(link->conn));
    } else if (log_rate_takes(&link->links->strangers.log,
                              HANDSHAKE_LOG_PER_S)) {
        log_info("connection from %s closed: %s", frame_conn_peer(link->conn),
                 reason);
    }
    link_free(link);
}

static void log_refusal(const struct worker_link *link, const char *why,
                        int was_frame)
{
    if (link->joined ||
        log_rate_takes(&link->links->strangers.log, HANDSHAKE_LOG_PER_S))
        log_warn("worker %s (%s) is refused: %s",
                 *link->name ? link->name : "?", frame_conn_peer(link->conn),
                 why);
    link->links->ops->refused(link->links->arg, was_frame);
}

/* Ends a successful handshake: the owner accepts or refuses the worker. */
static void link_join(struct worker_link *link)
{
    struct worker_links *l = link->links;
    const struct msg_hello *m = &link->handshake.hello;
    char text[MSG_TEXT_MAX] = "", host[MSG_HOST_MAX];
    struct msg_welcome welcome = {
        .version = proto_version_common(m),
        .heartbeat_ms = (uint32_t)l->config.heartbeat_ms,
    };
    snprintf(link->name, sizeof(link->name), "%s", m->name);
    snprintf(host, sizeof(host), "%s", m->peer_host);
    if (!*host && frame_conn_peer_host(link->conn, host, sizeof(host)))
        host[0] = '\0';
    uint16_t code = l->ops->joined(l->arg, link, m, host, &welcome, text);
    if (code) {
        log_refusal(link, text, 0);
        frame_conn_refuse(link->conn, code, text);
        return;
    }
    link->joined = true;
    link->last_frame_us = loop_now_us(l->loop);
    strangers_remove(&l->strangers, &link->stranger);
    frame_conn_take(link->conn, PAYLOAD_LIMIT_BYTES);
    struct wire_buf buf;
    wire_buf_init(&buf, 4096);
    msg_welcome_pack(&buf, 0, &welcome);
    frame_conn_send(link->conn, &buf);
    wire_buf_fini(&buf);
}

static void link_opening(struct worker_link *link, const struct frame_header *h,
                         const uint8_t *payload)
{
    struct handshake_refusal refusal;
    int rc =
        handshake_accept(&link->handshake, link->conn, h, payload, &refusal);

    if (rc > 0) {
        link_join(link);
    } else if (rc < 0) {
        log_refusal(link, refusal.why, refusal.was_frame);
        handshake_refuse(link->conn, &refusal);
    }
}

static int on_frame(void *arg, const struct frame_header *h,
                    const uint8_t *payload)
{
    struct worker_link *link = arg;
    struct worker_links *l = link->links;
    char text[MSG_TEXT_MAX];

    if (!link->joined) {
        link_opening(link, h, payload);
        return 0;
    }
    link->last_frame_us = loop_now_us(link->links->loop);
    int rc = h->type == FRAME_ERROR
                 ? handshake_refused(link->conn, payload, h->length,
                                     "it refuses this conductor")
                 : l->ops->frame(l->arg, link, h, payload);
    if (rc < 0) {
        frame_fault(h, rc, text, sizeof(text));
        log_refusal(link, text, 1);
    }
    return rc;
}

static const struct frame_conn_ops conn_ops = {
    .frame = on_frame,
    .closed = on_closed,
};

static void make_room(struct worker_links *l)
{
    struct stranger *surplus = strangers_surplus(&l->strangers);

    if (!surplus)
        return;
    log_refusal(surplus->owner, "too many connections that have not joined", 0);
    link_free(surplus->owner);
}

static void on_accept(void *arg, int fd)
{
    struct worker_links *l = arg;
    struct frame_conn_limits limits = {
        .payload_bytes = HANDSHAKE_PAYLOAD_BYTES,
        .output_watermark_bytes = OUTPUT_LIMIT_BYTES,
        .output_limit_bytes = OUTPUT_LIMIT_BYTES,
    };
    make_room(l);
    struct worker_link *link = calloc(1, sizeof(*link));
    if (!link || certificate_show(l->certificate, &limits.ssl)) {
        free(link);
        net_close(l->loop, fd);
        return;
    }
    link->links = l;
    link->handshake.secret = l->config.secret;
    link->last_frame_us = loop_now_us(l->loop);
    link->conn = frame_conn_new(l->streams, fd, &limits, &conn_ops, link);
    if (!link->conn) {
        free(link);
        return;
    }
    TAILQ_INSERT_HEAD(&l->links, link, link);
    link->stranger =
        (struct stranger){.owner = link, .handshake = &link->handshake};
    strangers_add(&l->strangers, &link->stranger, link->conn);
}

static int64_t tick_us(const struct worker_links *l)
{
    return l->config.timeout_ms / 4 * 1000;
}

static void on_tick(void *arg)
{
    struct worker_links *l = arg;
    int64_t now_us = loop_now_us(l->loop);
    int64_t away_us = loop_away_us(&l->tick_us, now_us, tick_us(l));
    struct worker_link *k;

    TAILQ_FOREACH(k, &l->links, link)
    {
        char text[MSG_TEXT_MAX];

        k->last_frame_us += away_us;
        if (k->last_frame_us > now_us)
            k->last_frame_us = now_us;
        int64_t silent_ms = (now_us - k->last_frame_us) / 1000;
        int64_t most_ms = l->config.timeout_ms;

        if (!k->joined && most_ms > HANDSHAKE_PATIENCE_US / 1000)
            most_ms = HANDSHAKE_PATIENCE_US / 1000;
        if (silent_ms <= most_ms)
            continue;
        snprintf(text, sizeof(text), "%s for %lld ms",
                 k->joined ? "silent" : "not joined", (long long)silent_ms);
        frame_conn_fail(k->conn, text);
    }
}

struct worker_links *worker_links_new(struct loop *loop,
                                      const struct worker_links_config *config,
                                      const struct worker_link_ops *ops,
                                      void *arg, char err[MSG_TEXT_MAX])
{
    struct worker_links *l = calloc(1, sizeof(*l));

    snprintf(err, MSG_TEXT_MAX, "out of memory");
    if (!l)
        return NULL;
    l->loop = loop;
    l->streams = stream_loop_new(loop);
    l->config = *config;
    l->ops = ops;
    l->arg = arg;
    TAILQ_INIT(&l->links);
    strangers_init(&l->strangers);
    if (!l->streams)
        goto fail;
    char why[MSG_TEXT_MAX];
    if (listener_new(loop, config->host, config->port, on_accept, l,
                     &l->listener, why, sizeof(why))) {
        snprintf(err, MSG_TEXT_MAX, "worker_listen: %.480s", why);
        goto fail;
    }
    l->tick_us = loop_now_us(l->loop);
    loop_timer_init(loop, &l->tick, on_tick, l);
    if (loop_timer_repeat(&l->tick, tick_us(l)))
        goto fail;
    return l;
fail:
    worker_links_free(l);
    return NULL;
}

void worker_links_tls(struct worker_links *l, SSL_CTX *certificate)
{
    if (certificate)
        SSL_CTX_up_ref(certificate);
    SSL_CTX_free(l->certificate);
    l->certificate = certificate;
}

void worker_links_free(struct worker_links *l)
{
    if (!l)
        return;
    SSL_CTX_free(l->certificate);
    while (!TAILQ_EMPTY(&l->links))
        link_free(TAILQ_FIRST(&l->links));
    stream_loop_free(l->streams);
    loop_timer_stop(&l->tick);
    listener_free(l->listener);
    free(l);
}

uint16_t worker_links_port(const struct worker_links *l)
{
    return listener_port(l->listener);
}

void worker_link_send(struct worker_link *link, const struct wire_buf *buf)
{
    frame_conn_send(link->conn, buf);
}

void worker_link_resume(struct worker_link *link)
{
    frame_conn_resume(link->conn);
}

void worker_link_set_owner(struct worker_link *link, void *p)
{
    link->owner = p;
}

void *worker_link_owner(const struct worker_link *link)
{
    return link->owner;
}

int64_t worker_link_last_frame_us(const struct worker_link *link)
{
    return link->last_frame_us;
}
