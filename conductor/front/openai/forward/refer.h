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
#include <stdint.h>

#include "conductor/front/json/walk.h"

/* The name, static, of a reference that a member at the top of the body is; p
 * is at its value. NULL: it is none. */
const char *refer_top(const struct json_walk *w, const char *key);

/* Of the objects that are open below the top, by depth - 1: which have an id,
 * and which say what they are, so that the id is only theirs. All 0 at first.
 */
struct refer_objects {
    uint64_t ids[JSON_WALK_DEPTH_MOST / 64];
    uint64_t known[JSON_WALK_DEPTH_MOST / 64];
};

/* Likewise, of a member below it; notes what it says of its object. */
const char *refer_below(struct refer_objects *o, const struct json_walk *w,
                        const char *key);

/* Likewise, at the end of an object below it: one with an id, and neither a
 * type other than "item_reference" nor content, is what stands under that id.
 */
const char *refer_end(struct refer_objects *o, const struct json_walk *w);

/* Whether a member's value is the client's own data or a schema, in which a
 * name like those of references is something else. */
bool refer_is_data(const char *key);

#endif
