/*
 * Finds the smallest cluster that meets a target: how many prefill and decode
 * nodes. Pure, except for a callback that evaluates sizes.
 */
#ifndef TOOLS_REPLAY_STUDY_SIZE_SEARCH_H
#define TOOLS_REPLAY_STUDY_SIZE_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct search_size {
    uint32_t prefill;
    uint32_t decode;
};

/* The result of a size. effective_ratio: share of effective requests; below 0 =
 * simulation given up, target out of reach. */
struct search_answer {
    struct search_size size;
    bool meets;
    double effective_ratio;
    uint64_t judged; /* requests seen before it was given up */
};

struct search {
    uint32_t prefill_max; /* at least 1 */
    uint32_t decode_max;  /* 0 = no decode nodes */
    /*
     * Evaluates answers[0 .. n), of different sizes, perhaps in parallel: fills
     * all members but `size`. Returns 0 or a negative errno, which ends the
     * search.
     */
    int (*ask)(void *arg, struct search_answer *answers, size_t n);
    void *arg;

    /* Results: every size evaluated, once, by number of nodes. */
    struct search_answer *answers; /* (count), to be freed with free() */
    size_t count;
    size_t capacity;
    bool found;
    struct search_answer best;
};

/*
 * Finds the smallest total of nodes with a size that meets the target; among
 * equals the highest ratio, then the fewest prefill nodes. More nodes need not
 * be better, so it evaluates every split of each total, from the smallest up,
 * until one meets the target.
 *   search  maxima and callback from the caller, the rest zero.
 * Returns 0, with `found` false if no size within the maxima meets the target;
 * -ENOMEM, or the error of ask. Evaluates all sizes up to the answer's total.
 */
[[nodiscard]] int search_run(struct search *search);

/* Writes the splits of `nodes` within the maxima, by prefill nodes, to sizes[0
 * .. nodes). Returns how many. */
size_t search_splits(uint32_t nodes, uint32_t prefill_max, uint32_t decode_max,
                     struct search_size *sizes);

#endif
