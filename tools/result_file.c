/* See result_file.h. */
#include "tools/result_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool result_is_open(const char *path)
{
    return strncmp(path, "/dev/fd/", strlen("/dev/fd/")) == 0;
}

FILE *result_open(const char *path)
{
    int fd = -1;

    if (sscanf(path, "/dev/fd/%d", &fd) != 1)
        return fopen(path, "we");
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !file)
        close(fd);
    return file;
}

int result_close(FILE *file)
{
    bool failed = ferror(file) != 0;

    return fclose(file) != 0 || failed ? -EIO : 0;
}

int result_copy(FILE *from, const char *path)
{
    char bytes[16384];
    size_t n;

    rewind(from);
    FILE *to = result_open(path);
    if (!to)
        return -errno;
    while ((n = fread(bytes, 1, sizeof bytes, from)) > 0)
        fwrite(bytes, 1, n, to);
    bool failed = ferror(from) != 0;
    return result_close(to) != 0 || failed ? -EIO : 0;
}
