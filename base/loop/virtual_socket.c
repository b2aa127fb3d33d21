/* The sockets of a process of the virtual net. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/virtual_net_internal.h"

#define FIRST_PORT 32768u /* of those that nobody chose */

static struct virtual_process *process_of(const struct loop *loop)
{
    return virtual_loop_of(loop)->process;
}

static struct sock *sock_of(const struct loop *loop, int fd)
{
    const struct virtual_process *p = process_of(loop);
    int64_t i = (int64_t)fd - VIRTUAL_NET_FIRST_FD;

    return p && i >= 0 && i < p->n_table ? p->table[i] : NULL;
}

/* --- what watches see ----------------------------------------------------- */

static unsigned readiness(const struct sock *s)
{
    switch (s->state) {
    case SOCK_LISTENS:
        return s->n_waiting ? LOOP_READ : 0;
    case SOCK_CONNECTS:
        return 0;
    case SOCK_OPEN:
        break;
    default:
        return LOOP_READ | LOOP_WRITE;
    }
    const struct pipe *out = &s->conn->pipes[s->end];
    const struct pipe *in = &s->conn->pipes[1 - s->end];
    unsigned what = in->come || in->ended ? LOOP_READ : 0;
    return out->shut || pipe_room(out) ? what | LOOP_WRITE : what;
}

unsigned virtual_socket_ready(const struct loop_watch *w)
{
    const struct sock *s = sock_of(w->loop, w->fd);

    return s ? readiness(s) & w->what : 0;
}

void sock_notify(struct sock *s)
{
    unsigned what = readiness(s);

    for (struct loop_watch *w = s->watches; w;
         w = (struct loop_watch *)w->own.words[1])
        if (w->what & what)
            virtual_watch_ready(w, w->what & what);
}

void virtual_socket_watch(struct loop_watch *w)
{
    struct sock *s = sock_of(w->loop, w->fd);

    if (!s)
        return;
    w->own.words[1] = (uintptr_t)s->watches;
    s->watches = w;
}

void virtual_socket_unwatch(struct loop_watch *w)
{
    struct sock *s = sock_of(w->loop, w->fd);
    struct loop_watch *other = s ? s->watches : NULL;

    if (other == w) {
        s->watches = (struct loop_watch *)w->own.words[1];
        return;
    }
    for (; other; other = (struct loop_watch *)other->own.words[1])
        if (other->own.words[1] == (uintptr_t)w)
            other->own.words[1] = w->own.words[1];
}

/* --- sockets -------------------------------------------------------------- */

static void on_retry(void *arg)
{
    conn_ask(arg);
}

static void on_patience(void *arg)
{
    conn_fail(arg, ETIMEDOUT);
}

struct sock *sock_new(struct virtual_process *process, enum sock_state state)
{
    struct sock *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->process = process;
    s->fd = -1;
    s->state = state;
    TAILQ_INIT(&s->waiting);
    loop_timer_init(process->net->loop, &s->retry, on_retry, s);
    loop_timer_init(process->net->loop, &s->patience, on_patience, s);
    return s;
}

void sock_free(struct sock *s)
{
    if (s->fd >= 0)
        s->process->table[s->fd - VIRTUAL_NET_FIRST_FD] = NULL;
    free(s);
}

/* Gives the socket the lowest free descriptor. Returns it, or -EMFILE or
 * -ENOMEM. */
static int give_fd(struct sock *s)
{
    struct virtual_process *p = s->process;
    uint32_t max = p->net->options.sockets_max, i = 0;

    while (i < p->n_table && p->table[i])
        i++;
    if (i == p->n_table) {
        uint32_t n = i ? 2 * i : 16;
        struct sock **table =
            i < max ? realloc(p->table, n * sizeof(*table)) : NULL;

        if (!table)
            return i < max ? -ENOMEM : -EMFILE;
        memset(table + i, 0, (n - i) * sizeof(*table));
        p->table = table;
        p->n_table = n;
    }
    if (i >= max)
        return -EMFILE;
    p->table[i] = s;
    s->fd = VIRTUAL_NET_FIRST_FD + (int)i;
    return s->fd;
}

/* Makes a socket with a descriptor. Returns that, or a negative errno. */
static int open_sock(struct virtual_process *p, enum sock_state state,
                     struct sock **out)
{
    struct sock *s = p->place->process == p ? sock_new(p, state) : NULL;

    if (!s)
        return p->place->process == p ? -ENOMEM : -ENETDOWN;
    int fd = give_fd(s);
    if (fd < 0)
        sock_free(s);
    *out = s;
    return fd;
}

struct sock *process_listener(const struct virtual_process *p, uint16_t port,
                              bool loopback)
{
    for (uint32_t i = 0; i < p->n_table; i++) {
        struct sock *s = p->table[i];

        if (s && s->state == SOCK_LISTENS && s->own.port == port &&
            (loopback || !address_is_own(s->own.address)))
            return s;
    }
    return NULL;
}

static uint16_t free_port(const struct virtual_process *p)
{
    uint16_t *last = &p->place->last_port;

    do
        *last = *last < FIRST_PORT || *last == UINT16_MAX
                    ? FIRST_PORT
                    : (uint16_t)(*last + 1);
    while (process_listener(p, *last, true));
    return *last;
}

/* Reads an address. Returns 0 or -EAFNOSUPPORT. */
static int read_address(const struct sockaddr *address, size_t n,
                        struct end_point *out)
{
    struct sockaddr_in in;

    if (n < sizeof(in) || address->sa_family != AF_INET)
        return -EAFNOSUPPORT;
    memcpy(&in, address, sizeof(in));
    *out = (struct end_point){ntohl(in.sin_addr.s_addr), ntohs(in.sin_port)};
    return 0;
}

static bool is_own(const struct virtual_process *p, uint32_t address)
{
    return address == INADDR_ANY || address_is_own(address) ||
           address == p->place->address;
}

static int virtual_listen(struct loop *loop, const struct sockaddr *address,
                          size_t n)
{
    struct virtual_process *p = process_of(loop);
    struct end_point at;
    struct sock *s;
    int rc = p ? read_address(address, n, &at) : -ENETDOWN;

    if (rc)
        return rc;
    if (!is_own(p, at.address))
        return -EADDRNOTAVAIL;
    if (at.port && process_listener(p, at.port, true))
        return -EADDRINUSE;
    if (!at.port)
        at.port = free_port(p);
    rc = open_sock(p, SOCK_LISTENS, &s);
    if (rc >= 0)
        s->own = at;
    return rc;
}

static int virtual_accept(struct loop *loop, int fd)
{
    struct sock *s = sock_of(loop, fd), *first;
    int rc;

    if (!s || s->state != SOCK_LISTENS)
        return s && s->state == SOCK_DEAD ? -ENETDOWN : -EINVAL;
    first = TAILQ_FIRST(&s->waiting);
    if (!first)
        return -EAGAIN;
    rc = give_fd(first);
    if (rc < 0)
        return rc;
    TAILQ_REMOVE(&s->waiting, first, entry);
    s->n_waiting--;
    return rc;
}

static int virtual_connect(struct loop *loop, const struct sockaddr *address,
                           size_t n)
{
    struct virtual_process *p = process_of(loop);
    struct end_point to;
    struct sock *s;
    int rc = p ? read_address(address, n, &to) : -ENETDOWN;

    if (rc)
        return rc;
    if (to.address == INADDR_ANY)
        to.address = INADDR_LOOPBACK;
    rc = open_sock(p, SOCK_CONNECTS, &s);
    if (rc < 0)
        return rc;
    s->own = (struct end_point){address_is_own(to.address) ? to.address
                                                           : p->place->address,
                                free_port(p)};
    s->other = to;
    if (!conn_new(p->net, s)) {
        sock_free(s);
        return -ENOMEM;
    }
    conn_ask(s);
    return rc;
}

static int virtual_error(struct loop *loop, int fd)
{
    const struct sock *s = sock_of(loop, fd);

    return s ? s->error : EBADF;
}

/* Returns n or, as the seed says, a smaller number, at least 1. */
static uint32_t tear(const struct virtual_net *net, uint32_t n)
{
    if (n < 2 || virtual_draw(net->time) % 256 >= net->options.torn_of_256)
        return n;
    return 1 + virtual_draw(net->time) % (n - 1);
}

/* The pipe that has come with bytes to be read, or NULL and why not: 0 = the
 * end, or a negative errno. */
static struct pipe *readable(struct loop *loop, int fd, int *why)
{
    struct sock *s = sock_of(loop, fd);
    struct pipe *in = s && s->conn ? &s->conn->pipes[1 - s->end] : NULL;

    if (in && in->come)
        return in;
    if (!s || s->state == SOCK_LISTENS)
        *why = s ? -ENOTCONN : -EBADF;
    else if (s->error)
        *why = -s->error;
    else
        *why = in && in->ended ? 0 : -EAGAIN;
    return NULL;
}

static ssize_t virtual_read(struct loop *loop, int fd, void *to, size_t n)
{
    int why = 0;
    struct pipe *in = readable(loop, fd, &why);

    if (!in)
        return why;
    if (n > in->come)
        n = in->come;
    n = tear(in->conn->net, (uint32_t)n);
    pipe_read(in, to, (uint32_t)n);
    return (ssize_t)n;
}

static int virtual_peek(struct loop *loop, int fd)
{
    int why = 0;

    return readable(loop, fd, &why) ? 1 : why;
}

static ssize_t virtual_write(struct loop *loop, int fd,
                             const struct iovec *parts, size_t n_parts)
{
    struct sock *s = sock_of(loop, fd);
    size_t n = 0;

    if (!s || s->error || s->state == SOCK_LISTENS)
        return s ? s->error ? -s->error : -ENOTCONN : -EBADF;
    struct pipe *out = &s->conn->pipes[s->end];
    if (out->shut)
        return -EPIPE;
    for (size_t i = 0; i < n_parts; i++)
        n += parts[i].iov_len;
    uint32_t room = s->state == SOCK_OPEN ? pipe_room(out) : 0;
    if (!room || !n)
        return n ? -EAGAIN : 0;
    n = tear(out->conn->net, n < room ? (uint32_t)n : room);
    int rc = pipe_write(out, parts, (uint32_t)n);
    if (rc)
        return rc;
    conn_mind(s);
    return (ssize_t)n;
}

static void virtual_shut(struct loop *loop, int fd)
{
    struct sock *s = sock_of(loop, fd);

    if (!s || s->state != SOCK_OPEN)
        return;
    pipe_shut(&s->conn->pipes[s->end]);
    conn_mind(s);
}

void sock_leave(struct sock *s)
{
    struct sock *waits;

    while ((waits = TAILQ_FIRST(&s->waiting))) {
        TAILQ_REMOVE(&s->waiting, waits, entry);
        pipe_send_reset(&waits->conn->pipes[waits->end]);
        conn_vanish(waits);
        sock_free(waits);
    }
    s->n_waiting = 0;
    if (s->conn)
        conn_leave(s);
}

static void virtual_close(struct loop *loop, int fd)
{
    struct sock *s = sock_of(loop, fd);

    if (!s)
        return;
    sock_leave(s);
    sock_free(s);
}

static int virtual_address(struct loop *loop, int fd, bool peer,
                           struct sockaddr_storage *address)
{
    const struct sock *s = sock_of(loop, fd);
    struct sockaddr_in in = {.sin_family = AF_INET};

    if (!s || (peer && s->state != SOCK_OPEN))
        return s ? -ENOTCONN : -EBADF;
    const struct end_point *at = peer ? &s->other : &s->own;
    in.sin_addr.s_addr = htonl(at->address);
    in.sin_port = htons(at->port);
    memcpy(address, &in, sizeof(in));
    return (int)sizeof(in);
}

static void virtual_set(struct loop *loop, int fd, int level, int option,
                        int value)
{
    struct sock *s = sock_of(loop, fd);

    if (!s)
        return;
    if (level == SOL_SOCKET && option == SO_KEEPALIVE)
        s->keeps_alive = value;
    if (level == IPPROTO_TCP && option == TCP_USER_TIMEOUT) {
        s->patience_us = (int64_t)value * 1000;
        loop_timer_stop(&s->patience);
    }
    if (s->conn)
        conn_mind(s);
}

const struct net_ops virtual_net_ops = {
    .listen = virtual_listen,
    .accept = virtual_accept,
    .connect = virtual_connect,
    .error = virtual_error,
    .read = virtual_read,
    .peek = virtual_peek,
    .write = virtual_write,
    .shut = virtual_shut,
    .close = virtual_close,
    .address = virtual_address,
    .set = virtual_set,
};
