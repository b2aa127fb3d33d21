/* Reads a JSON string into flat UTF-8 bytes. */
#ifndef CONDUCTOR_JSON_TEXT_H
#define CONDUCTOR_JSON_TEXT_H

#include <stddef.h>

/* Bytes after its output that json_text_read() may overwrite. */
#define JSON_TEXT_SLACK_BYTES 32

/*
 * Reads from just after the opening quote to just after the closing one.
 *   at     in: first byte after '"'; out: first byte after the closing '"', or
 *          near the byte that is wrong
 *   end    end of the readable bytes
 *   out    room for end - *at + JSON_TEXT_SLACK_BYTES bytes
 *   n_out  bytes written, valid UTF-8, may contain NUL; set on success
 *   why    what is wrong, a static string; set on an error only
 * Returns 0 or -EINVAL. Lone surrogates, unknown escapes, raw control
 * characters and invalid UTF-8 are refused. O(bytes): 32 at a time.
 */
[[nodiscard]] int json_text_read(const char **at, const char *end, char *out,
                                 size_t *n_out, const char **why);

/*
 * Moves from just after the opening quote to just after the closing one. Checks
 * the string as json_text_read() does, but allows half of a surrogate pair in
 * an escape, which is JSON.
 *   at   in: first byte after '"'; out: first byte after the closing one; on an
 *        error the byte that is wrong, or `end`: it never closes
 *   why  set on an error only, static
 * Returns 0 or -EINVAL. O(bytes): 16 at a time.
 */
[[nodiscard]] int json_text_check(const char **at, const char *end,
                                  const char **why);

/* Skips a string, from the byte after its opening quote. Returns the byte after
 * the closing quote, or NULL if there is none. Checks nothing. */
const char *json_text_skip(const char *at, const char *end);

#endif
