/* See file.h. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"

#define KEY_FILE_BYTES 4096
/* Age of temporary files that are removed. */
#define LEFT_S 3600

int file_open(const char *path, struct stat *about)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    int rc = fstat(fd, about)          ? -errno
             : S_ISREG(about->st_mode) ? 0
                                       : -EMEDIUMTYPE;
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

/* Reads until the end, or until `most` bytes are there. */
static ssize_t read_all(int fd, char *bytes, size_t most)
{
    size_t have = 0;
    ssize_t n = 1;

    while (n > 0 && have < most) {
        n = read(fd, bytes + have, most - have);
        have += n > 0 ? (size_t)n : 0;
        if (n < 0 && errno == EINTR)
            n = 1;
    }
    return n < 0 ? -errno : (ssize_t)have;
}

int file_read(const char *path, size_t most, char **text, size_t *size)
{
    struct stat about;
    int fd = file_open(path, &about);

    if (fd < 0)
        return fd;
    int rc = file_read_pipe(fd, most, text, size);
    close(fd);
    return rc;
}

int file_read_pipe(int fd, size_t most, char **text, size_t *size)
{
    /* One byte more than allowed shows whether the file is too large. */
    char *bytes = malloc(most + 1);
    ssize_t n = bytes ? read_all(fd, bytes, most + 1) : -ENOMEM;

    if (n >= 0 && (size_t)n <= most) {
        *text = bytes;
        *size = (size_t)n;
        return 0;
    }
    free(bytes);
    return n < 0 ? (int)n : -EFBIG;
}

const char *file_why(int rc)
{
    return rc == -EMEDIUMTYPE ? "not a regular file" : strerror(-rc);
}

const char *file_read_key(const char *path, char *key, size_t size)
{
    char *text;
    size_t n;
    int rc = file_read(path, KEY_FILE_BYTES, &text, &n);

    if (rc != 0)
        return file_why(rc);
    while (n > 0 && (unsigned char)text[n - 1] <= ' ')
        n--;
    bool good = n > 0 && n < size;
    for (size_t i = 0; i < n; i++)
        good = good && text[i] > ' ' && text[i] <= '~';
    if (good)
        snprintf(key, size, "%.*s", (int)n, text);
    explicit_bzero(text, n);
    free(text);
    return good ? NULL : "must hold one key of printable characters";
}

/* Resolves links, so that a link to the file stays. */
static int resolve(struct file_output *o, const char *path)
{
    char *real = realpath(path, NULL);
    int n = snprintf(o->path, sizeof o->path, "%s", real ? real : path);

    free(real);
    return n < (int)sizeof o->path ? 0 : -ENAMETOOLONG;
}

/* Returns whether a name is "NAME.PID.TIME.tmp", with a time of at least LEFT_S
 * ago. */
static bool is_old(const char *name, const char *of, time_t now_s)
{
    size_t n = strlen(of);
    long long time_ns, pid;
    int end = 0;

    return strncmp(name, of, n) == 0 &&
           sscanf(name + n, ".%lld.%lld.tmp%n", &pid, &time_ns, &end) == 2 &&
           end > 0 && name[n + (size_t)end] == '\0' &&
           time_ns / 1000000000 + LEFT_S <= now_s;
}

/* Removes a temporary file that no process has locked: its writer was killed. A
 * process id would not tell, as the writer may be of another container or
 * machine that shares the folder. */
static void remove_unlocked(int folder, const char *name)
{
    int fd = openat(folder, name,
                    O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, name, 0);
    close(fd);
}

/* Removes temporary files that killed processes left beside `path`. A new file
 * stays: its writer may not have locked it yet. */
static void remove_left(const char *path, time_t now_s)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    const struct dirent *entry;

    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path + 1), path);
    DIR *dir = opendir(folder);
    while (dir && (entry = readdir(dir)))
        if (is_old(entry->d_name, slash ? slash + 1 : path, now_s))
            remove_unlocked(dirfd(dir), entry->d_name);
    if (dir)
        closedir(dir);
}

/* The temporary name contains the time in ns, because a killed process may have
 * left a file of the same process id. */
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
    int64_t now_us = clock_wall_us();
    remove_left(o->path, now_us / 1000000);
    snprintf(o->temporary, sizeof o->temporary, "%s.%ld.%lld000.tmp", o->path,
             (long)getpid(), (long long)now_us);
    fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    o->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (o->file) {
        /* A file system without locks has no files removed, either. */
        flock(fd, LOCK_EX | LOCK_NB);
        return 0;
    }
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
        (fflush(o->file) != 0 || fsync(fileno(o->file)) != 0 ||
         rename(o->temporary, o->path) != 0)) /* while it is locked */
        rc = -errno;
    if (fclose(o->file) != 0 && rc == 0)
        rc = -errno;
    o->file = NULL;
    if (replaces && (rc != 0 || !keep))
        unlink(o->temporary);
    return rc;
}
