/* See log.h. The loop fills one buffer while the thread writes the other. */
#include "conductor/service/access/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#define BUFFER_BYTES (ACCESS_LOG_BYTES / 2)
#define PATIENCE_US 1000000 /* in access_log_free() */

struct access_log {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* The lock protects all below, except `writes` and `torn`, which only the
     * thread uses. */
    bool torn;            /* the file ends within a line */
    char *fills, *writes; /* (BUFFER_BYTES) owned */
    size_t n;             /* in fills */
    int fd;               /* for the lines in fills; -1 = none */
    int next_fd;          /* if `changes`: for the lines */
    size_t changes_at;    /* from this offset on */
    bool changes, ends;
    int64_t ends_us; /* when the thread gives up */
    uint64_t lost;
};

/* Opens a pipe for reading, too: then opening needs no reader, and the pipe
 * keeps lines while a reader restarts. */
static int open_file(const char *path, int make)
{
    int flags = O_APPEND | O_CLOEXEC | O_NONBLOCK;
    struct stat is;
    int fd = -1;

    if (stat(path, &is) == 0 && S_ISFIFO(is.st_mode))
        fd = open(path, O_RDWR | flags);
    return fd >= 0 ? fd : open(path, O_WRONLY | flags | make, 0640);
}

int access_log_open_file(const char *path)
{
    int fd = strcmp(path, "-") == 0 ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                                    : open_file(path, O_CREAT);

    return fd < 0 ? -errno : fd;
}

int access_log_check_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    int fd;

    if (strcmp(path, "-") == 0)
        return 0;
    fd = open_file(path, 0);
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    if (errno != ENOENT) /* ENOENT: the file would be created */
        return -errno;
    snprintf(folder, sizeof(folder), "%.*s",
             slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    return faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) ? -errno : 0;
}

static uint64_t count_lines(const char *text, size_t n)
{
    uint64_t lines = 0;

    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

static bool gives_up(struct access_log *log)
{
    pthread_mutex_lock(&log->lock);
    bool yes = log->ends && clock_now_us() > log->ends_us;
    pthread_mutex_unlock(&log->lock);
    return yes;
}

/* Returns the size of a piece that a pipe takes atomically: whole lines if one
 * fits, so that a kill between two pieces tears no line. */
static size_t piece_of(const char *text, size_t n)
{
    const char *end = n > PIPE_BUF ? memrchr(text, '\n', PIPE_BUF) : NULL;

    return end ? (size_t)(end - text) + 1 : n < PIPE_BUF ? n : PIPE_BUF;
}

/* Writes n bytes, in pieces. Returns the bytes left. */
static size_t write_all(struct access_log *log, int fd, const char *text,
                        size_t n)
{
    while (n > 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};

        if (poll(&p, 1, 100) == 0) {
            if (gives_up(log))
                return n;
            continue;
        }
        ssize_t done = write(fd, text, piece_of(text, n));
        if (done < 0 && errno != EINTR && errno != EAGAIN)
            return n;
        text += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return 0;
}

/* Writes lines, without the lock. Returns the number not written. Begins with
 * the end of a line that an error cut, so that only that line is spoiled. */
static uint64_t put_lines(struct access_log *log, int fd, const char *text,
                          size_t n)
{
    size_t left = n;

    if (fd >= 0 && n > 0 && log->torn)
        log->torn = write_all(log, fd, "\n", 1) > 0;
    if (fd >= 0 && !log->torn)
        left = write_all(log, fd, text, n);
    if (left < n)
        log->torn = text[n - left - 1] != '\n';
    return count_lines(text + n - left, left);
}

/* Writes the lines so far, and switches to the next file. With the lock held.
 */
static void serve(struct access_log *log)
{
    char *text = log->fills;
    size_t n = log->n, first = log->changes ? log->changes_at : n;
    int old_fd = log->fd, fd = log->changes ? log->next_fd : old_fd;
    uint64_t lost;

    log->fills = log->writes;
    log->writes = text;
    log->n = 0;
    log->changes = false;
    log->fd = fd;
    pthread_mutex_unlock(&log->lock);
    lost = put_lines(log, old_fd, text, first);
    if (fd != old_fd) {
        if (old_fd >= 0)
            close(old_fd);
        log->torn = false;
    }
    lost += put_lines(log, fd, text + first, n - first);
    pthread_mutex_lock(&log->lock);
    log->lost += lost;
}

static void *run(void *arg)
{
    struct access_log *log = arg;

    pthread_mutex_lock(&log->lock);
    while (!log->ends || log->n > 0 || log->changes)
        if (log->n > 0 || log->changes)
            serve(log);
        else
            pthread_cond_wait(&log->wake, &log->lock);
    pthread_mutex_unlock(&log->lock);
    return NULL;
}

static int start_thread(struct access_log *log)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&log->thread, NULL, run, log);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

int access_log_new(struct access_log **out)
{
    struct access_log *log = calloc(1, sizeof(*log));
    int rc = -ENOMEM;

    if (!log)
        return rc;
    log->fd = log->next_fd = -1;
    pthread_mutex_init(&log->lock, NULL);
    pthread_cond_init(&log->wake, NULL);
    log->fills = malloc(BUFFER_BYTES);
    log->writes = malloc(BUFFER_BYTES);
    if (log->fills && log->writes)
        rc = start_thread(log);
    if (rc == 0) {
        *out = log;
        return 0;
    }
    free(log->fills);
    free(log->writes);
    free(log);
    return rc;
}

void access_log_take(struct access_log *log, int fd)
{
    pthread_mutex_lock(&log->lock);
    if (!log->changes)
        log->changes_at = log->n;
    else if (log->next_fd >= 0)
        close(log->next_fd);
    log->next_fd = fd;
    log->changes = true;
    pthread_cond_signal(&log->wake);
    pthread_mutex_unlock(&log->lock);
}

bool access_log_is_open(const struct access_log *log)
{
    /* Only the loop changes next_fd. */
    return log->next_fd >= 0;
}

void access_log_add(struct access_log *log, const char *line, size_t n)
{
    pthread_mutex_lock(&log->lock);
    if (n > BUFFER_BYTES - log->n)
        log->lost++;
    else {
        memcpy(log->fills + log->n, line, n);
        log->n += n;
        pthread_cond_signal(&log->wake);
    }
    pthread_mutex_unlock(&log->lock);
}

uint64_t access_log_lost(struct access_log *log)
{
    pthread_mutex_lock(&log->lock);
    uint64_t lost = log->lost;
    pthread_mutex_unlock(&log->lock);
    return lost;
}

size_t access_log_waiting(struct access_log *log)
{
    pthread_mutex_lock(&log->lock);
    size_t n = log->n;
    pthread_mutex_unlock(&log->lock);
    return n;
}

void access_log_free(struct access_log *log)
{
    if (!log)
        return;
    pthread_mutex_lock(&log->lock);
    log->ends = true;
    log->ends_us = clock_now_us() + PATIENCE_US;
    pthread_cond_signal(&log->wake);
    pthread_mutex_unlock(&log->lock);
    pthread_join(log->thread, NULL);
    if (log->fd >= 0)
        close(log->fd);
    pthread_cond_destroy(&log->wake);
    pthread_mutex_destroy(&log->lock);
    free(log->fills);
    free(log->writes);
    free(log);
}
