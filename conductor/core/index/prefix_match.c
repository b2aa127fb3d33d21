/*
 * The walk along a prompt, page by page. Those that still match are `alive`,
 * by holder, each with the tiers of its current run. Where a page's hash is
 * that of all who are alive, all of them hold it in the tiers of their runs and
 * nothing ends there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/pages.h"

/* The run under way of one whose prefix has not ended yet. */
struct prefix_run_state {
    uint32_t instance;
    uint32_t start;
    uint32_t last_run; /* in runs; 0: none yet */
    uint32_t n_runs;
};

struct walk {
    const struct prefix_index *ix;
    struct prefix_match *match;
    uint64_t *alive; /* (n_alive): for each the record of a page that continues
                        its run: its holder, and all places in its tiers */
    uint32_t n_alive;
    bool hashed;   /* hash is that of all who are alive */
    uint64_t hash; /* XOR of page_token() over them */
};

/* The 8 bytes of a record: holder, then the masks by tier. */
static uint64_t as_bits(const struct record *record)
{
    uint64_t bits;

    memcpy(&bits, record, sizeof(bits));
    return bits;
}

static uint64_t expect(uint32_t holder, unsigned tiers)
{
    struct record record = {.holder = (uint16_t)holder};

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        record.held[t] = (tiers >> t & 1u) != 0 ? UINT16_MAX : 0;
    return as_bits(&record);
}

static struct record alive_record(uint64_t alive)
{
    struct record record;

    memcpy(&record, &alive, sizeof(record));
    return record;
}

/* The bits of a record that n places from `place` on concern. */
static uint64_t concerned(uint32_t place, uint32_t n)
{
    struct record record = {.holder = UINT16_MAX};

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        record.held[t] = (uint16_t)(((1u << n) - 1) << place);
    return as_bits(&record);
}

int prefix_match_init(struct prefix_match *match, uint32_t max_instances)
{
    memset(match, 0, sizeof(*match));
    match->max_instances = max_instances;
    match->blocks = calloc(max_instances, sizeof(*match->blocks));
    match->first_run = calloc(max_instances, sizeof(*match->first_run));
    match->runs = calloc((size_t)max_instances * PREFIX_RUNS_MAX + 1,
                         sizeof(*match->runs));
    match->holders = calloc(max_instances, sizeof(*match->holders));
    match->alive = calloc(max_instances, sizeof(*match->alive));
    match->state =
        calloc(prefix_holders_max(max_instances), sizeof(*match->state));
    if (match->blocks && match->first_run && match->runs && match->holders &&
        match->alive && match->state)
        return 0;
    prefix_match_fini(match);
    return -ENOMEM;
}

void prefix_match_fini(struct prefix_match *match)
{
    free(match->blocks);
    free(match->first_run);
    free(match->runs);
    free(match->holders);
    free(match->alive);
    free(match->state);
    memset(match, 0, sizeof(*match));
}

/* Ends the current run of one who is alive. */
static void end_run(struct walk *w, uint64_t alive, uint32_t end)
{
    struct prefix_match *m = w->match;
    struct record record = alive_record(alive);
    struct prefix_run_state *state = &m->state[record.holder];
    uint32_t run;

    if (end == state->start)
        return;
    run = m->n_runs++;
    m->runs[run] =
        (struct prefix_run){.first_block = state->start,
                            .end_block = end,
                            .tiers = (uint8_t)record_tiers(&record, 0)};
    if (state->last_run != 0) {
        m->runs[state->last_run].next = run;
    } else {
        m->first_run[state->instance] = run;
        m->holders[m->n_holders++] = state->instance;
    }
    m->blocks[state->instance] = end;
    state->last_run = run;
    state->start = end;
    state->n_runs++;
}

/* Begins a new run of one who is alive wherever the tiers of its next n blocks
 * change. Returns whether it may have that many runs. */
static bool cut_runs(struct walk *w, uint64_t *alive,
                     const struct record *record, uint32_t from, uint32_t place,
                     uint32_t n)
{
    for (uint32_t j = 0; j < n; j++) {
        struct record run = alive_record(*alive);
        unsigned tiers = record_tiers(record, place + j);

        if (tiers == record_tiers(&run, 0))
            continue;
        end_run(w, *alive, from + j);
        if (w->match->state[run.holder].n_runs == PREFIX_RUNS_MAX)
            return false;
        *alive = expect(run.holder, tiers);
    }
    return true;
}

/*
 * Goes through the blocks [from, from + n) of one who is alive, at places
 * `place` and up of a page of which it has this record, NULL: none.
 * Returns whether it is alive behind them.
 */
static bool go_on(struct walk *w, uint64_t *alive, const struct record *record,
                  uint32_t from, uint32_t place, uint32_t n)
{
    unsigned held = record ? record_any(record) >> place : 0;
    uint32_t lead = (uint32_t)__builtin_ctz(~held);

    if (lead > n)
        lead = n;
    if (lead > 0 &&
        ((as_bits(record) ^ *alive) & concerned(place, lead)) != 0 &&
        !cut_runs(w, alive, record, from, place, lead))
        return false;
    if (lead == n)
        return true;
    end_run(w, *alive, from + lead);
    return false;
}

/* The first page: all its holders begin to match. */
static void begin(struct walk *w, struct page *page, uint32_t place,
                  uint32_t n_places)
{
    uint64_t range = concerned(place, n_places);
    uint32_t n;
    const struct record *records = page_records(w->ix, page, &n);

    for (uint32_t r = 0; r < n; r++) {
        const struct holder *h = &w->ix->holders[records[r].holder];
        uint64_t *alive = &w->alive[w->n_alive];
        unsigned tiers = record_tiers(&records[r], place);

        if (tiers == 0 || h->state != HOLDER_LIVE)
            continue;
        *alive = expect(records[r].holder, tiers);
        w->match->state[records[r].holder] =
            (struct prefix_run_state){.instance = h->instance};
        if (((as_bits(&records[r]) ^ *alive) & range) == 0 ||
            go_on(w, alive, &records[r], 0, place, n_places))
            w->n_alive++;
    }
}

/* A page of which not all who are alive hold everything as before. */
static void look(struct walk *w, struct page *page, uint32_t from,
                 uint32_t place, uint32_t n_places)
{
    uint64_t range = concerned(place, n_places);
    uint32_t n, r = 0, kept = 0;
    const struct record *records = page_records(w->ix, page, &n);

    for (uint32_t i = 0; i < w->n_alive; i++) {
        uint64_t alive = w->alive[i];
        uint32_t holder = alive_record(alive).holder;

        while (r < n && records[r].holder < holder)
            r++;
        if (r == n || ((as_bits(&records[r]) ^ alive) & range) != 0) {
            w->hashed = false;
            if (!go_on(w, &alive,
                       r < n && records[r].holder == holder ? &records[r]
                                                            : NULL,
                       from, place, n_places))
                continue;
        }
        w->alive[kept++] = alive;
    }
    w->n_alive = kept;
}

/* Whether all who are alive, and nobody else, hold a whole page as before. */
static bool all_go_on(struct walk *w, const struct page *page)
{
    if (!w->hashed) {
        w->hash = 0;
        for (uint32_t i = 0; i < w->n_alive; i++) {
            struct record run = alive_record(w->alive[i]);

            w->hash ^= page_token(w->ix, run.holder, record_tiers(&run, 0));
        }
        w->hashed = true;
    }
    return page->hash == w->hash;
}

/* How many of the keys stand one behind the other from a place on. */
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

void prefix_index_match(struct prefix_index *index, const uint64_t *keys,
                        size_t n, struct prefix_match *match)
{
    struct walk w = {.ix = index, .match = match, .alive = match->alive};
    uint32_t from = 0;

    memset(match->blocks, 0, match->max_instances * sizeof(*match->blocks));
    memset(match->first_run, 0,
           match->max_instances * sizeof(*match->first_run));
    match->n_runs = 1;
    match->n_holders = 0;
    match->n_keys = (uint32_t)n;
    if (n > PAGE_KEYS)
        table_prefetch(index, keys[PAGE_KEYS]);
    while (from < n && keys[from] != 0 && (from == 0 || w.n_alive > 0)) {
        struct position at = table_find(index, keys[from]);
        struct page *page = &index->pages[at.page];
        uint32_t here;

        if (at.page == 0)
            break;
        if (from + 2 * PAGE_KEYS < n)
            table_prefetch(index, keys[from + 2 * PAGE_KEYS]);
        here = keys_in_page(index, at, keys + from, n - from);
        page->recent = 1;
        if (from == 0)
            begin(&w, page, at.place, here);
        else if (here < page->n_keys || !all_go_on(&w, page))
            look(&w, page, from, at.place, here);
        from += here;
    }
    for (uint32_t i = 0; i < w.n_alive; i++)
        end_run(&w, w.alive[i], from);
}
