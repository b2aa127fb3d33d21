/* Files that hold a result. */
#ifndef TOOLS_RESULT_FILE_H
#define TOOLS_RESULT_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* Returns whether the path is an open descriptor, /dev/fd/N. */
bool result_is_open(const char *path);

/*
 * Opens a file for writing and empties it; /dev/fd/N is descriptor N itself, at
 * its position. Returns an owned stream, or NULL with errno set.
 */
[[nodiscard]] FILE *result_open(const char *path);

/* Copies all of the open file `from` to `path`, with result_open() and
 * result_close(). Returns 0 or a negative errno. */
[[nodiscard]] int result_copy(FILE *from, const char *path);

/* Closes a file. Returns 0, or -EIO when not everything could be written. */
[[nodiscard]] int result_close(FILE *file);

#endif
