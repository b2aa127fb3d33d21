/*
 * Spreads the slices of one path over its rails: chooses the rail of each
 * slice, sends lost slices again, and pauses rails that fail. Pure: time is an
 * argument, and actions come out as data.
 *
 *   spread_add(op) -> queue -- spread_next() --> under way --+-> moved
 *                       ^                          on a rail |
 *                       +------ again <-------- failed <-----+
 *
 * An op is cut into slices of slice_bytes as they are sent. Ops take turns,
 * slice by slice. A slice goes to the rail that would finish it first, so rails
 * get work in proportion to their rates, and a slice may wait for a fast rail
 * while a slow one is idle. Only rails of the lowest class with a rail UP get
 * slices: higher classes are used when these have failed.
 *
 * A rail:   AWAY --spread_try()--> TRYING --spread_rail_up()--> UP
 *             ^------- spread_rail_failed(), with a longer wait ------|
 *
 * Invariants, which tests/unit/spread_check.c asserts:
 *   - every byte of an op is in exactly one place: not cut yet, under way,
 *     waiting to be sent again, moved, or dropped with its op;
 *   - a rail has at most `credits` slices under way, and there are n_rails x
 *     credits slots for slices;
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
    uint32_t ops_max;         /* most ops at once */
    uint32_t slices_max;      /* most transport_slices of one op */
    int64_t retry_first_us;   /* first pause of a rail that failed; */
    int64_t retry_longest_us; /* doubles with each failure, up to this */
    int64_t stall_us; /* the path stalls after this long without progress */
};

/* A slice to post on `rail`. */
struct spread_slice {
    uint32_t index; /* of its slot, below n_rails x credits */
    uint32_t rail;  /* SPREAD_NONE = not under way */
    uint8_t *local;
    uint32_t region;
    uint64_t offset;
    uint32_t bytes;
    struct spread_op *op;      /* private */
    struct spread_slice *next; /* private: in `again` or `free` */
};

enum spread_rail_state { SPREAD_AWAY, SPREAD_TRYING, SPREAD_UP };

struct spread;

/* Makes a spread over n_rails rails (1 to SPREAD_RAILS_MAX), all AWAY and due
 * at once, with class 0 and equal rates. Returns 0 and *out, owned; -EINVAL, or
 * -ENOMEM. */
[[nodiscard]] int spread_new(const struct spread_config *config,
                             uint32_t n_rails, struct spread **out);

/* Frees it. NULL is a no-op. */
void spread_free(struct spread *s);

/* Sets a rail's rate (above 0), which holds until it is measured, and its
 * class; 0 = preferred. */
void spread_rail_set(struct spread *s, uint32_t rail, double bytes_per_s,
                     uint32_t rail_class);

/*
 * Adds an op with slices[n], which are copied. If `held`, it waits for
 * spread_allow(). Returns 0, -EINVAL (an empty slice, or none), -ENOBUFS
 * (ops_max), -EMSGSIZE (slices_max), -EEXIST (the id is in use), or -ENOMEM.
 * O(ops + n).
 */
[[nodiscard]] int spread_add(struct spread *s, uint64_t op_id, uint64_t grant,
                             bool held, const struct transport_slice *slices,
                             uint32_t n, int64_t now_us);

/* Lets held ops under `grant` begin. O(ops). */
void spread_allow(struct spread *s, uint64_t grant);

/* Ends ops under `grant` with rc as soon as they can. O(ops). */
void spread_deny(struct spread *s, uint64_t grant, int rc);

/* Returns whether an op under `grant` has not ended. O(ops). */
bool spread_uses(const struct spread *s, uint64_t grant);

/* Ends the op with -ECANCELED as soon as it can. O(ops). */
void spread_cancel(struct spread *s, uint64_t op_id);

/* Ends all ops with rc as soon as they can. */
void spread_fail(struct spread *s, int rc);

/* Returns the next slice to post, which counts as under way, or NULL: no slice
 * is left, or no rail has room. O(rails). */
struct spread_slice *spread_next(struct spread *s, int64_t now_us);

/* Notes that a slice was moved. */
void spread_moved(struct spread *s, struct spread_slice *slice, int64_t now_us);

/* Notes that a slice was lost: not moved, or not certainly, and no longer
 * moving on this side. It is sent again unless its op is ending. */
void spread_lost(struct spread *s, struct spread_slice *slice);

/* Returns the slice under way in slot `index`, or NULL. */
struct spread_slice *spread_slice_at(struct spread *s, uint32_t index);

/* Returns a rail to try now, which becomes TRYING, or SPREAD_NONE. Without
 * unsent slices, tries none unless `wanted`. O(rails). */
uint32_t spread_try(struct spread *s, bool wanted, int64_t now_us);

/* Notes that the rail can be used. */
void spread_rail_up(struct spread *s, uint32_t rail, int64_t now_us);

/* Notes that the rail failed: it pauses. Its slices under way come back one by
 * one. */
void spread_rail_failed(struct spread *s, uint32_t rail, int64_t now_us);

/* Lets the rail be tried from at_us on, as if it had not failed. A no-op if it
 * is UP or TRYING. */
void spread_rail_renew(struct spread *s, uint32_t rail, int64_t at_us);

/* Notes that a rail that is UP lost its end point to another: it is AWAY, and
 * may be tried at once. */
void spread_rail_drop(struct spread *s, uint32_t rail);

enum spread_rail_state spread_rail_state(const struct spread *s, uint32_t rail);

/* Takes an ended op: *op_id and *rc. Returns false if there is none. */
[[nodiscard]] bool spread_ended(struct spread *s, uint64_t *op_id, int *rc);

/* Returns whether the spread has no op, not even an ended one. */
bool spread_is_idle(const struct spread *s);

/* Returns whether there are ops, but no byte was moved for stall_us. */
bool spread_stalled(const struct spread *s, int64_t now_us);

/* Returns when (us) a rail is due or the path stalls; INT64_MAX = never. */
int64_t spread_due_us(const struct spread *s);

#endif
