/* See file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The file that a link leads to, so that the link stays. */
static int resolve(struct file_output *o, const char *path)
{
    char *real = realpath(path, NULL);
    int n = snprintf(o->path, sizeof o->path, "%s", real ? real : path);

    free(real);
    return n < (int)sizeof o->path ? 0 : -ENAMETOOLONG;
}

int file_output_open(struct file_output *o, const char *path)
{
    struct stat about;
    int fd = -1;
    int rc = resolve(o, path);

    o->file = NULL;
    o->temporary[0] = '\0';
    if (rc != 0)
        return rc;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        o->file = fopen(path, "we");
        return o->file ? 0 : -errno;
    }
    snprintf(o->temporary, sizeof o->temporary, "%s.%ld.tmp", o->path,
             (long)getpid());
    fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    o->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (o->file)
        return 0;
    rc = -errno;
    if (fd >= 0) {
        close(fd);
        unlink(o->temporary);
    }
    return rc;
}

int file_output_close(struct file_output *o, bool keep)
{
    bool replaces = o->temporary[0] != '\0';

    if (!o->file)
        return 0;
    int rc = ferror(o->file) != 0 ? -EIO : 0;
    if (rc == 0 && keep && replaces &&
        (fflush(o->file) != 0 || fsync(fileno(o->file)) != 0))
        rc = -errno;
    if (fclose(o->file) != 0 && rc == 0)
        rc = -errno;
    o->file = NULL;
    if (rc == 0 && keep && replaces && rename(o->temporary, o->path) != 0)
        rc = -errno;
    if (replaces && (rc != 0 || !keep))
        unlink(o->temporary);
    return rc;
}
