/* Paths: map a peer's memory, and read from it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/shm/internal.h"

static struct shm_path *path_of(struct op_path *p)
{
    return (struct shm_path *)(void *)p; /* its first member */
}

void shm_hang_up(struct op_path *path)
{
    struct shm_path *p = path_of(path);

    loop_watch_stop(&p->watch);
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

void shm_path_free(struct op_path *path)
{
    struct shm_path *p = path_of(path);

    shm_door_leave(p->regions, p->n_regions);
    free(p);
}

static void fail(struct shm_path *p, int rc)
{
    pthread_mutex_lock(&p->base.set->lock);
    op_path_fail(&p->base, rc);
    pthread_mutex_unlock(&p->base.set->lock);
}

/* Returns whether the slices, which a peer sent, lie in mapped regions. */
static bool within(const struct shm_path *p,
                   const struct transport_slice *slices, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct transport_slice *slice = &slices[i];

        if (slice->region >= p->n_regions ||
            slice->bytes > p->regions[slice->region].bytes ||
            slice->offset > p->regions[slice->region].bytes - slice->bytes)
            return false;
    }
    return true;
}

static void on_files(void *arg, unsigned what)
{
    struct shm_path *p = arg;
    int n = what & LOOP_READ ? shm_door_take(p->fd, p->card, p->regions)
                             : -ETIMEDOUT;

    shm_hang_up(&p->base);
    if (n < 0) {
        fail(p, n);
        return;
    }
    p->n_regions = (uint32_t)n;
    p->base.ops->stands(p->base.arg);
}

/* Connects to the peer's socket. Returns 0, or a negative errno. */
static int knock(struct shm *s, struct shm_path *p, const uint8_t *descriptor)
{
    const uint8_t *name = descriptor + SHM_BOOT_BYTES;

    p->fd = shm_door_knock(name, name + SHM_NAME_BYTES);
    if (p->fd < 0)
        return p->fd;
    loop_watch_init(s->loop, &p->watch, p->fd, LOOP_READ | LOOP_ONCE, on_files,
                    p);
    return loop_watch_start(&p->watch, SHM_PATIENCE_US);
}

struct transport_path *shm_open_path(struct transport *transport,
                                     const struct transport_peer *peer,
                                     const struct transport_path_ops *ops,
                                     void *arg)
{
    struct shm *s = (struct shm *)(void *)transport;
    struct shm_path *p = NULL;

    if (peer->n_descriptor == SHM_DESCRIPTOR_BYTES &&
        memcmp(peer->descriptor, s->boot, SHM_BOOT_BYTES) == 0)
        p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->card = s->card;
    op_path_init(&p->base, &s->set, transport, &s->todo, ops, arg);
    if (knock(s, p, peer->descriptor) < 0) {
        pthread_mutex_lock(&s->set.lock);
        op_path_free(&p->base);
        pthread_mutex_unlock(&s->set.lock);
        return NULL;
    }
    return &p->base.base;
}

bool shm_reads_card(const struct transport_path *path)
{
    const struct shm_path *p = (const struct shm_path *)(const void *)path;

    return p->n_regions > 0 && p->regions[p->n_regions - 1].card;
}

int shm_read(struct transport_path *path, uint64_t op_id, uint64_t grant_id,
             const struct transport_slice *slices, uint32_t n)
{
    struct shm_path *p = (struct shm_path *)(void *)path;

    if (within(p, slices, n))
        return op_path_read(path, op_id, grant_id, slices, n);
    fail(p, -EPROTO);
    return -ENOTCONN;
}
