/*
 * Whether an engine takes other times than the other engines of its model do.
 * Times are noisy in every way: single ones by far, all engines of a busy
 * machine at once, one engine for a while. So no mean decides, but a run:
 *
 *   r       log(time) of an observation, less the mean of its class: of like
 *           prompts, on the engines that are alike; cut to ALIKE_CUT
 *   block   at least ALIKE_BLOCK observations of an engine, during which the
 *           others that are alike had half as many
 *   d       the mean r of a block less that of those others meanwhile
 *
 *   alike  -> unlike   blocks in a row with |d| > log(1.2), all on one side; a
 *                      block counts 1, over log(2) 2, over log(4) 5, and
 *                      ALIKE_RUN are needed
 *   unlike -> alike    ALIKE_BACK blocks in a row without d > log(1.1) on that
 *                      side; or nothing was seen of it for ALIKE_STALE
 *                      observations of others: its next block tells then
 *
 * One of which nothing can be told, as no other has work, stays what it is. The
 * last one that is alike stays so; where it leaves, others take its place.
 * O(1), pure.
 *
 * Invariant: model->n_alike engines were seen, have not left and are alike.
 */
#ifndef PREDICTOR_ALIKE_H
#define PREDICTOR_ALIKE_H

#include <stdbool.h>
#include <stdint.h>

#define ALIKE_CUT 1.0
#define ALIKE_BLOCK 32u
#define ALIKE_RUN 10u
#define ALIKE_BACK 3u
#define ALIKE_STALE 512u
/* Times that are nearer count as equal: what others do on a machine makes up
 * for as much. */
#define ALIKE_US 1000.0
/* Of tokens: two for each power of 2. */
#define ALIKE_CLASSES 64u

/* Of the engines of a model, all zero at first. */
struct alike_model {
    double mean[ALIKE_CLASSES]; /* of log(time) */
    uint32_t n_mean[ALIKE_CLASSES];
    double sum; /* of r, of those that are alike, (n) */
    uint64_t n;
    uint64_t seen; /* of all */
    uint32_t n_alike;
};

/* Of an engine, all zero at first. */
struct alike {
    /* Of its block: its r, (n), and model->sum and n without these, when the
     * block began. */
    double sum, model_sum;
    uint64_t n, model_n;
    bool unlike;
    int side; /* of its run: 1 slower, -1 faster; 0: none */
    uint32_t run;
    uint64_t seen_at; /* model->seen when it was last seen; 0: never */
};

/* Work of so many tokens (always 0 where they do not matter) took us, above 0.
 * Returns whether a->unlike has changed. */
[[nodiscard]] bool alike_see(struct alike *a, struct alike_model *model,
                             int64_t tokens, int64_t us);

/* Lets one of which nothing was seen for long be alike, on trial. Returns
 * whether a->unlike has changed. */
[[nodiscard]] bool alike_forget(struct alike *a, struct alike_model *model);

/* The engine leaves, or begins anew: all of a is zero again. */
void alike_leave(struct alike *a, struct alike_model *model);

#endif
