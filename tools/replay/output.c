/* See output.h. */
#include "tools/replay/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/result_file.h"

/* The file that a link leads to, so that the link stays. */
static int resolve(struct replay_output *o, const char *path)
{
    char *real = realpath(path, NULL);
    int n = snprintf(o->path, sizeof o->path, "%s", real ? real : path);

    free(real);
    return n < (int)sizeof o->path ? 0 : -ENAMETOOLONG;
}

int replay_output_open(struct replay_output *o, const char *path)
{
    struct stat about;

    o->file = NULL;
    o->temporary[0] = '\0';
    int rc = resolve(o, path);
    if (rc != 0)
        return rc;
    if (result_is_open(path) ||
        (stat(path, &about) == 0 && !S_ISREG(about.st_mode))) {
        o->file = result_open(path);
        return o->file ? 0 : -errno;
    }
    snprintf(o->temporary, sizeof o->temporary, "%s.%ld.tmp", o->path,
             (long)getpid());
    int fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    o->file = fdopen(fd, "w");
    if (!o->file) {
        rc = -errno;
        close(fd);
        unlink(o->temporary);
    }
    return rc;
}

int replay_output_close(struct replay_output *o, int keep)
{
    if (!o->file)
        return 0;
    int rc = ferror(o->file) != 0 ? -EIO : 0;
    if (fclose(o->file) != 0 && rc == 0)
        rc = -errno;
    o->file = NULL;
    if (o->temporary[0] == '\0')
        return rc;
    if (rc == 0 && keep && rename(o->temporary, o->path) != 0)
        rc = -errno;
    if (rc != 0 || !keep)
        unlink(o->temporary);
    return rc;
}
