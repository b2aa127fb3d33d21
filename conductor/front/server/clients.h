/*
 * How much of a server each client has. A client is an address (of IPv6 a /64),
 * or what http_set_client() set. It may have at most HTTP_SHARE times as much
 * as is still free, so that one alone gets four fifths of all, two get four
 * ninths each, and a new client finds room. It is pure counting, no I/O.
 *
 *   sum of n_conns over the clients == clients.n_conns
 *   a client is kept as long as it has connections, or is held
 *   a client is filed under its n_conns  <=>  one of its connections is idle
 */
#ifndef CONDUCTOR_FRONT_SERVER_CLIENTS_H
#define CONDUCTOR_FRONT_SERVER_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define HTTP_SHARE 4u
#define HTTP_CLIENT_FILES 32 /* file i: 2^i to 2^(i+1) - 1 connections */

struct http_conn;

struct http_client {
    LIST_ENTRY(http_client) link;
    uint64_t key;
    size_t n_conns;
    size_t body_bytes, held_bytes; /* of all its connections */
    int64_t turn;                  /* turn of the loop that `work` and n_resumed
                                      count: turn.c */
    size_t work;
    unsigned n_resumed;
    bool filed;
    bool held;                    /* do not free it without connections */
    TAILQ_HEAD(, http_conn) idle; /* may be closed; longest idle first */
};

struct http_clients {
    void *tree; /* by key, of tsearch() */
    size_t n_conns;
    LIST_HEAD(, http_client) files[HTTP_CLIENT_FILES];
};

/* http_client_init(c, key): makes a client without connections. */
void http_client_init(struct http_client *c, uint64_t key);

/* http_clients_get(all, key): returns the client, made if there is none. NULL:
 * out of memory. O(log clients). */
struct http_client *http_clients_get(struct http_clients *all, uint64_t key);

/* http_clients_drop(all, c): frees it if it has no connection and is not
 * held. */
void http_clients_drop(struct http_clients *all, struct http_client *c);

/* http_clients_file(all, c): files it anew: its n_conns or idle connections
 * have changed. */
void http_clients_file(struct http_clients *all, struct http_client *c);

/* http_clients_greediest(all): returns the client with the most connections, to
 * a factor of two, among those with an idle one; NULL = none has. O(1). */
struct http_client *http_clients_greediest(const struct http_clients *all);

/* http_share_allows(mine, more, taken, all): returns whether a client that has
 * `mine`, of `taken` by all clients, may have `more`, where there is `all`. */
bool http_share_allows(size_t mine, size_t more, size_t taken, size_t all);

#endif
