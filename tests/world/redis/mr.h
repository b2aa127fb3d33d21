/*
 * A model of a Redis server, as far as Conductor uses one: what conductors and
 * workers send is answered as Redis 7.0 answers it, byte for byte, except for
 * the order of a large hash. It has no clock, socket, thread or global: time
 * and bytes go in, bytes come out, so that it lives in a world as well as
 * behind a real port (front.h). redis_differs compares it with the real server.
 *
 * A command, or an option of a command, that Conductor does not send is refused
 * with "ERR the model of Redis has no ...". Scripts are C functions that are
 * found by the SHA of the script's text (script.c).
 *
 * Memory: the input of a connection, and its output, are bounded; a connection
 * that exceeds a bound is closed. Memory that runs out ends the process: this
 * is a part of tests.
 */
#ifndef TESTS_WORLD_REDIS_MR_H
#define TESTS_WORLD_REDIS_MR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr;
struct mr_conn;

#define MR_NEVER INT64_MAX

struct mr_options {
    uint64_t seed;        /* of what is evicted at random */
    int64_t clock_us;     /* Redis's clock minus the world's time: times since
                             1970 */
    const char *password; /* NULL = none; copied */
    unsigned lag;         /* writes that a replica may lack when it takes over:
                             the most that mr_fail_over() can lose */
    bool faults;          /* has the command FAULT (fault_commands.c) */
    size_t max_input;     /* bytes of a command that is not complete yet, or of
                             commands that wait behind one; 0 = 64 MiB */
    size_t max_output;    /* bytes that a connection has not read; 0 = 64 MiB */
};

/* Makes an empty server at the world's time now_us. Returns it owned. */
struct mr *mr_new(const struct mr_options *options, int64_t now_us);

/* Frees it after its connections. NULL is a no-op. */
void mr_free(struct mr *m);

/* Sets the world's time, and does what is due: reads that waited long enough
 * end, a slow server goes on. Time that goes back is ignored. */
void mr_tick(struct mr *m, int64_t now_us);

/* Returns the time at which mr_tick() is due next; MR_NEVER = not before a
 * command comes. */
int64_t mr_due_us(const struct mr *m);

/* --- connections ---------------------------------------------------------- */

/* Opens a connection. ready(arg) is called when it has output or is over, from
 * any call of this header; it must not call back. Returns it owned. */
struct mr_conn *mr_open(struct mr *m, void (*ready)(void *arg), void *arg);

/* Closes it: what it has not answered is never answered. NULL is a no-op. */
void mr_close(struct mr_conn *c);

/* Takes n bytes that came on the connection, and executes the commands that are
 * complete. */
void mr_feed(struct mr_conn *c, const char *bytes, size_t n);

/* Returns the output, *n bytes, borrowed until the next call. */
const char *mr_output(const struct mr_conn *c, size_t *n);

/* Removes the first n bytes of the output, which were sent. */
void mr_sent(struct mr_conn *c, size_t n);

/* Returns whether the server closes the connection, after its output. */
bool mr_is_over(const struct mr_conn *c);

/* Returns whether a command of it waits (XREAD BLOCK). */
bool mr_is_blocked(const struct mr_conn *c);

/* --- faults --------------------------------------------------------------- */

/* Moves Redis's clock by so much; it may go back. */
void mr_jump(struct mr *m, int64_t by_us);

/* All keys go, and connections stay. */
void mr_flush(struct mr *m);

/* The server ends and begins anew, empty: connections are over, and scripts
 * are forgotten. */
void mr_restart(struct mr *m);

/* A replica that lacks the last `lost` writes (at most as many as options.lag,
 * and as there were since the last take-over) takes its place: connections are
 * over, scripts forgotten. Returns how many writes were lost. */
unsigned mr_fail_over(struct mr *m, unsigned lost);

/* Evicts n keys as `policy` of Redis would choose them (maxmemory-policy).
 * Returns how many went; -1 = there is no such policy. */
int mr_evict(struct mr *m, const char *policy, unsigned n);

/* Sets maxmemory, 0 = unlimited, and its policy, NULL = as it is. What counts
 * is the model's own sum: the bytes of keys and values, and MR_BASE_BYTES.
 * Returns 0; or -1: there is no such policy. */
#define MR_BASE_BYTES 1000000u
int mr_set_maxmemory(struct mr *m, uint64_t bytes, const char *policy);

/* Each command takes so long from now on; 0 = no time. */
void mr_set_slow(struct mr *m, int64_t us);

/* Nothing is executed until then. */
void mr_stall(struct mr *m, int64_t until_us);

/* It is a replica, which refuses writes, or it loads its data and refuses
 * nearly everything. */
enum mr_role { MR_PRIMARY, MR_REPLICA, MR_LOADING };
void mr_set_role(struct mr *m, enum mr_role role);

/* --- views, for tests ----------------------------------------------------- */

struct mr_counts {
    uint64_t commands; /* executed, those within scripts not counted */
    uint64_t errors;   /* answers that are errors */
    uint64_t unknown;  /* refused because the model lacks something */
    uint64_t expired;  /* keys that were found to be over */
    uint64_t evicted;  /* keys */
    uint64_t trimmed;  /* entries of streams */
};
struct mr_counts mr_counts(const struct mr *m);

/* Returns the bytes that count for maxmemory. */
uint64_t mr_bytes(const struct mr *m);

/* Returns how an error about something that the model lacks begins. */
const char *mr_lacks(void);

/* Aborts if an invariant is broken: order and uniqueness of keys and members,
 * sums, stream nodes, and that a replica is as the data that it will be. */
void mr_check(struct mr *m);

#endif
