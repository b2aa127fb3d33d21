/*
 * The slices of one path over its rails: which goes where, which is sent again,
 * and which rail is left alone for a while. Pure: time is an argument, and what
 * is to be done comes out as data.
 *
 *   spread_add(op) -> queue -- spread_next() --> under way --+-> moved
 *                       ^                          on a rail |
 *                       +------ again <-------- failed <-----+
 *
 * An op is cut into slices of slice_bytes as they leave. Ops take turns, slice
 * by slice. A slice goes to the rail that would be done with it first, at the
 * rails' rates: rails get work in proportion to their rates, and wait for a
 * fast one rather than burden a slow one. Only rails of the lowest class that
 * has any in use get slices: the others are for when these have failed.
 *
 * A rail:   AWAY --spread_try()--> TRYING --spread_rail_up()--> UP
 *             ^------- spread_rail_failed(), with a longer wait ------|
 *
 * Invariants, which spread_check() asserts:
 *   - every byte of an op is in exactly one place: not cut yet, under way, to
 *     be sent again, moved, or dropped with its op;
 *   - a rail has at most `credits` slices under way, and the slots of slices
 *     are n_rails x credits;
 *   - an op ends once, and never with a slice under way.
 */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_SPREAD_H
#define WORKERS_TRANSFER_ENGINE_RDMA_SPREAD_H

#include "workers/transfer/engine/transport.h"

#define SPREAD_RAILS_MAX 16u
/* No rail. */
#define SPREAD_NONE UINT32_MAX

struct spread_config {
    uint32_t slice_bytes;     /* at least 1 */
    uint32_t credits;         /* slices under way on one rail, 1 to 4096 */
    uint32_t ops_max;         /* ops at once */
    uint32_t slices_max;      /* transport_slices of one op */
    int64_t retry_first_us;   /* a rail that failed is left alone so long, */
    int64_t retry_longest_us; /* twice as long each time, up to so long */
    int64_t stall_us;         /* without any progress the path is given up */
};

/* A slice that is under way: what is to be posted on `rail`. */
struct spread_slice {
    uint32_t index; /* of its slot, below n_rails x credits */
    uint32_t rail;
    uint8_t *local;
    uint32_t region;
    uint64_t offset;
    uint32_t bytes;
    struct spread_op *op;      /* private */
    struct spread_slice *next; /* private: of those to send again, or free */
};

enum spread_rail_state { SPREAD_AWAY, SPREAD_TRYING, SPREAD_UP };

struct spread;

/* A path with n_rails rails (1 to SPREAD_RAILS_MAX), all AWAY and due at once,
 * of class 0 and equal rates. Returns 0 and *out, owned; -EINVAL, -ENOMEM. */
[[nodiscard]] int spread_new(const struct spread_config *config,
                             uint32_t n_rails, struct spread **out);

/* NULL is a no-op. */
void spread_free(struct spread *s);

/* What is known of a rail before it has moved anything: bytes_per_s above 0,
 * and its class, 0 for the preferred ones. */
void spread_rail_set(struct spread *s, uint32_t rail, double bytes_per_s,
                     uint32_t rail_class);

/*
 * An op. Its slices are copied. While `held` it waits for spread_allow().
 * 0, or -EINVAL (an empty slice, none at all), -ENOBUFS (ops_max), -EMSGSIZE
 * (slices_max), -EEXIST (the id is in use), -ENOMEM. O(ops + n).
 */
[[nodiscard]] int spread_add(struct spread *s, uint64_t op_id, uint64_t grant,
                             bool held, const struct transport_slice *slices,
                             uint32_t n, int64_t now_us);

/* The held ops of that grant may go. O(ops). */
void spread_allow(struct spread *s, uint64_t grant);

/* Ops of that grant end with rc as soon as they can. O(ops). */
void spread_deny(struct spread *s, uint64_t grant, int rc);

/* Whether an op of that grant has not ended. O(ops). */
bool spread_uses(const struct spread *s, uint64_t grant);

/* That op ends with -ECANCELED as soon as it can. O(ops). */
void spread_cancel(struct spread *s, uint64_t op_id);

/* All ops end with rc as soon as they can. */
void spread_fail(struct spread *s, int rc);

/* The next slice to post, or NULL: nothing is left, or no rail has room. It is
 * under way from now on. O(rails). */
struct spread_slice *spread_next(struct spread *s, int64_t now_us);

/* A slice was moved. */
void spread_moved(struct spread *s, struct spread_slice *slice, int64_t now_us);

/* A slice was not moved, or not surely; nothing of it moves any more on this
 * side. It is sent again unless its op is to end. */
void spread_lost(struct spread *s, struct spread_slice *slice);

/* The slice under way with that index, or NULL. */
struct spread_slice *spread_slice_at(struct spread *s, uint32_t index);

/* A rail to try now, which becomes TRYING; SPREAD_NONE: none, or nothing is to
 * be sent and it is not `wanted` for its own sake. O(rails). */
uint32_t spread_try(struct spread *s, bool wanted, int64_t now_us);

/* The rail can be used. */
void spread_rail_up(struct spread *s, uint32_t rail, int64_t now_us);

/* The rail failed, and is left alone for a while. Its slices that are under way
 * come back one by one. */
void spread_rail_failed(struct spread *s, uint32_t rail, int64_t now_us);

/* The rail may be tried from at_us on: something has changed. Its failures are
 * forgotten. A no-op for one that is UP or TRYING. */
void spread_rail_renew(struct spread *s, uint32_t rail, int64_t at_us);

/* The rail, UP, has lost its end point to another: it may be tried at once. */
void spread_rail_drop(struct spread *s, uint32_t rail);

enum spread_rail_state spread_rail_state(const struct spread *s, uint32_t rail);

/* Slices under way on that rail. */
uint32_t spread_rail_busy(const struct spread *s, uint32_t rail);

/* What the rail is believed to move, in bytes a second. */
double spread_rail_rate(const struct spread *s, uint32_t rail);

/* An op that has ended: its id, and *rc. False: none. */
[[nodiscard]] bool spread_ended(struct spread *s, uint64_t *op_id, int *rc);

/* No op at all. */
bool spread_is_idle(const struct spread *s);

/* Nothing was moved for stall_us, and there are ops. */
bool spread_stalled(const struct spread *s, int64_t now_us);

/* When to look again: a rail is due, or the path stalls. INT64_MAX: never. */
int64_t spread_due_us(const struct spread *s);

/* Asserts the invariants. For tests. O(everything). */
void spread_check(const struct spread *s);

#endif
