/* An engine's answer to /tokenize. */
#ifndef CONDUCTOR_LINK_UPSTREAM_TOKENS_H
#define CONDUCTOR_LINK_UPSTREAM_TOKENS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Reads the member "tokens", an array of ids, of the JSON object at
 * body[0 .. n), borrowed.
 *   tokens  (*n_tokens), owned by the caller on success.
 * Returns 0; -EINVAL: no such member; -ENOMEM. O(n).
 */
[[nodiscard]] int openai_tokens_read(const char *body, size_t n,
                                     uint32_t **tokens, size_t *n_tokens);

#endif
