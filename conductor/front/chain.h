/*
 * Which blocks a question of /admin/blocks and /admin/replicas is about: one
 * by its key, or those of a prompt. Short ones stand in the query, longer ones
 * in a body of JSON, with the same names.
 */
#ifndef CONDUCTOR_FRONT_CHAIN_H
#define CONDUCTOR_FRONT_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/front/openai/error.h"
#include "conductor/http/parse.h"

#define CHAIN_COPIES_MAX 1024u

struct chain {
    uint64_t key;     /* 0: those of the prompt */
    uint32_t *tokens; /* (n), owned */
    size_t n;
    uint32_t copies; /* 1 to CHAIN_COPIES_MAX where it is about copies */
};

/*
 * Reads "?key=HEX", "?prompt=TEXT" or "?tokens=1,2", or the object with one of
 * these members. For copies also `copies`, and no key.
 *   query  with its '?', or empty
 *   body   (n), JSON; empty: there is only the query
 * Returns 0 with *chain for chain_fini(), or -EINVAL, or -ENOMEM, with *error
 * set and nothing to free. O(bytes).
 */
[[nodiscard]] int chain_read(struct http_slice query, const char *body,
                             size_t n, bool copies, struct chain *chain,
                             struct openai_error *error);

/* Frees what it holds. */
void chain_fini(struct chain *chain);

#endif
