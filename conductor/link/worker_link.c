/* Connections from native workers. */
#include "conductor/link/worker_link.h"

#include <errno.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/frame_conn.h"
#include "base/log.h"

/* Connections that have not said HELLO yet, beyond max_links. */
#define STRANGERS_MAX 64
/* A prompt of 126,000 tokens takes half a megabyte. */
#define OUTPUT_LIMIT_BYTES (256u << 20)
#define PAYLOAD_LIMIT_BYTES (8u << 20)

struct worker_link {
    struct worker_link *next, **at; /* list of all connections */
    struct worker_links *links;
    struct frame_conn *conn;
    void *owner;
    int64_t last_frame_us;
    int joined;
    char name[MSG_NAME_MAX];
};

struct worker_links {
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *tick;
    const struct worker_link_ops *ops;
    void *arg;
    struct worker_links_config config;
    struct worker_link *first;
    int n_links;
    uint16_t port;
};

static void link_unlink(struct worker_link *link)
{
    *link->at = link->next;
    if (link->next)
        link->next->at = link->at;
    link->links->n_links--;
}

static void link_free(struct worker_link *link)
{
    link_unlink(link);
    frame_conn_free(link->conn);
    free(link);
}

static void on_closed(void *arg, const char *reason)
{
    struct worker_link *link = arg;

    if (link->joined) {
        log_warn("worker %s (%s) is gone: %s", link->name,
                 frame_conn_peer(link->conn), reason);
        link->links->ops->left(link->links->arg, link, reason);
    } else {
        log_info("connection from %s closed: %s", frame_conn_peer(link->conn),
                 reason);
    }
    link_free(link);
}

static void link_refuse(struct worker_link *link, uint16_t code,
                        const char *text, int was_frame)
{
    log_warn("worker %s (%s) is refused: %s", *link->name ? link->name : "?",
             frame_conn_peer(link->conn), text);
    link->links->ops->refused(link->links->arg, was_frame);
    frame_conn_refuse(link->conn, code, text);
}

static void link_welcome(struct worker_link *link, const struct msg_hello *m)
{
    struct worker_links *l = link->links;
    char text[MSG_TEXT_MAX] = "", host[MSG_HOST_MAX];
    struct msg_welcome welcome = {
        .version = PROTO_VERSION,
        .capabilities =
            m->capabilities & (PROTO_CAP_FETCH_TCP | PROTO_CAP_PUSH_TCP),
        .heartbeat_ms = (uint32_t)l->config.heartbeat_ms,
    };
    snprintf(link->name, sizeof(link->name), "%s", m->name);
    snprintf(host, sizeof(host), "%s", m->peer_host);
    if (!*host && frame_conn_peer_host(link->conn, host, sizeof(host)))
        host[0] = '\0';
    uint16_t code = l->ops->joined(l->arg, link, m, host, &welcome, text);
    if (code) {
        link_refuse(link, code, text, 0);
        return;
    }
    link->joined = 1;
    struct wire_buf buf;
    wire_buf_init(&buf, 4096);
    msg_welcome_pack(&buf, 0, &welcome);
    frame_conn_send(link->conn, &buf);
    wire_buf_fini(&buf);
}

static void link_hello(struct worker_link *link, const struct frame_header *h,
                       const uint8_t *payload)
{
    struct msg_hello m;
    char text[MSG_TEXT_MAX];

    if (h->type != FRAME_HELLO) {
        snprintf(text, sizeof(text), "first frame is %s (type %u), not HELLO",
                 frame_type_name(h->type), h->type);
        link_refuse(link, PROTO_E_BAD_FRAME, text, 1);
        return;
    }
    if (msg_hello_unpack(payload, h->length, &m)) {
        link_refuse(link, PROTO_E_BAD_FRAME, "HELLO is malformed", 1);
        return;
    }
    if (m.version_min > PROTO_VERSION || m.version_max < PROTO_VERSION) {
        snprintf(text, sizeof(text),
                 "protocol version %u to %u: this conductor speaks version %u",
                 m.version_min, m.version_max, PROTO_VERSION);
        link_refuse(link, PROTO_E_VERSION, text, 0);
        return;
    }
    link_welcome(link, &m);
}

static void on_frame(void *arg, const struct frame_header *h,
                     const uint8_t *payload)
{
    struct worker_link *link = arg;

    link->last_frame_us = clock_now_us();
    if (!link->joined) {
        link_hello(link, h, payload);
        return;
    }
    int rc = link->links->ops->frame(link->links->arg, link, h, payload);
    if (rc) {
        char text[MSG_TEXT_MAX];

        snprintf(text, sizeof(text), "frame %s (type %u, %u bytes): %s",
                 frame_type_name(h->type), h->type, h->length,
                 rc == -EBADMSG ? "malformed payload" : "out of place");
        link_refuse(link, PROTO_E_BAD_FRAME, text, 1);
    }
}

static const struct frame_conn_ops conn_ops = {
    .frame = on_frame,
    .closed = on_closed,
};

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd,
                      struct sockaddr *sa, int len, void *arg)
{
    struct worker_links *l = arg;
    static const struct frame_conn_limits limits = {
        .payload_bytes = PAYLOAD_LIMIT_BYTES,
        .output_watermark_bytes = OUTPUT_LIMIT_BYTES,
        .output_limit_bytes = OUTPUT_LIMIT_BYTES,
    };
    (void)listener;
    (void)sa;
    (void)len;
    if (l->n_links >= l->config.max_links + STRANGERS_MAX) {
        log_warn("a worker's connection is dropped: %d are open", l->n_links);
        l->ops->refused(l->arg, 0);
        evutil_closesocket(fd);
        return;
    }
    struct worker_link *link = calloc(1, sizeof(*link));
    if (!link) {
        evutil_closesocket(fd);
        return;
    }
    link->links = l;
    link->last_frame_us = clock_now_us();
    link->conn = frame_conn_new(l->base, fd, &limits, &conn_ops, link);
    if (!link->conn) {
        free(link);
        return;
    }
    link->next = l->first;
    link->at = &l->first;
    if (link->next)
        link->next->at = &link->next;
    l->first = link;
    l->n_links++;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct worker_links *l = arg;
    int64_t now_us = clock_now_us();

    (void)fd;
    (void)what;
    for (struct worker_link *k = l->first; k; k = k->next) {
        char text[MSG_TEXT_MAX];
        int64_t silent_ms = (now_us - k->last_frame_us) / 1000;

        if (silent_ms <= l->config.timeout_ms)
            continue;
        snprintf(text, sizeof(text), "silent for %lld ms",
                 (long long)silent_ms);
        frame_conn_fail(k->conn, text);
    }
}

static uint16_t bound_port(evutil_socket_t fd)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);

    if (getsockname(fd, (struct sockaddr *)&ss, &len))
        return 0;
    if (ss.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
    return ntohs(((struct sockaddr_in *)&ss)->sin_port);
}

static int links_listen(struct worker_links *l, char err[MSG_TEXT_MAX])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE};
    struct addrinfo *ai = NULL;
    char port[8];

    snprintf(port, sizeof(port), "%u", l->config.port);
    int rc = getaddrinfo(l->config.host, port, &hints, &ai);
    if (rc) {
        snprintf(err, MSG_TEXT_MAX, "worker_listen: %.200s:%s: %s",
                 l->config.host, port, gai_strerror(rc));
        return -EADDRNOTAVAIL;
    }
    l->listener = evconnlistener_new_bind(
        l->base, on_accept, l, LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE, 128,
        ai->ai_addr, (int)ai->ai_addrlen);
    freeaddrinfo(ai);
    if (!l->listener) {
        snprintf(err, MSG_TEXT_MAX, "worker_listen: %.200s:%s: %s",
                 l->config.host, port, strerror(errno));
        return -EADDRINUSE;
    }
    l->port = bound_port(evconnlistener_get_fd(l->listener));
    return 0;
}

struct worker_links *worker_links_new(struct event_base *base,
                                      const struct worker_links_config *config,
                                      const struct worker_link_ops *ops,
                                      void *arg, char err[MSG_TEXT_MAX])
{
    struct worker_links *l = calloc(1, sizeof(*l));

    snprintf(err, MSG_TEXT_MAX, "out of memory");
    if (!l)
        return NULL;
    l->base = base;
    l->config = *config;
    l->ops = ops;
    l->arg = arg;
    if (links_listen(l, err))
        goto fail;
    l->tick = event_new(base, -1, EV_PERSIST, on_tick, l);
    int64_t tick_ms = config->timeout_ms / 4;
    struct timeval every = {tick_ms / 1000, tick_ms % 1000 * 1000};
    if (!l->tick || event_add(l->tick, &every))
        goto fail;
    return l;
fail:
    worker_links_free(l);
    return NULL;
}

void worker_links_free(struct worker_links *l)
{
    if (!l)
        return;
    while (l->first)
        link_free(l->first);
    if (l->tick)
        event_free(l->tick);
    if (l->listener)
        evconnlistener_free(l->listener);
    free(l);
}

uint16_t worker_links_port(const struct worker_links *l)
{
    return l->port;
}

void worker_link_send(struct worker_link *link, const struct wire_buf *buf)
{
    frame_conn_send(link->conn, buf);
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
