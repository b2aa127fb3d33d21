/* Files that hold a result. */
#ifndef TOOLS_RESULT_FILE_H
#define TOOLS_RESULT_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* Whether the path is that of an open descriptor, /dev/fd/N. */
bool result_is_open(const char *path);

/*
 * Opens the file for writing, emptied; /dev/fd/N is descriptor N itself, at its
 * place. Returns an owned stream, or NULL with errno set.
 */
[[nodiscard]] FILE *result_open(const char *path);

/* Writes all of the open file `from` to `path`, as result_open() and
 * result_close() do. Returns 0 or a negative errno. */
[[nodiscard]] int result_copy(FILE *from, const char *path);

/* Closes it. Returns 0, or -EIO when not everything could be written. */
[[nodiscard]] int result_close(FILE *file);

#endif
