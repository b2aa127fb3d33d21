/* An eventfd and its event. */
#include "workers/transfer/engine/bell.h"

#include <event2/event.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/event_loop.h"

struct bell {
    int fd;
    struct event *event;
    void (*heard)(void *arg);
    void *arg;
};

static void on_ring(evutil_socket_t fd, short, void *arg)
{
    struct bell *b = arg;
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof(count));

    (void)n; /* fails only if the counter was read already */
    b->heard(b->arg);
}

struct bell *bell_new(struct event_base *base, void (*heard)(void *arg),
                      void *arg)
{
    struct bell *b = calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->heard = heard;
    b->arg = arg;
    b->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (b->fd >= 0)
        b->event = event_new(base, b->fd, EV_READ | EV_PERSIST, on_ring, b);
    if (!b->event || event_add(b->event, NULL)) {
        bell_free(b);
        return NULL;
    }
    return b;
}

int bell_fd(const struct bell *b)
{
    return b->fd;
}

void bell_free(struct bell *b)
{
    if (!b)
        return;
    event_loop_drop(b->event);
    if (b->fd >= 0)
        close(b->fd);
    free(b);
}

void bell_ring(struct bell *b)
{
    uint64_t one = 1;
    ssize_t n = write(b->fd, &one, sizeof(one));

    (void)n; /* fails only if the counter is full: it is ringing */
}
