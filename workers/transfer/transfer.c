/* The transfer as a whole: listening, the tick, forgetting a request. */
#include "workers/transfer/transfer.h"

#include <errno.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/internal.h"

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd,
                      struct sockaddr *address, int len, void *arg)
{
    (void)listener;
    (void)address;
    (void)len;
    inbound_accept(arg, fd);
}

static uint16_t bound_port(struct evconnlistener *listener)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);

    memset(&ss, 0, sizeof(ss));
    getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&ss, &len);
    return ss.ss_family == AF_INET6
               ? ntohs(((struct sockaddr_in6 *)&ss)->sin6_port)
               : ntohs(((struct sockaddr_in *)&ss)->sin_port);
}

static int listen_on(struct transfer *t, char *err, size_t err_bytes)
{
    const struct transfer_config *c = &t->config;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE};
    struct addrinfo *ai = NULL;
    char port[8];

    snprintf(port, sizeof(port), "%u", c->listen_port);
    int rc = getaddrinfo(c->listen_host, port, &hints, &ai);
    if (rc) {
        snprintf(err, err_bytes, "listen %s:%u: %s", c->listen_host,
                 c->listen_port, gai_strerror(rc));
        return -EADDRNOTAVAIL;
    }
    t->listener = evconnlistener_new_bind(
        c->base, on_accept, t,
        LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, 128,
        ai->ai_addr, (int)ai->ai_addrlen);
    rc = -errno;
    freeaddrinfo(ai);
    if (!t->listener) {
        snprintf(err, err_bytes, "listen %s:%u: %s", c->listen_host,
                 c->listen_port, strerror(-rc));
        return rc;
    }
    t->port = bound_port(t->listener);
    return 0;
}

/* The longest frames carry a whole block, or the tokens of a chain. */
static void set_limits(struct transfer *t)
{
    const struct engine_kv_layout *layout = t->config.layout;
    uint32_t longest = (uint32_t)layout->block_bytes;

    if (longest < 4 * layout->window_tokens)
        longest = 4 * layout->window_tokens;
    if (longest < TRANSFER_PIECE_BYTES)
        longest = TRANSFER_PIECE_BYTES;
    t->limits = (struct frame_conn_limits){
        .payload_bytes = longest + 4096,
        .output_watermark_bytes = TRANSFER_WATERMARK_BYTES,
        .output_limit_bytes =
            TRANSFER_WATERMARK_BYTES + (size_t)longest + (1u << 20),
    };
    wire_buf_init(&t->buf, (size_t)longest + 8192);
}

int transfer_new(const struct transfer_config *config,
                 const struct transfer_ops *ops, void *arg,
                 struct transfer **out, char *err, size_t err_bytes)
{
    struct transfer *t = calloc(1, sizeof(*t));

    if (!t) {
        snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    t->config = *config;
    t->hello = *config->hello;
    t->hello.kind = PROTO_PEER_WORKER_PEER;
    t->ops = ops;
    t->arg = arg;
    t->peer_ops = &outbound_ops;
    TAILQ_INIT(&t->peers);
    TAILQ_INIT(&t->inbounds);
    set_limits(t);
    int rc = listen_on(t, err, err_bytes);
    if (rc < 0) {
        transfer_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void transfer_free(struct transfer *t)
{
    if (!t)
        return;
    while (!TAILQ_EMPTY(&t->peers))
        peer_free(t, TAILQ_FIRST(&t->peers));
    while (!TAILQ_EMPTY(&t->inbounds))
        inbound_free(t, TAILQ_FIRST(&t->inbounds));
    if (t->listener)
        evconnlistener_free(t->listener);
    wire_buf_fini(&t->buf);
    free(t);
}

uint16_t transfer_port(const struct transfer *t)
{
    return t->port;
}

void transfer_tick(struct transfer *t, int64_t now_us)
{
    struct peer *p;
    struct inbound *in;

    TAILQ_FOREACH(p, &t->peers, link)
    {
        outbound_tick(p, now_us);
    }
    TAILQ_FOREACH(in, &t->inbounds, link)
    {
        inbound_tick(in, now_us);
    }
}

void transfer_forget(struct request *r)
{
    if (r->push.peer) {
        TAILQ_REMOVE(&r->push.peer->pushes, r, push.link);
        r->push.peer = NULL;
    }
    if (r->receive.from) {
        TAILQ_REMOVE(&r->receive.from->receives, r, receive.link);
        r->receive.from = NULL;
    }
}
