/*
 * A connection to Redis (or Valkey) on the event loop, by hiredis. It connects
 * by itself and again after a loss, tries the addresses of its URL in turn,
 * asks Sentinels for the primary, follows a cluster's MOVED, and leaves a
 * server that is a replica. It never blocks:
 *
 *   a command is taken   <=>   connected, and both limits have room
 *   it is answered       <=>   once, in the order of commands: with a reply, or
 *                              with NULL when the connection was lost, or the
 *                              oldest one had no answer for timeout_us
 *
 * TLS for URLs that ask for it: base/redis/tls.h.
 *
 * A program that uses it ignores SIGPIPE.
 */
#ifndef BASE_REDIS_REDIS_H
#define BASE_REDIS_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/redis/url.h"

struct loop;
struct dns;
struct redis;
struct redisReply; /* of <hiredis/hiredis.h> */

struct redis_options {
    const char *what;    /* prefix of log lines, as "state"; copied */
    unsigned max_flight; /* commands without an answer yet */
    size_t max_bytes;    /* bytes of unanswered commands */
    struct tls *tls;     /* authorities for a URL with TLS; borrowed */
    int64_t timeout_us;  /* to connect, and for the oldest answer; must exceed
                            the time for which blocking commands block */
};

/* Called with a command's reply, borrowed for the call, which may be an error
 * (type REDIS_REPLY_ERROR). NULL = no reply: the command may or may not have
 * been executed. */
struct redis_done {
    void (*fn)(void *arg, const struct redisReply *reply); /* NULL = ignored */
    void *arg;
};

/* Called from the loop at each change; up: commands are taken. */
struct redis_watch {
    void (*fn)(void *arg, bool up); /* NULL = none */
    void *arg;
};

struct redis_counts {
    uint64_t commands;      /* taken */
    uint64_t replies;       /* replies to them, errors included */
    uint64_t errors;        /* error replies */
    uint64_t unanswered;    /* ended with NULL */
    uint64_t refused;       /* not taken: a limit, or no connection */
    uint64_t connects;      /* successful connections */
    uint64_t losses;        /* connections lost */
    uint64_t round_trip_us; /* sum over replies */
    unsigned in_flight;
    size_t bytes_in_flight;
};

/* redis_new(loop, dns, url, options, watch): begins to connect in the loop's
 * next turn. Borrows loop and dns, copies the rest. Returns it owned, or NULL:
 * out of memory. */
[[nodiscard]] struct redis *redis_new(struct loop *loop, struct dns *dns,
                                      const struct redis_url *url,
                                      const struct redis_options *options,
                                      struct redis_watch watch);

/* redis_is_up(r): returns whether commands are taken. */
bool redis_is_up(const struct redis *r);

/* redis_command(r, done, argc, argv, lens): sends argc words of lens[i] bytes
 * each, copied; lens NULL = NUL-terminated. Returns 0, and done is called
 * later from the loop; or, without calling done, -ENOTCONN, -ENOBUFS (a limit)
 * or -ENOMEM. O(bytes). */
[[nodiscard]] int redis_command(struct redis *r, struct redis_done done,
                                int argc, const char *const argv[],
                                const size_t lens[]);

/* redis_counts(r): returns the counters since redis_new(). */
struct redis_counts redis_counts(const struct redis *r);

/* redis_why(r): returns why it is not up, for logs; "" = it is up. Valid until
 * the loop's next turn. */
const char *redis_why(const struct redis *r);

/* redis_local_host(r, host, bytes): writes the connection's own numeric
 * address. Returns 0 or -ENOTCONN. */
[[nodiscard]] int redis_local_host(const struct redis *r, char *host,
                                   size_t bytes);

/* redis_free(r): frees it; commands in flight first end with NULL, and the
 * watch is not called. Not inside a callback of it. NULL is a no-op. */
void redis_free(struct redis *r);

#endif
