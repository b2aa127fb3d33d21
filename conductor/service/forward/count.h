/*
 * What counts as a prompt's tokens and as its cached tokens, in front of an
 * engine. Pure.
 *
 *   prompt  what the usage tells; else the tokens that are known, or guessed by
 *           the bytes, but no fewer than were cached, if that is told
 *   cached  what the usage tells; else the part of the prompt that the index
 *           had when the engine was chosen
 *
 * Invariants, whatever an engine tells:
 *   - 0 <= cached <= prompt, 0 <= predicted <= prompt, 1 <= prompt
 *   - prompt <= max(known, most)
 */
#ifndef CONDUCTOR_SERVICE_FORWARD_COUNT_H
#define CONDUCTOR_SERVICE_FORWARD_COUNT_H

#include <stdbool.h>
#include <stdint.h>

struct count_facts {
    int64_t known;  /* tokens, as the index counts them; below 1: as 1 */
    int64_t cached; /* of them the index had */
    bool exact;     /* they are the engine's, and all: not guessed by bytes, and
                       not of the first of several prompts */
    int64_t most;   /* no prompt has more, whatever is told; at least 1 */
    /* Of the usage; prompt below 1, cached below 0: not told. */
    int64_t told_prompt, told_cached;
};

struct count {
    int64_t prompt, cached;
    int64_t predicted; /* what the index had, in the tokens of `prompt` */
    bool prompt_told, cached_told;
    bool comparable; /* both told and predicted are the engine's tokens */
};

struct count count_prompt(const struct count_facts *facts);

#endif
