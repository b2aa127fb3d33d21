/*
 * The smallest cluster that meets a target: how many prefill and how many
 * decode nodes. Pure but for asking, through a callback, what a size reaches.
 */
#ifndef TOOLS_REPLAY_SEARCH_H
#define TOOLS_REPLAY_SEARCH_H

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
};

struct search {
    uint32_t prefill_max; /* at least 1 */
    uint32_t decode_max;  /* 0: there are no decode nodes */
    bool whole_border;    /* walk on where it can only get worse, to show it */
    /*
     * Fills `meets` and `effective_ratio` of answers[0 .. n), which have
     * different sizes; it may try them side by side. Returns 0 or a negative
     * errno, which ends the search.
     */
    int (*ask)(void *arg, struct search_answer *answers, size_t n);
    void *arg;

    /* Filled: every size that was asked for, once. */
    struct search_answer *answers; /* (count), free() them */
    size_t count;
    size_t capacity;
    bool found;
    struct search_answer best;
};

/*
 * Finds the size with the fewest nodes in all that meets the target; among
 * equals the one with the highest ratio, then with fewer prefill nodes. It
 * walks the border between the sizes that meet it and those that don't, on the
 * assumption that one more node never hurts; then it asks for every split of
 * one node fewer, and goes on below if one of them meets the target after all.
 * So no split with one node fewer meets the target, assumption or not.
 *   search  maxima and callback from the caller, the rest zero.
 * Returns 0, with `found` false if the largest size fails; -ENOMEM or what ask
 * returned. O(prefill_max + decode_max) sizes.
 */
int search_run(struct search *search) __attribute__((warn_unused_result));

#endif
