/*
 * Reads and checks fields of a JSON file, and keeps the first error: the
 * reader continues with harmless values, and checks once at the end.
 */
#ifndef BASE_JSON_FIELDS_H
#define BASE_JSON_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where messages go, and the first error. */
struct fields {
    const char *what; /* prefix of the file's name in messages: "" or "x " */
    const char *file; /* borrowed */
    char *err;        /* (err_size) */
    size_t err_size;
    int rc; /* 0 = no error so far */
};

/* An object of the file, and its path: "", or "prefill.". json NULL = the
 * object is missing, and so are all its fields. */
struct fields_object {
    json_t *json;
    const char *path;
};

/* Reads the fields of a file's outermost object into `into`. */
typedef void fields_reader(struct fields *f, const struct fields_object *root,
                           void *into);

/* Overwrites with blanks what people write in JSON, and JSON has not: comments,
 * from // to the end of the line or within a slash and a star, and a comma
 * after the last element of a list. Lines and columns stay as they are. */
void fields_blank_extras(char *json, size_t size);

/* Parses `size` bytes at `text` (UTF-8, needs no NUL), or, if `text` is NULL,
 * the file f->file of at most `size` bytes, skips a byte order mark, and in a
 * file comments, and calls read() with the object. Returns f->rc: 0, or -EINVAL
 * with a message, which begins with "line " if it is no JSON; for a file also
 * -EFBIG, -ENOMEM, or an error of open or read. */
[[nodiscard]] int fields_read(struct fields *f, const char *text, size_t size,
                              fields_reader *read, void *into);

/* Records the error "FILE: PATH KEY: message" if it is the first. The message
 * begins with the value; "FILE: " is left out if the file has no name. */
void fields_refuse(struct fields *f, const char *path, const char *key,
                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* As fields_refuse(): "VALUE: must be `expected`", a long value is cut off;
 * "missing" if it is NULL. */
void fields_refuse_got(struct fields *f, const char *path, const char *key,
                       const char *expected, const json_t *value);

/* As fields_refuse_got(), for the field `key` of an object. */
void fields_refuse_value(struct fields *f, const struct fields_object *o,
                         const char *key, const char *expected);

/* Returns the object under `key`, with `path` for its fields; it may be
 * missing if `optional`. */
struct fields_object fields_object(struct fields *f,
                                   const struct fields_object *parent,
                                   const char *key, const char *path,
                                   bool optional);

/* Refuses fields that are not in `keys`, a list separated by spaces: a
 * mistyped name must not be ignored, or look like a missing field. */
void fields_known(struct fields *f, const struct fields_object *o,
                  const char *keys);

/* Returns a number in least .. most, -HUGE_VAL and HUGE_VAL = no limit;
 * `fallback` if it is missing and not NULL. */
double fields_number(struct fields *f, const struct fields_object *o,
                     const char *key, double least, double most,
                     const double *fallback);

/* Returns an integer in least .. most; `fallback` if missing and not NULL. */
int64_t fields_integer(struct fields *f, const struct fields_object *o,
                       const char *key, int64_t least, int64_t most,
                       const int64_t *fallback);

/* Returns true or false; `fallback` if it is missing. */
bool fields_bool(struct fields *f, const struct fields_object *o,
                 const char *key, bool fallback);

/* Copies a text of 1 to size - 1 bytes without control characters into `text`;
 * `fallback` if it is missing and not NULL. */
void fields_text(struct fields *f, const struct fields_object *o,
                 const char *key, char *text, size_t size,
                 const char *fallback);

/* Refuses the field unless it is exactly this text. */
void fields_constant(struct fields *f, const struct fields_object *o,
                     const char *key, const char *expected);

/* Reads an array of exactly n finite numbers. */
void fields_numbers(struct fields *f, const struct fields_object *o,
                    const char *key, double *numbers, size_t n);

#endif
