/*
 * The walk along a prompt, page by page. Holders that match so far are alive,
 * each with the tiers of its present run. walk.hash is the hash of all alive
 * holders, perhaps with others of an earlier page. In a page with this hash no
 * run ends, so its records are not read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/pages.h"

/* An alive holder's instance and its last run that has ended; 0 = none. */
struct prefix_alive {
    uint32_t instance;
    uint32_t run;
};

#define RECENT_RUNS 16u
/* Pages whose first key's bucket is prefetched. */
#define AHEAD_PAGES 4u

struct walk {
    const struct prefix_index *ix;
    struct prefix_match *match;
    record_word *alive; /* (n_alive), by holder: the record of a page that goes
                        on with its run, all places in the run's tiers */
    struct prefix_alive *as; /* (n_alive), of the same holders */
    uint32_t n_alive;
    uint64_t hash; /* XOR of page_token() over all alive holders, and perhaps
                      others */
    uint32_t recent[RECENT_RUNS]; /* runs that other instances may share */
    struct {                      /* the last end of a run */
        record_word alive;
        uint32_t end, before, run;
    } ended;
};

static record_word as_bits(const struct record *record)
{
    record_word bits;

    memcpy(&bits, record, sizeof(bits));
    return bits;
}

static struct record alive_record(record_word alive)
{
    struct record record;

    memcpy(&record, &alive, sizeof(record));
    return record;
}

/* Returns a record's bits for its holder and n places from `place` on. */
static record_word concerned(uint32_t place, uint32_t n)
{
    return record_word_of(UINT16_MAX, BLOCK_TIERS_ALL,
                          ((1u << n) - 1) << place);
}

int prefix_match_init(struct prefix_match *match, uint32_t max_instances)
{
    memset(match, 0, sizeof(*match));
    match->max_instances = max_instances;
    match->blocks = calloc(max_instances, sizeof(*match->blocks));
    match->last_run = calloc(max_instances, sizeof(*match->last_run));
    match->runs = calloc((size_t)max_instances * PREFIX_RUNS_MAX + 1,
                         sizeof(*match->runs));
    match->holders = calloc(max_instances, sizeof(*match->holders));
    match->alive = calloc(max_instances, sizeof(*match->alive));
    match->alive_as = calloc(max_instances, sizeof(*match->alive_as));
    if (match->blocks && match->last_run && match->runs && match->holders &&
        match->alive && match->alive_as)
        return 0;
    prefix_match_fini(match);
    return -ENOMEM;
}

void prefix_match_fini(struct prefix_match *match)
{
    free(match->blocks);
    free(match->last_run);
    free(match->runs);
    free(match->holders);
    free(match->alive);
    free(match->alive_as);
    memset(match, 0, sizeof(*match));
}

/* Returns the token of an alive holder. */
static uint64_t token_of(const struct walk *w, record_word alive)
{
    struct record record = alive_record(alive);

    return page_token(w->ix, record.holder, record_tiers(&record, 0));
}

/* Returns a run behind another one: an equal recent run, or a new one. */
static uint32_t run_behind(struct walk *w, uint32_t before, uint32_t end,
                           unsigned tiers)
{
    struct prefix_match *m = w->match;
    uint32_t *recent = &w->recent[(before + 5 * end + 3 * tiers) % RECENT_RUNS];
    const struct prefix_run *r = &m->runs[*recent];

    if (r->before == before && r->end_block == end && r->tiers == tiers)
        return *recent;
    *recent = m->n_runs++;
    m->runs[*recent] =
        (struct prefix_run){.first_block = m->runs[before].end_block,
                            .end_block = end,
                            .before = before,
                            .tiers = (uint8_t)tiers,
                            .n_runs = (uint8_t)(m->runs[before].n_runs + 1)};
    return *recent;
}

/* Ends an alive holder's present run, which often equals the one ended last. */
static void end_run(struct walk *w, record_word alive, struct prefix_alive *as,
                    uint32_t end)
{
    struct prefix_match *m = w->match;

    if (((alive ^ w->ended.alive) & w->ix->in_tiers[BLOCK_TIERS_ALL]) != 0 ||
        end != w->ended.end || as->run != w->ended.before) {
        struct record record = alive_record(alive);

        if (end == m->runs[as->run].end_block)
            return;
        w->ended.alive = alive;
        w->ended.end = end;
        w->ended.before = as->run;
        w->ended.run = run_behind(w, as->run, end, record_tiers(&record, 0));
    }
    if (as->run == 0)
        m->holders[m->n_holders++] = as->instance;
    as->run = w->ended.run;
    m->last_run[as->instance] = as->run;
    m->blocks[as->instance] = end;
}

/* Begins a new run of an alive holder wherever the tiers of its next n blocks
 * change. Returns whether it may have that many runs. */
static bool cut_runs(struct walk *w, record_word *alive,
                     struct prefix_alive *as, const struct record *record,
                     uint32_t from, uint32_t place, uint32_t n)
{
    for (uint32_t j = 0;;) {
        struct record run = alive_record(*alive);
        unsigned differ = 0;

        for (unsigned t = 0; t < BLOCK_TIERS; t++)
            differ |= (unsigned)(record->held[t] ^ run.held[t]);
        differ = differ >> (place + j) & ((1u << (n - j)) - 1);
        if (differ == 0)
            return true;
        j += (uint32_t)__builtin_ctz(differ);
        end_run(w, *alive, as, from + j);
        if (w->match->runs[as->run].n_runs == PREFIX_RUNS_MAX)
            return false;
        *alive = w->ix->in_tiers[record_tiers(record, place + j)] | run.holder;
    }
}

/*
 * Extends an alive holder's match by blocks [from, from + n), in a page's
 * places from `place` on.
 *   record  its record of the page; NULL = none.
 * Returns whether it is still alive.
 */
static bool go_on(struct walk *w, record_word *alive, struct prefix_alive *as,
                  const struct record *record, uint32_t from, uint32_t place,
                  uint32_t n)
{
    unsigned held = record ? record_any(record) >> place : 0;
    uint32_t lead = (uint32_t)__builtin_ctz(~held);

    if (lead > n)
        lead = n;
    if (lead > 0 &&
        ((as_bits(record) ^ *alive) & concerned(place, lead)) != 0 &&
        !cut_runs(w, alive, as, record, from, place, lead))
        return false;
    if (lead == n)
        return true;
    end_run(w, *alive, as, from + lead);
    return false;
}

/* Begins the walk: the holders of the first page are alive. */
static void begin(struct walk *w, struct page *page, uint32_t place,
                  uint32_t n_places)
{
    record_word range = concerned(place, n_places);
    uint32_t n, n_even = 0;
    const struct record *records = page_records(w->ix, page, &n);

    for (uint32_t r = 0; r < n; r++) {
        const struct holder *h = &w->ix->holders[records[r].holder];
        record_word *alive = &w->alive[w->n_alive];
        struct prefix_alive *as = &w->as[w->n_alive];
        unsigned tiers = record_tiers(&records[r], place);

        if (tiers == 0 || h->state != HOLDER_LIVE)
            continue;
        *alive = w->ix->in_tiers[tiers] | records[r].holder;
        *as = (struct prefix_alive){.instance = h->instance};
        if (((as_bits(&records[r]) ^ *alive) & range) == 0) {
            n_even++;
            w->n_alive++;
        } else if (go_on(w, alive, as, &records[r], 0, place, n_places)) {
            w->n_alive++;
        }
    }
    if (n_places == page->n_keys && n_even == w->n_alive) {
        w->hash = page->hash;
        return;
    }
    for (uint32_t i = 0; i < w->n_alive; i++)
        w->hash ^= token_of(w, w->alive[i]);
}

/* Returns how many of the first n records equal the expected ones. */
static uint32_t as_expected(const struct record *records,
                            const record_word *expected, uint32_t n,
                            record_word range)
{
    uint32_t i = 0;

    for (; i + 4 <= n; i += 4) {
        record_word differ = (as_bits(&records[i]) ^ expected[i]) |
                             (as_bits(&records[i + 1]) ^ expected[i + 1]) |
                             (as_bits(&records[i + 2]) ^ expected[i + 2]) |
                             (as_bits(&records[i + 3]) ^ expected[i + 3]);

        if ((differ & range) != 0)
            break;
    }
    while (i < n && ((as_bits(&records[i]) ^ expected[i]) & range) == 0)
        i++;
    return i;
}

/* Moves n alive holders from index i down to index `to`. */
static void keep(struct walk *w, uint32_t to, uint32_t i, uint32_t n)
{
    if (to == i || n == 0)
        return;
    memmove(&w->alive[to], &w->alive[i], n * sizeof(*w->alive));
    memmove(&w->as[to], &w->as[i], n * sizeof(*w->as));
}

/* Reads a page's records: its hash differs, or it is matched in part. */
static void look(struct walk *w, struct page *page, uint32_t from,
                 uint32_t place, uint32_t n_places)
{
    record_word range = concerned(place, n_places);
    uint32_t n, r = 0, i = 0, kept = 0;
    const struct record *records = page_records(w->ix, page, &n);
    bool in_hash = n_places == page->n_keys; /* all alive holders are */

    while (i < w->n_alive) {
        uint32_t most = w->n_alive - i < n - r ? w->n_alive - i : n - r;
        uint32_t even = as_expected(records + r, w->alive + i, most, range);
        const struct record *record;
        record_word before;
        uint32_t holder;

        keep(w, kept, i, even);
        kept += even;
        i += even;
        r += even;
        if (i == w->n_alive)
            break;
        holder = alive_record(w->alive[i]).holder;
        if (r < n && records[r].holder < holder) {
            r++; /* not alive */
            continue;
        }
        record = r < n && records[r].holder == holder ? &records[r++] : NULL;
        before = w->alive[i];
        if (go_on(w, &w->alive[i], &w->as[i], record, from, place, n_places)) {
            w->hash ^= token_of(w, before) ^ token_of(w, w->alive[i]);
            in_hash = false;
            keep(w, kept++, i, 1);
        }
        i++;
    }
    w->n_alive = kept;
    if (in_hash)
        w->hash = page->hash;
}

/* Returns how many of the keys follow each other in a page from `at` on. */
static uint32_t keys_in_page(const struct prefix_index *ix, struct position at,
                             const uint64_t *keys, size_t n)
{
    const uint64_t *in = ix->keys[at.page] + at.place;
    uint32_t most = ix->pages[at.page].n_keys - at.place;
    uint32_t same = 1;

    if (most > n)
        most = (uint32_t)n;
    while (same < most && in[same] == keys[same])
        same++;
    return same;
}

/* Returns the position of the key behind a page, often in the next page. */
static struct position find_behind(const struct prefix_index *ix, uint32_t page,
                                   uint64_t key)
{
    if (page < ix->max_pages && ix->keys[page + 1][0] == key &&
        ix->pages[page + 1].n_keys > 0)
        return (struct position){page + 1, 0};
    return table_find(ix, key);
}

void prefix_index_match(struct prefix_index *index, const uint64_t *keys,
                        size_t n, struct prefix_match *match)
{
    struct walk w = {.ix = index,
                     .match = match,
                     .alive = match->alive,
                     .as = match->alive_as};
    struct position at = {0, 0};
    uint32_t from = 0;

    memset(match->blocks, 0, match->max_instances * sizeof(*match->blocks));
    memset(match->last_run, 0, match->max_instances * sizeof(*match->last_run));
    match->n_runs = 1;
    match->n_holders = 0;
    match->n_keys = (uint32_t)n;
    for (uint32_t p = 1; p < AHEAD_PAGES && p * PAGE_KEYS < n; p++)
        table_prefetch(index, keys[p * PAGE_KEYS]);
    while (from < n && keys[from] != 0 && (from == 0 || w.n_alive > 0)) {
        struct page *page;
        uint32_t here;

        at = find_behind(index, at.page, keys[from]);
        if (at.page == 0)
            break;
        if (from + AHEAD_PAGES * PAGE_KEYS < n)
            table_prefetch(index, keys[from + AHEAD_PAGES * PAGE_KEYS]);
        page = &index->pages[at.page];
        here = keys_in_page(index, at, keys + from, n - from);
        page->recent = 1;
        page->use = page_used(index, from / PAGE_KEYS);
        if (from == 0)
            begin(&w, page, at.place, here);
        else if (here < page->n_keys || page->hash != w.hash)
            look(&w, page, from, at.place, here);
        from += here;
    }
    for (uint32_t i = 0; i < w.n_alive; i++)
        end_run(&w, w.alive[i], &w.as[i], from);
}
