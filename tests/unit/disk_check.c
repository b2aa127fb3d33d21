/* The invariants of the disk tier as assertions; see tier/internal.h. */
#include "tests/unit/disk_check.h"

#undef NDEBUG
#include <assert.h>

#include "tests/unit/kv_store_check.h"
#include "workers/disk/tier/internal.h"

static uint32_t check_reads(const struct disk_tier *t)
{
    const struct disk_read *r;
    uint32_t n = 0;
    uint32_t under_way = 0;

    for (uint32_t i = 0; i < t->config.max_reads; i++)
        under_way += t->read_pool[i].under_way;
    TAILQ_FOREACH(r, &t->free_reads, link)
    {
        assert(r->under_way == 0);
        n++;
    }
    assert(n + t->n_reads == t->config.max_reads);
    TAILQ_FOREACH(r, &t->reads, link)
    {
        assert(r->queued && r->begun_bytes < r->bytes && r->error == 0);
    }
    TAILQ_FOREACH(r, &t->ended, link)
    {
        assert(!r->queued && r->under_way == 0);
    }
    return under_way;
}

static bool is_free(const struct disk_tier *t, const struct disk_piece *p)
{
    const struct disk_piece *f;

    STAILQ_FOREACH(f, &t->free_pieces, link)
    {
        if (f == p)
            return true;
    }
    return false;
}

/* Pieces under way that erase a header. */
static uint32_t erasing(const struct disk_tier *t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < DISK_PIECES; i++) {
        const struct disk_piece *p = &t->pieces[i];

        if (p->read || p->write || is_free(t, p))
            continue;
        assert(!kv_store_is_held(t->index, p->index));
        n++;
    }
    return n;
}

static void check_writes(const struct disk_tier *t)
{
    const struct disk_write *w;
    uint32_t n = 0;
    uint32_t n_free = 0;
    uint32_t under_way = 0;

    TAILQ_FOREACH(w, &t->free_writes, link)
    {
        n_free++;
    }
    TAILQ_FOREACH(w, &t->writes, link)
    {
        assert(!kv_store_is_held(t->index, w->slot));
        assert(!w->header_begun || n == 0);
        assert(w->done_bytes <= w->begun_bytes);
        under_way += w->under_way;
        n++;
    }
    assert(n == t->n_writes && n + n_free == t->config.max_writes);
    assert(under_way + erasing(t) == t->n_write_pieces);
}

void disk_tier_check(const struct disk_tier *t)
{
    const struct disk_piece *p;
    uint32_t n_free = 0;

    kv_store_check(t->index);
    STAILQ_FOREACH(p, &t->free_pieces, link)
    {
        n_free++;
    }
    uint32_t reading = check_reads(t);
    check_writes(t);
    assert(t->n_under_way == reading + t->n_write_pieces);
    assert(t->n_under_way <= DISK_DEPTH);
    assert(n_free + t->n_under_way == DISK_PIECES);
    uint32_t slot = t->first_erase;
    for (; slot != DISK_SLOT_NONE; slot = disk_slot_meta(t, slot)->next_erase)
        assert(!kv_store_is_held(t->index, slot));
}
