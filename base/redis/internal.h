/*
 * What the files of this folder share of a connection. One step after another,
 * each within timeout_us:
 *
 *   RESTING -> RESOLVING -> CONNECTING -> GREETING -> UP
 *      ^___________|____________|____________|________|
 *
 * With Sentinels the way is gone twice: to one of them, whose answer is the
 * address of the second round.
 */
#ifndef BASE_REDIS_INTERNAL_H
#define BASE_REDIS_INTERNAL_H

#include <hiredis/async.h>

#include "base/event_loop.h"
#include "base/redis/redis.h"

#define REDIS_FIRST_PAUSE_US 50000

enum step { RESTING, RESOLVING, CONNECTING, GREETING, UP };

/* A command without an answer; hiredis hands them back in their order. */
struct flight {
    struct redis *redis;
    struct redis_done done;
    struct flight *next;
    int64_t sent_us;
    size_t bytes;
};

struct redis {
    struct event_base *base;
    struct evdns_base *dns;
    struct redis_url url;
    struct redis_options options;
    struct redis_watch watch;
    char what[32];
    enum step step;
    bool told_up;    /* what the watch heard last */
    bool complained; /* the log has heard that it cannot be used */
    bool directed; /* the next address is `to`: a Sentinel's answer, or MOVED */
    bool asks;     /* this connection is to a Sentinel */
    bool freeing;
    struct address to; /* of this connection, or the next one */
    unsigned turn;     /* which address of the URL comes next */
    redisAsyncContext *ac;
    struct ssl_st *ssl; /* what ac speaks, which owns it; NULL: no TLS */
    struct evdns_getaddrinfo_request *look_up;
    struct event *timer; /* a pause's end, or a deadline */
    struct event *leave;
    int64_t due_us; /* the timer's */
    int64_t pause_us;
    struct flight *oldest, **newest;
    struct redis_counts counts;
    char why[192];
};

/* redis_connect(r): begins with the next address. */
void redis_connect(struct redis *r);

/* redis_leave(r, why): this connection ends in the loop's next turn, as hiredis
 * wants no context freed within its own callbacks. */
void redis_leave(struct redis *r, const char *why);

/* redis_drop(r): ends what is under way at once; what was in flight ends with
 * NULL; another try is due. */
void redis_drop(struct redis *r);

/* redis_come_up(r): the server is a primary and takes commands. */
void redis_come_up(struct redis *r);

/* redis_deadline(r, us): the timer fires then. */
void redis_deadline(struct redis *r, int64_t us);

/* redis_size_of(argc, argv, lens): what a command counts in bytes. */
size_t redis_size_of(int argc, const char *const argv[], const size_t lens[]);

/* redis_send(r, done, argc, argv, lens): as redis_command(), past its limits,
 * in any step with a connection. */
[[nodiscard]] int redis_send(struct redis *r, struct redis_done done, int argc,
                             const char *const argv[], const size_t lens[]);

#endif
