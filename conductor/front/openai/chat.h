/* The chat template: messages -> the bytes of one prompt. */
#ifndef CONDUCTOR_FRONT_OPENAI_CHAT_H
#define CONDUCTOR_FRONT_OPENAI_CHAT_H

#include <jansson.h>

#include "conductor/front/openai/error.h"
#include "conductor/json/scan.h"

/*
 * Appends the prompt of `messages` (borrowed; the parsed rest of a scan, where
 * each text is true) with the texts of `scan` (borrowed) to `out`, by the
 * template in request.h. Returns 0; -EINVAL with *error set when a message,
 * role or part isn't what it must be; -ENOMEM. O(bytes).
 */
[[nodiscard]] int openai_chat_prompt(const json_t *messages,
                                     const struct json_scan *scan,
                                     struct text_buf *out,
                                     struct openai_error *error);

#endif
