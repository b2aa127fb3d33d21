/* Listening sockets, and the limit of open files. */
#include "base/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "base/loop/net.h"

#define PAUSE_US 100000
/* Most connections accepted before other events get their turn. */
#define ACCEPTS_PER_TURN 16u
#define DESCRIPTORS_MAX (1u << 20) /* no program here needs more */

struct listener {
    struct loop *loop;
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
        int fd = net_accept(l->loop, l->fd);

        if (fd < 0) {
            if (fd != -EAGAIN && fd != -EINTR && fd != -ECONNABORTED)
                pause_accepting(l, -fd);
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

/* Writes the port of a listening socket; a Unix socket has port 0. Returns 0,
 * or a negative errno. */
static int read_port(struct loop *loop, int fd, uint16_t *port)
{
    struct sockaddr_storage name;
    int n = net_address(loop, fd, false, &name);

    *port = 0;
    if (n < 0)
        return n;
    if (name.ss_family == AF_INET6)
        *port = ntohs(((struct sockaddr_in6 *)&name)->sin6_port);
    else if (name.ss_family == AF_INET)
        *port = ntohs(((struct sockaddr_in *)&name)->sin_port);
    return 0;
}

/* Returns a socket that listens on `a`, or a negative errno. */
static int listen_on(struct loop *loop, const struct addrinfo *a,
                     uint16_t *port)
{
    int fd = net_listen(loop, a->ai_addr, a->ai_addrlen);
    int rc = fd < 0 ? fd : read_port(loop, fd, port);

    if (rc == 0)
        return fd;
    if (fd >= 0)
        net_close(loop, fd);
    return rc;
}

/* As listen_on(), for the first address of host that can be bound. */
static int listen_on_host(struct loop *loop, const char *host, uint16_t port,
                          uint16_t *bound, const char **why)
{
    struct addrinfo *list;
    int fd = -EADDRNOTAVAIL;
    int rc = lookup(host, port, &list);

    *why = gai_strerror(rc);
    if (rc)
        return fd;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = listen_on(loop, a, bound);
    freeaddrinfo(list);
    *why = listener_why(fd);
    return fd;
}

const char *listener_why(int rc)
{
    switch (rc) {
    case -EADDRNOTAVAIL:
        return "no such host, or not an address of this machine";
    case -EADDRINUSE:
        return "another program listens there: end it (ss -ltnp shows it), or "
               "choose another port";
    case -EACCES:
        return "a port below 1024 needs CAP_NET_BIND_SERVICE: choose a higher "
               "one, or give the program that capability";
    default:
        return strerror(-rc);
    }
}

/* Makes the loop watch the listening socket `fd`; takes fd. */
static int watch(struct listener *l, int fd)
{
    l->fd = fd;
    loop_timer_init(l->loop, &l->resume, listen_again, l);
    loop_watch_init(l->loop, &l->readable, fd, LOOP_READ, on_readable, l);
    return loop_watch_start(&l->readable, 0);
}

/* Returns a listener without a socket, or NULL: out of memory. */
static struct listener *listener_alloc(struct loop *loop,
                                       listener_accepted *accepted, void *arg)
{
    struct listener *l = calloc(1, sizeof(*l));

    if (l)
        *l = (struct listener){
            .loop = loop, .fd = -1, .accepted = accepted, .arg = arg};
    return l;
}

int listener_new(struct loop *loop, const char *host, uint16_t port,
                 listener_accepted *accepted, void *arg, struct listener **out,
                 char *err, size_t err_bytes)
{
    struct listener *l = listener_alloc(loop, accepted, arg);
    const char *why = "out of memory";
    int rc = l ? listen_on_host(loop, host, port, &l->port, &why) : -ENOMEM;

    if (rc >= 0) {
        rc = watch(l, rc);
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
    struct listener *l = listener_alloc(loop, accepted, arg);
    int rc = l ? read_port(loop, fd, &l->port) : -ENOMEM;

    if (rc) {
        net_close(loop, fd);
        free(l);
        return rc;
    }
    rc = watch(l, fd);
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
        net_close(l->loop, l->fd);
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
