/* The store of blocks that workers share. It has its own slot in the index;
 * workers load from it as from a tier of their own, and report its changes. Its
 * contents have an id; a new id means that they were replaced. */
#include <errno.h>

#include "base/log.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/internal.h"

/* No store is faster: a higher rate is a lie. */
#define RATE_MAX_BYTES_PER_S (UINT64_C(1) << 44)

bool shared_is_same(const struct service *s, const struct worker *w)
{
    return w->shared.id != 0 && w->shared.id == s->native.shared_id;
}

/* Counts the workers, except `but`, whose store's contents have this id. */
static uint32_t votes(const struct service *s, uint64_t id,
                      const struct worker *but)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        n += &s->native.workers[i] != but && s->native.workers[i].link &&
             s->native.workers[i].shared_id == id;
    return n;
}

/* Sets the rate of a worker's store; 0 unless the index follows this store. */
static int set_rate(struct service *s, const struct worker *w)
{
    double rate = (double)s->config.shared_store_mbps * 1e6 / 8;

    if (w->shared.bytes_per_s > 0)
        rate = (double)w->shared.bytes_per_s;
    return pool_set_tier_rate(s->pool, w->id, TIER_SHARED,
                              shared_is_same(s, w) ? rate : 0);
}

/* Makes the index follow the contents `id`. It starts empty; workers with these
 * contents report the blocks. */
static void tell_of(struct service *s, uint64_t id)
{
    s->native.shared_id = id;
    prefix_index_cleared(s->index, service_store_slot(s));
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (s->native.workers[i].link)
            set_rate(s, &s->native.workers[i]);
}

/* Takes new contents of w's store. The index follows the contents that most
 * workers report, so that one worker alone cannot replace them. */
static void turn_to(struct service *s, struct worker *w, uint64_t id)
{
    w->shared_id = id;
    if (id == s->native.shared_id)
        return;
    if (s->native.shared_id != 0 &&
        votes(s, id, NULL) <= votes(s, s->native.shared_id, NULL)) {
        log_warn("worker %s: its shared store differs from the other workers', "
                 "and is ignored until most workers have it",
                 w->hello.name);
        return;
    }
    tell_of(s, id);
}

int shared_frame(struct service *s, struct worker *w, const uint8_t *payload,
                 size_t len)
{
    struct msg_shared m;

    if (msg_shared_unpack(payload, len, &m))
        return -EBADMSG;
    if (m.bytes_per_s > RATE_MAX_BYTES_PER_S)
        return -EPROTO;
    if (m.id != 0 && m.id != w->shared_id)
        turn_to(s, w, m.id);
    w->shared = m;
    return set_rate(s, w);
}

void shared_left(struct service *s, struct worker *w)
{
    uint64_t next = 0;
    uint32_t most = 0;

    if (s->native.shared_id == 0 || votes(s, s->native.shared_id, w) > 0)
        return;
    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        uint64_t id = s->native.workers[i].shared_id;
        uint32_t n = id != s->native.shared_id ? votes(s, id, w) : 0;

        if (&s->native.workers[i] == w || !s->native.workers[i].link ||
            id == 0 || n <= most)
            continue;
        most = n;
        next = id;
    }
    tell_of(s, next);
}

int shared_write_metrics(const struct service *s, struct text_buf *out)
{
    char model[2 * POOL_NAME_BYTES];

    if (!s)
        return 0;
    metrics_escape(s->model.name, model);
    return text_buf_printf(
               out,
               "# HELP conductor_shared_store_blocks Blocks of the shared "
               "store in the index.\n# TYPE conductor_shared_store_blocks "
               "gauge\nconductor_shared_store_blocks{model=\"%s\"} %llu\n",
               model,
               (unsigned long long)prefix_index_held(s->index,
                                                     service_store_slot(s))) < 0
               ? -ENOMEM
               : 0;
}
