/*
 * Shared by the files of this folder. The steps of a connection, each within
 * timeout_us:
 *
 *   RESTING -> RESOLVING -> CONNECTING -> GREETING -> UP
 *      ^___________|____________|____________|________|
 *
 * With Sentinels the steps run twice: to a Sentinel, then to the primary that
 * it names.
 */
#ifndef BASE_REDIS_INTERNAL_H
#define BASE_REDIS_INTERNAL_H

#include <hiredis/async.h>

#include "base/loop/loop.h"
#include "base/redis/redis.h"

struct dns;

#define REDIS_FIRST_PAUSE_US 50000

enum step { RESTING, RESOLVING, CONNECTING, GREETING, UP };

/* An unanswered command; hiredis answers them in order. */
struct flight {
    struct redis *redis;
    struct redis_done done;
    struct flight *next;
    int64_t sent_us;
    size_t bytes;
};

struct redis {
    struct loop *loop;
    struct dns *dns;
    struct redis_url url;
    struct redis_options options;
    struct redis_watch watch;
    char what[32];
    enum step step;
    bool told_up;    /* last reported to the watch */
    bool complained; /* the current failure was logged */
    bool directed;   /* connect to `to` next, named by a Sentinel or MOVED */
    bool asks;       /* this connection is to a Sentinel */
    bool freeing;
    struct address to; /* address of this connection, or the next one */
    unsigned turn;     /* index of the URL's next address */
    redisAsyncContext *ac;
    struct ssl_st *ssl;          /* TLS of ac, which owns it; NULL = no TLS */
    redisAsyncContext *attached; /* hiredis waits by these two; NULL = none */
    struct loop_watch readable, writable;
    struct dns_lookup *lookup; /* NULL = none under way */
    struct loop_timer timer;   /* end of a pause, or a deadline */
    struct loop_timer leave;
    int64_t due_us; /* the timer's */
    int64_t pause_us;
    struct flight *oldest, **newest;
    struct redis_counts counts;
    char why[192];
};

/* redis_connect(r): connects to the next address. */
void redis_connect(struct redis *r);

/* redis_leave(r, why): ends this connection in the loop's next turn, because
 * hiredis forbids freeing a context within its callbacks. */
void redis_leave(struct redis *r, const char *why);

/* redis_drop(r): ends the connection or attempt at once: commands in flight
 * end with NULL, and another try is scheduled. */
void redis_drop(struct redis *r);

/* redis_come_up(r): notes that the server is a primary and takes commands. */
void redis_come_up(struct redis *r);

/* redis_deadline(r, us): sets the timer to us microseconds from now. */
void redis_deadline(struct redis *r, int64_t us);

/* redis_size_of(argc, argv, lens): returns the bytes that a command counts. */
size_t redis_size_of(int argc, const char *const argv[], const size_t lens[]);

/* redis_send(r, done, argc, argv, lens): does redis_command() without its
 * limits, in any step with a connection. */
[[nodiscard]] int redis_send(struct redis *r, struct redis_done done, int argc,
                             const char *const argv[], const size_t lens[]);

#endif
