/* See file.h. */
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int file_read(const char *path, size_t most, char **text, size_t *size)
{
    int rc = 0;
    size_t have = 0;
    char *bytes = NULL;
    FILE *file = fopen(path, "re");

    if (!file)
        return -errno;
    /* One byte more than allowed shows whether the file is too large. */
    bytes = malloc(most + 1);
    if (!bytes) {
        rc = -ENOMEM;
        goto close_file;
    }
    errno = 0;
    have = fread(bytes, 1, most + 1, file);
    if (ferror(file) != 0) {
        rc = errno != 0 ? -errno : -EIO;
        goto free_bytes;
    }
    if (have > most) {
        rc = -EFBIG;
        goto free_bytes;
    }
    *text = bytes;
    *size = have;
    goto close_file;
free_bytes:
    free(bytes);
close_file:
    fclose(file);
    return rc;
}
