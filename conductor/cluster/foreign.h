/*
 * What other conductors have on the instances of a pool, as they told it. Each
 * is an owner: what it has entered leaves with it, all at once. Pure: batches
 * and times go in.
 *
 * Invariants:
 *   an entry has at most one owner, and stands in the pool under its request
 *     exactly as long as it is here, or its instance is gone
 *   of one owner, batches count in their order, without a gap, and only those
 *     of its highest token; who misses one asks for all
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
    uint64_t batches; /* that were taken */
    uint64_t events;
    uint64_t bad;      /* batches that could not be read */
    uint64_t gaps;     /* in an owner's numbers */
    uint64_t fenced;   /* batches of an older token */
    uint64_t unbooked; /* for which there was no room, or instance; and
                          batches whose owner had no place */
    uint64_t dropped;  /* owners whose lease was over */
    size_t owners, entries;
    size_t missing; /* owners that must tell all before anything counts */
};

/* What a batch is good for. */
struct foreign_news {
    bool freed;  /* room may have come */
    bool gap;    /* something was missed: ask */
    bool asks;   /* its owner asks this conductor for all */
    bool fenced; /* it has an older token than its owner had */
    bool own;    /* it is one's own */
    uint64_t owner, number;
};

/* foreign_new(pool, names, lengths, self): borrows the first three; batches of
 * `self` are one's own. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct foreign *foreign_new(struct pool *pool,
                                          struct names *names,
                                          struct lengths *lengths,
                                          uint64_t self);

/* foreign_prices(f, scheduler): what others are asked counts there from now on.
 * Borrows it; NULL: nowhere. */
void foreign_prices(struct foreign *f, struct scheduler *scheduler);

/* foreign_free(f): leaves the pool as it is. NULL is a no-op. */
void foreign_free(struct foreign *f);

/* foreign_take(f, bytes, n, lease_us, now_us): a batch of n bytes came. Its
 * owner lives for lease_us from now on. */
struct foreign_news foreign_take(struct foreign *f, const void *bytes, size_t n,
                                 int64_t lease_us, int64_t now_us);

/* foreign_doubt(f): what is here of each owner may lack something until it
 * tells all; meanwhile what it tells counts. */
void foreign_doubt(struct foreign *f);

/* foreign_has_all(f, owner, token): whether all is here that it has told since
 * it got that token, as far as its numbers tell. O(owners). */
bool foreign_has_all(struct foreign *f, uint64_t owner, uint64_t token);

/* foreign_lives(f, owner, until_us): its lease is good until then. */
void foreign_lives(struct foreign *f, uint64_t owner, int64_t until_us);

/* foreign_expire(f, now_us): owners whose lease is over go, with all that they
 * had. Returns whether any did. */
bool foreign_expire(struct foreign *f, int64_t now_us);

struct foreign_counts foreign_counts(const struct foreign *f);

#endif
