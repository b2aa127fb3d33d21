/* See real.h. */
#include "tests/world/redis/real.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 90
#define TRIES 3000 /* of 10 ms, until it listens */

struct real {
    char folder[64];
    char socket[PATH_BYTES], clock[PATH_BYTES];
    volatile int64_t *clock_us;
    pid_t pid;
};

static const char *find_server(void)
{
    static const char *const paths[] = {"/usr/bin/redis-server",
                                        "/usr/local/bin/redis-server"};

    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    return NULL;
}

static int make_clock(struct real *r, int64_t clock_us)
{
    int fd = open(r->clock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    void *at = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof(int64_t)) == 0)
        at = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                  0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED)
        return -1;
    r->clock_us = at;
    *r->clock_us = clock_us;
    return 0;
}

/* In the child. Nothing expires before it is looked at, as in the model. */
static void run(const struct real *r, const char *path, const char *password)
{
    int null = open("/dev/null", O_RDWR);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    unsetenv("ASAN_OPTIONS");
    setenv("LD_PRELOAD", REDIS_CLOCK_LIBRARY, 1);
    setenv("REDIS_CLOCK", r->clock, 1);
    execl(path, "redis-server", "--port", "0", "--unixsocket", r->socket,
          "--dir", r->folder, "--save", "", "--appendonly", "no",
          "--requirepass", password, "--enable-debug-command", "yes", NULL);
    _exit(127);
}

static int wait_for(const struct real *r)
{
    for (int i = 0; i < TRIES; i++) {
        int fd = real_connect(r);

        if (fd >= 0) {
            close(fd);
            return 0;
        }
        if (waitpid(r->pid, NULL, WNOHANG) != 0)
            return -1;
        usleep(10000);
    }
    return -1;
}

struct real *real_start(const char *password, int64_t clock_us, char *why,
                        size_t why_bytes)
{
    const char *path = find_server();
    struct real *r;

    if (!path) {
        snprintf(why, why_bytes, "redis-server is not installed");
        return NULL;
    }
    r = calloc(1, sizeof(*r));
    if (!r)
        abort();
    snprintf(r->folder, sizeof(r->folder), "/tmp/redis-differs-XXXXXX");
    if (mkdtemp(r->folder)) {
        snprintf(r->socket, PATH_BYTES, "%s/socket", r->folder);
        snprintf(r->clock, PATH_BYTES, "%s/clock", r->folder);
        if (make_clock(r, clock_us) == 0)
            r->pid = fork();
    }
    if (r->pid == 0 && r->clock_us)
        run(r, path, password);
    if (r->pid > 0 && wait_for(r) == 0)
        return r;
    snprintf(why, why_bytes, "redis-server does not start: %s",
             strerror(errno));
    real_stop(r);
    return NULL;
}

void real_stop(struct real *r)
{
    if (!r)
        return;
    if (r->pid > 0) {
        kill(r->pid, SIGKILL);
        waitpid(r->pid, NULL, 0);
    }
    if (r->clock_us)
        munmap((void *)(uintptr_t)r->clock_us, sizeof(int64_t));
    unlink(r->socket);
    unlink(r->clock);
    rmdir(r->folder);
    free(r);
}

void real_set_clock(struct real *r, int64_t clock_us)
{
    *r->clock_us = clock_us;
}

int real_connect(const struct real *r)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(to.sun_path, r->socket, strlen(r->socket) + 1);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}
