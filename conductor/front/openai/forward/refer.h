/*
 * What a body refers to that an engine keeps: files, conversations, stored
 * prompts and the like. Where keys are required a tenant may name what it has
 * made itself, and Conductor knows that of responses alone
 * (previous_response_id): every other reference is to what may be another
 * tenant's. Pure.
 */
#ifndef CONDUCTOR_FRONT_OPENAI_FORWARD_REFER_H
#define CONDUCTOR_FRONT_OPENAI_FORWARD_REFER_H

#include <stdbool.h>

#include "conductor/front/json/walk.h"

/* The name, static, of a reference that a member at the top of the body is; p
 * is at its value. NULL: it is none. */
const char *refer_top(const struct json_walk *w, const char *key);

/* Likewise, of a member below it. */
const char *refer_below(const struct json_walk *w, const char *key);

/* Whether a member's value is the client's own data or a schema, in which a
 * name like those of references is something else. */
bool refer_is_data(const char *key);

#endif
