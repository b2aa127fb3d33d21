/* Shared by the files that read a body. Nobody else includes this. */
#ifndef CONDUCTOR_FRONT_OPENAI_BODY_READER_H
#define CONDUCTOR_FRONT_OPENAI_BODY_READER_H

#include "conductor/front/openai/body/body.h"
#include "conductor/front/openai/body/member.h"
#include "conductor/front/openai/body/refer.h"
#include "conductor/json/walk.h"

struct reader {
    struct json_walk walk; /* first, so that the walk's pointer is ours */
    struct forward_body *out;
    const struct forward_rules *rules;
    bool asks;    /* the body is of /v1/schedule */
    bool carries; /* the top-level member is an object with steering members */
    struct refer_objects objects;
    const char *before; /* end of the value before */
    struct forward_slice prompt;
    uint64_t salt;                        /* hash so far */
    struct forward_slice values[MEMBERS]; /* as spelled */
};

/* Returns whether the value at p may be the prompt: the first one may. In a
 * /v1/schedule body, which may have members of a gateway, ids take the place of
 * a text, and null does not count. */
bool prompt_is(const struct reader *r, const char *key);

/* Reads the ids of a prompt that is one array of them, or an array of such
 * arrays: then of the first. Leaves p behind the array of ids, or where it was.
 * Returns 1: read; 0: it is something else; -EINVAL: longer than all windows;
 * -ENOMEM. */
[[nodiscard]] int prompt_read_ids(struct reader *r, const struct member *m);

/* Skips the prompt at p. Returns 0 or -EINVAL, also for a text that is longer
 * than all windows, whose rest is not checked. */
[[nodiscard]] int prompt_skip(struct reader *r, const struct member *m);

/* Reads the hashes. Returns 0, -EINVAL or -ENOMEM. */
[[nodiscard]] int prompt_read_hashes(struct reader *r, const char *name);

/* Takes the bytes of a prompt that is no array of ids as its words. Returns 0
 * or -ENOMEM. */
[[nodiscard]] int prompt_take_bytes(struct forward_body *out,
                                    struct forward_slice v);

#endif
