/* Listening sockets, and the limit of open files. */
#include "base/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop/loop.h"

#define BACKLOG 1024
#define PAUSE_US 100000
/* Most connections accepted before other events get their turn. */
#define ACCEPTS_PER_TURN 16u
#define DESCRIPTORS_MAX (1u << 20) /* no program here needs more */

struct listener {
    int fd;
    struct loop_watch readable;
    struct loop_timer resume;
    listener_accepted *accepted;
    void *arg;
    uint16_t port;
    bool held;
    struct log_rate failures;
};

static void listen_again(void *arg)
{
    struct listener *l = arg;

    if (!l->held && loop_watch_start(&l->readable, 0))
        loop_timer_start(&l->resume, PAUSE_US);
}

/* Pauses, mostly because no descriptor is left. The socket stays readable, so
 * without a pause the loop would spin. */
static void pause_accepting(struct listener *l, int error)
{
    if (log_rate_takes(&l->failures, 1))
        log_warn("port %u: cannot accept connections: %s", l->port,
                 strerror(error));
    loop_watch_stop(&l->readable);
    loop_timer_start(&l->resume, PAUSE_US);
}

/* Accepts up to ACCEPTS_PER_TURN; the rest stays readable for the next turn. */
static void on_readable(void *arg, unsigned)
{
    struct listener *l = arg;

    for (unsigned i = 0; i < ACCEPTS_PER_TURN && !l->held; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                pause_accepting(l, errno);
            return;
        }
        l->accepted(l->arg, fd);
    }
}

static int lookup(const char *host, uint16_t port, struct addrinfo **list)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE};
    char service[8];

    snprintf(service, sizeof(service), "%u", port);
    return getaddrinfo(host, service, &hints, list);
}

/* Returns 0, or -1 with errno set. A Unix socket has port 0. */
static int read_port(int fd, uint16_t *port)
{
    struct sockaddr_storage name;
    socklen_t n = sizeof(name);

    *port = 0;
    if (getsockname(fd, (struct sockaddr *)&name, &n))
        return -1;
    if (name.ss_family == AF_INET6)
        *port = ntohs(((struct sockaddr_in6 *)&name)->sin6_port);
    else if (name.ss_family == AF_INET)
        *port = ntohs(((struct sockaddr_in *)&name)->sin_port);
    return 0;
}

/* Returns a socket that listens on `a`, or -errno. */
static int listen_on(const struct addrinfo *a, uint16_t *port)
{
    int on = 1;
    int fd =
        socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG) ||
        read_port(fd, port)) {
        int rc = -errno;

        close(fd);
        return rc;
    }
    return fd;
}

/* As listen_on(), for the first address of host that can be bound. */
static int listen_on_host(const char *host, uint16_t port, uint16_t *bound,
                          const char **why)
{
    struct addrinfo *list;
    int fd = -EADDRNOTAVAIL;
    int rc = lookup(host, port, &list);

    *why = gai_strerror(rc);
    if (rc)
        return fd;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = listen_on(a, bound);
    freeaddrinfo(list);
    *why = strerror(-fd);
    return fd;
}

/* Makes the loop watch the listening socket `fd`; takes fd. */
static int watch(struct listener *l, struct loop *loop, int fd)
{
    l->fd = fd;
    loop_timer_init(loop, &l->resume, listen_again, l);
    loop_watch_init(loop, &l->readable, fd, LOOP_READ, on_readable, l);
    return loop_watch_start(&l->readable, 0);
}

/* Returns a listener without a socket, or NULL: out of memory. */
static struct listener *listener_alloc(listener_accepted *accepted, void *arg)
{
    struct listener *l = calloc(1, sizeof(*l));

    if (l)
        *l = (struct listener){.fd = -1, .accepted = accepted, .arg = arg};
    return l;
}

int listener_new(struct loop *loop, const char *host, uint16_t port,
                 listener_accepted *accepted, void *arg, struct listener **out,
                 char *err, size_t err_bytes)
{
    struct listener *l = listener_alloc(accepted, arg);
    const char *why = "out of memory";
    int rc = l ? listen_on_host(host, port, &l->port, &why) : -ENOMEM;

    if (rc >= 0) {
        rc = watch(l, loop, rc);
        why = "out of memory";
    }
    if (rc < 0) {
        snprintf(err, err_bytes, "%.200s:%u: %s", host, port, why);
        listener_free(l);
        return rc;
    }
    *out = l;
    return 0;
}

int listener_take(struct loop *loop, int fd, listener_accepted *accepted,
                  void *arg, struct listener **out)
{
    struct listener *l = listener_alloc(accepted, arg);
    int rc = -ENOMEM;

    if (!l || read_port(fd, &l->port) ||
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) ||
        fcntl(fd, F_SETFD, FD_CLOEXEC)) {
        rc = l ? -errno : rc;
        close(fd);
        free(l);
        return rc;
    }
    rc = watch(l, loop, fd);
    if (rc)
        listener_free(l);
    else
        *out = l;
    return rc;
}

void listener_hold(struct listener *l, bool on)
{
    l->held = on;
    if (on)
        loop_watch_stop(&l->readable);
    else
        listen_again(l);
}

void listener_free(struct listener *l)
{
    if (!l)
        return;
    loop_timer_stop(&l->resume);
    loop_watch_stop(&l->readable);
    if (l->fd >= 0)
        close(l->fd);
    free(l);
}

uint16_t listener_port(const struct listener *l)
{
    return l->port;
}

static bool address_is_loopback(const struct sockaddr *sa)
{
    const struct in6_addr *a6 = &((const struct sockaddr_in6 *)sa)->sin6_addr;
    uint32_t a4 = ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr);

    if (sa->sa_family == AF_INET)
        return a4 >> 24 == 127;
    return sa->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(a6) ||
            (IN6_IS_ADDR_V4MAPPED(a6) && a6->s6_addr[12] == 127));
}

bool host_is_loopback(const char *host)
{
    struct addrinfo *list;
    bool all = true;

    if (lookup(host, 0, &list))
        return false;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        all = all && address_is_loopback(a->ai_addr);
    freeaddrinfo(list);
    return all;
}

uint64_t descriptors_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return DESCRIPTORS_MAX;
    rlim_t most =
        limit.rlim_max < DESCRIPTORS_MAX ? limit.rlim_max : DESCRIPTORS_MAX;
    if (limit.rlim_cur >= most)
        return limit.rlim_cur;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = most;
    return setrlimit(RLIMIT_NOFILE, &limit) ? before : most;
}
