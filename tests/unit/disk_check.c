/* The invariants of the disk tier as assertions; see tier/internal.h. */
#include "tests/unit/disk_check.h"

#undef NDEBUG
#include <assert.h>

#include "tests/unit/kv_store_check.h"
#include "workers/disk/tier/internal.h"

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

/* Pieces under way of a job; of none: that erase a header. */
static uint32_t under_way(const struct disk_tier *t, const struct disk_job *j)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < DISK_PIECES; i++) {
        const struct disk_piece *p = &t->pieces[i];

        if (p->job != j || is_free(t, p))
            continue;
        assert(j || !kv_store_is_held(t->index, p->slot));
        assert(!j || p->layer + p->n_layers <= j->to_layer);
        n++;
    }
    return n;
}

/* Returns how many pieces of reads are under way. */
static uint32_t check_reads(const struct disk_tier *t)
{
    const struct disk_job *r;
    uint32_t n = 0;
    uint32_t pieces = 0;

    TAILQ_FOREACH(r, &t->reads, link)
    {
        assert(r->next_layer < r->to_layer && r->error == 0);
        assert(r->under_way == under_way(t, r));
        n++;
    }
    TAILQ_FOREACH(r, &t->ended, link)
    {
        assert(r->next_layer == r->to_layer && r->under_way == 0);
        n++;
    }
    for (uint32_t i = 0; i < DISK_PIECES; i++) {
        const struct disk_piece *p = &t->pieces[i];

        if (is_free(t, p) || !p->job || p->job->write)
            continue;
        assert(p->job->under_way == under_way(t, p->job));
        pieces++;
    }
    assert(n <= t->n_reads && t->n_reads <= n + pieces);
    assert(t->n_reads <= t->config.max_reads);
    return pieces;
}

static void check_writes(const struct disk_tier *t)
{
    const struct disk_job *w;
    uint32_t n = 0;
    uint32_t pieces = 0;

    TAILQ_FOREACH(w, &t->writes, link)
    {
        assert(!kv_store_is_held(t->index, w->ref.slot));
        assert(!w->header_begun || n == 0);
        assert(w->under_way == under_way(t, w));
        pieces += w->under_way;
        n++;
    }
    assert(n == t->n_writes && n <= t->config.max_writes);
    assert(pieces + under_way(t, NULL) == t->n_write_pieces);
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
