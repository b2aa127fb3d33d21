/* Reads a file line by line, plain or gzip, in bounded memory. */
#ifndef TRACES_LINES_H
#define TRACES_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/trace.h"

/* Longest line; a longer one is an error. */
#define TRACE_LINE_BYTES_MAX ((size_t)8 << 20)

struct trace_lines;

/*
 * Opens `path`. Returns 0 with *lines owned by the caller, or a negative errno
 * with `error` filled and *lines untouched; -ESPIPE: not a regular file, with
 * regular_only.
 */
[[nodiscard]] int trace_lines_open(const char *path, bool regular_only,
                                   struct trace_lines **lines,
                                   struct trace_error *error);

/* Closes the file and frees the reader; NULL is a no-op. */
void trace_lines_free(struct trace_lines *lines);

/*
 * Reads the next line that is not blank: line[0 .. bytes) without its newline,
 * borrowed until the next call. Returns 1; 0 at the end of the file; -EINVAL
 * for a line that is too long, -EIO for a damaged file or -ENOMEM, each with
 * `error` filled. After -EINVAL the next call continues with the next line.
 */
[[nodiscard]] int trace_lines_next(struct trace_lines *lines, const char **line,
                                   size_t *bytes, struct trace_error *error);

/* Returns the number of the line read last, from 1. */
uint64_t trace_lines_number(const struct trace_lines *lines);

#endif
