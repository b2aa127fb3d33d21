/*
 * The requests of other conductors on the instances of a pool, from the events
 * that they publish. Each conductor is an owner; when it leaves, all its
 * entries leave at once. Pure: batches and times go in.
 *
 * Invariants:
 *   an entry has at most one owner; while it exists, the pool has its request,
 *     unless its instance is gone
 *   an owner's batches count in order, without a gap, and only with its highest
 *     token; after a gap it is asked for its full state
 */
#ifndef CONDUCTOR_CLUSTER_FOREIGN_H
#define CONDUCTOR_CLUSTER_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lengths;
struct names;
struct pool;
struct foreign;
struct scheduler;

#define FOREIGN_OWNERS_MAX 64
#define FOREIGN_ENTRIES_MAX (1u << 16)

struct foreign_counts {
    uint64_t batches; /* batches taken */
    uint64_t events;
    uint64_t bad;      /* batches that could not be read */
    uint64_t gaps;     /* in an owner's numbers */
    uint64_t fenced;   /* batches of an older token */
    uint64_t unbooked; /* events without room or instance; batches whose owner
                          found no room */
    uint64_t dropped;  /* owners whose lease was over */
    size_t owners, entries;
    size_t missing; /* owners that count only after a full state */
};

/* News from a batch. */
struct foreign_news {
    bool freed;  /* room may have come */
    bool gap;    /* a batch was missed: ask for the full state */
    bool asks;   /* its owner asks for this one's full state */
    bool fenced; /* its token is older than its owner's last one */
    bool own;    /* this conductor sent it */
    uint64_t owner, number;
};

/* foreign_new(pool, names, lengths, self): borrows the first three; `self` is
 * the id of this conductor. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct foreign *foreign_new(struct pool *pool,
                                          struct names *names,
                                          struct lengths *lengths,
                                          uint64_t self);

/* foreign_prices(f, scheduler): counts requests to other conductors in this
 * scheduler's prices from now on. Borrows it; NULL = in none. */
void foreign_prices(struct foreign *f, struct scheduler *scheduler);

/* foreign_free(f): leaves the pool as it is. NULL is a no-op. */
void foreign_free(struct foreign *f);

/* foreign_take(f, bytes, n, lease_us, now_us): takes in a batch of n bytes. Its
 * owner lives for lease_us from now on. */
struct foreign_news foreign_take(struct foreign *f, const void *bytes, size_t n,
                                 int64_t lease_us, int64_t now_us);

/* foreign_doubt(f): each owner's entries may be incomplete until its full state
 * comes; its events count meanwhile. */
void foreign_doubt(struct foreign *f);

/* foreign_has_all(f, owner, token): returns whether everything is here that the
 * owner published since it got that token, by its batch numbers. O(owners). */
bool foreign_has_all(struct foreign *f, uint64_t owner, uint64_t token);

/* foreign_lives(f, owner, until_us): notes that the owner's lease ends then. */
void foreign_lives(struct foreign *f, uint64_t owner, int64_t until_us);

/* foreign_expire(f, now_us): drops owners whose lease is over, with all their
 * entries. Returns whether there were any. */
bool foreign_expire(struct foreign *f, int64_t now_us);

struct foreign_counts foreign_counts(const struct foreign *f);

#endif
