/*
 * Walks over JSON objects and arrays whose members someone else reads.
 * Knows just enough JSON for that; values that nobody reads are skipped
 * bracket by bracket and left to be checked by a parser, or, of a strict walk,
 * checked as they are skipped.
 */
#ifndef CONDUCTOR_FRONT_JSON_WALK_H
#define CONDUCTOR_FRONT_JSON_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_WALK_ERROR_BYTES 192
#define JSON_WALK_KEY_BYTES 256 /* of a member's name, at most */
#define JSON_WALK_DEPTH_MOST 512u

/* body <= p <= end. The reader's own state lies around this struct. */
struct json_walk {
    const char *p;
    const char *body;
    const char *end;
    size_t max_depth;
    size_t max_members; /* of all objects that are read; 0: no bound */
    size_t members;
    size_t max_skipped; /* values in what is skipped; 0: no bound */
    size_t skipped;
    bool strict; /* what is skipped must be JSON (RFC 8259), and its numbers
                    finite as doubles */
    /* Of a strict walk: hears the names of members in what is skipped, with p
     * at the value. Returns 0; 1: not of those in this value; or a negative
     * error. NULL: nobody hears them. */
    int (*on_name)(struct json_walk *w, const char *key);
    /* Likewise at the end of each object in what is skipped; may be NULL. */
    void (*on_end)(struct json_walk *w);
    size_t depth;      /* then: the brackets that are open around, in what is
                          skipped; 1 to JSON_WALK_DEPTH_MOST. Else 0 */
    const char *name;  /* where the last name began, at its quote */
    const char *param; /* static: what the walk is inside of, or NULL */
    size_t error_at;   /* of the failure: offset in the body */
    const char *error_param;
    char error[JSON_WALK_ERROR_BYTES];
};

/* Reads the value at p; `key` is its member's name, NULL in an array. Leaves
 * p behind the value. Returns 0 or a negative error. */
typedef int json_value_fn(struct json_walk *w, const char *key);

/* Note an error at p, in words. Returns -EINVAL. */
int json_walk_fail(struct json_walk *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether it is white space between values; a NUL is none. */
static inline bool json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* How many bytes of the value at p to show in a message: up to a delimiter, 24
 * at most, all printable. */
int json_walk_shown(const struct json_walk *w);

/* Note that the JSON breaks off or goes wrong at p. Returns -EINVAL. */
int json_walk_fail_syntax(struct json_walk *w, const char *expected);

/* Go to the next byte that isn't white space; it, or NUL at the end. */
char json_walk_peek(struct json_walk *w);

/* Skip the value at p. Returns 0 or -EINVAL, also when max_skipped are passed.
 * O(bytes). */
[[nodiscard]] int json_walk_skip(struct json_walk *w);

/* Skips the value at p as a strict walk does, in at most max_depth brackets and
 * never more than 512. Returns 0 or -EINVAL, or what on_name returned.
 * O(bytes): texts 16 at a time. */
[[nodiscard]] int json_walk_check(struct json_walk *w);

/* Reads the whole number at p as its 64 bits; one below 0 as two's complement.
 * false: it is none, or has more; p stays. */
[[nodiscard]] bool json_walk_bits(struct json_walk *w, uint64_t *out);

/* Walk the object whose '{' is at p, handing each value to `read`. Returns 0
 * or the first error. A name of more than 256 bytes, or with a NUL, is one. */
[[nodiscard]] int json_walk_object(struct json_walk *w, json_value_fn *read);

/* Walk the array whose '[' is at p, as json_walk_object does. */
[[nodiscard]] int json_walk_array(struct json_walk *w, json_value_fn *read);

#endif
