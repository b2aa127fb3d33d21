/* See learned.h. */
#include "predictor/learned.h"

#include <math.h>
#include <string.h>

/* Decay per observation: the last 50 or so dominate. */
#define KEEP 0.98
/* The guess enters as two observations, of 0 and of this many tokens, so that
 * it determines both terms, each with GUESS_WEIGHT / (1 + prefills). */
#define GUESS_TOKENS 2000.0
#define GUESS_WEIGHT 0.05
#define STEP_WEIGHT 0.05
#define WAITED_WEIGHT 0.05

static void add(struct learned *l, double weight, double u, double t)
{
    l->n += weight;
    l->u += weight * u;
    l->uu += weight * u * u;
    l->t += weight * t;
    l->ut += weight * u * t;
}

void learned_init_guess(struct learned *l, double us, double token_us)
{
    memset(l, 0, sizeof(*l));
    l->guess_us = us;
    l->guess_token_us = token_us;
    l->step_us = LEARNED_STEP_US;
}

void learned_init(struct learned *l)
{
    learned_init_guess(l, LEARNED_PREFILL_US, LEARNED_TOKEN_US);
}

void learned_init_from(struct learned *l, const struct learned *other)
{
    double us, token_us;

    learned_terms(other, &us, &token_us);
    learned_init_guess(l, us, token_us);
    l->step_us = other->step_us;
    l->together = other->together;
}

void learned_prefill(struct learned *l, int64_t computed_tokens, int64_t us)
{
    if (computed_tokens < 1 || us < 1 || us > COST_MODEL_MAX_US ||
        computed_tokens > COST_MODEL_MAX_US)
        return;
    l->n *= KEEP;
    l->u *= KEEP;
    l->uu *= KEEP;
    l->t *= KEEP;
    l->ut *= KEEP;
    add(l, 1.0, (double)computed_tokens, (double)us);
    l->prefills++;
}

/* The initial 0 counts as one observation. */
void learned_waited(struct learned *l, uint32_t together, uint32_t apart)
{
    while (together + apart > 0) {
        double weight = 1.0 / (double)(++l->waited + 1);
        double seen = together > 0 ? 1.0 : 0.0;

        l->together += fmax(weight, WAITED_WEIGHT) * (seen - l->together);
        if (together > 0)
            together--;
        else
            apart--;
    }
}

/* The first observations have equal weights, so that the guess soon fades. */
void learned_step(struct learned *l, int64_t us)
{
    double weight = 1.0 / (double)(l->steps + 1);

    if (us < 1 || us > COST_MODEL_MAX_US)
        return;
    l->step_us += fmax(weight, STEP_WEIGHT) * ((double)us - l->step_us);
    l->steps++;
}

bool learned_enough(const struct learned *l)
{
    return l->prefills >= LEARNED_ENOUGH;
}

/* Neither term may be negative: more work would seem to take less time. */
void learned_terms(const struct learned *l, double *a, double *b)
{
    double weight = GUESS_WEIGHT / (double)(1 + l->prefills);
    struct learned s = *l;

    add(&s, weight, 0, l->guess_us);
    add(&s, weight, GUESS_TOKENS,
        l->guess_us + l->guess_token_us * GUESS_TOKENS);
    double spread = s.n * s.uu - s.u * s.u;
    *b = (s.n * s.ut - s.u * s.t) / spread;
    *a = (s.t - *b * s.u) / s.n;
    if (*a < 0) {
        *a = 0;
        *b = s.ut / s.uu;
    }
    if (*b < 0) {
        *b = 0;
        *a = s.t / s.n;
    }
}

struct learned_whole learned_whole(const struct learned *l,
                                   int64_t computed_tokens, int64_t tokens,
                                   int64_t us)
{
    double t = (double)us, n = (double)tokens - 1, steps = n * l->step_us;
    double a, b, prefill;

    if (tokens < 1 || us < 1)
        return (struct learned_whole){0};
    if (n == 0 || (l->steps && steps <= t / 2))
        return (struct learned_whole){.prefill_us = (int64_t)(t - steps)};
    learned_terms(l, &a, &b);
    prefill = a + b * (double)computed_tokens;
    if (prefill > t / 4)
        return (struct learned_whole){0};
    return (struct learned_whole){.step_us = (int64_t)((t - prefill) / n)};
}

void learned_write(const struct learned *l, struct cost_model *m)
{
    double a, b;

    learned_terms(l, &a, &b);
    memset(m->prefill, 0, sizeof(m->prefill));
    memset(m->decode, 0, sizeof(m->decode));
    m->prefill[0] = a;
    m->prefill[1] = b;
    m->decode[0] = l->step_us;
    m->shared_us = a * l->together;
    m->range =
        (struct cost_model_range){0, COST_MODEL_MAX_US, COST_MODEL_MAX_US,
                                  COST_MODEL_MAX_US, COST_MODEL_MAX_US};
}
