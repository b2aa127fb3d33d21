/* Copies by command; see replicas.h. */
#include "conductor/core/replication/replicas.h"

#include <math.h>

#include "conductor/core/replication/internal.h"

/* A command. */
struct asked {
    struct schedule_look look;
    const uint64_t *keys;
    uint32_t n_keys;
    uint64_t tag;
};

static bool holds(const struct asked *a, const struct pool_instance *i)
{
    return pool_takes_work(i) && a->look.stored[i->slot] >= a->n_keys;
}

/* Tokens of KV memory used neither by blocks nor by decodes. */
static double room(const struct asked *a, const struct pool_instance *i)
{
    double held = (double)prefix_index_held(a->look.index, i->slot) *
                  (double)a->look.model->block_tokens;

    return (double)i->kv_capacity_tokens - held -
           (double)i->decode_reserved_tokens;
}

/* The number of orders that copy from an instance. */
static uint32_t n_sent(const struct replicas *out, uint32_t id)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < out->n; k++)
        n += out->orders[k].from == id;
    return n;
}

/* Whether an order copies to an instance. */
static bool is_ordered(const struct replicas *out, uint32_t id)
{
    for (uint32_t k = 0; k < out->n; k++)
        if (out->orders[k].to == id)
            return true;
    return false;
}

/* Whether a gets a copy before b. */
static bool gets_before(const struct asked *ask, const struct pool_instance *a,
                        const struct pool_instance *b)
{
    uint32_t x = ask->look.stored[a->slot], y = ask->look.stored[b->slot];

    return x != y ? x > y : room(ask, a) > room(ask, b);
}

/* Whether the whole chain fits an instance's window. */
static bool fits(const struct asked *a, const struct pool_instance *i)
{
    int64_t tokens = (int64_t)a->n_keys * a->look.model->block_tokens;

    return i->window_tokens == 0 || tokens <= i->window_tokens;
}

/* The instance to copy to next; NULL = none can take a copy. */
static const struct pool_instance *find_receiver(const struct asked *a,
                                                 const struct replicas *out)
{
    const struct pool_instance *best = NULL;

    for (uint32_t slot = 0; slot < pool_slots(a->look.pool); slot++) {
        const struct pool_instance *i = pool_at(a->look.pool, slot);

        if (replication_takes(i) && fits(a, i) && !holds(a, i) &&
            i->link_bytes_per_s > 0.0 && !is_ordered(out, i->id) &&
            (!best || gets_before(a, i, best)))
            best = i;
    }
    return best;
}

/* The instance to copy from; NULL = none has all blocks in fast tiers. */
static const struct pool_instance *find_sender(const struct asked *a,
                                               const struct replicas *out)
{
    const struct pool_instance *best = NULL;
    uint32_t least = 0;

    for (uint32_t slot = 0; slot < pool_slots(a->look.pool); slot++) {
        const struct pool_instance *i = pool_at(a->look.pool, slot);
        uint32_t n = i ? n_sent(out, i->id) : 0;

        if (!i ||
            replication_sendable(&a->look, a->keys, i, a->n_keys) < a->n_keys ||
            (best && n >= least))
            continue;
        best = i;
        least = n;
    }
    return best;
}

/* The instance to drop the blocks: the fullest holder. */
static const struct pool_instance *find_loser(const struct asked *a,
                                              const struct replicas *out)
{
    const struct pool_instance *best = NULL;

    for (uint32_t slot = 0; slot < pool_slots(a->look.pool); slot++) {
        const struct pool_instance *i = pool_at(a->look.pool, slot);

        if (i && holds(a, i) && !is_ordered(out, i->id) &&
            (!best || room(a, i) < room(a, best)))
            best = i;
    }
    return best;
}

static bool add_copy(const struct asked *a, struct replicas *out)
{
    const struct pool_instance *from = find_sender(a, out);
    const struct pool_instance *to = from ? find_receiver(a, out) : NULL;

    if (!to)
        return false;
    out->orders[out->n++] = (struct replication_action){
        .kind = REPLICATION_COPY,
        .from = from->id,
        .to = to->id,
        .keys = a->keys,
        .key = a->keys[a->n_keys - 1],
        .tag = a->tag,
        .first_block = a->look.stored[to->slot],
        .end_block = a->n_keys,
        .bytes_per_s = fmin(from->link_bytes_per_s, to->link_bytes_per_s),
        .reason = {.told = true, .holders = out->holders}};
    return true;
}

static bool add_drop(const struct asked *a, struct replicas *out)
{
    const struct pool_instance *from = find_loser(a, out);

    if (!from)
        return false;
    out->orders[out->n++] = (struct replication_action){
        .kind = REPLICATION_DROP,
        .from = POOL_NO_INSTANCE,
        .to = from->id,
        .key = a->keys[a->n_keys - 1],
        .end_block = a->n_keys,
        .reason = {.told = true, .holders = out->holders}};
    return true;
}

void replicas_change(struct scheduler *s, const uint64_t *keys, uint32_t n_keys,
                     uint64_t tag, uint32_t copies, struct replicas *out)
{
    int64_t block_tokens = schedule_model(s)->block_tokens;
    const struct asked a = {
        .look =
            schedule_look(s, keys, n_keys, n_keys * block_tokens + 1, false),
        .keys = keys,
        .n_keys = n_keys,
        .tag = tag};
    bool more = true;

    out->n = out->holders = 0;
    for (uint32_t slot = 0; slot < pool_slots(a.look.pool); slot++)
        out->holders +=
            pool_at(a.look.pool, slot) && holds(&a, pool_at(a.look.pool, slot));
    uint32_t n =
        out->holders > copies ? out->holders - copies : copies - out->holders;
    if (n > REPLICAS_ORDERS_MAX)
        n = REPLICAS_ORDERS_MAX;
    while (more && out->n < n)
        more = out->holders > copies ? add_drop(&a, out) : add_copy(&a, out);
}
