/* One blocking GET of a JSON page; see http_request.h. */
#include <errno.h>
#include <event2/http.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/replay/live/http_request.h"

#define REASON_MS 2000

struct get {
    struct event_base *base;
    int status;
    json_t *json;
    json_error_t why;
};

static void on_page(struct evhttp_request *request, void *arg)
{
    struct get *get = arg;

    if (request) {
        get->status = evhttp_request_get_response_code(request);
        struct evbuffer *input = evhttp_request_get_input_buffer(request);
        size_t n = evbuffer_get_length(input);
        const unsigned char *page = evbuffer_pullup(input, -1);
        if (get->status == 200 && page)
            get->json = json_loadb((const char *)page, n, 0, &get->why);
    }
    event_base_loopbreak(get->base);
}

/* Connects to one address; 0 or a positive errno. */
static int try_address(const struct addrinfo *a)
{
    int why = 0;
    socklen_t size = sizeof why;
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                    a->ai_protocol);

    if (fd < 0)
        return errno;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
        why = errno;
        if (why == EINPROGRESS) {
            why = ETIMEDOUT;
            if (poll(&ready, 1, REASON_MS) > 0 &&
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) != 0)
                why = errno;
        }
    }
    close(fd);
    return why;
}

/*
 * Why a server does not answer. libevent loses the error of a connection that
 * fails, so one more is tried. Blocks for REASON_MS per address at most.
 */
static const char *find_reason(const struct replay_server *server)
{
    char port[8];

    snprintf(port, sizeof port, "%u", (unsigned)server->port);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(server->host, port, &hints, &list);
    if (rc != 0)
        return gai_strerror(rc);
    int why = ETIMEDOUT;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        why = try_address(a);
        if (why == 0)
            break;
    }
    freeaddrinfo(list);
    return why != 0 ? strerror(why)
                    : "it takes connections, but gives no HTTP answer";
}

int replay_get_json(struct event_base *base, const struct replay_server *server,
                    const char *path, int64_t timeout_us, json_t **json,
                    char *error, size_t size)
{
    struct get get = {.base = base};
    char full[sizeof server->path + 64];

    snprintf(full, sizeof full, "%s%s", server->path, path);
    struct evhttp_connection *connection =
        evhttp_connection_base_new(base, NULL, server->host, server->port);
    if (!connection) {
        snprintf(error, size, "out of memory");
        return -EIO;
    }
    struct timeval timeout = {.tv_sec = timeout_us / 1000000,
                              .tv_usec = timeout_us % 1000000};
    evhttp_connection_set_timeout_tv(connection, &timeout);
    struct evhttp_request *request = evhttp_request_new(on_page, &get);
    if (request) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Host",
                          server->host);
        if (evhttp_make_request(connection, request, EVHTTP_REQ_GET, full) == 0)
            event_base_dispatch(base);
    }
    evhttp_connection_free(connection);
    if (get.json) {
        *json = get.json;
        return 0;
    }
    if (get.status == 0) {
        snprintf(error, size, "no answer from http://%s:%u%s: %s", server->host,
                 (unsigned)server->port, full, find_reason(server));
    } else {
        snprintf(error, size, "http://%s:%u%s answered %d %s", server->host,
                 (unsigned)server->port, full, get.status,
                 get.status == 200 ? get.why.text : "");
    }
    return -EIO;
}
