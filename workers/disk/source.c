/* Reading blocks of a prompt from the disk tier.
 *
 * A session has pins on the leading run of the prompt's blocks in the tier,
 * whose tokens were compared from the first one on; the tier compares the
 * checksums of what is read. A session that was closed lives on until the
 * kernel is done with the memory that it reads into. */
#include "workers/disk/source.h"

#include <errno.h>
#include <stdlib.h>

struct source {
    struct disk_tier *tier;
};

/* A piece that is being read. */
struct reading {
    LIST_ENTRY(reading) link;
    struct session *session;
    struct loader_piece *piece;
    struct disk_read *read;
};

struct session {
    struct source *source;
    LIST_HEAD(, reading) readings;
    bool closed;
    uint32_t n;
    struct disk_ref refs[]; /* (n), each with a pin until it is closed */
};

static void unpin(struct disk_tier *tier, const struct disk_ref *refs,
                  uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        disk_tier_unpin(tier, refs[i]);
}

static void *source_open(void *arg, struct load_run *run,
                         const struct request *r, uint32_t to_block)
{
    struct source *source = arg;
    struct session *s =
        calloc(1, sizeof(*s) + to_block * sizeof(struct disk_ref));

    if (!s)
        return NULL;
    s->source = source;
    LIST_INIT(&s->readings);
    s->n = disk_tier_match(source->tier, r->prompt.keys, r->prompt.tokens,
                           to_block, s->refs);
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

static int source_read(void *arg, void *session, struct loader_piece *piece)
{
    struct source *source = arg;
    struct session *s = session;
    struct reading *reading =
        piece->block < s->n ? calloc(1, sizeof(*reading)) : NULL;
    uint64_t layer_bytes = piece->bytes / piece->n_layers;

    if (!reading)
        return piece->block < s->n ? -ENOMEM : -ENOENT;
    reading->session = s;
    reading->piece = piece;
    int rc =
        disk_tier_read(source->tier, s->refs[piece->block], piece->from_layer,
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

static void source_close(void *arg, void *session)
{
    struct source *source = arg;
    struct session *s = session;
    struct reading *reading;

    s->closed = true;
    unpin(source->tier, s->refs, s->n);
    LIST_FOREACH(reading, &s->readings, link)
    {
        disk_tier_cancel(source->tier, reading->read);
    }
    if (LIST_EMPTY(&s->readings))
        free(s);
}

static const struct loader_source_ops source_ops = {
    .origin = BLOCK_FROM_DISK,
    .open = source_open,
    .read = source_read,
    .close = source_close,
    .forget = free,
};

struct loader_source *disk_source(struct loader *loader, struct disk_tier *tier)
{
    static const char name[] = "disk";
    struct loader_source *s = loader_find_source(loader, name);

    if (s)
        return s;
    struct source *source = calloc(1, sizeof(*source));
    if (!source)
        return NULL;
    source->tier = tier;
    s = loader_add_source(loader, name, &source_ops, source);
    if (!s)
        free(source);
    return s;
}

uint32_t disk_source_blocks(struct disk_tier *tier, const struct request *r,
                            uint32_t to_block)
{
    return kv_store_count(disk_tier_index(tier), r->prompt.keys,
                          r->prompt.tokens, to_block);
}
