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

/* A number of a policy. Operators set its options; its rules are fixed, and
 * only simulations set them, to see what each is worth. */
struct policy_option {
    const char *name;
    const char *rule_of; /* NULL: operators set it. Else a rule, and the option,
                            the policy's or the daemon's, that it is a part of;
                            "": there is none */
    double min;
    double max;
    bool whole; /* only whole numbers */
    double initial;
    const char *help; /* what it does, in a few words */
};

/* What a policy has others do. Zeroes: what each would do without a policy. */
struct schedule_rules {
    /* In which order instances serve its prefills; [1]: those that can be
     * interrupted behind chunks of a prompt, and compute one prompt at a time.
     * NULL: as configured. */
    const char *queue_order[2];

    bool uncorrected; /* predictions are not corrected by what is observed */
    bool by_score;    /* it is the score that must meet the TTFT SLO, of the
                         policy's choice alone */
    struct {
        bool on;      /* admission by price (core/price) */
        bool eases;   /* see struct price_config */
        double rho;   /* likewise */
        double floor; /* likewise */
    } price;
    bool shares;           /* priorities and fair shares of tenants count */
    bool predicts_decodes; /* a decode's room is that of its likely length */
    bool spares_decodes;   /* aggregated pools: what a prefill does to the
                              decodes there counts */
    double overhang_steps; /* that a decode may wait for room */
    double bypass; /* times the room that one needs which waits for it, as much
                      as later ones may take meanwhile */
    bool sees_links;   /* what links have accepted counts */
    bool link_last;    /* a request waits for a link that would make it miss
                          its TBT SLO, instead of being refused */
    bool holds_first;  /* the first token waits for its KV */
    double link_wait;  /* TBT limits by which KV of others may hold up a
                          request's own before it waits; 0: any number */
    bool warms;        /* refused prompts are computed in the background */
    double replicates; /* share of an idle link at which hot blocks are
                          copied ahead; 0: they are not */
    int64_t switch_us; /* for which another ratio of roles must have been
                          better before instances switch; 0: they do not */
    struct {
        uint32_t most;     /* instances that one prefill is lent; 0: none */
        int64_t from_us;   /* what it takes alone, at least, to be lent any */
        double efficiency; /* share of its time that each of them computes */
    } lend;
};

/* The numbers of admission by price (core/price), for a policy's table, in this
 * order; policy_price_rules() reads them. `of`: see rule_of. */
#define POLICY_PRICE(on)                                                    \
    "price", NULL, 0, 1, true, on,                                          \
        "1: under overload refuse what costs most engine time for what it " \
        "saves later requests; 0: admit by the SLOs alone"
#define POLICY_RHO(of)                                                        \
    "rho", of, 0, 10, false, 0.7,                                             \
        "mean queue that admission by price aims at, as a share of the TTFT " \
        "SLO: 0.7 absorbs bursts, 0.1 answers soonest"
#define POLICY_RHO_EASES(of)                                              \
    "rho_eases", of, 0, 1, true, 1,                                       \
        "1: in an overload of over ten minutes the mean queue to aim at " \
        "falls, down to 0.35; 0: it does not"
#define POLICY_PRICE_FLOOR(of)                                                 \
    "price_floor", of, 0, 1, false, 0,                                         \
        "share of each class of prompt lengths that is admitted whatever its " \
        "price, if in time"

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

    bool without_cost_model; /* it chooses well even without predicted times */

    /* Writes what it has others do, with these values of its options, into the
     * zeroed *rules. NULL: zeroes. */
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

/* What a policy with these values has others do. */
struct schedule_rules policy_rules(const struct schedule_policy *policy,
                                   const double values[POLICY_OPTIONS_MAX]);

/* Writes rules->price, for a policy's rules(), from the values of POLICY_PRICE
 * and those behind it. */
void policy_price_rules(const double *values, struct schedule_rules *rules);

/* The queue order under these rules: theirs, or else the one that is
 * configured. `yields`: see struct schedule_rules. */
static inline const char *policy_queue_order(const struct schedule_rules *rules,
                                             const char *configured,
                                             bool yields)
{
    const char *order = rules->queue_order[yields];

    return order ? order : configured;
}

/* The policy's option of that name; NULL if it has none. */
const struct policy_option *
policy_option_by_name(const struct schedule_policy *policy, const char *name);

#endif
