/* Reads blocks of a prompt from the disk tier.
 *
 * A session has pins on the prompt's leading blocks in the tier, whose tokens
 * were compared from the first block on; the tier verifies the checksums of
 * each read. A read has a pin of its own, so it may outlive its session until
 * the kernel is done with the target memory. */
#include "workers/disk/source.h"

#include <errno.h>
#include <stdlib.h>

struct session {
    struct disk_tier *tier;
    uint32_t n;
    struct disk_ref refs[]; /* (n), each with a pin */
};

static void *source_open(void *arg, struct load_run *run,
                         const struct request *r, uint32_t to_block)
{
    struct session *s =
        calloc(1, sizeof(*s) + to_block * sizeof(struct disk_ref));

    if (!s)
        return NULL;
    s->tier = arg;
    s->n = disk_tier_match(s->tier, r->prompt.keys, r->prompt.tokens, to_block,
                           s->refs);
    if (s->n == 0) {
        free(s);
        return NULL;
    }
    loader_opened(run, s->n);
    return s;
}

static void on_read(void *arg, int rc)
{
    loader_done(arg, rc);
}

static int source_read(void *, void *session, struct loader_piece *piece)
{
    struct session *s = session;
    uint64_t layer_bytes = piece->bytes / piece->n_layers;
    struct disk_job *read = NULL;

    if (piece->block >= s->n)
        return -ENOENT;
    int rc =
        disk_tier_read(s->tier, s->refs[piece->block], piece->from_layer,
                       piece->from_layer + piece->n_layers,
                       (char *)piece->data - piece->from_layer * layer_bytes,
                       on_read, piece, &read);
    piece->own = read;
    return rc;
}

static void source_cancel(void *arg, struct loader_piece *piece)
{
    disk_tier_cancel(arg, piece->own);
}

static void source_close(void *, void *session)
{
    struct session *s = session;

    for (uint32_t i = 0; i < s->n; i++)
        disk_tier_unpin(s->tier, s->refs[i]);
    free(s);
}

static const struct loader_source_ops source_ops = {
    .origin = BLOCK_FROM_DISK,
    .open = source_open,
    .read = source_read,
    .cancel = source_cancel,
    .close = source_close,
};

struct loader_source *disk_source(struct loader *loader, struct disk_tier *tier)
{
    static const char name[] = "disk";
    struct loader_source *s = loader_find_source(loader, name);

    return s ? s : loader_add_source(loader, name, &source_ops, tier);
}

uint32_t disk_source_blocks(struct disk_tier *tier, const struct request *r,
                            uint32_t to_block)
{
    return kv_store_match(disk_tier_index(tier), r->prompt.keys,
                          r->prompt.tokens, to_block, NULL);
}
