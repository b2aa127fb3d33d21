/* The socket that hands out the slab's file in exchange for a token. A
 * connection carries one packet in each direction. The socket has a random
 * abstract name. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/shm/internal.h"

#define BACKLOG 64

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(TRANSPORT_REGIONS_MAX * sizeof(int))];
};

static socklen_t address_of(const uint8_t *name, struct sockaddr_un *a)
{
    char *at = a->sun_path + 1;

    memset(a, 0, sizeof(*a));
    a->sun_family = AF_UNIX;
    at += sprintf(at, "conductor-kv-");
    for (uint32_t i = 0; i < SHM_NAME_BYTES; i++)
        at += sprintf(at, "%02x", name[i]);
    return (socklen_t)(at - (char *)a);
}

static int new_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd >= 0 ? fd : -errno;
}

static void caller_free(struct shm_caller *c)
{
    TAILQ_REMOVE(&c->shm->callers, c, link);
    c->shm->n_callers--;
    loop_watch_stop(&c->watch);
    close(c->fd);
    free(c);
}

/* Returns whether an offer has this token, in constant time for each offer. */
static bool knows(const struct shm *s, const uint8_t *token)
{
    const struct shm_offer *o;
    bool known = false;

    TAILQ_FOREACH(o, &s->offers, link)
    {
        uint8_t other = 0;

        for (uint32_t i = 0; i < SHM_TOKEN_BYTES; i++)
            other |= o->token[i] ^ token[i];
        known |= other == 0 && !o->withdrawn;
    }
    return known;
}

/* Sends the files. A caller whose buffer has no room for the packet gets
 * nothing. */
static void hand_out(const struct shm *s, int fd)
{
    struct shm_told told = {.n = s->n_regions};
    union control control = {0};
    struct iovec v = {&told, sizeof(told)};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen =
                           CMSG_SPACE(s->n_regions * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int fds[TRANSPORT_REGIONS_MAX];

    for (uint32_t i = 0; i < s->n_regions; i++) {
        fds[i] = s->regions[i].fd;
        told.bytes[i] = s->regions[i].bytes;
    }
    if (s->card) {
        told.card_bytes = s->card->bytes;
        memcpy(told.handle, s->card->handle, sizeof(told.handle));
    }
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(s->n_regions * sizeof(int));
    memcpy(CMSG_DATA(c), fds, s->n_regions * sizeof(int));
    ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n;
}

static void on_token(void *arg, unsigned what)
{
    struct shm_caller *c = arg;
    uint8_t token[SHM_TOKEN_BYTES];

    if ((what & LOOP_READ) &&
        recv(c->fd, token, sizeof(token), MSG_DONTWAIT) == sizeof(token) &&
        c->shm->n_regions > 0 && knows(c->shm, token))
        hand_out(c->shm, c->fd);
    caller_free(c);
}

static void on_resume(void *arg)
{
    struct shm *s = arg;

    loop_watch_start(&s->listening, 0);
}

/* Pauses accepting: most likely no file descriptors are left. The socket stays
 * readable, so without a pause the loop would spin. */
static void pause_listening(struct shm *s)
{
    loop_watch_stop(&s->listening);
    loop_timer_start(&s->resume, SHM_PAUSE_US);
}

/* Any process on this machine can connect to the socket. So that silent callers
 * do not keep peers out, closes the one that waited longest if there are too
 * many; it is served first if its token has come. */
static void make_room(const struct shm *s)
{
    struct shm_caller *first = TAILQ_FIRST(&s->callers);

    if (s->n_callers == SHM_CALLERS_MAX)
        on_token(first, LOOP_READ);
}

static void on_caller(void *arg, unsigned)
{
    struct shm *s = arg;
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            pause_listening(s);
        return;
    }
    make_room(s);
    struct shm_caller *c = calloc(1, sizeof(*c));
    if (!c) {
        close(fd);
        return;
    }
    c->shm = s;
    c->fd = fd;
    loop_watch_init(s->loop, &c->watch, fd, LOOP_READ | LOOP_ONCE, on_token, c);
    TAILQ_INSERT_TAIL(&s->callers, c, link);
    s->n_callers++;
    if (loop_watch_start(&c->watch, SHM_PATIENCE_US))
        caller_free(c);
}

int shm_door_open(struct shm *s)
{
    struct sockaddr_un a;
    socklen_t n = address_of(s->name, &a);

    s->listen_fd = new_socket();
    if (s->listen_fd < 0)
        return s->listen_fd;
    if (bind(s->listen_fd, (struct sockaddr *)&a, n) ||
        listen(s->listen_fd, BACKLOG))
        return -errno;
    loop_watch_init(s->loop, &s->listening, s->listen_fd, LOOP_READ, on_caller,
                    s);
    loop_timer_init(s->loop, &s->resume, on_resume, s);
    return loop_watch_start(&s->listening, 0);
}

void shm_door_close(struct shm *s)
{
    while (!TAILQ_EMPTY(&s->callers))
        caller_free(TAILQ_FIRST(&s->callers));
    loop_watch_stop(&s->listening);
    loop_timer_stop(&s->resume);
    if (s->listen_fd >= 0)
        close(s->listen_fd);
}

int shm_door_knock(const uint8_t *name, const uint8_t *token)
{
    struct sockaddr_un a;
    socklen_t n = address_of(name, &a);
    int fd = new_socket();

    if (fd < 0)
        return fd;
    if (connect(fd, (struct sockaddr *)&a, n) == 0 &&
        send(fd, token, SHM_TOKEN_BYTES, MSG_NOSIGNAL) == SHM_TOKEN_BYTES)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

/* Returns whether the file has at least `bytes` and cannot shrink, so that
 * reading it raises no SIGBUS. */
static bool sound(int fd, uint64_t bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 &&
           bytes > 0 && (uint64_t)st.st_size >= bytes;
}

static int map(const struct shm_told *told, const int *fds,
               struct shm_region *regions)
{
    for (uint32_t i = 0; i < told->n; i++) {
        void *at = MAP_FAILED;

        if (sound(fds[i], told->bytes[i]))
            at = mmap(NULL, told->bytes[i], PROT_READ, MAP_SHARED, fds[i], 0);
        if (at == MAP_FAILED) {
            shm_door_leave(regions, i);
            return -EACCES;
        }
        regions[i] = (struct shm_region){at, told->bytes[i], -1, NULL};
    }
    return (int)told->n;
}

/* Maps the pages of the peer's GPU as region n. Returns the number of regions:
 * n if that fails, and all KV is then read from host memory. */
static int map_card(const struct shm_told *told, const struct shared_card *card,
                    struct shm_region *regions, int n)
{
    void *at = NULL;

    if (card && told->card_bytes > 0 && n < (int)TRANSPORT_REGIONS_MAX)
        at = card->ops->open(card, told->handle, told->card_bytes);
    if (!at)
        return n;
    regions[n] = (struct shm_region){at, told->card_bytes, -1, card};
    return n + 1;
}

void shm_door_leave(struct shm_region *regions, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (regions[i].card)
            regions[i].card->ops->shut(regions[i].card, regions[i].memory);
        else
            munmap(regions[i].memory, regions[i].bytes);
}

int shm_door_take(int fd, const struct shared_card *card,
                  struct shm_region *regions)
{
    struct shm_told told;
    union control control;
    struct iovec v = {&told, sizeof(told)};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int fds[TRANSPORT_REGIONS_MAX];
    size_t n_fds = 0;

    if (n < 0)
        return errno == EAGAIN ? -EAGAIN : -EACCES;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
    }
    bool ok = n == sizeof(told) && told.n > 0 &&
              told.n <= TRANSPORT_REGIONS_MAX && told.n == n_fds;
    int rc = ok ? map(&told, fds, regions) : -EACCES;
    if (rc > 0)
        rc = map_card(&told, card, regions, rc);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
    return rc;
}
