/* SIEVE: chooses the end point to end when there are too many. */
#include "workers/transfer/engine/rdma/sieve.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

struct place {
    TAILQ_ENTRY(place) link; /* in `order`, or in `free` */
    void *owner;
    bool used; /* used since the hand passed it */
    bool pinned;
};

TAILQ_HEAD(place_list, place);

struct sieve {
    uint32_t n;
    uint32_t n_used;
    struct place *hand;       /* next to look at; NULL = the oldest */
    struct place_list order;  /* newest first */
    struct place_list unused; /* free places */
    struct place places[];    /* (n) */
};

int sieve_new(uint32_t n, struct sieve **out)
{
    struct sieve *s;

    if (n == 0)
        return -EINVAL;
    s = calloc(1, sizeof(*s) + n * sizeof(s->places[0]));
    if (!s)
        return -ENOMEM;
    s->n = n;
    TAILQ_INIT(&s->order);
    TAILQ_INIT(&s->unused);
    for (uint32_t i = 0; i < n; i++)
        TAILQ_INSERT_TAIL(&s->unused, &s->places[i], link);
    *out = s;
    return 0;
}

void sieve_free(struct sieve *s)
{
    free(s);
}

uint32_t sieve_add(struct sieve *s, void *owner)
{
    struct place *p = TAILQ_FIRST(&s->unused);

    if (!p)
        return SIEVE_NONE;
    TAILQ_REMOVE(&s->unused, p, link);
    p->owner = owner;
    p->used = false;
    p->pinned = false;
    TAILQ_INSERT_HEAD(&s->order, p, link);
    s->n_used++;
    return (uint32_t)(p - s->places);
}

/* Returns the next newer place, where the hand looks after `p`. */
static struct place *newer(struct place *p)
{
    return TAILQ_PREV(p, place_list, link);
}

void sieve_remove(struct sieve *s, uint32_t place)
{
    struct place *p = &s->places[place];

    if (s->hand == p)
        s->hand = newer(p);
    TAILQ_REMOVE(&s->order, p, link);
    p->owner = NULL;
    TAILQ_INSERT_TAIL(&s->unused, p, link);
    s->n_used--;
}

void sieve_touch(struct sieve *s, uint32_t place)
{
    s->places[place].used = true;
}

void sieve_pin(struct sieve *s, uint32_t place, bool pinned)
{
    s->places[place].pinned = pinned;
}

uint32_t sieve_victim(struct sieve *s)
{
    struct place *p = s->hand;

    /* Once around to clear `used`, and once more to find the victim. */
    for (uint32_t i = 0; i < 2 * s->n_used; i++) {
        if (!p)
            p = TAILQ_LAST(&s->order, place_list);
        if (!p->pinned && !p->used) {
            s->hand = p;
            return (uint32_t)(p - s->places);
        }
        if (!p->pinned)
            p->used = false;
        p = newer(p);
    }
    s->hand = p;
    return SIEVE_NONE;
}

void *sieve_owner(const struct sieve *s, uint32_t place)
{
    return s->places[place].owner;
}
