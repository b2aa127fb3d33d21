/*
 * Instances that change their role: from prefill to decode, or back.
 *
 * Each request that arrives needs some time of an engine for its prefill, and
 * some for its decode (roles_decode_us()). Once a second a pass sums up both:
 * the engines needed for either. With n_p instances that prefill and n_d that
 * decode
 *
 *     load(n_p, n_d) = max(needed_p / n_p, needed_d / n_d)
 *
 * is how busy the busier side is. The best n_p of all instances follows from
 * it. An instance switches if this lowers the load by ROLES_GAIN, and by twice
 * the error of the two means, at every pass for the time in the policy's option
 * switch_roles; means fade with half of that time. Then others follow until
 * less than ROLES_ENOUGH is to be gained: the two limits are the hysteresis.
 *
 * An instance that switches, by a pass or by a command, gets no more work, ends
 * its own, and then takes the other role.
 *
 * Pure: time is an argument; orders are data, which the caller carries out.
 *
 * Invariants (roles_check()): of the instances switched by passes at most one
 * in ROLES_AT_ONCE is under way, or one. When a pass or a command begins a
 * switch, another instance of the role takes work.
 */
#ifndef CONDUCTOR_CORE_ROLES_ROLES_H
#define CONDUCTOR_CORE_ROLES_ROLES_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/dispatch/dispatch.h"

#define ROLES_PASS_US 1000000
#define ROLES_GAIN 0.15   /* least gain in load to begin */
#define ROLES_ENOUGH 0.05 /* least gain to go on */
#define ROLES_LEAST 0.6   /* no change below this load */
#define ROLES_AT_ONCE 8u  /* of so many instances, one switches at a time */

/* Why an instance switches. */
struct roles_reason {
    bool command;          /* an operator's command: only this is set */
    double prefill_needed; /* engines */
    double decode_needed;
    double error;      /* of both, relative */
    uint32_t prefills; /* instances of each role before */
    uint32_t decodes;
    uint32_t best_prefills; /* prefill instances in the best ratio */
};

/* An order: an instance begins to switch, or takes its new role. */
struct roles_action {
    uint32_t instance; /* pool id */
    unsigned from, to; /* ROLE_* */
    bool taken;        /* true: it has ended its work, call pool_take_role();
                          false: it takes no more work */
    struct roles_reason reason;
};

struct roles_counts {
    uint64_t passes;
    uint64_t begun[2][2]; /* [by command][to decode] */
    uint64_t taken;       /* switches completed */
};

/* State as of the last pass. */
struct roles_seen {
    bool known;            /* demand was observed for long enough */
    double prefill_needed; /* engines */
    double decode_needed;
    double error;
    uint32_t prefills, decodes, best_prefills;
};

struct roles;

/*
 * Makes roles.
 *   d          borrowed; may get its scheduler later.
 *   instances  slots of the pool.
 *   slowdown   factor on all times; 0 = 1.
 * Returns it, owned, or NULL: no memory.
 */
[[nodiscard]] struct roles *roles_new(struct dispatch *d, uint32_t instances,
                                      int64_t slowdown);

/* Frees roles; NULL is a no-op. */
void roles_free(struct roles *r);

/* Returns whether passes switch instances: with the policy's option
 * switch_roles, predictions, and single roles. Commands always work. */
bool roles_on(const struct roles *r);

/*
 * Returns the share of an engine's time that a decode takes, if the engine
 * decodes as many such requests at once as it can, in microseconds, at least 0:
 *
 *     L (share d0 + d1 + d2 (n + L / 2))
 *
 * for a prompt of n tokens and an answer of L, with d0, d1, d2 of the cost
 * model's step (for each step, request and KV token). share is the part of the
 * instance that one request takes: of its KV (n + L), of its batch, or of a
 * step within the TBT SLO, whichever is the largest; at most 1.
 *   max_batch   0 = unlimited.
 *   slo_tbt_us  0 = none.
 */
double roles_decode_us(const struct cost_model *cost, double prompt_tokens,
                       double output_tokens, double kv_capacity_tokens,
                       double max_batch, double slo_tbt_us);

/* Counts a request at its first placing, refused or not. Cost: O(1). */
void roles_placed(struct roles *r, const struct dispatch_request *request,
                  const struct dispatch_order *order);

/* Makes a pass, if one is due. Returns whether there was one. Cost:
 * O(instances). */
bool roles_pass(struct roles *r, int64_t now_us);

/* Returns when the next pass is due, absolute. */
int64_t roles_due_us(const struct roles *r);

/*
 * Switches an instance to a role by command; naming its present role calls off
 * a switch that has begun.
 * Returns 0; -ESTALE: no such instance; -EINVAL: it cannot switch to this role;
 * -EBUSY: no other instance has its present role and takes work.
 */
[[nodiscard]] int roles_command(struct roles *r, uint32_t instance,
                                unsigned role);

/*
 * Gives the next order, after a pass or a command or when an instance may have
 * ended its work.
 *   action  written.
 * Returns whether there is one. Cost: O(instances).
 */
bool roles_next(struct roles *r, struct roles_action *action);

/* Returns the state as of the last pass. */
struct roles_seen roles_seen(const struct roles *r);

/* Returns the counts so far. Borrowed. */
const struct roles_counts *roles_counts(const struct roles *r);

/* Returns whether the invariants hold. For tests. */
bool roles_check(const struct roles *r);

#endif
