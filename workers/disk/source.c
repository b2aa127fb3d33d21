/* Reading blocks of a prompt from the disk tier.
 *
 * A session has pins on the leading run of the prompt's blocks in the tier,
 * whose tokens were compared from the first one on; the tier compares the
 * checksums of what is read. A session that was closed lives on until the
 * kernel is done with the memory that it reads into. */
#include "workers/disk/source.h"

#include <errno.h>
#include <stdlib.h>

/* A piece that is being read. */
struct reading {
    LIST_ENTRY(reading) link;
    struct session *session;
    struct loader_piece *piece;
    struct disk_read *read;
};

struct session {
    struct disk_tier *tier;
    LIST_HEAD(, reading) readings;
    bool closed;
    uint32_t n;
    struct disk_ref refs[]; /* (n), each with a pin until it is closed */
};

static void *source_open(void *arg, struct load_run *run,
                         const struct request *r, uint32_t to_block)
{
    struct session *s =
        calloc(1, sizeof(*s) + to_block * sizeof(struct disk_ref));

    if (!s)
        return NULL;
    s->tier = arg;
    LIST_INIT(&s->readings);
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
    struct reading *reading = arg;
    struct session *s = reading->session;
    struct loader_piece *piece = reading->piece;

    LIST_REMOVE(reading, link);
    free(reading);
    if (s->closed && LIST_EMPTY(&s->readings))
        free(s);
    loader_done(piece, rc);
}

static int source_read(void *, void *session, struct loader_piece *piece)
{
    struct session *s = session;
    struct reading *reading =
        piece->block < s->n ? calloc(1, sizeof(*reading)) : NULL;
    uint64_t layer_bytes = piece->bytes / piece->n_layers;

    if (!reading)
        return piece->block < s->n ? -ENOMEM : -ENOENT;
    reading->session = s;
    reading->piece = piece;
    int rc =
        disk_tier_read(s->tier, s->refs[piece->block], piece->from_layer,
                       piece->from_layer + piece->n_layers,
                       (char *)piece->data - piece->from_layer * layer_bytes,
                       on_read, reading, &reading->read);
    if (rc < 0) {
        free(reading);
        return rc;
    }
    LIST_INSERT_HEAD(&s->readings, reading, link);
    return 0;
}

static void source_close(void *, void *session)
{
    struct session *s = session;
    struct reading *reading;

    s->closed = true;
    for (uint32_t i = 0; i < s->n; i++)
        disk_tier_unpin(s->tier, s->refs[i]);
    LIST_FOREACH(reading, &s->readings, link)
    {
        disk_tier_cancel(s->tier, reading->read);
    }
    if (LIST_EMPTY(&s->readings))
        free(s);
}

static const struct loader_source_ops source_ops = {
    .origin = BLOCK_FROM_DISK,
    .open = source_open,
    .read = source_read,
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
