/* One blocking GET of a JSON page; see replay_call.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <event2/http.h>

#include "tools/replay_call.h"

struct get {
    struct event_base *base;
    int status;
    json_t *json;
    json_error_t why;
};

static void on_page(struct evhttp_request *request, void *arg)
{
    struct get *get = arg;
    if (request != NULL) {
        get->status = evhttp_request_get_response_code(request);
        struct evbuffer *input = evhttp_request_get_input_buffer(request);
        size_t n = evbuffer_get_length(input);
        const unsigned char *page = evbuffer_pullup(input, -1);
        if (get->status == 200 && page != NULL) {
            get->json = json_loadb((const char *)page, n, 0, &get->why);
        }
    }
    event_base_loopbreak(get->base);
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
    if (connection == NULL) {
        snprintf(error, size, "out of memory");
        return -EIO;
    }
    struct timeval timeout = {.tv_sec = timeout_us / 1000000,
                              .tv_usec = timeout_us % 1000000};
    evhttp_connection_set_timeout_tv(connection, &timeout);
    struct evhttp_request *request = evhttp_request_new(on_page, &get);
    if (request != NULL) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Host",
                          server->host);
        if (evhttp_make_request(connection, request, EVHTTP_REQ_GET, full) ==
            0) {
            event_base_dispatch(base);
        }
    }
    evhttp_connection_free(connection);
    if (get.json != NULL) {
        *json = get.json;
        return 0;
    }
    if (get.status == 0) {
        snprintf(error, size, "no answer from http://%s:%u%s", server->host,
                 (unsigned)server->port, full);
    } else {
        snprintf(error, size, "http://%s:%u%s answered %d %s", server->host,
                 (unsigned)server->port, full, get.status,
                 get.status == 200 ? get.why.text : "");
    }
    return -EIO;
}
