/*
 * A policy chooses a request's prefill instance. It is a const struct of
 * functions in a file of its own under policies/, and one line in
 * policies/table.c. docs/add-a-policy.md shows one from the first line to its
 * simulation.
 *
 * A policy is pure: all that it sees comes in as arguments, and it may change
 * only its own state.
 */
#ifndef CONDUCTOR_CORE_SCHEDULE_POLICY_H
#define CONDUCTOR_CORE_SCHEDULE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/core/plan/estimate.h"

#define POLICY_OPTIONS_MAX 40
#define POLICY_DEFAULT "plan"

struct scheduler;
struct schedule_request;
struct schedule_decision;

/* A number of a policy that an operator may set. */
struct policy_option {
    const char *name;
    double min;
    double max;
    bool whole; /* only whole numbers */
    double initial;
    const char *help; /* what it does, in a few words */
};

/* The option of a policy whose choice is not replaced if it is late: at 0 the
 * sum by which it chose, score_us, is held against the TTFT SLO. */
#define POLICY_RESCUE "rescue"

/* The options of admission by price (core/price), for a policy's table. */
#define POLICY_PRICE_OPTIONS(on)                                               \
    {"price",                                                                  \
     0,                                                                        \
     1,                                                                        \
     true,                                                                     \
     on,                                                                       \
     "1: under overload refuse what costs most engine time for what it saves " \
     "later requests; 0: admit by the SLOs alone"},                            \
        {"rho",                                                                \
         0,                                                                    \
         10,                                                                   \
         false,                                                                \
         0.7,                                                                  \
         "mean queue that admission by price aims at, as a share of the "      \
         "TTFT SLO: 0.7 absorbs bursts, 0.1 answers soonest"},                 \
        {"rho_eases",                                                          \
         0,                                                                    \
         1,                                                                    \
         true,                                                                 \
         1,                                                                    \
         "1: in an overload of over ten minutes the mean queue to aim at "     \
         "falls, down to 0.35; 0: it does not"},                               \
    {                                                                          \
        "price_floor", 0, 1, false, 0,                                         \
            "share of each class of prompt lengths that is admitted whatever " \
            "its price, if in time"                                            \
    }

#define POLICY_OPTION_BYTES 48

/* The value that an operator gave to an option. */
struct policy_setting {
    char name[POLICY_OPTION_BYTES];
    double value;
};

/* What a policy chooses from; all of it is borrowed for the call. */
struct policy_choice {
    const struct schedule_request *request;    /* keys, lengths, time, SLOs */
    const struct prefill_estimate *candidates; /* (n), by slot ascending */
    size_t n;
    const double *options; /* in the order of the policy's own table */
    void *state;           /* (state_bytes) */
};

struct schedule_policy {
    const char *name;
    const char *help;                    /* a few words */
    const struct policy_option *options; /* (n_options), static */
    size_t n_options;                    /* at most POLICY_OPTIONS_MAX */
    size_t state_bytes; /* of what it keeps from decision to decision */

    /* The orders in which instances serve its prefills, by its options `await`
     * and `preempt`; NULL: as configured. A policy's option `order`, if it has
     * one, turns them off with 0. */
    const char *queue_orders[2][2];

    bool without_cost_model; /* it chooses well even without predicted times */

    /* Sets up the zeroed state. NULL: zeroes are enough. */
    void (*init)(void *state, const double *options);

    /* Estimates every instance that takes work into s->candidates; returns
     * their number. NULL: schedule_estimate_own(), each with the blocks that it
     * has. */
    size_t (*estimate)(struct scheduler *s,
                       const struct schedule_request *request,
                       uint32_t usable_blocks);

    /* Returns the index of the chosen candidate, for which policy_may_take()
     * holds, or n for none. Every policy has this function. */
    size_t (*choose)(const struct policy_choice *choice);

    /* Adds to the decision on the candidate that was chosen. NULL: nothing. */
    void (*complete)(struct scheduler *s,
                     const struct schedule_request *request,
                     uint32_t usable_blocks,
                     struct schedule_decision *decision);

    /* When a late candidate would meet the TTFT SLO, from now, if no other
     * request came; -1: never. NULL: when its queue has shrunk enough. */
    int64_t (*fits_in_us)(const struct scheduler *s,
                          const struct schedule_request *request,
                          const struct prefill_estimate *candidate);
};

/* Whether a candidate may be chosen: its queue has a place, the prompt fits, it
 * is not spared, and its estimate is not merely a lower bound. */
static inline bool policy_may_take(const struct prefill_estimate *candidate)
{
    return !candidate->queue_full && !candidate->too_long &&
           !candidate->spared && !candidate->at_least;
}

/*
 * The candidate that may be taken and costs least, the first of equal ones.
 *   cost_us  of one candidate.
 * Returns its index, or n if there is none.
 */
static inline size_t
policy_choose_lowest(const struct policy_choice *choice,
                     int64_t (*cost_us)(const struct prefill_estimate *))
{
    size_t best = choice->n;
    int64_t least_us = 0;

    for (size_t i = 0; i < choice->n; i++) {
        const struct prefill_estimate *c = &choice->candidates[i];

        if (policy_may_take(c) &&
            (best == choice->n || cost_us(c) < least_us)) {
            best = i;
            least_us = cost_us(c);
        }
    }
    return best;
}

/* The policy of that name, static; NULL if there is none. */
const struct schedule_policy *schedule_policy_by_name(const char *name);

/* The i-th policy, static; NULL beyond the last. This is the list of policies:
 * all code that shows or checks names asks here. */
const struct schedule_policy *schedule_policy_at(size_t i);

/* The name of the i-th; NULL beyond the last. */
const char *schedule_policy_name(size_t i);

/* Every option of a policy at its initial value: writes (n_options). */
void policy_options_init(const struct schedule_policy *policy,
                         double values[POLICY_OPTIONS_MAX]);

/*
 * Sets one of them.
 * Returns 0, or with nothing changed: -ENOENT: the policy has no such option;
 * -ERANGE: outside its range, or not whole where it must be.
 */
[[nodiscard]] int policy_options_set(const struct schedule_policy *policy,
                                     double values[POLICY_OPTIONS_MAX],
                                     const char *name, double value);

/* Sets those of the settings that the policy has; the last one of a name
 * holds. A value out of range changes nothing. */
void policy_options_apply(const struct schedule_policy *policy,
                          double values[POLICY_OPTIONS_MAX],
                          const struct policy_setting *settings, size_t n);

/* The queue order under a policy with these options: its own, or else the one
 * that is configured.
 *   yields  whether instances can be interrupted behind chunks of a prompt, and
 *           compute one prompt at a time: for its option `preempt`. */
const char *policy_queue_order(const struct schedule_policy *policy,
                               const double values[POLICY_OPTIONS_MAX],
                               const char *configured, bool yields);

/* Whether predictions are corrected by what is observed: so, unless the policy
 * has an option `correction` and it is 0. */
bool policy_corrects(const struct schedule_policy *policy,
                     const double values[POLICY_OPTIONS_MAX]);

/* The policy's option of that name; NULL if it has none. */
const struct policy_option *
policy_option_by_name(const struct schedule_policy *policy, const char *name);

/* The value of that option among the policy's; `otherwise` if it has none. */
double policy_option_value(const struct schedule_policy *policy,
                           const double values[POLICY_OPTIONS_MAX],
                           const char *name, double otherwise);

#endif
