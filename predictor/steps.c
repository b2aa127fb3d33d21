/* See steps.h. */
#include "predictor/steps.h"

#include <math.h>

/* A token within 1/4 of a step's time after it belongs to that step. */
#define APART_SHARE 4
/* Least time of a step with prompts, whatever constant was learned. */
#define STEP_LEAST_US 4000.0
/* A prompt sent within 1/8 of a step's time before its begin may have come too
 * late for it. */
#define THERE_SHARE 8

static void add(struct steps_step *step, int64_t tokens, int64_t predicted_us,
                uint32_t prompts)
{
    step->tokens += tokens;
    step->predicted_us += predicted_us;
    step->prompts += prompts;
}

static bool is_together(const struct steps_step *step,
                        const struct steps_token *token, double constant_us)
{
    return step->prompts > 0 &&
           (step->us == 0 || token->us < step->us / APART_SHARE) &&
           (double)token->us < fmax(constant_us, STEP_LEAST_US) / APART_SHARE;
}

void steps_end(struct steps *s, struct steps_step *over)
{
    *over = s->now;
    *s = (struct steps){0};
}

void steps_first_token(struct steps *s, const struct steps_token *token,
                       double constant_us, struct steps_step *over)
{
    struct steps_step early = s->early;
    /* The constant may have been learned after the prediction. */
    int64_t own_us = token->predicted_us > token->shared_us
                         ? token->predicted_us - token->shared_us
                         : 0;

    *over = (struct steps_step){0};
    if (token->us < 0) {
        add(&s->early, token->tokens, own_us, 1);
        return;
    }
    if (is_together(&s->now, token, constant_us)) {
        if (s->now.us > 0)
            s->now.us += token->us;
        add(&s->now, token->tokens, own_us, 1);
    } else {
        steps_end(s, over);
        over->left_one =
            over->prompts > 0 &&
            token->sent_us < over->began_us - over->us / THERE_SHARE;
        s->now = (struct steps_step){.us = token->us,
                                     .began_us = token->now_us - token->us};
        add(&s->now, token->tokens, token->predicted_us, 1);
    }
    add(&s->now, early.tokens, early.predicted_us, early.prompts);
    s->early = (struct steps_step){0};
}
