/*
 * Groups first tokens that came out of one step of an engine. An engine
 * computes waiting prompts in one step, as far as they fit: it pays a step's
 * constant once, and their first tokens come together. Seen one by one, the
 * first of them took the whole step, and the others no time. Pure.
 *
 * A first token belongs to the current step if it follows the previous one
 * sooner than another step could: within a quarter of the step, and within a
 * quarter of the constant or 1 ms, whichever is more. A token that comes out of
 * the queue's order belongs to the same step as the next one in order.
 */
#ifndef PREDICTOR_STEPS_H
#define PREDICTOR_STEPS_H

#include <stdbool.h>
#include <stdint.h>

/* A first token. */
struct steps_token {
    int64_t tokens; /* computed tokens of its prompt */
    int64_t us;     /* since its turn began; 0 = began at the previous prompt's
                       unseen end; < 0 = out of turn */
    int64_t now_us;
    int64_t sent_us;      /* when its request was sent to the engine */
    int64_t predicted_us; /* the cost model's, for its prefill alone */
    int64_t shared_us;    /* part of it that a step pays once */
};

/* A step that ended. */
struct steps_step {
    int64_t us; /* duration; 0 = its begin was not seen */
    int64_t began_us;
    int64_t tokens; /* sum over its prompts */
    int64_t predicted_us;
    uint32_t prompts; /* 0 = no step */
    bool left_one;    /* it left out a prompt that waited at its begin */
};

/* Plain data; zero = no step was seen. */
struct steps {
    struct steps_step now;   /* current step; more prompts may join it */
    struct steps_step early; /* prompts out of turn, part of the next step */
};

/*
 * Adds a first token.
 *   constant_us  known constant of a step, at least 0
 *   over         written: the previous step, if the token is not part of it;
 *                else a step with 0 prompts
 */
void steps_first_token(struct steps *s, const struct steps_token *token,
                       double constant_us, struct steps_step *over);

/* Ends the current step: the engine has no prompt left, or a prompt ended at
 * an unknown time. *over: as above. */
void steps_end(struct steps *s, struct steps_step *over);

#endif
