/* The pages of engine "cuda": random operations against a list that is searched
 * from end to end. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine_rig.h"
#include "tests/unit/suite.h"
#include "workers/engine/cuda/page_cache.h"

#define PAGES 7
#define BLOCKS 20
#define LAYERS 3
#define BLOCK_TOKENS 16

/* What is known of a block, the least recently used first. */
struct known {
    int block;
    uint32_t page;
    uint32_t rows[LAYERS];
    uint32_t dirty_from, dirty_to;
    uint64_t ticket;
    bool pinned, forgotten;
    uint32_t lent;
};

struct model {
    struct page_cache *cache;
    char memory[BLOCKS];
    struct known list[PAGES];
    uint32_t n;
    uint64_t tickets[PAGES]; /* by page, also of free ones */
    uint64_t next_ticket, over;
    uint64_t state;
    uint32_t n_lent; /* so far */
};

static uint32_t below(struct model *m, uint32_t n)
{
    return rig_random(&m->state, n);
}

static struct known *find(struct model *m, int block)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->list[i].block == block)
            return &m->list[i];
    return NULL;
}

static void remove_known(struct model *m, struct known *k)
{
    uint32_t i = (uint32_t)(k - m->list);

    memmove(k, k + 1, (--m->n - i) * sizeof(*k));
}

/* Which block has to go, or NULL. */
static struct known *victim(struct model *m, bool clean)
{
    for (uint32_t i = 0; i < m->n; i++) {
        struct known *k = &m->list[i];

        if (!k->pinned && k->lent == 0 && k->ticket <= m->over &&
            !(clean && k->dirty_from < k->dirty_to))
            return k;
    }
    return NULL;
}

static void take(struct model *m)
{
    int block = (int)below(m, BLOCKS);
    bool clean = below(m, 3) == 0;
    struct known *k = find(m, block);
    struct known *out = NULL;
    struct page_dirty dirty;
    uint32_t page =
        page_cache_take(m->cache, &m->memory[block], m->over, clean, &dirty);

    if (k) {
        struct known kept = *k;

        CU_ASSERT_EQUAL(page, kept.page);
        CU_ASSERT_PTR_NULL(dirty.block);
        remove_known(m, k);
        m->list[m->n++] = kept;
        return;
    }
    if (m->n == PAGES) {
        out = victim(m, clean);
        if (!out) {
            CU_ASSERT_EQUAL(page, PAGE_NONE);
            return;
        }
        CU_ASSERT_EQUAL(page, out->page);
        if (out->dirty_from < out->dirty_to) {
            CU_ASSERT_PTR_EQUAL(dirty.block, &m->memory[out->block]);
            CU_ASSERT_EQUAL(dirty.page, page);
            CU_ASSERT_EQUAL(dirty.from_slot, out->dirty_from);
            CU_ASSERT_EQUAL(dirty.to_slot, out->dirty_to);
        }
    }
    if (!out || out->dirty_from == out->dirty_to)
        CU_ASSERT_PTR_NULL(dirty.block);
    if (out)
        remove_known(m, out);
    CU_ASSERT_FATAL(page < PAGES);
    m->list[m->n++] = (struct known){
        .block = block, .page = page, .ticket = m->tickets[page]};
}

static void forget(struct model *m)
{
    int block = (int)below(m, BLOCKS);
    struct known *k = find(m, block);

    CU_ASSERT_EQUAL(!page_cache_forget(m->cache, &m->memory[block]), !k);
    if (k && (k->pinned || k->lent > 0))
        k->forgotten = true;
    else if (k)
        remove_known(m, k);
}

static void pin(struct model *m, struct known *k)
{
    if (!k->pinned) {
        page_cache_pin(m->cache, k->page);
        k->pinned = true;
        return;
    }
    page_cache_unpin(m->cache, k->page);
    k->pinned = false;
    if (k->forgotten && k->lent == 0)
        remove_known(m, k);
}

static void lend(struct model *m, struct known *k)
{
    bool whole =
        !k->forgotten && k->ticket <= m->over && k->dirty_from == k->dirty_to;

    for (int l = 0; l < LAYERS; l++)
        whole = whole && k->rows[l] == BLOCK_TOKENS;
    if (below(m, 4) == 0) {
        page_cache_hold(m->cache, k->page);
        k->lent++;
    } else {
        CU_ASSERT_EQUAL(
            page_cache_lend(m->cache, &m->memory[k->block], m->over),
            whole ? k->page : PAGE_NONE);
        k->lent += whole;
        m->n_lent += whole;
    }
}

static void give_back(struct model *m, struct known *k)
{
    if (k->lent == 0)
        return;
    page_cache_give_back(m->cache, k->page);
    k->lent--;
    if (k->forgotten && k->lent == 0 && !k->pinned)
        remove_known(m, k);
}

/* Rows of one layer come from the host, behind those that are there. */
static void load(struct model *m, struct known *k)
{
    uint32_t layer = below(m, LAYERS);
    uint32_t more = below(m, BLOCK_TOKENS - k->rows[layer] + 1);

    if (below(m, 3) == 0) {
        for (int l = 0; l < LAYERS; l++)
            k->rows[l] = BLOCK_TOKENS;
        page_cache_set_rows(m->cache, k->page, 0, LAYERS, BLOCK_TOKENS);
        more = 0;
    }

    k->rows[layer] += more;
    page_cache_set_rows(m->cache, k->page, layer, layer + 1, k->rows[layer]);
    k->ticket = m->tickets[k->page] = ++m->next_ticket;
    page_cache_set_ticket(m->cache, k->page, k->ticket);
}

static void decode(struct model *m, struct known *k)
{
    uint32_t slot = below(m, BLOCK_TOKENS);

    if (slot < k->dirty_to)
        return;
    page_cache_set_dirty(m->cache, k->page, slot);
    if (k->dirty_from == k->dirty_to)
        k->dirty_from = slot;
    k->dirty_to = slot + 1;
    for (int l = 0; l < LAYERS; l++)
        k->rows[l] = slot + 1;
}

static void cut(struct model *m, struct known *k)
{
    uint32_t slot = below(m, BLOCK_TOKENS + 1);

    page_cache_cut(m->cache, k->page, slot);
    for (int l = 0; l < LAYERS; l++)
        k->rows[l] = k->rows[l] < slot ? k->rows[l] : slot;
    k->dirty_to = k->dirty_to < slot ? k->dirty_to : slot;
    if (k->dirty_from >= k->dirty_to)
        k->dirty_from = k->dirty_to = 0;
}

static void compare(struct model *m)
{
    page_cache_check(m->cache);
    for (int b = 0; b < BLOCKS; b++) {
        struct known *k = find(m, b);
        uint32_t page = page_cache_find(m->cache, &m->memory[b]);

        CU_ASSERT_EQUAL(page, k ? k->page : PAGE_NONE);
        for (uint32_t l = 0; k && l < LAYERS; l++)
            CU_ASSERT_EQUAL(page_cache_rows(m->cache, page, l), k->rows[l]);
        if (k) {
            CU_ASSERT_EQUAL(page_cache_pinned(m->cache, page), k->pinned);
            CU_ASSERT_EQUAL(page_cache_ticket(m->cache, page), k->ticket);
        }
    }
}

static void test_random(void)
{
    static struct model m;

    m.state = rig_seed("page_cache");
    m.cache = page_cache_new(PAGES, LAYERS, BLOCK_TOKENS);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m.cache);
    for (int i = 0; i < 20000; i++) {
        struct known *k = m.n > 0 ? &m.list[below(&m, m.n)] : NULL;
        uint32_t what = below(&m, 11);

        if (!k || what < 3)
            take(&m);
        else if (what == 3)
            forget(&m);
        else if (what == 4)
            pin(&m, k);
        else if (what == 5)
            load(&m, k);
        else if (what == 6)
            decode(&m, k);
        else if (what == 7)
            cut(&m, k);
        else if (what == 8)
            lend(&m, k);
        else
            give_back(&m, k);
        if (below(&m, 4) == 0)
            m.over += below(&m, (uint32_t)(m.next_ticket - m.over) + 1);
        compare(&m);
    }
    CU_ASSERT(m.n_lent > 0);
    page_cache_free(m.cache);
}

static void test_clean(void)
{
    struct page_cache *c = page_cache_new(4, 1, BLOCK_TOKENS);
    char blocks[4];
    struct page_dirty dirty;
    struct page_cache_counts counts;

    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    for (int i = 0; i < 4; i++) {
        uint32_t page = page_cache_take(c, &blocks[i], 0, false, &dirty);

        if (i % 2)
            page_cache_set_dirty(c, page, (uint32_t)i);
    }
    uint32_t found = 0;
    for (uint32_t from = 0; page_cache_clean(c, from, &dirty);
         from = dirty.page + 1) {
        found++;
        CU_ASSERT_EQUAL(dirty.to_slot, dirty.from_slot + 1);
    }
    CU_ASSERT_EQUAL(found, 2);
    CU_ASSERT_FALSE(page_cache_clean(c, 0, &dirty));
    page_cache_counts(c, &counts);
    CU_ASSERT_EQUAL(counts.mapped, 4);
    CU_ASSERT_EQUAL(counts.evicted, 0);
    page_cache_free(c);
}

static const struct suite_test tests[] = {
    {"random operations", test_random},
    {"clean", test_clean},
};
SUITE("page_cache", tests)
