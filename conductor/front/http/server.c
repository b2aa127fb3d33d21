/* Listening and accepting. */
#include <errno.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conductor/front/http/internal.h"

#define BACKLOG 1024
#define RESUME_US 100000

/* Too many connections: say so in one packet, without an object for it. */
static void turn_away(struct http_server *server, evutil_socket_t fd)
{
    static const char reply[] =
        "HTTP/1.1 503 Service Unavailable\r\n"
        "Content-Type: application/json\r\n"
        "Content-Length: 109\r\n"
        "Retry-After: 1\r\n"
        "Connection: close\r\n"
        "\r\n"
        "{\"error\":{\"message\":\"too many connections\","
        "\"type\":\"server_error\",\"param\":null,"
        "\"code\":\"too_many_connections\"}}";

    server->stats.refused++;
    /* A new socket's buffer has room; if not, closing says enough. */
    (void)!send(fd, reply, sizeof(reply) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    evutil_closesocket(fd);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd,
                      struct sockaddr *address, int n, void *arg)
{
    struct http_server *server = arg;
    int on = 1;

    (void)listener;
    (void)address;
    (void)n;
    server->stats.accepted++;
    if (server->stats.connections >= server->options.max_connections) {
        turn_away(server, fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (http_conn_open(server, fd))
        server->stats.refused++;
}

/* No descriptors left, most likely: wait, as the socket stays readable. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    struct http_server *server = arg;
    struct timeval tv = {0, RESUME_US};

    evconnlistener_disable(listener);
    evtimer_add(server->resume, &tv);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *server = arg;

    (void)fd;
    (void)what;
    if (server->listener)
        evconnlistener_enable(server->listener);
}

/* A listening socket on the first address that takes one, or -errno. */
static int listen_on(const char *host, uint16_t port, uint16_t *bound)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE};
    struct addrinfo *list, *a;
    struct sockaddr_storage name;
    socklen_t n = sizeof(name);
    char service[8];
    int fd = -1, on = 1, rc = -EADDRNOTAVAIL;

    snprintf(service, sizeof(service), "%u", port);
    if (getaddrinfo(host, service, &hints, &list))
        return -EADDRNOTAVAIL;
    for (a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                    0);
        if (fd < 0) {
            rc = -errno;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG) ||
            getsockname(fd, (struct sockaddr *)&name, &n)) {
            rc = -errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return rc;
    *bound = ntohs(name.ss_family == AF_INET6
                       ? ((struct sockaddr_in6 *)&name)->sin6_port
                       : ((struct sockaddr_in *)&name)->sin_port);
    return fd;
}

int http_server_new(struct event_base *base, const struct http_options *options,
                    http_handler *handler, void *arg, struct http_server **out)
{
    struct http_server *server = calloc(1, sizeof(*server));
    int fd, rc = -ENOMEM;

    if (!server)
        return -ENOMEM;
    server->base = base;
    server->options = *options;
    server->options.host = NULL; /* borrowed; not needed any more */
    /* A body that can't ever fit is refused for good. */
    if (server->options.max_body_bytes > options->max_body_total_bytes)
        server->options.max_body_bytes = options->max_body_total_bytes;
    server->handler = handler;
    server->arg = arg;
    LIST_INIT(&server->conns);
    server->resume = evtimer_new(base, on_resume, server);
    if (!server->resume)
        goto free_server;
    fd = listen_on(options->host, options->port, &server->port);
    if (fd < 0) {
        rc = fd;
        goto free_resume;
    }
    server->listener = evconnlistener_new(
        base, on_accept, server, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
        0, fd);
    if (!server->listener)
        goto close_fd;
    evconnlistener_set_error_cb(server->listener, on_accept_error);
    *out = server;
    return 0;

close_fd:
    close(fd);
free_resume:
    event_free(server->resume);
free_server:
    free(server);
    return rc;
}

static void stop_listening(struct http_server *server)
{
    if (server->listener)
        evconnlistener_free(server->listener);
    server->listener = NULL;
}

void http_server_drain(struct http_server *server)
{
    struct http_conn *conn;

    stop_listening(server);
    server->draining = true;
    LIST_FOREACH(conn, &server->conns, link)
    {
        http_conn_drain(conn);
    }
}

bool http_server_busy(const struct http_server *server)
{
    const struct http_conn *conn;

    LIST_FOREACH(conn, &server->conns, link)
    {
        if (conn->state == HTTP_HANDLING || conn->state == HTTP_SENDING)
            return true;
    }
    return false;
}

void http_server_free(struct http_server *server)
{
    if (!server)
        return;
    stop_listening(server);
    while (!LIST_EMPTY(&server->conns))
        http_conn_free(LIST_FIRST(&server->conns));
    event_free(server->resume);
    free(server);
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

const struct http_stats *http_server_stats(const struct http_server *server)
{
    return &server->stats;
}
