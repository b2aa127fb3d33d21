/* Walks over JSON objects and arrays and calls the caller's function for each
 * member. Knows just enough JSON for that. Values that the caller does not read
 * are skipped bracket by bracket: a strict walk checks them, any other leaves
 * that to a parser. */
#ifndef CONDUCTOR_JSON_WALK_H
#define CONDUCTOR_JSON_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_WALK_ERROR_BYTES 192
#define JSON_WALK_KEY_BYTES 256 /* of a member's name, at most */
#define JSON_WALK_DEPTH_MOST 512u

/* body <= p <= end. The caller embeds this struct in its own state. */
struct json_walk {
    const char *p;
    const char *body;
    const char *end;
    size_t max_depth;
    size_t max_members; /* of all objects that are read; 0 = unlimited */
    size_t members;
    size_t max_skipped; /* values in skipped parts; 0 = unlimited */
    size_t skipped;
    bool strict; /* skipped values must be JSON (RFC 8259), and their numbers
                    finite as doubles */
    /* In a strict walk: called for each member of a skipped value, with p at
     * the member's value. Returns 0; 1: do not call it for members inside that
     * value; or a negative error. NULL: never called. */
    int (*on_name)(struct json_walk *w, const char *key);
    /* Called likewise at the end of each object in a skipped value; may be
     * NULL. */
    void (*on_end)(struct json_walk *w);
    size_t depth; /* during these calls: the open brackets within the skipped
                     value, 1 to JSON_WALK_DEPTH_MOST; else 0 */
    const char *name;  /* where the last name began, at its quote */
    const char *param; /* static: the member that the walk is in, or NULL */
    size_t error_at;   /* the error's offset in the body */
    const char *error_param;
    char error[JSON_WALK_ERROR_BYTES];
};

/* Reads the value at p; `key` is its member's name, NULL in an array. Leaves
 * p behind the value. Returns 0 or a negative error. */
typedef int json_value_fn(struct json_walk *w, const char *key);

/* Notes an error at p, in words. Returns -EINVAL. */
int json_walk_fail(struct json_walk *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns whether c is white space between JSON values. NUL is not. */
static inline bool json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Returns the first byte of [p, end) that isn't white space, or `end`. */
static inline const char *json_skip_space(const char *p, const char *end)
{
    while (p < end && json_is_space(*p))
        p++;
    return p;
}

/* Returns how many bytes of the value at p a message shows: up to a delimiter,
 * 24 at most, all printable. */
int json_walk_shown(const struct json_walk *w);

/* Notes that the JSON ends or is wrong at p, where `expected` should stand.
 * Returns -EINVAL. */
int json_walk_fail_syntax(struct json_walk *w, const char *expected);

/* Passes the space before the body's object. Returns 0, or -EINVAL with the
 * reason in w: the body is empty, not JSON, or JSON of another type. */
int json_walk_open(struct json_walk *w);

/* Moves p to the next byte that isn't white space. Returns that byte, or NUL at
 * the end. */
char json_walk_peek(struct json_walk *w);

/* Skips the value at p. Returns 0 or -EINVAL, also over max_skipped.
 * O(bytes). */
[[nodiscard]] int json_walk_skip(struct json_walk *w);

/* Skips the value at p as a strict walk does, in at most max_depth brackets and
 * never more than 512. Returns 0 or -EINVAL, or what on_name returned.
 * O(bytes): texts 16 at a time. */
[[nodiscard]] int json_walk_check(struct json_walk *w);

/* Reads the integer at p into 64 bits, a negative one as two's complement.
 * Returns false, with p where it was, if it is no integer or needs more bits.
 */
[[nodiscard]] bool json_walk_bits(struct json_walk *w, uint64_t *out);

/* Returns the byte that a value at p of at most `most` bytes ends before. */
static inline const char *json_walk_within(const struct json_walk *w,
                                           size_t most)
{
    return most < (size_t)(w->end - w->p) ? w->p + most : w->end;
}

/* Returns how many bytes of a prompt for a window are read: 32 for each token,
 * as an id has at most ten digits, and something may stand between two ids; or
 * 1 MiB if that is more. */
static inline size_t json_prompt_bytes(size_t window_tokens)
{
    return window_tokens > 32768 ? 32 * window_tokens : (size_t)1 << 20;
}

/* Walks the object whose '{' is at p, and calls `read` for each value.
 * Returns 0 or the first error. A name of more than 256 bytes, or with a
 * NUL, is one. */
[[nodiscard]] int json_walk_object(struct json_walk *w, json_value_fn *read);

/* Walks the array whose '[' is at p, as json_walk_object() does. */
[[nodiscard]] int json_walk_array(struct json_walk *w, json_value_fn *read);

#endif
