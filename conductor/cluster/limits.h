/*
 * Client limits that hold over all conductors together, in a book in Redis: one
 * script, off the path of any decision, adds what this conductor has taken and
 * returns the total of all. The arithmetic is core/share/joint.h.
 */
#ifndef CONDUCTOR_CLUSTER_LIMITS_H
#define CONDUCTOR_CLUSTER_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/share/joint.h"

struct limits;
struct loop;
struct redis;

#define LIMITS_MAX 64 /* clients; further ones have no common limits */

/* Lends the client number i; NULL: there are no more. */
typedef struct joint_key *limits_at(void *arg, size_t i);

struct limits_counts {
    uint64_t told; /* reports that the book took */
    bool alone;    /* the book is unreachable: each conductor has its share */
};

/* limits_new(loop, id, lease_us, at, arg): borrows all but the lease. id: this
 * conductor's name in the book. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct limits *limits_new(struct loop *loop, const char *id,
                                        int64_t lease_us, limits_at *at,
                                        void *arg);

/* limits_free(l): call it after redis_free(). NULL is a no-op. */
void limits_free(struct limits *l);

/* limits_use(l, redis): reports over this connection. Borrows it. */
void limits_use(struct limits *l, struct redis *redis);

/* limits_up(l): call it for each new connection, which may be to another
 * server. */
void limits_up(struct limits *l);

/* limits_among(l, conductors): sets how many conductors share the limits. */
void limits_among(struct limits *l, size_t conductors);

/* limits_due(l): call it when a client has used some of its limit: publishes
 * that soon, if it is due. */
void limits_due(struct limits *l);

struct limits_counts limits_counts(const struct limits *l);

#endif
