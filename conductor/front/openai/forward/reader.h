/* What the files that read a body share. Nobody else includes this. */
#ifndef CONDUCTOR_FRONT_OPENAI_FORWARD_READER_H
#define CONDUCTOR_FRONT_OPENAI_FORWARD_READER_H

#include "conductor/front/json/walk.h"
#include "conductor/front/openai/forward/forward.h"
#include "conductor/front/openai/forward/refer.h"

struct reader {
    struct json_walk walk; /* first, so that the walk's pointer is ours */
    struct forward_body *out;
    const struct forward_rules *rules;
    bool asks;    /* where to send a request */
    bool carries; /* the member at the top holds what engines are steered
                     by */
    struct refer_objects objects;
    const char *before; /* where the value before ends */
    struct forward_slice prompt;
    uint64_t salt; /* so far */
    /* Values, as they stand: cache_salt, and what SGLang joins it with. */
    struct forward_slice salts[2], adapter;
};

/* Whether the value at p may be the prompt: the first one, but in a question
 * where to send a request, of which members may come from a gateway, ids go
 * before a text, and null is nothing. */
bool prompt_is(const struct reader *r, const char *key);

/* The ids of a prompt that is one array of them, or an array that holds one
 * such array: of several, the first. Leaves p behind what was read, or where it
 * was. 1: it was; 0: it is something else; -EINVAL: it is longer than all
 * windows; -ENOMEM. */
[[nodiscard]] int prompt_read_ids(struct reader *r, const char *key);

/* Goes behind the prompt at p. Returns 0 or -EINVAL, also where it is a text
 * that is longer than all windows, of which the rest is not looked at. */
[[nodiscard]] int prompt_skip(struct reader *r, const char *key);

/* The name of the member that names blocks; NULL: p is at another one. */
const char *prompt_hashes_name(const struct reader *r, const char *key);

/* Reads these names. Returns 0, -EINVAL or -ENOMEM. */
[[nodiscard]] int prompt_read_hashes(struct reader *r, const char *name);

/* What is no array of ids is known by its bytes. Returns 0 or -ENOMEM. */
[[nodiscard]] int prompt_take_bytes(struct forward_body *out,
                                    struct forward_slice v);

#endif
