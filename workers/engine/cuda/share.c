/* Lends pages of engine "cuda", and reads pages of other processes. */
#include <errno.h>
#include <unistd.h>

#include "workers/engine/cuda/engine.h"

/* At most 1/LENT_SHARE of the pages are lent or read into, so that steps find
 * room. */
#define LENT_SHARE 16

static struct cuda_engine *engine_of(const struct shared_card *c)
{
    return c->arg;
}

uint32_t cuda_lent_max(const struct cuda_engine *e)
{
    return cuda_card_limits(e->card)->pages / LENT_SHARE;
}

static bool may_lend(const struct cuda_engine *e)
{
    struct page_cache_counts counts;

    page_cache_counts(e->pages, &counts);
    return counts.lent < cuda_lent_max(e);
}

static void *share_open(const struct shared_card *c,
                        const uint8_t handle[SHARED_CARD_HANDLE_BYTES],
                        uint64_t bytes)
{
    return cuda_card_open_peer(engine_of(c)->card, handle, bytes);
}

static void share_shut(const struct shared_card *c, void *memory)
{
    cuda_card_shut_peer(engine_of(c)->card, memory);
}

static int share_lend(const struct shared_card *c, const void *block,
                      uint64_t *offset)
{
    struct cuda_engine *e = engine_of(c);
    int rc = -ENOBUFS;

    pthread_mutex_lock(&e->lock);
    if (!e->lost && cuda_poll_tickets(e, false) == 0 && may_lend(e)) {
        uint32_t page = page_cache_lend(e->pages, block, e->ticket_over);

        rc = page == PAGE_NONE ? -ENOENT : 0;
        if (rc == 0)
            *offset = page * e->base.layout.block_bytes;
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

static void share_give_back(const struct shared_card *c, const void *block)
{
    struct cuda_engine *e = engine_of(c);

    pthread_mutex_lock(&e->lock);
    page_cache_give_back(e->pages, page_cache_find(e->pages, block));
    pthread_mutex_unlock(&e->lock);
}

/* A part of a host block. */
struct part {
    unsigned char *block; /* NULL = in no block that the engine knows */
    uint64_t offset;
};

static struct part part_of(const struct cuda_engine *e, const void *at)
{
    uint64_t block_bytes = e->base.layout.block_bytes;

    for (size_t i = 0; i < CUDA_HOSTS; i++) {
        const struct cuda_host *h = &e->hosts[i];
        size_t from = (uintptr_t)at - (uintptr_t)h->memory;

        if (h->memory && from < h->bytes)
            return (struct part){h->memory + from / block_bytes * block_bytes,
                                 from % block_bytes};
    }
    return (struct part){0};
}

/* Holds a page to read a block into, until give_back(); PAGE_NONE = none.
 * Called with the lock. */
static uint32_t hold_page(struct cuda_engine *e, void *block)
{
    struct page_dirty dirty;
    uint32_t page;

    if (e->lost || cuda_poll_tickets(e, false) < 0 || !may_lend(e))
        return PAGE_NONE;
    page = page_cache_take(e->pages, block, e->ticket_over, true, &dirty);
    /* A pinned page belongs to a step, which uploads itself; an older upload
     * may still be pending. */
    if (page == PAGE_NONE || page_cache_pinned(e->pages, page) ||
        page_cache_ticket(e->pages, page) > e->ticket_over)
        return PAGE_NONE;
    page_cache_hold(e->pages, page);
    return page;
}

static int share_read(const struct shared_card *c, const void *from, void *to,
                      uint64_t bytes, uint32_t *page)
{
    struct cuda_engine *e = engine_of(c);
    struct part part = part_of(e, to);
    int rc;

    *page = PAGE_NONE;
    pthread_mutex_lock(&e->lock);
    if (part.block)
        *page = hold_page(e, part.block);
    rc = e->lost ? -EIO : 0;
    pthread_mutex_unlock(&e->lock);
    if (rc == 0)
        rc = cuda_card_read_peer(e->card, from, *page, part.offset, to, bytes);
    if (rc == 0)
        return 0;
    pthread_mutex_lock(&e->lock);
    if (!e->lost)
        cuda_lose(e);
    if (*page != PAGE_NONE)
        page_cache_give_back(e->pages, *page);
    pthread_mutex_unlock(&e->lock);
    return -EIO;
}

static void share_read_over(const struct shared_card *c, const void *to,
                            uint64_t bytes, uint32_t page, bool ok)
{
    struct cuda_engine *e = engine_of(c);
    uint64_t layer_bytes = e->base.layout.block_bytes / e->layers;
    struct part part = part_of(e, to);

    if (page == PAGE_NONE)
        return;
    pthread_mutex_lock(&e->lock);
    /* If a step has pinned the page meanwhile, the step tracks its rows. */
    if (ok && !page_cache_pinned(e->pages, page) &&
        part.offset % layer_bytes == 0 && bytes % layer_bytes == 0)
        page_cache_set_rows(e->pages, page,
                            (uint32_t)(part.offset / layer_bytes),
                            (uint32_t)((part.offset + bytes) / layer_bytes),
                            e->base.layout.block_tokens);
    page_cache_give_back(e->pages, page);
    pthread_mutex_unlock(&e->lock);
}

static const struct shared_card_ops share_ops = {
    .open = share_open,
    .shut = share_shut,
    .lend = share_lend,
    .give_back = share_give_back,
    .read = share_read,
    .read_over = share_read_over,
};

void cuda_share_init(struct cuda_engine *e)
{
    struct shared_card *s = &e->shared;

    s->ops = &share_ops;
    s->arg = e;
    s->address = cuda_card_pages(e->card, &s->bytes);
    s->has_handle = cuda_card_handle(e->card, s->handle) == 0;
    s->dmabuf = cuda_card_dmabuf(e->card);
}

void cuda_share_fini(struct cuda_engine *e)
{
    if (e->shared.ops && e->shared.dmabuf >= 0)
        close(e->shared.dmabuf);
}

const struct shared_card *cuda_shared(const struct engine *base)
{
    const struct cuda_engine *e = (const struct cuda_engine *)base;

    return &e->shared;
}
