/* A stdio stream over zlib. */
#include "traces/file.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

static ssize_t gzip_write(void *cookie, const char *bytes, size_t size)
{
    unsigned part = size < 1u << 30 ? (unsigned)size : 1u << 30;

    /* Returns 0 on errors, as gzwrite() does and fopencookie(3) expects. */
    return gzwrite(cookie, bytes, part);
}

static int gzip_close(void *cookie)
{
    if (gzclose(cookie) == Z_OK)
        return 0;
    errno = EIO;
    return EOF;
}

FILE *trace_file_create(const char *path)
{
    size_t n = strlen(path);

    if (n < 3 || strcmp(path + n - 3, ".gz") != 0)
        return fopen(path, "we");
    errno = 0;
    gzFile gzip = gzopen(path, "wbe");
    if (!gzip) {
        errno = errno != 0 ? errno : ENOMEM;
        return NULL;
    }
    const cookie_io_functions_t calls = {.write = gzip_write,
                                         .close = gzip_close};
    FILE *file = fopencookie(gzip, "w", calls);
    if (!file)
        gzclose(gzip);
    return file;
}
