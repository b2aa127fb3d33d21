/* See server.h. */
#include "tools/replay/live/server.h"

#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/tls.h"

static void cut_slashes(char *path)
{
    size_t n = strlen(path);

    while (n > 0 && path[n - 1] == '/')
        path[--n] = '\0';
}

/* Returns whether the path is an API's own, not a prefix of it. */
static bool is_of_api(const char *path)
{
    static const char end[] = "/completions";
    size_t n = strlen(path), n_end = sizeof end - 1;

    return n >= n_end && strcmp(path + n - n_end, end) == 0;
}

/* Copies a URL's host, without the brackets of an IPv6 address. */
static void copy_host(char *to, size_t size, const char *host)
{
    size_t n = strlen(host);
    bool brackets = n > 2 && host[0] == '[' && host[n - 1] == ']';

    snprintf(to, size, "%.*s", (int)(brackets ? n - 2 : n), host + brackets);
}

int replay_server_parse(const char *url, struct replay_server *server)
{
    struct evhttp_uri *uri = evhttp_uri_parse(url);

    if (!uri)
        return -EINVAL;
    const char *scheme = evhttp_uri_get_scheme(uri);
    const char *host = evhttp_uri_get_host(uri);
    const char *path = evhttp_uri_get_path(uri);
    int port = evhttp_uri_get_port(uri);
    bool https = scheme && strcmp(scheme, "https") == 0;
    bool good = !is_of_api(path) && scheme &&
                (https || strcmp(scheme, "http") == 0) && host &&
                host[0] != '\0' && strlen(host) < sizeof server->host &&
                port <= 65535 && strlen(path) < sizeof server->path &&
                !evhttp_uri_get_query(uri);
    if (good) {
        *server = (struct replay_server){.https = https};
        copy_host(server->host, sizeof server->host, host);
        snprintf(server->path, sizeof server->path, "%s", path);
        cut_slashes(server->path);
        size_t n = strlen(server->path);
        if (n >= 3 && strcmp(server->path + n - 3, "/v1") == 0) {
            server->path[n - 3] = '\0';
            cut_slashes(server->path);
        }
        server->port = port > 0 ? (uint16_t)port : https ? 443 : 80;
    }
    evhttp_uri_free(uri);
    return good ? 0 : -EINVAL;
}

int replay_server_key(struct replay_server *server, const char *file,
                      char *error, size_t size)
{
    static const char bearer[] = "Bearer ";
    const size_t n = sizeof bearer - 1;

    memcpy(server->authorization, bearer, n);
    const char *why = file_read_key(file, server->authorization + n,
                                    sizeof server->authorization - n);
    return why ? error_say(error, size, -EINVAL, "%s: %s", file, why) : 0;
}

int replay_server_trust(struct replay_server *server, const char *ca_file,
                        bool insecure, char *error, size_t size)
{
    char why[256];

    if (!server->https)
        return 0;
    server->tls = tls_new(ca_file, insecure, why, sizeof why);
    return server->tls
               ? 0
               : error_say(error, size, -EINVAL, "%s: %s", ca_file, why);
}

void replay_server_fini(struct replay_server *server)
{
    tls_free(server->tls);
    server->tls = NULL;
}

struct evhttp_connection *
replay_server_connect(const struct replay_server *server,
                      struct event_base *base)
{
    struct bufferevent *bev = NULL;

    if (server->https) {
        bev = tls_connection(server->tls, base, server->host,
                             BEV_OPT_CLOSE_ON_FREE);
        if (!bev)
            return NULL;
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    }
    return evhttp_connection_base_bufferevent_new(base, NULL, bev, server->host,
                                                  server->port);
}

void replay_server_name(const struct replay_server *server,
                        char name[REPLAY_SERVER_NAME_BYTES])
{
    snprintf(name, REPLAY_SERVER_NAME_BYTES,
             strchr(server->host, ':') ? "[%s]:%u" : "%s:%u", server->host,
             (unsigned)server->port);
}

int replay_server_headers(const struct replay_server *server,
                          struct evhttp_request *request)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    char host[REPLAY_SERVER_NAME_BYTES];

    replay_server_name(server, host);
    if (evhttp_add_header(headers, "Host", host) != 0)
        return -1;
    return *server->authorization ? evhttp_add_header(headers, "Authorization",
                                                      server->authorization)
                                  : 0;
}
