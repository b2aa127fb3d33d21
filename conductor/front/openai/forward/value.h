/* Values of a body's members, as they stand there. */
#ifndef CONDUCTOR_FRONT_OPENAI_FORWARD_VALUE_H
#define CONDUCTOR_FRONT_OPENAI_FORWARD_VALUE_H

#include "conductor/core/index/block_key.h"
#include "conductor/front/openai/forward/forward.h"

/* A short text without NUL characters, into text. Returns whether it is one. */
bool value_text(struct forward_slice v, char text[FORWARD_MODEL_BYTES]);

/* Whether it is these bytes. */
bool value_is(struct forward_slice v, const char *text);

/* A whole number, UINT32_MAX if it is larger; 0 for all else. */
uint32_t value_number(struct forward_slice v);

/* What a member of a question where to send a request must be, which is no
 * client's, and what it is not; *name is its name, static. Of token_ids
 * whatever they are. NULL: it is right, or another one. */
const char *value_must_be(const char *key, struct forward_slice v,
                          const char **name);

/* A whole number, cut to what fits; 0 for all else. */
int32_t value_priority(struct forward_slice v);

/* Whether a member's name is one of these; NULL behind them. */
bool value_names(const char *key, const char *const *names);

/* The bytes from at to end without white space behind them. */
size_t value_trimmed(const char *at, const char *end);

/*
 * The name of a text and what two values say, one behind the other, as the
 * engine's events have it.
 *   set   what comes first; "": nothing.
 *   a, b  values, or n 0.
 * Returns 0 or -ENOMEM.
 */
[[nodiscard]] int value_key_name(const char *set, struct forward_slice a,
                                 struct forward_slice b,
                                 char name[BLOCK_KEY_NAME_BYTES]);

/* Whether a member makes more of a request than one prompt and its answer.
 *   prompt  it is the prompt. */
bool value_makes_whole(const char *key, struct forward_slice v, bool prompt);

/* value_hash(h, bytes, n): FNV-1a of what `h` is of, VALUE_HASH_BEGIN at first,
 * and of these. What goes in is short, and nobody gains by a collision but a
 * worse guess of where his own blocks are. */
#define VALUE_HASH_BEGIN 0xcbf29ce484222325u
uint64_t value_hash(uint64_t h, const char *bytes, size_t n);

#endif
