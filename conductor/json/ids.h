/* Reads a JSON array of token ids into a flat array of uint32_t. */
#ifndef CONDUCTOR_JSON_IDS_H
#define CONDUCTOR_JSON_IDS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Reads the ids from just after '[' to just after ']'.
 *   at     in: first byte after '['; out: first byte after ']', or the byte
 *          that is wrong
 *   end    end of the readable bytes
 *   out    room for (end - *at) / 2 + 1 ids
 *   n_out  ids read; on an error, the index of the wrong one
 *   why    what is wrong, a static string; set on an error only
 * Returns 0 or -EINVAL. White space is allowed wherever JSON allows it; signs,
 * fractions, exponents, leading zeros and values above 2^32 - 1 are refused.
 * O(bytes): eight digits at a time.
 */
[[nodiscard]] int json_ids_read(const char **at, const char *end, uint32_t *out,
                                size_t *n_out, const char **why);

#endif
