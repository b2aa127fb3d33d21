/* The holders of blocks, for /admin/blocks and /admin/replicas. */
#include <errno.h>
#include <stdlib.h>

#include "conductor/core/index/block_key.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/models.h"
#include "conductor/service/worker/copies.h"

static int write_tiers(unsigned tiers, struct text_buf *out)
{
    const char *comma = "";
    int bad = 0;

    for (unsigned t = 0; t < BLOCK_TIERS; t++) {
        if ((tiers & BLOCK_TIER_BIT(t)) == 0)
            continue;
        bad |= text_buf_printf(out, "%s\"%s\"", comma, block_tiers[t].name) < 0;
        comma = ",";
    }
    return bad;
}

static int write_block(const struct service *s, uint64_t key, const char *comma,
                       struct text_buf *out)
{
    char name[2 * POOL_NAME_BYTES];
    const char *between = "";
    int bad = text_buf_printf(out, "%s{\"key\":\"%016llx\",\"held\":[", comma,
                              (unsigned long long)key) < 0;

    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *in = pool_at(s->pool, slot);
        unsigned tiers = in ? prefix_index_tiers(s->index, slot, key) : 0;

        if (tiers == 0)
            continue;
        metrics_escape(in->name, name);
        bad |= text_buf_printf(out, "%s{\"instance\":\"%s\",\"tiers\":[",
                               between, name) < 0;
        bad |= write_tiers(tiers, out);
        bad |= text_buf_printf(out, "]}") < 0;
        between = ",";
    }
    bool shared = prefix_index_tiers(s->index, service_store_slot(s), key) != 0;
    return bad | (text_buf_printf(out, "],\"shared\":%s}",
                                  shared ? "true" : "false") < 0);
}

int models_blocks(const struct models *models, uint64_t key,
                  const uint32_t *tokens, size_t n, struct text_buf *out)
{
    const struct service *s = models_native(models);
    uint32_t bt = s ? (uint32_t)s->config.block_tokens : 0;
    size_t n_keys = key != 0 || !s ? 1 : n / bt;
    uint64_t *keys = malloc((n_keys + 1) * sizeof(*keys));
    int bad;

    if (!s || !keys) {
        free(keys);
        return s ? -ENOMEM : -ENOENT;
    }
    keys[0] = key;
    if (key == 0)
        block_keys_compute(tokens, n, bt,
                           block_key_seed(s->config.model, "", ""), keys);
    bad = text_buf_printf(out, "{\"block_tokens\":%u,\"blocks\":[", bt) < 0;
    for (size_t i = 0; i < n_keys; i++)
        bad |= write_block(s, keys[i], i > 0 ? "," : "", out);
    bad |= text_buf_printf(out, "]}\n") < 0;
    free(keys);
    return bad ? -ENOMEM : 0;
}

/* Returns the number of leading blocks that some worker has. */
static uint32_t n_held(const struct service *s, const uint64_t *keys, size_t n)
{
    uint32_t held = 0;

    while (held < n) {
        unsigned tiers = 0;

        for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++)
            if (pool_at(s->pool, slot))
                tiers |= prefix_index_tiers(s->index, slot, keys[held]);
        if (tiers == 0)
            break;
        held++;
    }
    return held;
}

int models_replicas(struct models *models, const uint32_t *tokens, size_t n,
                    uint32_t copies, struct text_buf *out)
{
    struct service *s = models_native(models);
    uint32_t bt = s ? (uint32_t)s->config.block_tokens : 1;

    if (!cluster_leads(models->cluster))
        return -EBUSY;
    uint64_t *keys = malloc((n / bt + 1) * sizeof(*keys));
    int rc = keys ? -ENOENT : -ENOMEM;

    if (s && keys && s->dispatch.scheduler) {
        uint64_t seed = block_key_seed(s->config.model, "", "");

        block_keys_compute(tokens, n, bt, seed, keys);
        uint32_t held = n_held(s, keys, n / bt);
        if (held > 0)
            rc = copies_change(s, keys, held, seed, copies, out) ? -ENOMEM : 0;
    }
    free(keys);
    return rc;
}
