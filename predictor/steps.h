/*
 * Which first tokens came out of one step of an engine. An engine computes the
 * prompts that wait in one step, as far as they fit: it pays the constant of a
 * step once, and their first tokens come together. Seen one by one the first
 * of them took all of the step, and the others nothing. Pure.
 *
 * A first token is of the step before if it came sooner after the one before it
 * than any step could take: within a quarter of that step, and within a quarter
 * of the constant or 1 ms.
 * The line of an engine says whose turn it is; a token that comes out of turn
 * belongs to the same step as the next one that comes in its turn.
 */
#ifndef PREDICTOR_STEPS_H
#define PREDICTOR_STEPS_H

#include <stdbool.h>
#include <stdint.h>

/* What is known of a first token when it comes. */
struct steps_token {
    int64_t tokens; /* of its prompt that were computed */
    int64_t us;     /* since its turn began; 0: with the end, unseen, of the
                       prompt before it; below 0: it comes out of turn */
    int64_t now_us;
    int64_t sent_us;      /* when the engine got its request */
    int64_t predicted_us; /* of its prefill alone, by the cost model */
    int64_t shared_us;    /* of that, what is paid once for a step */
};

/* A step that is over. */
struct steps_step {
    int64_t us; /* 0: nobody saw when it began */
    int64_t began_us;
    int64_t tokens; /* of all its prompts */
    int64_t predicted_us;
    uint32_t prompts; /* 0: there was none */
    bool left_one;    /* a prompt had waited when it began and was not of it */
};

/* Plain data. Zeroed: no step was seen. */
struct steps {
    struct steps_step now;   /* more prompts may be of it */
    struct steps_step early; /* prompts out of turn: of the next */
};

/*
 * A first token came.
 *   constant_us  of a step, as far as it is known: at least 0.
 *   over         written: the step before, if this is none of its prompts; else
 *                one without prompts.
 */
void steps_first_token(struct steps *s, const struct steps_token *token,
                       double constant_us, struct steps_step *over);

/* The engine has no prompt left, or one whose end is unknown is through: no
 * more are of the step under way. *over: as above. */
void steps_end(struct steps *s, struct steps_step *over);

#endif
