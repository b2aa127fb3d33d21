/* The transport over shared memory as a whole, and its offers. */
#include "workers/transfer/engine/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/shm/internal.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static struct shm *shm_of(struct transport *t)
{
    return (struct shm *)(void *)t; /* its first member */
}

static struct shm_offer *offer_of(struct transport_offer *o)
{
    return (struct shm_offer *)(void *)o;
}

static int shm_reg(struct transport *transport, void *memory, uint64_t bytes,
                   int fd)
{
    struct shm *s = shm_of(transport);

    if (fd < 0)
        return -ENOTSUP;
    if (s->n_regions == TRANSPORT_REGIONS_MAX || s->card)
        return -ENOSPC;
    s->regions[s->n_regions] = (struct shm_region){memory, bytes, fd, NULL};
    return (int)s->n_regions++;
}

static int shm_reg_card(struct transport *transport,
                        const struct shared_card *card)
{
    struct shm *s = shm_of(transport);

    if (!card->has_handle)
        return -ENOTSUP;
    if (s->n_regions == TRANSPORT_REGIONS_MAX)
        return -ENOSPC;
    s->card = card;
    return (int)s->n_regions;
}

static struct transport_offer *shm_offer(struct transport *transport,
                                         const struct transport_offer_ops *ops,
                                         void *arg, uint8_t *descriptor,
                                         size_t *n)
{
    struct shm *s = shm_of(transport);
    struct shm_offer *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    o->base.ops = transport->ops;
    o->shm = s;
    o->ops = ops;
    o->arg = arg;
    LIST_INIT(&o->grants);
    LIST_INIT(&o->revoked);
    loop_random_bytes(s->loop, o->token, SHM_TOKEN_BYTES);
    memcpy(descriptor, s->boot, SHM_BOOT_BYTES);
    memcpy(descriptor + SHM_BOOT_BYTES, s->name, SHM_NAME_BYTES);
    memcpy(descriptor + SHM_BOOT_BYTES + SHM_NAME_BYTES, o->token,
           SHM_TOKEN_BYTES);
    *n = SHM_DESCRIPTOR_BYTES;
    TAILQ_INSERT_TAIL(&s->offers, o, link);
    return &o->base;
}

static struct shm_grant *grant_of(const struct shm_offer *o, uint64_t id)
{
    struct shm_grant *g;

    LIST_FOREACH(g, &o->grants, link)
    {
        if (g->id == id)
            return g;
    }
    return NULL;
}

static int shm_grant(struct transport_offer *offer, uint64_t grant_id,
                     const struct transport_range *, uint32_t)
{
    struct shm_offer *o = offer_of(offer);

    if (grant_of(o, grant_id))
        return -EEXIST;
    struct shm_grant *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    g->id = grant_id;
    LIST_INSERT_HEAD(&o->grants, g, link);
    return 0;
}

static void end_grant(struct shm_offer *o, struct shm_grant *g)
{
    LIST_REMOVE(g, link);
    LIST_INSERT_HEAD(&o->revoked, g, link);
    loop_ring(&o->shm->set.bell);
}

static void shm_revoke(struct transport_offer *offer, uint64_t grant_id)
{
    struct shm_offer *o = offer_of(offer);
    struct shm_grant *g = grant_of(o, grant_id);

    if (g)
        end_grant(o, g);
}

static void shm_withdraw(struct transport_offer *offer)
{
    struct shm_offer *o = offer_of(offer);

    while (!LIST_EMPTY(&o->grants))
        end_grant(o, LIST_FIRST(&o->grants));
    o->withdrawn = true;
    loop_ring(&o->shm->set.bell);
}

static void free_grants(struct shm_grants *grants)
{
    struct shm_grant *g;

    while ((g = LIST_FIRST(grants))) {
        LIST_REMOVE(g, link);
        free(g);
    }
}

static void offer_free(struct shm_offer *o)
{
    free_grants(&o->grants);
    free_grants(&o->revoked);
    TAILQ_REMOVE(&o->shm->offers, o, link);
    free(o);
}

/* Calls back for one ended grant or offer. Returns false if there is none. */
static bool offer_heard(struct shm *s)
{
    struct shm_offer *o;

    TAILQ_FOREACH(o, &s->offers, link)
    {
        struct shm_grant *g = LIST_FIRST(&o->revoked);

        if (g) {
            LIST_REMOVE(g, link);
            o->ops->revoked(o->arg, g->id);
            free(g);
            return true;
        }
        if (o->withdrawn) {
            o->ops->withdrawn(o->arg);
            offer_free(o);
            return true;
        }
    }
    return false;
}

static void wake(struct op_set *set)
{
    struct shm *s =
        (struct shm *)(void *)((char *)set - offsetof(struct shm, set));

    pthread_cond_signal(&s->more);
}

static void on_bell(void *arg)
{
    struct shm *s = arg;

    op_set_heard(&s->set);
    while (offer_heard(s))
        ;
}

static void shm_free(struct transport *transport)
{
    struct shm *s = shm_of(transport);

    shm_copy_stop(s);
    shm_door_close(s);
    while (!TAILQ_EMPTY(&s->offers))
        offer_free(TAILQ_FIRST(&s->offers));
    op_set_fini(&s->set);
    pthread_cond_destroy(&s->more);
    free(s);
}

static const struct transport_ops shm_ops = {
    .name = "shm",
    .verifies = true,
    .free = shm_free,
    .reg = shm_reg,
    .reg_card = shm_reg_card,
    .offer = shm_offer,
    .grant = shm_grant,
    .revoke = shm_revoke,
    .withdraw = shm_withdraw,
    .open = shm_open_path,
    .reads_card = shm_reads_card,
    .read = shm_read,
    .cancel = op_path_cancel,
    .moved_bytes = op_path_moved_bytes,
    .close = op_path_close,
};

/* Reads the id of this boot of this machine. */
static int read_boot_id(char *boot)
{
    int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, boot, SHM_BOOT_BYTES) : -1;

    if (fd >= 0)
        close(fd);
    return n == SHM_BOOT_BYTES ? 0 : -EIO;
}

struct transport *shm_transport_new(struct loop *loop)
{
    struct shm *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->base.ops = &shm_ops;
    s->loop = loop;
    s->listen_fd = -1;
    TAILQ_INIT(&s->callers);
    s->set.wake = wake;
    s->set.hang_up = shm_hang_up;
    s->set.free = shm_path_free;
    TAILQ_INIT(&s->offers);
    TAILQ_INIT(&s->todo);
    pthread_cond_init(&s->more, NULL);
    loop_random_bytes(loop, s->name, SHM_NAME_BYTES);
    if (op_set_init(&s->set, loop, on_bell, s) || read_boot_id(s->boot) ||
        shm_door_open(s) || shm_copy_start(s)) {
        shm_free(&s->base);
        return NULL;
    }
    return &s->base;
}
