/*
 * References in a body to things that an engine keeps: files, conversations,
 * stored prompts and the like. Where keys are required a tenant may name its
 * own things only, and Conductor knows the owner of responses alone
 * (previous_response_id): every other reference may be to another tenant's.
 * Pure.
 */
#ifndef CONDUCTOR_FRONT_OPENAI_BODY_REFER_H
#define CONDUCTOR_FRONT_OPENAI_BODY_REFER_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/front/openai/body/member.h"
#include "conductor/json/walk.h"

/* Returns the name, static, of a reference at the top of the body; p is at the
 * value of member m. NULL = it is none. */
const char *refer_top(const struct json_walk *w, const struct member *m);

/* Open objects below the top, one bit each by depth - 1: which have an id,
 * and which have a type or content, so that the id is only theirs. All 0 at
 * first. */
struct refer_objects {
    uint64_t ids[JSON_WALK_DEPTH_MOST / 64];
    uint64_t known[JSON_WALK_DEPTH_MOST / 64];
};

/* Does the same for a member below the top; notes its id, type or content in
 * its object. */
const char *refer_below(struct refer_objects *o, const struct json_walk *w,
                        const struct member *m);

/* Does the same at the end of an object below the top: one with an id, and
 * neither content nor a type other than "item_reference", refers to this id. */
const char *refer_end(struct refer_objects *o, const struct json_walk *w);

#endif
