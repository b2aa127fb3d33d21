/* See server.h. */
#include "tools/replay/live/server.h"

#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <event2/http.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/loop/libevent.h"
#include "base/tls.h"
#include "conductor/http/url.h"

/* Returns whether a URL is an API's own, not a prefix of it. */
static bool is_of_api(const char *path)
{
    static const char end[] = "/completions";
    size_t n = strlen(path), n_end = sizeof end - 1;

    return n >= n_end && strcmp(path + n - n_end, end) == 0;
}

int replay_server_parse(const char *url, struct replay_server *server)
{
    struct engine_url at;

    if (is_of_api(url) || engine_url_parse(url, &at) ||
        strlen(at.prefix) >= sizeof server->path)
        return -EINVAL;
    *server = (struct replay_server){.https = at.tls, .port = at.at.port};
    snprintf(server->host, sizeof server->host, "%s", at.at.host);
    snprintf(server->path, sizeof server->path, "%s", at.prefix);
    return 0;
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

/* Makes an unconnected TLS bufferevent. Returns it owned, or NULL: out of
 * memory. */
static struct bufferevent *tls_connection(const struct replay_server *server,
                                          struct loop *loop)
{
    struct ssl_st *ssl = tls_ssl(server->tls, server->host);

    if (!ssl)
        return NULL;
    /* Frees ssl on failure, too, because the option makes it the owner. */
    return bufferevent_openssl_socket_new(loop_event_base(loop), -1, ssl,
                                          BUFFEREVENT_SSL_CONNECTING,
                                          BEV_OPT_CLOSE_ON_FREE);
}

struct evhttp_connection *
replay_server_connect(const struct replay_server *server, struct loop *loop)
{
    struct bufferevent *bev = NULL;

    if (server->https) {
        bev = tls_connection(server, loop);
        if (!bev)
            return NULL;
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    }
    return evhttp_connection_base_bufferevent_new(
        loop_event_base(loop), NULL, bev, server->host, server->port);
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
