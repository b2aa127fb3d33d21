/* Shared by the files that read a body. Nobody else includes this. */
#ifndef CONDUCTOR_FRONT_OPENAI_BODY_READER_H
#define CONDUCTOR_FRONT_OPENAI_BODY_READER_H

#include "conductor/core/index/block_key.h"
#include "conductor/front/openai/body/body.h"
#include "conductor/front/openai/body/member.h"
#include "conductor/json/walk.h"

/* Open objects below the top, one bit each by depth - 1: which have an id,
 * and which have a type or content, so that the id is only theirs. All 0 at
 * first. */
struct refer_objects {
    uint64_t ids[JSON_WALK_DEPTH_MOST / 64];
    uint64_t known[JSON_WALK_DEPTH_MOST / 64];
};

struct reader {
    struct json_walk walk; /* first, so that the walk's pointer is ours */
    struct forward_body *out;
    const struct forward_rules *rules;
    bool asks;    /* the body is of /v1/schedule */
    bool carries; /* the top-level member is an object with steering members */
    struct refer_objects objects;
    const char *before; /* end of the value before */
    struct http_slice prompt;
    uint64_t salt;                     /* hash so far */
    struct http_slice values[MEMBERS]; /* as spelled */
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
                                    struct http_slice v);

/* value.c: references in a body to things that an engine keeps: files,
 * conversations, stored prompts and the like. Where keys are required a tenant
 * may name its own things only, and Conductor knows the owner of responses
 * alone (previous_response_id): every other reference may be to another
 * tenant's. */

/* Returns the name, static, of a reference at the top of the body; p is at the
 * value of member m. NULL = it is none. */
const char *refer_top(const struct json_walk *w, const struct member *m);

/* Does the same for a member below the top; notes its id, type or content in
 * its object. */
const char *refer_below(struct refer_objects *o, const struct json_walk *w,
                        const struct member *m);

/* Does the same at the end of an object below the top: one with an id, and
 * neither content nor a type other than "item_reference", refers to that id. */
const char *refer_end(struct refer_objects *o, const struct json_walk *w);

/* value.c: values of a body's members, as spelled there. */

/* Reads a short text without NUL characters into text. Returns whether it is
 * one. */
bool value_text(struct http_slice v, char text[FORWARD_MODEL_BYTES]);

/* Returns a whole number, UINT32_MAX for a larger one; 0 for other values. */
uint32_t value_number(struct http_slice v);

/* Returns what a member of a /v1/schedule body, from a gateway, must be, if its
 * value is not; for token_ids always. NULL = the value is right, or the member
 * has no rule. */
const char *value_must_be(const struct member *m, struct http_slice v);

/* Returns a whole number, clamped to what fits; 0 for other values. */
int32_t value_priority(struct http_slice v);

/* Returns the bytes from at to end without trailing white space. */
size_t value_trimmed(const char *at, const char *end);

/*
 * Makes the block_key_name() of a text and two values, joined as in the
 * engine's events.
 *   set   the text; "" = none.
 *   a, b  values, or n 0.
 * Returns 0 or -ENOMEM.
 */
[[nodiscard]] int value_key_name(const char *set, struct http_slice a,
                                 struct http_slice b,
                                 char name[BLOCK_KEY_NAME_BYTES]);

/* Returns whether a member makes a request more than one prompt and one answer.
 *   prompt  the member is the prompt. */
bool value_makes_whole(const struct member *m, struct http_slice v,
                       bool prompt);

/* value_hash(h, bytes, n): continues the FNV-1a hash `h`, which begins as
 * VALUE_HASH_BEGIN, with these bytes. They are short, and a collision only
 * worsens the guess where a client's own blocks are. */
#define VALUE_HASH_BEGIN 0xcbf29ce484222325u
uint64_t value_hash(uint64_t h, const char *bytes, size_t n);

#endif
