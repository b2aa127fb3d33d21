/* A step of engine "cuda".
 *
 * Its segments are computed in groups, in order: as many at a time as fit the
 * pages and the batch, nearly always all. For each layer the calling thread
 * puts into the card's streams, without waiting,
 *
 *   compute  norm, Q K V, K and V into the pages
 *   load     rows of the prefix that are not on the card, once the host blocks
 *            have them
 *   store    rows of prompts to their host blocks
 *   compute  attention behind the load, and the rest of the layer
 *
 * and waits once, at the end; meanwhile it calls layer_done for stored
 * layers. */
#include <string.h>

#include "workers/engine/cuda/engine.h"

struct step {
    struct cuda_engine *e;
    struct cuda_group *g;
    const struct engine_step_ops *ops;
    void *arg;
    const atomic_bool *abort;
    uint32_t layers_done;
};

/* --- pages -------------------------------------------------------------- */

static struct cuda_use *use_of(const struct cuda_engine *e, uint32_t page)
{
    uint32_t i = e->use_of[page];

    if (i < e->group.n_uses && e->group.uses[i].page == page)
        return &e->group.uses[i];
    return NULL;
}

/* Takes the page of block `i` of a segment into the group. */
static int use_block(struct cuda_engine *e, const struct engine_segment *s,
                     uint32_t i)
{
    struct cuda_group *g = &e->group;
    uint32_t bt = e->base.layout.block_tokens;
    uint32_t start = i * bt;
    uint32_t end = s->position + s->n_tokens;
    uint32_t needed = s->position > start ? s->position - start : 0;
    uint32_t page = cuda_take_page(e, s->blocks[i]);

    if (page == PAGE_NONE)
        return e->lost ? -ENODEV : -EBUSY;
    struct cuda_use *use = use_of(e, page);
    if (!use) {
        e->use_of[page] = g->n_uses;
        use = &g->uses[g->n_uses++];
        *use = (struct cuda_use){.block = s->blocks[i], .page = page};
        if (page_cache_ticket(e->pages, page) > g->ticket)
            g->ticket = page_cache_ticket(e->pages, page);
    }
    needed = cuda_min(needed, bt);
    if (needed > use->needed)
        use->needed = needed;
    if (end > start && needed < bt) {
        use->from = needed;
        use->to = cuda_min(end - start, bt);
        use->stores = !cuda_decodes(s);
    }
    return 0;
}

/* Gives up the uses of the group from number `from` on. */
static void unuse(struct cuda_engine *e, uint32_t from)
{
    struct cuda_group *g = &e->group;

    while (g->n_uses > from)
        page_cache_unpin(e->pages, g->uses[--g->n_uses].page);
}

/* Takes all pages of a segment, or none. On failure, a page shared with an
 * earlier segment may keep larger `needed` rows, which is harmless. */
static int use_segment(struct cuda_engine *e, const struct engine_segment *s)
{
    uint32_t before = e->group.n_uses;
    int rc = 0;

    for (uint32_t i = 0; i < cuda_blocks_of(e, s) && rc == 0; i++)
        rc = use_block(e, s, i);
    if (rc < 0)
        unuse(e, before);
    return rc;
}

/* Makes a group of as many segments from g->first on as have room. */
static int gather(struct cuda_engine *e, size_t n)
{
    const struct cuda_card_limits *limits = cuda_card_limits(e->card);
    struct cuda_group *g = &e->group;
    uint32_t table = 0;
    uint32_t splits = 0;
    int rc = 0;

    g->n_uses = 0;
    g->ticket = 0;
    for (g->end = g->first; g->end < n; g->end++) {
        const struct engine_segment *s = &g->segments[g->end];

        table += cuda_blocks_of(e, s);
        splits += cuda_splits_of(s);
        if (g->end > g->first &&
            (table > limits->table || splits > limits->splits))
            break;
        rc = use_segment(e, s);
        if (rc == -EBUSY && g->end == g->first) {
            /* Pending uploads hold the pages: wait for them. */
            rc = cuda_poll_tickets(e, true);
            if (rc == 0)
                rc = use_segment(e, s);
        }
        if (rc < 0)
            break;
    }
    if (g->ticket <= e->ticket_over)
        g->ticket = 0;
    return g->end > g->first ? 0 : rc;
}

/* --- layers --------------------------------------------------------------- */

/* Whether blocks lie in one piece of page-locked memory, as a copy must. */
static bool in_one_host(const struct cuda_engine *e, const void *a,
                        const void *b)
{
    for (size_t i = 0; i < CUDA_HOSTS; i++) {
        const struct cuda_host *h = &e->hosts[i];
        size_t from_a = (uintptr_t)a - (uintptr_t)h->memory;
        size_t from_b = (uintptr_t)b - (uintptr_t)h->memory;

        if (h->memory && from_a < h->bytes && from_b < h->bytes)
            return true;
    }
    return false;
}

/* Whether `next` can join the copy `p`: gaps between copies of 1 MiB would take
 * a tenth of the time. */
static bool follows(const struct cuda_engine *e, const struct cuda_piece *p,
                    const struct cuda_piece *next)
{
    const struct engine_kv_layout *l = &e->base.layout;
    const unsigned char *end =
        (const unsigned char *)p->block + p->n_blocks * l->block_bytes;

    return p->n_blocks > 0 && next->page == p->page + p->n_blocks &&
           next->block == end && p->from_slot == 0 && next->from_slot == 0 &&
           p->to_slot == l->block_tokens && next->to_slot == l->block_tokens &&
           in_one_host(e, p->block, next->block);
}

static int copy_piece(struct cuda_engine *e, const struct cuda_piece *p,
                      bool up)
{
    if (p->n_blocks == 0)
        return 0;
    return up ? cuda_card_upload(e->card, p) : cuda_card_download(e->card, p);
}

/* Uploads the layer's missing rows, or downloads its rows to be stored.
 * Returns the number of blocks, or -ENODEV. */
static int copy_uses(struct step *t, uint32_t layer, bool up)
{
    struct cuda_engine *e = t->e;
    struct cuda_piece last = {0};
    int n = 0;

    for (uint32_t i = 0; i < t->g->n_uses; i++) {
        const struct cuda_use *use = &t->g->uses[i];
        struct cuda_piece piece = {
            .block = use->block,
            .page = use->page,
            .n_blocks = 1,
            .from_layer = layer,
            .to_layer = layer + 1,
            .from_slot =
                up ? page_cache_rows(e->pages, use->page, layer) : use->from,
            .to_slot = up ? use->needed : use->to,
        };
        if (piece.from_slot >= piece.to_slot || (!up && !use->stores))
            continue;
        n++;
        if (follows(e, &last, &piece)) {
            last.n_blocks++;
            continue;
        }
        if (copy_piece(e, &last, up) < 0)
            return -ENODEV;
        last = piece;
    }
    return copy_piece(e, &last, up) < 0 ? -ENODEV : n;
}

/* Calls layer_done for layers stored since the last call; with `wait`, for all
 * up to `layers`. */
static int say_done(struct step *t, uint32_t layers, bool wait)
{
    while (t->layers_done < layers) {
        int rc = cuda_card_stored(t->e->card, t->layers_done, wait);

        if (rc <= 0)
            return rc;
        engine_layer_done(t->ops, t->arg, t->g->first, t->g->end,
                          t->layers_done);
        t->layers_done++;
        if (wait && engine_aborted(t->abort))
            return -ECANCELED;
    }
    return 0;
}

static int run_layer(struct step *t, uint32_t layer)
{
    struct cuda_card *card = t->e->card;
    int rc;

    if (engine_aborted(t->abort))
        return -ECANCELED;
    if ((rc = cuda_card_place(card, layer)) < 0 ||
        (rc = cuda_card_store(card, layer)) < 0 ||
        (rc = copy_uses(t, layer, false)) < 0 ||
        (rc = cuda_card_mark_stored(card, layer)) < 0 ||
        (rc = engine_wait_layer(t->ops, t->arg, t->g->first, t->g->end,
                                layer)) < 0 ||
        (rc = copy_uses(t, layer, true)) < 0)
        return rc;
    /* Does not wait for others' uploads if it has none of its own. */
    if (rc > 0 && (rc = cuda_card_loaded(card, layer)) < 0)
        return rc;
    if ((rc = cuda_card_attend(card, layer)) < 0)
        return rc;
    return say_done(t, layer + 1, false);
}

static int run_layers(struct step *t)
{
    struct cuda_engine *e = t->e;
    int rc = 0;

    if (t->g->ticket > 0)
        rc = cuda_card_after_ticket(e->card,
                                    (uint32_t)(t->g->ticket % CUDA_TICKETS));
    if (rc == 0)
        rc = cuda_card_begin(e->card);
    for (uint32_t l = 0; l < e->layers && rc == 0; l++)
        rc = run_layer(t, l);
    if (rc == 0)
        rc = say_done(t, e->layers, true);
    if (rc == 0)
        rc = cuda_card_finish(e->card, e->answers);
    return rc;
}

/* Updates the group's pages after it was computed. */
static void settle(struct cuda_engine *e)
{
    for (uint32_t i = 0; i < e->group.n_uses; i++) {
        const struct cuda_use *use = &e->group.uses[i];

        for (uint32_t l = 0; l < e->layers; l++)
            if (page_cache_rows(e->pages, use->page, l) < use->needed)
                page_cache_set_rows(e->pages, use->page, l, l + 1, use->needed);
        if (use->from == use->to)
            continue;
        page_cache_cut(e->pages, use->page, use->to);
        if (use->stores)
            page_cache_set_rows(e->pages, use->page, 0, e->layers, use->to);
        else
            page_cache_set_dirty(e->pages, use->page, use->from);
    }
}

/* Updates the group's pages after a failed or aborted step. */
static void undo(struct cuda_engine *e)
{
    for (uint32_t i = 0; i < e->group.n_uses; i++) {
        const struct cuda_use *use = &e->group.uses[i];

        if (use->from < use->to)
            page_cache_cut(e->pages, use->page, use->from);
    }
}

static int run_group(struct step *t, size_t n)
{
    struct cuda_engine *e = t->e;
    const struct cuda_batch *b = cuda_card_batch(e->card);

    pthread_mutex_lock(&e->lock);
    int rc = e->lost ? -ENODEV : gather(e, n);
    if (rc == 0)
        cuda_describe_group(e);
    pthread_mutex_unlock(&e->lock);
    if (rc < 0)
        return rc == -EBUSY ? -ENOMEM : rc;
    t->layers_done = 0;
    rc = run_layers(t);
    if (rc == -ECANCELED || rc == -EIO) {
        int waited = cuda_card_wait(e->card);

        rc = waited < 0 ? waited : rc;
    }
    for (uint32_t i = 0; rc == 0 && i < b->n_wanted; i++)
        t->g->segments[e->answer_of[i]].token_out = e->answers[i];
    pthread_mutex_lock(&e->lock);
    if (rc == -ENODEV)
        cuda_lose(e);
    if (rc == 0)
        settle(e);
    else
        undo(e);
    unuse(e, 0);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

int cuda_step(struct engine *base, struct engine_segment *segments, size_t n,
              const struct engine_step_ops *ops, void *arg,
              const atomic_bool *abort)
{
    struct cuda_engine *e = (struct cuda_engine *)base;
    struct step t = {
        .e = e, .g = &e->group, .ops = ops, .arg = arg, .abort = abort};
    int rc = 0;

    e->group.segments = segments;
    for (e->group.first = 0; e->group.first < n && rc == 0;
         e->group.first = e->group.end)
        rc = run_group(&t, n);
    return rc;
}
