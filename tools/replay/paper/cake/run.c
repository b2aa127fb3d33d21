/* conductor-replay cake-run: answers cake.py, a question and an answer a line,
 * with the scheduler's own plan and queue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/command.h"
#include "tools/replay/paper/cake/process.h"
#include "traces/random.h"

static const struct option_usage usage = {
    .name = "cake-run",
    .synopsis = "< QUESTIONS",
    .text = "Answers questions of cake.py, the script of cake, "
            "cake-fluctuation and cake-adaptive.",
    .examples = "",
};

/* Most numbers of a question: the engine's and those of an experiment. */
#define NUMBERS_MAX 16
#define ENGINE_NUMBERS 11

static struct cake_engine read_engine(const double *v)
{
    return (struct cake_engine){.n_tokens = (int64_t)v[0],
                                .step_tokens = (int64_t)v[1],
                                .piece_tokens = (int64_t)v[2],
                                .piece_bytes = v[3],
                                .piece_extra_s = v[4],
                                .piece_s = v[5],
                                .load_fixed_s = v[6],
                                .final_step_s = v[7],
                                .cost.prefill = {0, v[8], v[9], v[10]}};
}

static int predict(const struct cake_engine *engine)
{
    struct cake_prediction p;
    int rc = cake_engine_predict(engine, &p);

    if (rc == 0)
        printf("%.17g %.17g %.17g %lld %s\n", p.compute_s, p.load_s, p.cake_s,
               (long long)p.split_tokens,
               p.best == LOAD_MODE_COMPUTE ? "compute"
               : p.best == LOAD_MODE_LOAD  ? "load"
                                           : "both");
    return rc;
}

/* Draws the short prompts, and serves all in one order. */
static int mix(const struct cake_engine *engine, const char *order,
               const double *v)
{
    int64_t tokens[CAKE_SHORT_MAX];
    const struct cake_mix mix = {engine, tokens, (size_t)v[1], order};
    struct cake_mixed m;
    struct random_state dice;

    random_init(&dice, (uint64_t)v[0]);
    for (size_t i = 0; i < mix.n_short && i < CAKE_SHORT_MAX; i++)
        tokens[i] =
            (int64_t)v[2] + random_below(&dice, (uint32_t)(v[3] - v[2] + 1));
    int rc = cake_mix_run(&mix, &m);
    if (rc == 0)
        printf("%.17g %.17g %.17g %.17g %.17g\n", m.done_s, m.cached_s,
               m.short_mean_s, m.computed_tokens, m.tokens_per_s);
    return rc;
}

/* Answers "plan" or the name of an order, with its numbers. */
static int answer(char *line)
{
    char *at = line + strcspn(line, " \n");
    double v[NUMBERS_MAX] = {0};

    if (*at != '\0')
        *at++ = '\0';
    for (size_t i = 0; i < NUMBERS_MAX; i++)
        v[i] = strtod(at, &at);
    const struct cake_engine engine = read_engine(v);
    return strcmp(line, "plan") == 0 ? predict(&engine)
                                     : mix(&engine, line, v + ENGINE_NUMBERS);
}

int replay_command_cake_run(int argc, char **argv)
{
    const struct option_table none = {NULL, 0};
    char *line = NULL;
    size_t size = 0;
    int status = 0;

    if (replay_parse(&usage, &none, argc, argv, &status) != 0)
        return status;
    while (getline(&line, &size, stdin) > 0) {
        if (answer(line) != 0)
            puts("error");
        fflush(stdout);
    }
    free(line);
    return 0;
}
