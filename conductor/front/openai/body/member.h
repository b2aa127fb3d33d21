/*
 * The members of bodies that go on to engines: one table for all that is known
 * of a name, so that a name is looked up once. Pure.
 *
 * STEERS, INNER, KEYED: members that only Conductor may send (steer.h).
 *
 *   at the top of a body        STEERS are taken out, KEYED where keys are
 *                               required: proxies and SDKs set some on all
 *                               requests, and the request is as good without
 *   in an object that CARRIES   STEERS and INNER are refused, as nothing is
 *   them, fields of forms,      taken out there
 *   bodies of other gateways
 */
#ifndef CONDUCTOR_FRONT_OPENAI_BODY_MEMBER_H
#define CONDUCTOR_FRONT_OPENAI_BODY_MEMBER_H

#include <stdbool.h>

/* Members that are read. */
enum member_what {
    MEMBER_UNREAD,
    MEMBER_MODEL,
    MEMBER_STREAM,
    MEMBER_LIMIT,    /* of the answer's length */
    MEMBER_SAMPLING, /* an object that may have a LIMIT */
    MEMBER_PRIORITY,
    MEMBER_PREVIOUS, /* previous_response_id */
    MEMBER_CACHE_SALT,
    MEMBER_EXTRA_KEY, /* SGLang joins it with the salt */
    MEMBER_ADAPTER,
    /* In bodies of other gateways: */
    MEMBER_PROMPT_TOKENS,
    MEMBER_BLOCK_TOKENS,
    MEMBER_HASHES, /* an engine's, of the prompt's blocks */
    MEMBER_TOKEN_IDS,
    /* In objects below the top: */
    MEMBER_ID,
    MEMBER_TYPE,
    MEMBER_CONTENT,
    MEMBERS,
};

enum {
    MEMBER_STEERS = 1 << 0, /* at the top, or in an object that CARRIES it */
    MEMBER_INNER = 1 << 1,  /* in such an object alone */
    MEMBER_KEYED = 1 << 2,  /* at the top, where keys are required */
    MEMBER_CARRIES = 1 << 3,
    MEMBER_SALTS = 1 << 4,      /* the prompt's tokens depend on it */
    MEMBER_ONE = 1 << 5,        /* engines of a pair share the request if it
                                   is 1, */
    MEMBER_OFF = 1 << 6,        /* if it is false */
    MEMBER_REFERS_TOP = 1 << 7, /* to what engines keep, at the top */
    MEMBER_REFERS_BELOW = 1 << 8,
    MEMBER_REFERS_TEXT = 1 << 9, /* if it is a text or an array; an object is a
                                    schema */
    MEMBER_REFERS_OBJECT = 1 << 10,
    MEMBER_DATA = 1 << 11, /* the client's own data, or a schema: names in it
                              refer to nothing */
};

struct member {
    const char *name;
    unsigned is; /* bits above */
    enum member_what what;
    unsigned part; /* 1 + its index in forward_body.parts; 0 = none */
};

/* Returns all that is known of a member; static, never NULL. */
const struct member *member_find(const char *name);

/* Returns whether a member is taken out at the top of a body. keyed: keys are
 * required: names of things that an engine keeps may be another tenant's. */
static inline bool member_steers(const struct member *m, bool keyed)
{
    return m->is & (MEMBER_STEERS | (keyed ? MEMBER_KEYED : 0u));
}

/* Returns whether an object that CARRIES them, or a form, must not have it. */
static inline bool member_steers_inside(const struct member *m)
{
    return m->is & (MEMBER_STEERS | MEMBER_INNER);
}

#endif
