/* The server under test: where it is, whom it must be, and what it is shown. */
#ifndef TOOLS_REPLAY_LIVE_SERVER_H
#define TOOLS_REPLAY_LIVE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct evhttp_connection;
struct evhttp_request;
struct tls;

/* Where to send. Filled by replay_server_parse. */
struct replay_server {
    char host[256];
    uint16_t port;
    char path[256];          /* prefix of /v1/..., "" mostly */
    bool https;              /* then replay_server_trust() comes first */
    struct tls *tls;         /* owned */
    char authorization[512]; /* the header's value; "": none */
    bool has_options; /* --key-file and --ca-file can be given: errors say so */
};

/*
 * Reads "http://host[:port][/prefix]", or https; a /v1 at its end, as clients
 * of the OpenAI API have it, is no part of the prefix. Returns 0, or -EINVAL
 * for anything else, also for a path that ends in /completions; *server is
 * untouched then.
 */
[[nodiscard]] int replay_server_parse(const char *url,
                                      struct replay_server *server);

/* The key in a file is shown with each request. Returns 0, or -EINVAL with a
 * message that names the file in `error` (`size` bytes). */
[[nodiscard]] int replay_server_key(struct replay_server *server,
                                    const char *file, char *error, size_t size);

/* Of https: whose certificates are trusted, as tls_new() has it. Returns 0, or
 * -EINVAL with a message. */
[[nodiscard]] int replay_server_trust(struct replay_server *server,
                                      const char *ca_file, bool insecure,
                                      char *error, size_t size);

/* Frees what it owns. */
void replay_server_fini(struct replay_server *server);

/* A connection to it, owned, or NULL. */
[[nodiscard]] struct evhttp_connection *
replay_server_connect(const struct replay_server *server,
                      struct event_base *base);

/* Bytes of "host:port", with its NUL; an address of IPv6 stands in brackets. */
#define REPLAY_SERVER_NAME_BYTES 300

/* Writes that. */
void replay_server_name(const struct replay_server *server,
                        char name[REPLAY_SERVER_NAME_BYTES]);

/* Sets Host, and the key if there is one. Returns 0 or -1. */
[[nodiscard]] int replay_server_headers(const struct replay_server *server,
                                        struct evhttp_request *request);

#endif
