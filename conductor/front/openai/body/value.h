/* Values of a body's members, as spelled there. */
#ifndef CONDUCTOR_FRONT_OPENAI_BODY_VALUE_H
#define CONDUCTOR_FRONT_OPENAI_BODY_VALUE_H

#include "conductor/core/index/block_key.h"
#include "conductor/front/openai/body/body.h"
#include "conductor/front/openai/body/member.h"

/* Reads a short text without NUL characters into text. Returns whether it is
 * one. */
bool value_text(struct forward_slice v, char text[FORWARD_MODEL_BYTES]);

/* Returns whether a value is these bytes. */
bool value_is(struct forward_slice v, const char *text);

/* Returns a whole number, UINT32_MAX for a larger one; 0 for other values. */
uint32_t value_number(struct forward_slice v);

/* Returns what a member of a /v1/schedule body, from a gateway, must be, if its
 * value is not; for token_ids always. NULL = the value is right, or the member
 * has no rule. */
const char *value_must_be(const struct member *m, struct forward_slice v);

/* Returns a whole number, clamped to what fits; 0 for other values. */
int32_t value_priority(struct forward_slice v);

/* Returns the bytes from at to end without trailing white space. */
size_t value_trimmed(const char *at, const char *end);

/*
 * Makes the block_key_name() of a text and two values, joined as in the
 * engine's events.
 *   set   the text; "" = none.
 *   a, b  values, or n 0.
 * Returns 0 or -ENOMEM.
 */
[[nodiscard]] int value_key_name(const char *set, struct forward_slice a,
                                 struct forward_slice b,
                                 char name[BLOCK_KEY_NAME_BYTES]);

/* Returns whether a member makes a request more than one prompt and one answer.
 *   prompt  the member is the prompt. */
bool value_makes_whole(const struct member *m, struct forward_slice v,
                       bool prompt);

/* value_hash(h, bytes, n): continues the FNV-1a hash `h`, which begins as
 * VALUE_HASH_BEGIN, with these bytes. They are short, and a collision only
 * worsens the guess where a client's own blocks are. */
#define VALUE_HASH_BEGIN 0xcbf29ce484222325u
uint64_t value_hash(uint64_t h, const char *bytes, size_t n);

#endif
