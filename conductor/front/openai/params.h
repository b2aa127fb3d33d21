/*
 * Every parameter of the two endpoints except the prompt, in one table: which
 * are read, which are accepted at their neutral value only, and why another
 * value is refused. Others are unknown.
 */
#ifndef CONDUCTOR_FRONT_OPENAI_PARAMS_H
#define CONDUCTOR_FRONT_OPENAI_PARAMS_H

#include <jansson.h>

#include "conductor/front/openai/request.h"

/* Parameters as given, before they are checked against the prompt. */
struct openai_params {
    const char *max_tokens_param; /* the member that gave it; NULL = none */
    uint32_t max_tokens;          /* >= 1 when given */
    bool stream;
    bool include_usage;
    bool usage_each; /* with include_usage: in every event, too */
    int32_t priority;
    const char *salt; /* borrowed from the object, NULL = none */
};

/*
 * Checks every member of `body` (borrowed, an object) and reads those that
 * count. Returns 0 or -EINVAL with *error set: 404 model_not_found for another
 * model, 400 for anything else. O(members).
 */
[[nodiscard]] int openai_params_read(enum openai_kind kind, const json_t *body,
                                     const struct openai_model *model,
                                     struct openai_params *out,
                                     struct openai_error *error);

#endif
