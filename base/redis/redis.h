/*
 * A connection to Redis (or Valkey) on the event loop, by hiredis. It connects
 * by itself and again after a loss, tries the addresses of its URL in turn,
 * asks Sentinels for the primary, follows a cluster's MOVED, and leaves a
 * server that turns out to be a replica. Nothing here ever waits:
 *
 *   a command is taken   <=>   connected, and both limits have room
 *   it is answered       <=>   once, in the order of commands: with a reply, or
 *                              with NULL when the connection was lost, or the
 *                              oldest one had no answer for timeout_us
 *
 * A URL with TLS is spoken to with it: base/redis/tls.h.
 *
 * A program that uses it ignores SIGPIPE.
 */
#ifndef BASE_REDIS_REDIS_H
#define BASE_REDIS_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/redis/url.h"

struct event_base;
struct evdns_base;
struct redis;
struct redisReply; /* of <hiredis/hiredis.h> */

struct redis_options {
    const char *what;    /* of log lines: "state". Copied */
    unsigned max_flight; /* commands without an answer yet */
    size_t max_bytes;    /* of those, as they were sent */
    struct tls *tls;     /* whom a URL with TLS trusts. Borrowed */
    int64_t timeout_us;  /* for a connection, and for the oldest answer. That
                          * of a connection for blocking commands has to be
                          * longer than they block */
};

/* What becomes of a command. The reply is lent until the callback returns;
 * NULL: there will be none, and whether the command took place is not known.
 * A reply may also be an error (type REDIS_REPLY_ERROR). */
struct redis_done {
    void (*fn)(void *arg, const struct redisReply *reply); /* NULL: no matter */
    void *arg;
};

/* Told of each change, from the loop: up, commands are taken; or not. */
struct redis_watch {
    void (*fn)(void *arg, bool up); /* NULL: nobody asks */
    void *arg;
};

struct redis_counts {
    uint64_t commands;      /* taken */
    uint64_t replies;       /* to them, errors among them */
    uint64_t errors;        /* replies that said so */
    uint64_t unanswered;    /* ended with NULL */
    uint64_t refused;       /* for which there was no room, or connection */
    uint64_t connects;      /* that came about */
    uint64_t losses;        /* of those */
    uint64_t round_trip_us; /* the sum over replies */
    unsigned in_flight;
    size_t bytes_in_flight;
};

/* redis_new(base, dns, url, options, watch): begins to connect in the loop's
 * next turn. Borrows base and dns, copies the rest. Returns it owned, or NULL:
 * out of memory. */
[[nodiscard]] struct redis *redis_new(struct event_base *base,
                                      struct evdns_base *dns,
                                      const struct redis_url *url,
                                      const struct redis_options *options,
                                      struct redis_watch watch);

/* redis_is_up(r): whether commands are taken. */
bool redis_is_up(const struct redis *r);

/* redis_command(r, done, argc, argv, lens): sends argc words of lens[i] bytes
 * each, copied; lens NULL: they end with NUL. Returns 0, and done comes later,
 * never from within; or, and it never comes: -ENOTCONN, -ENOBUFS (a limit) or
 * -ENOMEM. O(bytes). */
[[nodiscard]] int redis_command(struct redis *r, struct redis_done done,
                                int argc, const char *const argv[],
                                const size_t lens[]);

/* redis_counts(r): since redis_new(). */
struct redis_counts redis_counts(const struct redis *r);

/* redis_why(r): why it is not up, for people; "" when it is. Valid until the
 * loop's next turn. */
const char *redis_why(const struct redis *r);

/* redis_local_host(r, host, bytes): the address from which it is connected, as
 * numbers. Returns 0 or -ENOTCONN. */
[[nodiscard]] int redis_local_host(const struct redis *r, char *host,
                                   size_t bytes);

/* redis_again(r): leaves this connection and makes another one, for who has
 * seen that it is of no use. Callable from a callback. */
void redis_again(struct redis *r, const char *why);

/* redis_free(r): commands in flight end with NULL first; a watch hears nothing.
 * Not from within a callback of it. NULL is a no-op. */
void redis_free(struct redis *r);

#endif
