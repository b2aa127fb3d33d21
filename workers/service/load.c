/* Follows a PREFILL's load plan. */
#include "base/log.h"
#include "workers/disk/source.h"
#include "workers/service/internal.h"
#include "workers/shared/source.h"

/* Returns the load mode: --load-mode, else the plan's. Without a plan, all
 * named blocks are loaded before the rest is computed. */
static enum load_mode mode_of(const struct worker *w,
                              const struct msg_prefill *m)
{
    uint8_t mode = w->options->load_mode;

    switch (mode == PROTO_LOAD_AUTO ? m->load_mode : mode) {
    case PROTO_LOAD_COMPUTE:
        return LOAD_MODE_COMPUTE;
    case PROTO_LOAD_BOTH:
        return LOAD_MODE_BOTH;
    case PROTO_LOAD_LAYERWISE:
        return LOAD_MODE_LAYERWISE;
    default:
        return LOAD_MODE_LOAD;
    }
}

/* Merges two ranges of the same source into one that spans both: a connection
 * runs only one fetch per request. */
static void add_source(struct load_request *plan, struct loader_source *s,
                       uint32_t from_block, uint32_t to_block)
{
    uint32_t i = 0;

    while (i < plan->n_sources && plan->sources[i].source != s)
        i++;
    if (i == plan->n_sources) {
        loader_source_hold(s); /* until all are known */
        plan->sources[plan->n_sources++].source = s;
        plan->sources[i].from_block = from_block;
        plan->sources[i].to_block = to_block;
        return;
    }
    if (from_block < plan->sources[i].from_block)
        plan->sources[i].from_block = from_block;
    if (to_block > plan->sources[i].to_block)
        plan->sources[i].to_block = to_block;
}

static void add_peer(struct worker *w, const struct request *r,
                     struct load_request *plan, const struct msg_source *from)
{
    struct loader_source *s =
        transfer_source(w->transfer, from->host, from->port);

    if (s)
        add_source(plan, s, from->from_block, from->to_block);
    else
        log_warn("request %llu: cannot load from %s:%u: too many sources",
                 (unsigned long long)r->id, from->host, from->port);
}

/* Returns the plan's entry for own disk or shared store; NULL = none. */
static const struct msg_source *part_of(const struct msg_prefill *m,
                                        enum proto_source_kind kind)
{
    for (uint8_t i = 0; i < m->n_sources; i++)
        if (m->sources[i].kind == kind)
            return &m->sources[i];
    return NULL;
}

/* Returns whether only blocks named in the plan may be loaded. Without a plan,
 * or with --load-mode set, the worker uses its own tiers unasked. */
static bool is_planned(const struct worker *w, const struct msg_prefill *m)
{
    return m->load_mode != PROTO_LOAD_AUTO &&
           w->options->load_mode == PROTO_LOAD_AUTO;
}

static void add_disk(struct worker *w, const struct request *r,
                     struct load_request *plan, const struct msg_prefill *m)
{
    const struct msg_source *from = part_of(m, PROTO_SOURCE_DISK);
    struct disk_tier *tier = worker_disk_tier(w);

    if (!tier || (is_planned(w, m) && !from))
        return;
    uint32_t n = disk_source_blocks(tier, r, r->prompt.n_reusable);
    if (n == 0 || n <= kv_store_match(w->store, r->prompt.keys,
                                      r->prompt.tokens, n, NULL))
        return; /* memory has the block */
    struct loader_source *s = disk_source(w->loader, tier);
    if (!s)
        return;
    add_source(plan, s, from ? from->from_block : 0, from ? from->to_block : n);
}

/* Without a plan, the shared store is asked for all reusable blocks. */
static void add_shared(struct worker *w, const struct request *r,
                       struct load_request *plan, const struct msg_prefill *m)
{
    const struct msg_source *from = part_of(m, PROTO_SOURCE_SHARED);
    struct shared_tier *tier = worker_shared_tier(w);
    uint32_t n = r->prompt.n_reusable;

    if (!tier || !shared_tier_is_up(tier) || (is_planned(w, m) && !from))
        return;
    if (n <=
        kv_store_match(w->store, r->prompt.keys, r->prompt.tokens, n, NULL))
        return; /* memory has the block */
    struct loader_source *s = shared_source(w->loader, tier);
    if (!s)
        return;
    add_source(plan, s, from ? from->from_block : 0, from ? from->to_block : n);
}

void worker_begin_load(struct worker *w, struct request *r,
                       const struct msg_prefill *m)
{
    struct load_request plan = {.mode = mode_of(w, m)};

    if (plan.mode == LOAD_MODE_COMPUTE || r->prompt.n_reusable == 0)
        return;
    for (uint8_t i = 0; i < m->n_sources; i++)
        if (m->sources[i].kind == PROTO_SOURCE_PEER &&
            m->sources[i].to_block > m->sources[i].from_block)
            add_peer(w, r, &plan, &m->sources[i]);
    add_disk(w, r, &plan, m);
    add_shared(w, r, &plan, m);
    r->load.from_block = UINT32_MAX;
    for (uint32_t i = 0; i < plan.n_sources; i++)
        if (plan.sources[i].from_block < r->load.from_block)
            r->load.from_block = plan.sources[i].from_block;
    if (plan.n_sources > 0 && loader_add(w->loader, r, &plan) < 0)
        log_warn("request %llu: out of memory; computing instead of loading",
                 (unsigned long long)r->id);
    for (uint32_t i = 0; i < plan.n_sources; i++)
        loader_source_release(plan.sources[i].source);
}

static int take_ahead(void *arg, struct request *r)
{
    struct worker *w = arg;

    return batch_take_ahead(w->batch, r);
}

void worker_load_poke(struct worker *w)
{
    loader_poke(w->loader, take_ahead, w);
}
