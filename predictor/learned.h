/*
 * A cost model learned from observations, for engines without a profile: a
 * prefill takes a constant time plus a time per token, a decode step a constant
 * time. It begins with a stated guess, which a few observations outweigh. Pure.
 *
 *   prefill_us(u) = a + b u, by least squares over the observations, with
 *   decaying weights, and the guess
 *
 * An observation is a step (steps.h), u the tokens of all its prompts.
 * `together` learns the share of waiting prompts that are computed in one step,
 * and so pay the constant a only once.
 */
#ifndef PREDICTOR_LEARNED_H
#define PREDICTOR_LEARNED_H

#include <stdbool.h>
#include <stdint.h>

#include "predictor/cost_model.h"

/* The guess: 10 ms and 100 us a token (10,000 tokens a second) for a prefill,
 * 20 ms for a decode step. */
#define LEARNED_PREFILL_US 10000.0
#define LEARNED_TOKEN_US 100.0
#define LEARNED_STEP_US 20000.0

/* The guess for a push of KV between the engines of a pair. */
#define LEARNED_PUSH_US 10000.0
#define LEARNED_PUSH_TOKEN_US 5.0

/* Prefills after which the model counts as known. */
#define LEARNED_ENOUGH 8u

/* Plain data; set it up with learned_init(). */
struct learned {
    /* Weighted sums of 1, u, u^2, t and u t; u in tokens, t in us. */
    double n, u, uu, t, ut;
    double guess_us, guess_token_us; /* initial guess */
    double step_us;
    double together; /* share of waiting prompts that join a step */
    uint64_t prefills, steps, waited;
};

/* Sets the guess above. */
void learned_init(struct learned *l);

/* Sets another guess, for times other than prefills that depend on tokens. */
void learned_init_guess(struct learned *l, double us, double token_us);

/* Takes what `other` has learned as the guess. */
void learned_init_from(struct learned *l, const struct learned *other);

/* Returns the learned prefill terms: *us constant, *token_us per token. */
void learned_terms(const struct learned *l, double *us, double *token_us);

/* Adds a prefill of `computed_tokens` that took `us` on an engine known to do
 * nothing else meanwhile. Ignores nonsense (no tokens, no time, over
 * COST_MODEL_MAX_US). */
void learned_prefill(struct learned *l, int64_t computed_tokens, int64_t us);

/* Adds prompts that waited when a step began: `together` were computed in it
 * besides its first one, `apart` were not. */
void learned_waited(struct learned *l, uint32_t together, uint32_t apart);

/* Adds a mean time between two tokens of an answer. */
void learned_step(struct learned *l, int64_t us);

/* Returns whether LEARNED_ENOUGH prefills were seen, enough to predict. */
bool learned_enough(const struct learned *l);

/* The time of an answer of `tokens` (at least 1) tokens that arrived as a
 * whole, `us` after its prefill began, split: gives one of the two parts if the
 * other one is known and small enough. */
struct learned_whole {
    int64_t prefill_us; /* 0 = unknown. Given if the steps take at most half of
                           `us`, so that their relative error does not grow */
    int64_t step_us;    /* 0 = unknown. Given if the prefill takes at most a
                           quarter of us */
};
struct learned_whole learned_whole(const struct learned *l,
                                   int64_t computed_tokens, int64_t tokens,
                                   int64_t us);

/* Writes the prefill and decode terms, shared_us and an unbounded range into
 * *m; other members stay. */
void learned_write(const struct learned *l, struct cost_model *m);

#endif
