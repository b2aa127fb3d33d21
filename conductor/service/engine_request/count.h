/*
 * Chooses the numbers of a prompt's tokens and cached tokens at an engine.
 * Pure.
 *
 *   prompt  the usage's; else the known or guessed tokens, but at least the
 *           cached tokens that the usage tells
 *   cached  the usage's; else the part of the prompt that the index had when
 *           the engine was chosen
 *
 * Invariants, whatever an engine tells:
 *   - 0 <= cached <= prompt, 0 <= predicted <= prompt, 1 <= prompt
 *   - prompt <= max(known, most)
 */
#ifndef CONDUCTOR_SERVICE_ENGINE_REQUEST_COUNT_H
#define CONDUCTOR_SERVICE_ENGINE_REQUEST_COUNT_H

#include <stdbool.h>
#include <stdint.h>

struct count_facts {
    int64_t known;  /* prompt tokens by the index; below 1 counts as 1 */
    int64_t cached; /* cached ones among them, by the index */
    bool exact; /* `known` is the engine's full count: not guessed by bytes, nor
                   of only the first of several prompts */
    int64_t most; /* upper bound, whatever the engine reports; at least 1 */
    /* By the usage; prompt below 1, cached below 0 = not told. */
    int64_t told_prompt, told_cached;
};

struct count {
    int64_t prompt, cached;
    int64_t predicted; /* cached by the index, scaled to `prompt` */
    bool prompt_told, cached_told;
    bool comparable; /* `cached` and `predicted` both count the engine's tokens
                      */
};

struct count count_prompt(const struct count_facts *facts);

#endif
