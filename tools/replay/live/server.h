/* The server under test: address, TLS and key. */
#ifndef TOOLS_REPLAY_LIVE_SERVER_H
#define TOOLS_REPLAY_LIVE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evhttp_connection;
struct evhttp_request;
struct loop;
struct tls;

/* Filled by replay_server_parse(). */
struct replay_server {
    char host[256];
    uint16_t port;
    char path[256];          /* prefix of /v1/..., mostly "" */
    bool https;              /* needs replay_server_trust() */
    struct tls *tls;         /* owned */
    char authorization[512]; /* the header's value; "" = none */
    bool has_options; /* the command has --key-file and --ca-file: errors name
                         them */
};

/*
 * Reads "http://host[:port][/prefix]" or https. A /v1 at the end, as in the
 * base URL of OpenAI clients, is not part of the prefix. Returns 0, or -EINVAL
 * with *server untouched for anything else, including a path that ends in
 * /completions.
 */
[[nodiscard]] int replay_server_parse(const char *url,
                                      struct replay_server *server);

/* Reads the key of all requests from a file. Returns 0, or -EINVAL with a
 * message that names the file in `error` (`size` bytes). */
[[nodiscard]] int replay_server_key(struct replay_server *server,
                                    const char *file, char *error, size_t size);

/* Sets the trusted certificates for https, as tls_new(). Returns 0, or -EINVAL
 * with a message. */
[[nodiscard]] int replay_server_trust(struct replay_server *server,
                                      const char *ca_file, bool insecure,
                                      char *error, size_t size);

/* Frees what the server owns. */
void replay_server_fini(struct replay_server *server);

/* Returns a new connection to the server, owned, or NULL. */
[[nodiscard]] struct evhttp_connection *
replay_server_connect(const struct replay_server *server, struct loop *loop);

/* Bytes of "host:port" with its NUL; an IPv6 address is in brackets. */
#define REPLAY_SERVER_NAME_BYTES 300

/* Writes "host:port". */
void replay_server_name(const struct replay_server *server,
                        char name[REPLAY_SERVER_NAME_BYTES]);

/* Sets the Host header, and Authorization if there is a key. Returns 0 or -1.
 */
[[nodiscard]] int replay_server_headers(const struct replay_server *server,
                                        struct evhttp_request *request);

#endif
