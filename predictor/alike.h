/*
 * Detects an engine whose times differ from those of the other engines of its
 * model. Times are noisy: there are outliers, a busy machine slows all its
 * engines, an engine may be slow for a while. So a run of blocks decides, not a
 * mean:
 *
 *   r       log(time) of an observation, less its class's mean (similar
 *           prompts, on the engines that are alike); clamped to +-ALIKE_CUT
 *   block   at least ALIKE_BLOCK observations of an engine, during which the
 *           other alike engines had at least half as many
 *   d       the mean r of a block less the mean r of these others meanwhile
 *
 *   alike  -> unlike   blocks in a row on one side count ALIKE_RUN in sum: 1
 *                      for |d| > log(1.2), 2 for > log(2), 5 for > log(4)
 *   unlike -> alike    ALIKE_BACK blocks in a row without d > log(1.1) on that
 *                      side; or not seen for ALIKE_STALE observations of
 *                      others: its next block decides
 *
 * An engine keeps its state while no other engine has work. The last engine
 * that is alike stays so; when it leaves, others become alike. O(1), pure.
 *
 * Invariant: model->n_alike = engines that were seen, have not left and are
 * alike.
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
/* Times in us that differ by less count as equal: other load on the machine
 * causes such differences. */
#define ALIKE_US 1000.0
/* Classes of prompt length: two for each power of 2. */
#define ALIKE_CLASSES 64u

/* State of a model's engines, all zero at first. */
struct alike_model {
    double mean[ALIKE_CLASSES]; /* mean log(time) per class */
    uint32_t n_mean[ALIKE_CLASSES];
    double sum; /* sum of n values of r, of alike engines */
    uint64_t n;
    uint64_t seen; /* observations of all engines */
    uint32_t n_alike;
};

/* State of an engine, all zero at first. */
struct alike {
    /* Its block: the sum of its n values of r; model->sum and model->n at the
     * block's begin, plus the engine's own part since. */
    double sum, model_sum;
    uint64_t n, model_n;
    bool unlike;
    int side; /* of its run: 1 = slower, -1 = faster, 0 = none */
    uint32_t run;
    uint64_t seen_at; /* model->seen at its last observation; 0 = never seen */
};

/* Adds an observation: work of `tokens` tokens (always 0 if its length does
 * not matter) took us > 0. Returns whether a->unlike changed. */
[[nodiscard]] bool alike_see(struct alike *a, struct alike_model *model,
                             int64_t tokens, int64_t us);

/* Lets an engine be alike again, on trial, if it was not seen for ALIKE_STALE
 * observations. Returns whether a->unlike changed. */
[[nodiscard]] bool alike_forget(struct alike *a, struct alike_model *model);

/* Removes an engine that leaves or restarts: zeroes *a. */
void alike_leave(struct alike *a, struct alike_model *model);

#endif
