/* See exchange.h. */
#include "tools/replay/live/exchange.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/http.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/loop/loop.h"

#define REASON_S 2

struct get {
    struct loop *loop;
    struct exchange_answer *answer;
    bool over; /* maybe before the loop runs, which forgets a break then */
};

static void on_answer(struct evhttp_request *request, void *arg)
{
    struct get *get = arg;
    struct exchange_answer *a = get->answer;

    get->over = true;
    loop_stop(get->loop);
    if (!request || evhttp_request_get_response_code(request) == 0)
        return;
    const char *date =
        evhttp_find_header(evhttp_request_get_input_headers(request), "Date");
    struct tm tm = {0};
    if (date && strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        a->date_s = timegm(&tm);
    struct evbuffer *input = evhttp_request_get_input_buffer(request);
    a->n = evbuffer_get_length(input);
    a->body = malloc(a->n + 1);
    if (!a->body)
        return;
    evbuffer_remove(input, a->body, a->n);
    a->body[a->n] = '\0';
    a->status = evhttp_request_get_response_code(request);
}

/* Connects to one address. Returns 0 or a positive errno. */
static int try_address(const struct addrinfo *a)
{
    const struct timeval limit = {.tv_sec = REASON_S};
    int fd =
        socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

    if (fd < 0)
        return errno;
    int why = setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) ||
                      connect(fd, a->ai_addr, a->ai_addrlen)
                  ? errno
                  : 0;
    close(fd);
    return why == EINPROGRESS ? ETIMEDOUT : why;
}

/*
 * Returns why a server does not answer. libevent loses the error of a failed
 * connection, so this tries one more. Blocks for at most REASON_S per address.
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
           : server->https
               ? "it takes connections, but gives no HTTP answer, or shows a "
                 "certificate that is not trusted"
               : "it takes connections, but gives no HTTP answer";
}

/* Returns advice about an answer's status; 0 = no answer. */
static const char *advice(const struct replay_server *server, int status)
{
    if (!server->has_options)
        return "";
    if (status == 401 || status == 403)
        return *server->authorization
                   ? " (it refuses the key of --key-file)"
                   : " (--key-file FILE sends the key in it)";
    return status == 0 && server->https ? " (--ca-file FILE says whom to trust)"
                                        : "";
}

/* Adds a JSON body to a request. Returns 0, or -1 when out of memory. */
static int add_body(struct evhttp_request *request, const char *body)
{
    if (!body || !*body)
        return 0;
    return evhttp_add_header(evhttp_request_get_output_headers(request),
                             "Content-Type", "application/json") ||
                   evbuffer_add(evhttp_request_get_output_buffer(request), body,
                                strlen(body))
               ? -1
               : 0;
}

int exchange(struct loop *loop, const struct replay_server *server,
             const char *body, const char *path, int64_t timeout_us,
             struct exchange_answer *answer, char *error, size_t size)
{
    struct get get = {.loop = loop, .answer = answer};
    char name[REPLAY_SERVER_NAME_BYTES];
    const struct timeval timeout = {timeout_us / 1000000, timeout_us % 1000000};
    enum evhttp_cmd_type method = body ? EVHTTP_REQ_POST : EVHTTP_REQ_GET;
    size_t n = strlen(server->path) + strlen(path) + 1;
    char *full = malloc(n);

    *answer = (struct exchange_answer){0};
    struct evhttp_connection *connection =
        full ? replay_server_connect(server, loop) : NULL;
    if (!connection) {
        free(full);
        return error_say(error, size, -EIO, "out of memory");
    }
    snprintf(full, n, "%s%s", server->path, path);
    evhttp_connection_set_timeout_tv(connection, &timeout);
    evhttp_connection_set_max_body_size(connection, EXCHANGE_MAX_BYTES);
    struct evhttp_request *request = evhttp_request_new(on_answer, &get);
    if (request && replay_server_headers(server, request) == 0 &&
        add_body(request, body) == 0 &&
        evhttp_make_request(connection, request, method, full) == 0 &&
        !get.over)
        loop_run(loop);
    evhttp_connection_free(connection);
    free(full);
    if (answer->status != 0)
        return 0;
    replay_server_name(server, name);
    return error_say(error, size, -EIO, "no answer from http%s://%s%s%s: %s%s",
                     server->https ? "s" : "", name, server->path, path,
                     find_reason(server), advice(server, 0));
}

int exchange_json(struct loop *loop, const struct replay_server *server,
                  const char *path, int64_t timeout_us, json_t **json,
                  char *error, size_t size)
{
    struct exchange_answer answer;
    json_error_t why = {.text = ""};
    char name[REPLAY_SERVER_NAME_BYTES];

    if (exchange(loop, server, NULL, path, timeout_us, &answer, error, size))
        return -EIO;
    *json = answer.status == 200 ? json_loadb(answer.body, answer.n, 0, &why)
                                 : NULL;
    free(answer.body);
    if (*json)
        return 0;
    replay_server_name(server, name);
    return error_say(error, size, -EIO, "http%s://%s%s%s answered %d%s%s%s",
                     server->https ? "s" : "", name, server->path, path,
                     answer.status, *why.text ? " " : "", why.text,
                     advice(server, answer.status));
}
