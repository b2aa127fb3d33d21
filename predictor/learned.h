/*
 * A cost model that is learned from what is seen, for engines that nobody has
 * profiled: a prefill takes a constant time and so much a token, a decode step
 * a constant time. It begins with a stated guess, which a few observations
 * outweigh. Pure.
 *
 *   prefill_us(u) = a + b u, by least squares over what was seen, older
 *   observations counting less and less, with the guess as one more of them
 *
 * What is seen are steps (steps.h): u tokens of all prompts of one. How much of
 * a is paid once for all prompts that wait is seen, too: all, where they
 * are computed together, nothing, where each has a step of its own.
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

/* What is taken for a push of KV between engines of a pair before any was
 * seen. */
#define LEARNED_PUSH_US 10000.0
#define LEARNED_PUSH_TOKEN_US 5.0

/* Prefills after which the model counts as known. */
#define LEARNED_ENOUGH 8u

/* Plain data; set it up with learned_init(). */
struct learned {
    /* Weighted sums of 1, u, u^2, t and u t; u in tokens, t in us. */
    double n, u, uu, t, ut;
    double guess_us, guess_token_us; /* what it begins with */
    double step_us;
    double together; /* share of the prompts waiting for a step that are of it
                        with others */
    uint64_t prefills, steps, waited;
};

/* The guess alone. */
void learned_init(struct learned *l);

/* Another guess: for what is no prefill and depends on tokens likewise. */
void learned_init_guess(struct learned *l, double us, double token_us);

/* What another one has learned is the guess. */
void learned_init_from(struct learned *l, const struct learned *other);

/* What is learned: a constant, and so much a token. */
void learned_terms(const struct learned *l, double *us, double *token_us);

/* A prefill of so many computed tokens took so long on an engine that did
 * nothing else for others meanwhile, as far as one knows. Nonsense (no tokens,
 * no time, over COST_MODEL_MAX_US) is ignored. */
void learned_prefill(struct learned *l, int64_t computed_tokens, int64_t us);

/* Of prompts that waited when a step began: so many were computed in it beside
 * its first one, and so many were not. */
void learned_waited(struct learned *l, uint32_t together, uint32_t apart);

/* Two tokens of an answer came so long after each other, on average. */
void learned_step(struct learned *l, int64_t us);

/* Whether enough was seen to promise times by it. */
bool learned_enough(const struct learned *l);

/* What an answer of so many tokens (at least 1) that came whole, us after its
 * prefill began, says of one of its two parts, if the other one is known and is
 * small enough beside it. */
struct learned_whole {
    int64_t prefill_us; /* 0: nothing. The steps are half of us at most, so its
                           error is no larger part of it than theirs */
    int64_t step_us;    /* 0: nothing. The prefill is a quarter of us at most */
};
struct learned_whole learned_whole(const struct learned *l,
                                   int64_t computed_tokens, int64_t tokens,
                                   int64_t us);

/* Writes the prefill and decode terms, shared_us and an unbounded range into
 * *m; the rest of it stays. */
void learned_write(const struct learned *l, struct cost_model *m);

#endif
