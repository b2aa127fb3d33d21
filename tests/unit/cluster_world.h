/*
 * A loop, a clock and a Redis for several conductors in one process, which a
 * test plays: the loops are base/loop/virtual.h, and the rest stands
 * in for base/redis. Everything follows from the seed of
 * world_begin().
 *
 * The Redis has one stream, which keeps few entries, and one registry. What its
 * script does is written again in C (renew() in cluster_world.c): a change of
 * the script in conductor/cluster/registry.c is one here, too.
 */
#ifndef TESTS_UNIT_CLUSTER_WORLD_H
#define TESTS_UNIT_CLUSTER_WORLD_H

#include <stdbool.h>
#include <stdint.h>

struct loop;

#define WORLD_CONDUCTORS 3
#define WORLD_LEASE_US 3000000

/* world_begin(seed): everything anew: Redis is there, and empty. All conductors
 * of the world before have been freed. */
void world_begin(uint64_t seed);

/* Uniform in [0, n). */
unsigned world_pick(unsigned n);

int64_t world_now_us(void);

/* Returns a digest of all commands to Redis since world_begin(), and of their
 * times. */
uint64_t world_digest(void);

/* world_as(who): what is called from now on is conductor `who`: its events and
 * connections are of it. */
void world_as(unsigned who);

/* Returns the loop of conductor `who`, which lives until world_begin(). */
struct loop *world_loop(unsigned who);

/* world_pause(who, until_us): it stands still until then; what its sockets hold
 * reaches Redis all the same. */
void world_pause(unsigned who, int64_t until_us);
bool world_is_paused(unsigned who);

/* world_run(us, rough): us pass, and what is due then happens: commands reach
 * Redis, answers come, timers fire. Rough: in parts, and in any order that
 * separate connections may have. */
void world_run(int64_t us, bool rough);

/* world_lose(who, reader): its connection for commands, or its reader's, is
 * lost with all that is on its way. */
void world_lose(unsigned who, bool reader);

/* --- faults of Redis ------------------------------------------------------ */

/* Dies, and comes back empty at that time, maybe on another host, whose clock
 * is so much ahead of that of the first one. */
void world_replace_redis(int64_t back_us, int64_t clock_us);

/* A replica that did not have the last entries, and whose registry may be an
 * older one, takes its place. */
void world_fail_over(int64_t back_us, int64_t clock_us);

/* All keys go, and connections stay. */
void world_flush_redis(void);

/* One key goes, as if it had been evicted. */
void world_evict(void);

/* Writes are refused until then: there is no memory. */
void world_refuse(int64_t until_us);

/* world_calm(): no fault is left. */
void world_calm(void);

#endif
