/*
 * The smallest cluster that meets a target: how many prefill and how many
 * decode nodes. Pure but for asking, through a callback, what a size reaches.
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

/* What a size reached: the share of effective requests, below 0 where the
 * simulation was given up because the target was out of reach. */
struct search_answer {
    struct search_size size;
    bool meets;
    double effective_ratio;
    uint64_t judged; /* requests that were seen before it was given up */
};

struct search {
    uint32_t prefill_max; /* at least 1 */
    uint32_t decode_max;  /* 0: there are no decode nodes */
    /*
     * Fills all but `size` of answers[0 .. n), which have different sizes; it
     * may try them side by side. Returns 0 or a negative errno, which ends the
     * search.
     */
    int (*ask)(void *arg, struct search_answer *answers, size_t n);
    void *arg;

    /* Filled: every size that was asked for, once, by number of nodes. */
    struct search_answer *answers; /* (count), free() them */
    size_t count;
    size_t capacity;
    bool found;
    struct search_answer best;
};

/*
 * Finds the size with the fewest nodes in all that meets the target; among
 * equals the one with the highest ratio, then with fewer prefill nodes. It
 * assumes nothing of what more nodes do: it asks for every split of every
 * number of nodes, from the least on, until one of them meets the target.
 *   search  maxima and callback from the caller, the rest zero.
 * Returns 0, with `found` false if no size up to the maxima meets it; -ENOMEM
 * or what ask returned. All sizes up to the answer's number of nodes.
 */
[[nodiscard]] int search_run(struct search *search);

/* The splits of so many nodes within the maxima, by prefill nodes, into
 * sizes[0 .. nodes). Returns how many. */
size_t search_splits(uint32_t nodes, uint32_t prefill_max, uint32_t decode_max,
                     struct search_size *sizes);

#endif
