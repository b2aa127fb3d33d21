/* Small files read as a whole. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>

/*
 * Reads the file at `path`. Returns 0 with *text (owned by the caller, not
 * NUL-terminated) and *size; or -EFBIG if it has more than `most` bytes,
 * -ENOMEM, or what open and read report.
 */
int file_read(const char *path, size_t most, char **text, size_t *size)
    __attribute__((warn_unused_result));

#endif
