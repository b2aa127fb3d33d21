/* Shared by the files of question.c: question_members.c has the members,
 * question_json.c and question_msgpack.c read their values. Nobody else
 * includes this. */
#ifndef CONDUCTOR_FRONT_GATEWAY_QUESTION_READER_H
#define CONDUCTOR_FRONT_GATEWAY_QUESTION_READER_H

#include "conductor/front/gateway/question.h"
#include "conductor/json/walk.h"

enum question_kind {
    KIND_TEXT,
    KIND_NAME, /* a text, or a number as its text */
    KIND_NUMBER,
    KIND_TOKENS,
    KIND_HASHES,
    KIND_IGNORED, /* its value is not used */
};

struct question_member {
    const char *name;
    enum question_kind kind;
    unsigned paths; /* enum question_path */
    size_t at;      /* in struct question */
    int64_t least, most;
};

struct question_reader {
    struct json_walk walk; /* first, so that the walk's pointer is ours */
    enum question_path path;
    struct question *out;
    struct openai_error *error;
    uint64_t seen;                        /* bits of members */
    bool failed;                          /* *error is set */
    const struct question_member *member; /* the one whose array is read */
};

/* Sets the error to "NAME: WHY" with code `reason`. Returns -EINVAL. */
int question_refuse(struct question_reader *r, const char *reason,
                    const char *name, const char *why);

/* Refuses a member's value, or its i-th element if i is not negative, as being
 * of another kind. `value`: its first n bytes, borrowed; messages show the
 * printable ones. Returns -EINVAL with the error set. */
int question_refuse_type(struct question_reader *r,
                         const struct question_member *m, int64_t i,
                         const char *value, size_t n);

/* Returns the member of that name; NULL: refused, as it is unknown here or
 * comes twice. */
const struct question_member *question_member(struct question_reader *r,
                                              const char *name);

/* Returns where a text's value goes, (QUESTION_TEXT_BYTES). */
char *question_text(struct question_reader *r, const struct question_member *m);

/* Keep a member's value. Return 0, or -EINVAL with the error set. */
int question_take_text(struct question_reader *r,
                       const struct question_member *m, const char *text,
                       size_t n);
int question_take_number(struct question_reader *r,
                         const struct question_member *m, int64_t n);

/* Read the body: as JSON from r->walk, or as msgpack. Return 0, -EINVAL with
 * the error set, or -ENOMEM. */
int question_read_json(struct question_reader *r);
int question_read_msgpack(struct question_reader *r, const char *body,
                          size_t n);

#endif
