/* The store of blocks that workers share. What it has is an instance of the
 * index, which workers with that store read as a tier of their own; they tell
 * what comes and goes there. Contents have an id: those of another id are other
 * ones. */
#include <errno.h>
#include <event2/buffer.h>

#include "base/log.h"
#include "conductor/service/state.h"

/* No store is faster; a worker that says so lies. */
#define RATE_MAX_BYTES_PER_S (UINT64_C(1) << 44)

bool shared_is_same(const struct service *s, const struct worker *w)
{
    return w->shared.id != 0 && w->shared.id == s->shared_id;
}

static bool others_have(const struct service *s, const struct worker *w)
{
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (&s->workers[i] != w && s->workers[i].link &&
            s->workers[i].shared_id == s->shared_id)
            return true;
    return false;
}

/* The store of w has other contents than it had. They are those of the index
 * from now on, unless it is not the store that the others have. */
static void turn_to(struct service *s, struct worker *w, uint64_t id)
{
    bool was_same = w->shared_id == s->shared_id;

    w->shared_id = id;
    if (id == s->shared_id)
        return;
    if (!was_same && s->shared_id != 0 && others_have(s, w)) {
        log_warn("worker %s: its shared store is not that of the other "
                 "workers, and is not counted on",
                 w->hello.name);
        return;
    }
    s->shared_id = id;
    prefix_index_cleared(s->index, service_store_slot(s));
}

int shared_frame(struct service *s, struct worker *w, const uint8_t *payload,
                 size_t len)
{
    struct msg_shared m;
    double rate = (double)s->config.shared_store_mbps * 1e6 / 8;

    if (msg_shared_unpack(payload, len, &m))
        return -EBADMSG;
    if (m.bytes_per_s > RATE_MAX_BYTES_PER_S)
        return -EPROTO;
    if (m.id != 0 && m.id != w->shared_id)
        turn_to(s, w, m.id);
    w->shared = m;
    if (m.bytes_per_s > 0)
        rate = (double)m.bytes_per_s;
    return pool_set_tier_rate(s->pool, w->id, TIER_SHARED,
                              shared_is_same(s, w) ? rate : 0);
}

void shared_left(struct service *s, struct worker *w)
{
    if (s->shared_id == 0 || w->shared_id != s->shared_id || others_have(s, w))
        return;
    s->shared_id = 0;
    prefix_index_cleared(s->index, service_store_slot(s));
}

int shared_write_metrics(const struct service *all, struct evbuffer *out)
{
    bool first = true;
    int bad = 0;

    for (const struct service *s = all; s; s = s->next) {
        char model[2 * POOL_NAME_BYTES];

        if (s->forwards)
            continue;
        metrics_escape(s->model.name, model);
        if (first)
            bad |= evbuffer_add_printf(
                       out, "# HELP conductor_shared_store_blocks Blocks of "
                            "the store that workers share which can be found.\n"
                            "# TYPE conductor_shared_store_blocks gauge\n") < 0;
        bad |= evbuffer_add_printf(
                   out, "conductor_shared_store_blocks{model=\"%s\"} %llu\n",
                   model,
                   (unsigned long long)prefix_index_held(
                       s->index, service_store_slot(s))) < 0;
        first = false;
    }
    return bad ? -ENOMEM : 0;
}
