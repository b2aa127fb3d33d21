#include "base/supervisor.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

#define FIRST_FD 3 /* SD_LISTEN_FDS_START */
#define FDS_MAX 16
#define MESSAGE_BYTES 128

/* The number in an environment variable; -1 = none. */
static long long number_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    long long n = text ? strtoll(text, &end, 10) : -1;

    return text && *text && !*end ? n : -1;
}

/* Whether the i-th of the colon-separated names is `name`. */
static bool is_named(const char *names, long long i, const char *name)
{
    size_t n;

    for (; i > 0 && names; i--) {
        names = strchr(names, ':');
        names = names ? names + 1 : NULL;
    }
    n = names ? strcspn(names, ":") : 0;
    return n == strlen(name) && strncmp(names, name, n) == 0;
}

/* Sets a socket up as base/loop/net.h does. Returns it, or -1. */
static int prepare(int fd)
{
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) ||
                   fcntl(fd, F_SETFD, FD_CLOEXEC)
               ? -1
               : fd;
}

int supervisor_socket(const char *name)
{
    long long n = number_of("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    int listens = 0;
    socklen_t size = sizeof(listens);

    if (number_of("LISTEN_PID") != getpid() || n < 1 || n > FDS_MAX)
        return -1;
    for (int i = 0; i < n; i++)
        if ((is_named(names, i, name) ||
             (n == 1 && strcmp(name, "http") == 0)) &&
            getsockopt(FIRST_FD + i, SOL_SOCKET, SO_ACCEPTCONN, &listens,
                       &size) == 0 &&
            listens)
            return prepare(FIRST_FD + i);
    return -1;
}

void supervisor_say(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    int fd;

    if (n < 2 || n >= sizeof(to.sun_path) || (*path != '/' && *path != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (*path == '@')
        to.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    /* Nothing depends on it: without a supervisor nobody reads it. */
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL,
                  (const struct sockaddr *)&to,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}

void supervisor_reloads(void)
{
    char text[MESSAGE_BYTES];

    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)clock_now_us());
    supervisor_say(text);
}

int64_t supervisor_watchdog_us(void)
{
    long long us = number_of("WATCHDOG_USEC"), pid = number_of("WATCHDOG_PID");

    return us > 0 && (pid < 0 || pid == getpid()) ? us : 0;
}
