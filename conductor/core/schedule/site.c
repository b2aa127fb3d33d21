/* The blocks of a prompt that one instance can load, and from where. */
#include "conductor/core/schedule/internal.h"

static void site_add(struct schedule_site *site,
                     const struct schedule_source *source,
                     const struct load_source *load)
{
    site->sources[site->n] = *source;
    site->loads[site->n++] = *load;
}

double schedule_path_rate(const struct scheduler *s,
                          const struct pool_instance *i, uint32_t from)
{
    double told = pool_path_bytes_per_s(i, from);
    const struct pool_instance *sender =
        told > 0.0 ? NULL : pool_get(s->pool, from);

    return sender ? sender->link_bytes_per_s : told;
}

/* The load from a peer, at the rate that the instance has measured. The peer's
 * pushes and slow tiers still slow it down. */
static struct load_source load_of(const struct scheduler *s,
                                  const struct pool_instance *i,
                                  const struct schedule_peer *peer)
{
    const struct pool_instance *sender =
        pool_get(s->pool, peer->source.instance);
    double told = pool_path_bytes_per_s(i, peer->source.instance);
    struct load_source load = peer->load;

    if (told > 0.0 && peer->source.tier == TIER_DEVICE)
        load.bytes_per_s *= told / sender->link_bytes_per_s;
    else if (told > 0.0 && told < load.bytes_per_s)
        load.bytes_per_s = told;
    return load;
}

/* Adds the best peers until they fill the instance's own link. */
static void add_peers_within(const struct scheduler *s,
                             const struct pool_instance *i,
                             const struct schedule_peers *peers,
                             struct schedule_site *site)
{
    double left = i->link_bytes_per_s;

    for (size_t k = 0;
         k < peers->n && site->n < site->n_own + SCHEDULE_PEERS_MAX; k++) {
        const struct schedule_peer *peer = &peers->at[k];
        struct load_source load = load_of(s, i, peer);

        if (peer->source.instance == i->id ||
            peer->source.to_block <= site->resident)
            continue;
        if (load.bytes_per_s > left)
            load.bytes_per_s = left;
        if (!(load.bytes_per_s > 0.0))
            return;
        left -= load.bytes_per_s;
        if (load.free_at_us < i->ingress_free_us)
            load.free_at_us = i->ingress_free_us;
        site_add(site, &peer->source, &load);
    }
}

void schedule_find_site(const struct scheduler *s,
                        const struct schedule_request *request,
                        const struct pool_instance *i, uint32_t usable_blocks,
                        const struct schedule_peers *peers,
                        struct schedule_site *site)
{
    uint32_t ready = schedule_lesser(s->stored.blocks[i->slot], usable_blocks);
    uint32_t pending =
        schedule_lesser(s->expected.blocks[i->slot], usable_blocks);
    struct schedule_own own;
    size_t n_own;

    schedule_own_blocks(s, i, ready, &own);
    site->resident = own.free_blocks > pending ? own.free_blocks : pending;
    site->computed_us = pending > own.free_blocks
                            ? pool_computed_us(s->pool, i, request->keys,
                                               pending, request->now_us)
                            : 0;
    site->n = 0;
    for (size_t o = 0; o < own.n_sources; o++) {
        const struct schedule_source *source = &own.sources[o];

        if (source->to_block > site->resident)
            site_add(site, source,
                     &(struct load_source){
                         .id = i->id,
                         .from_block = source->from_block,
                         .to_block = source->to_block,
                         .bytes_per_s = i->tier_bytes_per_s[source->tier],
                         .free_at_us = i->tier_free_us[source->tier],
                         .by_layer = true,
                     });
    }
    n_own = site->n;
    site->n_own = n_own;
    if (s->rules.sees_links) {
        add_peers_within(s, i, peers, site);
        return;
    }
    for (size_t k = 0; k < peers->n && site->n < n_own + SCHEDULE_PEERS_MAX;
         k++) {
        const struct schedule_peer *peer = &peers->at[k];

        struct load_source load = load_of(s, i, peer);

        if (peer->source.instance != i->id &&
            peer->source.to_block > site->resident)
            site_add(site, &peer->source, &load);
    }
}
