/*
 * Reads the blocks that a request to /admin/blocks or /admin/replicas names:
 * one by its key, or a prompt's. Short prompts are in the query, longer ones in
 * a JSON body, with the same names.
 */
#ifndef CONDUCTOR_FRONT_CHAIN_H
#define CONDUCTOR_FRONT_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/front/openai/error.h"
#include "conductor/http/parse.h"

#define CHAIN_COPIES_MAX 1024u

struct chain {
    uint64_t key;     /* of the one block; 0 = the prompt's blocks */
    uint32_t *tokens; /* (n), owned */
    size_t n;
    uint32_t copies; /* wanted, 1 to CHAIN_COPIES_MAX; 0 = not asked for */
};

/*
 * Reads "?key=HEX", "?prompt=TEXT" or "?tokens=1,2", or the object with one of
 * these members. With `copies` it also has a member `copies`, and no key.
 *   query  with its '?', or empty
 *   body   (n), JSON; empty: there is only the query
 * Returns 0 with *chain for chain_fini(), or -EINVAL, or -ENOMEM, with *error
 * set and nothing to free. O(bytes).
 */
[[nodiscard]] int chain_read(struct http_slice query, const char *body,
                             size_t n, bool copies, struct chain *chain,
                             struct openai_error *error);

/* Frees its tokens, and zeroes it. */
void chain_fini(struct chain *chain);

#endif
