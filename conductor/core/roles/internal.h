/* What the files of roles/ share. */
#ifndef CONDUCTOR_CORE_ROLES_INTERNAL_H
#define CONDUCTOR_CORE_ROLES_INTERNAL_H

#include "conductor/core/roles/roles.h"

/* A mean of what comes in a second, which fades, and its spread. */
struct roles_mean {
    double sum;    /* in this second */
    double mean;   /* of a second */
    double square; /* likewise, of squares */
};

/* What is asked of engines, in microseconds a second. */
struct roles_demand {
    struct roles_mean prefill, decode;
    double weight;           /* of the past, 0..1: 1: long known */
    int64_t at_us;           /* until then */
    double tokens, token_us; /* of prompts that were placed: what a token takes
                                where nothing predicts it */
};

/* An instance that switches, by slot. */
struct roles_switch {
    uint32_t id; /* pool id; 0: none */
    bool told;   /* its begin is among the orders */
    struct roles_reason reason;
};

struct roles {
    struct dispatch *dispatch; /* borrowed */
    int64_t slowdown;
    int64_t due_us;    /* of the next pass */
    int64_t better_us; /* since then another ratio is better; -1: none is */
    bool to_prefill;   /* which way */
    bool moving;       /* one has switched, and more are to */
    struct roles_demand demand;
    struct roles_seen seen;
    struct roles_counts counts;
    uint32_t n_slots;
    struct roles_switch *switches; /* (n_slots) */
};

/* demand.c: a request was placed: what it needs comes to this second's sums. */
void roles_demand_placed(struct roles_demand *d,
                         const struct scheduler *scheduler,
                         const struct dispatch_request *request,
                         const struct dispatch_order *order);

/* demand.c: a pass: the means up to now. `tau_us` of their fading. */
void roles_demand_pass(struct roles_demand *d, double tau_us, int64_t now_us);

/* demand.c: engines that are needed for one side, and the error of that, of 1.
 */
double roles_needed(const struct roles_demand *d, const struct roles_mean *m);
double roles_error(const struct roles_demand *d, const struct roles_mean *m,
                   double passes);

#endif
