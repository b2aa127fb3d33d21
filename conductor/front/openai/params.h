/* Shared by the files that read a body of the two endpoints. */
#ifndef CONDUCTOR_FRONT_OPENAI_PARAMS_H
#define CONDUCTOR_FRONT_OPENAI_PARAMS_H

#include "conductor/front/openai/request.h"
#include "conductor/json/scan.h"

/*
 * Checks every member of `body` (borrowed, an object) and reads those that
 * count into the request, whose kind is set.
 *   limit  the member that gave max_tokens, static; NULL = none
 * Returns 0; -EINVAL with *error set: 404 model_not_found for another model,
 * 400 for anything else; -ENOMEM. O(members).
 */
[[nodiscard]] int openai_params_read(const json_t *body,
                                     const struct openai_model *model,
                                     struct openai_request *out,
                                     const char **limit,
                                     struct openai_error *error);

/*
 * chat.c: appends the prompt of `messages` (borrowed; the parsed rest of a
 * scan, where each text is true) with the texts of `scan` (borrowed) to `out`,
 * by the template in request.h. Returns 0; -EINVAL with *error set when a
 * message, role or part isn't what it must be; -ENOMEM. O(bytes).
 */
[[nodiscard]] int openai_chat_prompt(const json_t *messages,
                                     const struct json_scan *scan,
                                     struct text_buf *out,
                                     struct openai_error *error);

#endif
