/*
 * A policy chooses a request's prefill instance. It is a const struct of
 * functions in a file of its own under policies/, and one line in
 * policies/table.c. docs/internals/add-a-policy.md shows one from the first
 * line to its simulation.
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

/* A number of a policy. Operators set its options; its rules are fixed, and
 * only simulations set them, to see what each is worth. */
struct policy_option {
    const char *name;
    const char *rule_of; /* NULL: set by operators. Else a rule of the named
                            option; "": of no option */
    double min;
    double max;
    bool whole; /* only whole numbers */
    double initial;
    const char *help; /* help text, a few words */
};

/* Rules of a policy beyond its choice. All zeroes: none. */
struct schedule_rules {
    /* Queue order of instances; [1]: of those that compute one prompt at a time
     * and can be interrupted after a chunk. NULL: as configured. */
    const char *queue_order[2];

    bool uncorrected; /* observed times do not correct predictions */
    bool by_score;    /* the TTFT SLO is tested against the score */
    struct {
        bool on;      /* admission by price (core/price) */
        bool eases;   /* see struct price_config */
        double rho;   /* as in price_config */
        double floor; /* as in price_config */
    } price;
    bool shares;           /* priorities and fair shares of tenants count */
    bool predicts_decodes; /* a decode reserves room for its likely length */
    bool spares_decodes;   /* aggregated pools: the effect of a prefill on
                              decodes beside it counts */
    double overhang_steps; /* decode steps that a decode may wait */
    double bypass;         /* room that later requests may take while a request
                              waits for room, in multiples of its need */
    bool weighs_evicted;   /* the cost of evictions is learned */
    bool sees_links;       /* transfers accepted by links count */
    bool sees_pushes;      /* so do pushes to decode instances; the scheduler
                              sets it */
    bool link_last;    /* a request waits, and is not refused, if its link makes
                          it miss its TBT SLO */
    bool holds_first;  /* the first token waits until its KV has come */
    double link_wait;  /* TBT limits by which other KV may delay a request's KV
                          before the request waits; 0 = unlimited */
    bool warms;        /* refused prompts are computed in the background */
    double replicates; /* share of an idle link at which hot blocks are copied
                          ahead; 0 = no copies */
    int64_t switch_us; /* how long another ratio of roles must have been better
                          before instances switch; 0 = never */
    struct {
        uint32_t most;     /* instances lent to one prefill; 0 = none */
        int64_t from_us;   /* shortest prefill, alone, with lent ones */
        double efficiency; /* share of its time that each one computes */
    } lend;
};

/* The numbers of admission by price (core/price), for a policy's table, in this
 * order; policy_price_rules() reads them. `of`: see rule_of. */
#define POLICY_PRICE(on)                                                    \
    "price", NULL, 0, 1, true, on,                                          \
        "1: under overload, refuse the requests that cost the most engine " \
        "time and save later requests the least; 0: admit by the SLOs alone"
#define POLICY_RHO(of)                                                        \
    "rho", of, 0, 10, false, 0.7,                                             \
        "target of admission by price for the mean queue, as a share of the " \
        "TTFT SLO: 0.7 absorbs bursts, 0.1 answers soonest"
#define POLICY_RHO_EASES(of)                                                 \
    "rho_eases", of, 0, 1, true, 1,                                          \
        "1: in an overload of over ten minutes rho falls, down to 0.35; 0: " \
        "it stays"
#define POLICY_PRICE_FLOOR(of)                                           \
    "price_floor", of, 0, 1, false, 0,                                   \
        "share of each class of prompt lengths that is admitted at any " \
        "price, if it meets the SLOs"

#define POLICY_OPTION_BYTES 48

/* An operator's value for an option. */
struct policy_setting {
    char name[POLICY_OPTION_BYTES];
    double value;
};

/* Input of a policy's choice; all of it is borrowed for the call. */
struct policy_choice {
    const struct schedule_request *request;    /* keys, lengths, time, SLOs */
    const struct prefill_estimate *candidates; /* (n), by slot ascending */
    size_t n;
    const double *options; /* in the order of the policy's table */
    void *state;           /* (state_bytes) */
};

struct schedule_policy {
    const char *name;
    const char *help;                    /* a few words */
    const struct policy_option *options; /* (n_options), static */
    size_t n_options;                    /* at most POLICY_OPTIONS_MAX */
    size_t state_bytes;                  /* size of its own state */

    bool without_cost_model; /* it also chooses well without predicted times */

    /* Writes the rules for these options into the zeroed *rules. NULL: no
     * rules. */
    void (*rules)(const double *options, struct schedule_rules *rules);

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

    /* Adds to the decision on the chosen candidate. NULL: nothing. */
    void (*complete)(struct scheduler *s,
                     const struct schedule_request *request,
                     uint32_t usable_blocks,
                     struct schedule_decision *decision);

    /* Returns the time until a late candidate meets the TTFT SLO, if no other
     * request comes; -1 = never. NULL: the time its queue needs to shrink. */
    int64_t (*fits_in_us)(const struct scheduler *s,
                          const struct schedule_request *request,
                          const struct prefill_estimate *candidate);
};

/* Returns whether a candidate may be chosen: its queue has a place, the prompt
 * fits, it is not spared, and its estimate is no mere lower bound. */
static inline bool policy_may_take(const struct prefill_estimate *candidate)
{
    return !candidate->queue_full && !candidate->too_long &&
           !candidate->spared && !candidate->at_least;
}

/*
 * Chooses the cheapest candidate that may be taken, the first of equal ones.
 *   cost_us  returns the cost of one candidate.
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

/* Returns the policy of this name, static; NULL if there is none. */
const struct schedule_policy *schedule_policy_by_name(const char *name);

/* Returns the i-th policy, static; NULL beyond the last. All code that lists or
 * checks names asks here. */
const struct schedule_policy *schedule_policy_at(size_t i);

/* Returns the name of the i-th policy; NULL beyond the last. */
const char *schedule_policy_name(size_t i);

/* Sets every option to its initial value, the rest of values to 0. */
void policy_options_init(const struct schedule_policy *policy,
                         double values[POLICY_OPTIONS_MAX]);

/*
 * Sets one option.
 * Returns 0, or with nothing changed: -ENOENT: the policy has no such option;
 * -ERANGE: outside its range, or not whole where it must be.
 */
[[nodiscard]] int policy_options_set(const struct schedule_policy *policy,
                                     double values[POLICY_OPTIONS_MAX],
                                     const char *name, double value);

/* Applies the settings for options that the policy has; of several with one
 * name the last wins. Skips values out of range. */
void policy_options_apply(const struct schedule_policy *policy,
                          double values[POLICY_OPTIONS_MAX],
                          const struct policy_setting *settings, size_t n);

/* Returns the rules of a policy with these option values. */
struct schedule_rules policy_rules(const struct schedule_policy *policy,
                                   const double values[POLICY_OPTIONS_MAX]);

/* Writes rules->price for a policy's rules(). `values`: of POLICY_PRICE and the
 * options after it. */
void policy_price_rules(const double *values, struct schedule_rules *rules);

/* Returns the queue order of these rules, or else the configured one. `yields`:
 * the index of rules->queue_order. */
static inline const char *policy_queue_order(const struct schedule_rules *rules,
                                             const char *configured,
                                             bool yields)
{
    const char *order = rules->queue_order[yields];

    return order ? order : configured;
}

/* Returns the policy's option of this name; NULL if it has none. */
const struct policy_option *
policy_option_by_name(const struct schedule_policy *policy, const char *name);

#endif
