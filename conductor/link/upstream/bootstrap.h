/*
 * Reads the answer of the bootstrap server of a prefill engine with vLLM's
 * MooncakeConnector: the id of each data-parallel rank. Pure.
 */
#ifndef CONDUCTOR_LINK_UPSTREAM_BOOTSTRAP_H
#define CONDUCTOR_LINK_UPSTREAM_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#define BOOTSTRAP_ID_MAX 256 /* bytes of an id, with its NUL */

/*
 * Reads the n bytes of an answer: {"RANK": {"engine_id": ID, ..}, ..}.
 *   rank  data-parallel rank to look up; negative = the only one.
 * Returns NULL with id written; or the fault, static, with id untouched.
 */
[[nodiscard]] const char *bootstrap_read(const char *text, size_t n,
                                         int64_t rank,
                                         char id[BOOTSTRAP_ID_MAX]);

#endif
