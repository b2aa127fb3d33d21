#ifndef CONDUCTOR_CORE_ROLES_INTERNAL_H
#define CONDUCTOR_CORE_ROLES_INTERNAL_H

#include "conductor/core/roles/roles.h"

/* A fading mean of a quantity per second, and of its square. */
struct roles_mean {
    double sum;    /* in this second */
    double mean;   /* of a second */
    double square; /* mean of the squares */
};

/* Engine time that requests need, in microseconds per second. */
struct roles_demand {
    struct roles_mean prefill, decode;
    double weight;           /* of the past, 0..1; 1 = long known */
    int64_t at_us;           /* time of the last pass; -1 = none yet */
    double tokens, token_us; /* prompts with a prediction: their tokens, and the
                                time per token, used for prompts without */
};

/* An instance that switches, by slot. */
struct roles_switch {
    uint32_t id; /* pool id; 0 = none */
    bool told;   /* roles_next() has ordered it to begin */
    struct roles_reason reason;
};

struct roles {
    struct dispatch *dispatch; /* borrowed */
    int64_t slowdown;
    int64_t due_us;    /* of the next pass */
    int64_t better_us; /* since when another ratio is better; -1 = none is */
    bool to_prefill;   /* direction of the better ratio */
    bool moving;       /* one instance has switched, and more are to follow */
    struct roles_demand demand;
    struct roles_seen seen;
    struct roles_counts counts;
    uint32_t n_slots;
    struct roles_switch *switches; /* (n_slots) */
};

/* demand.c: adds the demand of a placed request to this second's sums. */
void roles_demand_placed(struct roles_demand *d,
                         const struct scheduler *scheduler,
                         const struct dispatch_request *request,
                         const struct dispatch_order *order);

/* demand.c: updates the means, which fade over `tau_us`, at a pass. */
void roles_demand_pass(struct roles_demand *d, double tau_us, int64_t now_us);

/* demand.c: return how many engines one side needs, and its relative error. */
double roles_needed(const struct roles_demand *d, const struct roles_mean *m);
double roles_error(const struct roles_demand *d, const struct roles_mean *m,
                   double passes);

#endif
