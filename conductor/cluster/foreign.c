/* See foreign.h. */
#include "conductor/cluster/foreign.h"

#include <stdlib.h>
#include <sys/queue.h>

#include "conductor/cluster/event.h"
#include "conductor/core/observation/lengths.h"
#include "conductor/core/pool/pool.h"
#include "conductor/core/schedule/schedule.h"

#define BUCKETS 8192u   /* a power of 2 */
#define PREFILLS_MAX 16 /* of a request: its own, and those lent to it */

/* A request of another conductor. */
struct entry {
    LIST_ENTRY(entry) by_request;
    LIST_ENTRY(entry) of_owner;
    const struct owner *owner;
    uint64_t request;
    uint8_t n_prefills;
    uint32_t prefills[PREFILLS_MAX]; /* pool ids */
    uint32_t decode;                 /* pool id */
};

LIST_HEAD(entry_list, entry);

struct owner {
    uint64_t id; /* 0 = free */
    uint64_t token, next;
    bool missing; /* a batch was missed; no event counts until RESET */
    bool doubted; /* RESET is to come; until then all events count */
    int64_t until_us;
    struct entry_list entries;
};

struct foreign {
    struct pool *pool;
    struct lengths *lengths;
    struct scheduler *scheduler;
    struct names *names;
    uint64_t self;
    uint64_t keys[CLUSTER_KEYS_MAX];
    struct owner owners[FOREIGN_OWNERS_MAX];
    struct entry_list buckets[BUCKETS];
    struct foreign_counts counts;
};

struct foreign *foreign_new(struct pool *pool, struct names *names,
                            struct lengths *lengths, uint64_t self)
{
    struct foreign *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->pool = pool;
    f->names = names;
    f->lengths = lengths;
    f->self = self;
    return f;
}

void foreign_prices(struct foreign *f, struct scheduler *scheduler)
{
    f->scheduler = scheduler;
}

static struct entry_list *bucket_of(struct foreign *f, uint64_t request)
{
    return &f->buckets[(request * UINT64_C(0x9e3779b97f4a7c15)) >> 51];
}

static void entry_free(struct foreign *f, struct entry *e)
{
    LIST_REMOVE(e, by_request);
    LIST_REMOVE(e, of_owner);
    f->counts.entries--;
    free(e);
}

void foreign_free(struct foreign *f)
{
    for (uint32_t i = 0; f && i < BUCKETS; i++)
        while (!LIST_EMPTY(&f->buckets[i]))
            entry_free(f, LIST_FIRST(&f->buckets[i]));
    free(f);
}

/* The owner's entry of a request; NULL = none. */
static struct entry *entry_find(struct foreign *f, const struct owner *o,
                                uint64_t request)
{
    struct entry *e;

    LIST_FOREACH(e, bucket_of(f, request), by_request)
    {
        if (e->request == request && e->owner == o)
            return e;
    }
    return NULL;
}

static struct entry *entry_get(struct foreign *f, struct owner *o,
                               uint64_t request)
{
    struct entry *e = entry_find(f, o, request);

    if (e || f->counts.entries >= FOREIGN_ENTRIES_MAX)
        return e;
    e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    e->owner = o;
    e->request = request;
    LIST_INSERT_HEAD(bucket_of(f, request), e, by_request);
    LIST_INSERT_HEAD(&o->entries, e, of_owner);
    f->counts.entries++;
    return e;
}

/* Takes a request's prefills out of the pool; the first one corrects
 * predictions, if it was observed. */
static void end_prefills(struct foreign *f, struct entry *e,
                         int64_t observed_us, int64_t now_us)
{
    for (uint8_t i = 0; i < e->n_prefills; i++)
        if (i == 0 && observed_us >= 0)
            pool_prefill_done(f->pool, e->prefills[i], e->request, observed_us,
                              now_us);
        else
            pool_prefill_cancel(f->pool, e->prefills[i], e->request, now_us);
    e->n_prefills = 0;
}

static void entry_end(struct foreign *f, struct entry *e, int64_t now_us)
{
    end_prefills(f, e, -1, now_us);
    if (e->decode != POOL_NO_INSTANCE)
        pool_decode_done(f->pool, e->decode, e->request);
    entry_free(f, e);
}

static void end_all(struct foreign *f, struct owner *o, int64_t now_us)
{
    while (!LIST_EMPTY(&o->entries))
        entry_end(f, LIST_FIRST(&o->entries), now_us);
}

static void enter_prefill(struct foreign *f, struct owner *o,
                          const struct cluster_event *event, int64_t now_us)
{
    struct entry *e = entry_get(f, o, event->request);

    if (e && e->n_prefills < PREFILLS_MAX &&
        pool_enter_prefill(f->pool, &event->prefill, now_us) == 0)
        e->prefills[e->n_prefills++] = event->prefill.instance;
    else
        f->counts.unbooked++;
}

static void enter_decode(struct foreign *f, struct owner *o,
                         const struct cluster_event *event, int64_t now_us)
{
    struct entry *e = entry_get(f, o, event->request);

    if (e && e->decode == POOL_NO_INSTANCE &&
        pool_enter_decode(f->pool, &event->decode, now_us) == 0)
        e->decode = event->decode.instance;
    else
        f->counts.unbooked++;
}

/* Carries out an event of a known request. Returns whether it makes room. */
static bool go_on(struct foreign *f, struct entry *e,
                  const struct cluster_event *event, int64_t now_us)
{
    switch (event->kind) {
    case CLUSTER_STARTED:
        if (e->n_prefills > 0)
            pool_prefill_started(f->pool, e->prefills[0], e->request, now_us);
        pool_decode_comes(f->pool, e->decode, e->request, now_us);
        return true;
    case CLUSTER_PREFILLED:
        end_prefills(f, e, event->value, now_us);
        return true;
    case CLUSTER_DECODING:
        pool_decode_started(f->pool, e->decode, e->request);
        return true;
    case CLUSTER_PRODUCED:
        pool_decode_progress(f->pool, e->decode, e->request, event->value);
        return false;
    case CLUSTER_ENDED:
        entry_end(f, e, now_us);
        return true;
    default:
        return false;
    }
}

static void take_event(struct foreign *f, struct owner *o,
                       const struct cluster_event *event,
                       struct foreign_news *news, int64_t now_us)
{
    struct entry *e;

    f->counts.events++;
    switch (event->kind) {
    case CLUSTER_RESET:
        end_all(f, o, now_us);
        o->missing = o->doubted = news->gap = false;
        news->freed = true;
        return;
    case CLUSTER_ASK:
        if (event->request == 0 || event->request == f->self)
            news->asks = true;
        return;
    case CLUSTER_LEARNT:
        lengths_observe(f->lengths, event->request, event->value, event->most);
        return;
    case CLUSTER_ASKED:
        if (f->scheduler)
            schedule_heard(f->scheduler, &event->asked, now_us);
        return;
    default:
        break;
    }
    if (o->missing)
        return;
    if (event->kind == CLUSTER_PREFILL) {
        enter_prefill(f, o, event, now_us);
    } else if (event->kind == CLUSTER_DECODE) {
        enter_decode(f, o, event, now_us);
    } else {
        e = entry_find(f, o, event->request);
        if (e && go_on(f, e, event, now_us))
            news->freed = true;
    }
}

static struct owner *owner_find(struct foreign *f, uint64_t id)
{
    for (size_t i = 0; i < FOREIGN_OWNERS_MAX; i++)
        if (f->owners[i].id == id)
            return &f->owners[i];
    return NULL;
}

/* Returns the owner under which a batch's events count; NULL = they do not. */
static struct owner *owner_take(struct foreign *f,
                                const struct cluster_head *head,
                                struct foreign_news *news, int64_t now_us)
{
    struct owner *o = owner_find(f, head->owner);

    if (!o) {
        o = owner_find(f, 0);
        if (!o) {
            f->counts.unbooked++;
            return NULL;
        }
        *o = (struct owner){
            .id = head->owner, .token = head->token, .next = head->number};
        o->missing = head->number > 0; /* it had begun before */
        news->gap = o->missing;
        f->counts.owners++;
    }
    if (head->token < o->token) {
        f->counts.fenced++;
        news->fenced = true;
        return NULL;
    }
    if (head->token > o->token) { /* it lost its lease, and begins anew */
        end_all(f, o, now_us);
        news->freed = true;
        o->token = head->token;
        /* Its full state is in this batch, or was missed. */
        o->missing = news->gap = true;
    } else if (head->number != o->next) {
        f->counts.gaps++;
        news->gap = true;
        o->missing = true;
    }
    o->next = head->number + 1;
    return o;
}

struct foreign_news foreign_take(struct foreign *f, const void *bytes, size_t n,
                                 int64_t lease_us, int64_t now_us)
{
    struct codec c = codec_reader(bytes, n);
    const struct cluster_wire wire = {f->names, now_us, f->keys};
    struct foreign_news news = {0};
    struct cluster_head head = {0};
    struct owner *o;

    cluster_head_fields(&c, &head);
    if (c.failed) {
        f->counts.bad++;
        return news;
    }
    news.owner = head.owner;
    news.number = head.number;
    news.own = head.owner == f->self;
    if (news.own)
        return news;
    o = owner_take(f, &head, &news, now_us);
    if (!o)
        return news;
    o->until_us = now_us + lease_us;
    f->counts.batches++;
    while (c.in_bytes > 0) {
        struct cluster_event event = {0};

        cluster_event_fields(&c, &wire, &event);
        if (c.failed) {
            f->counts.bad++;
            o->missing = news.gap = true;
            break;
        }
        take_event(f, o, &event, &news, now_us);
    }
    return news;
}

void foreign_doubt(struct foreign *f)
{
    for (size_t i = 0; i < FOREIGN_OWNERS_MAX; i++)
        f->owners[i].doubted = true;
}

bool foreign_has_all(struct foreign *f, uint64_t owner, uint64_t token)
{
    const struct owner *o = owner_find(f, owner);

    return o && !o->missing && !o->doubted && o->token >= token;
}

void foreign_lives(struct foreign *f, uint64_t owner, int64_t until_us)
{
    struct owner *o = owner ? owner_find(f, owner) : NULL;

    if (o && until_us > o->until_us)
        o->until_us = until_us;
}

bool foreign_expire(struct foreign *f, int64_t now_us)
{
    bool any = false;

    for (size_t i = 0; i < FOREIGN_OWNERS_MAX; i++) {
        struct owner *o = &f->owners[i];

        if (!o->id || now_us < o->until_us)
            continue;
        end_all(f, o, now_us);
        o->id = 0;
        f->counts.owners--;
        f->counts.dropped++;
        any = true;
    }
    return any;
}

struct foreign_counts foreign_counts(const struct foreign *f)
{
    struct foreign_counts counts = f->counts;

    for (size_t i = 0; i < FOREIGN_OWNERS_MAX; i++)
        counts.missing += f->owners[i].id && f->owners[i].missing;
    return counts;
}
