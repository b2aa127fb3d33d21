#include "tests/unit/load_rig.h"

#include <CUnit/Basic.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kv_store_check.h"
#include "workers/load/internal.h"

int64_t rig_now_us = 1000000;

static int64_t now_us(const struct loop *)
{
    return rig_now_us;
}

/* --- requests ----------------------------------------------------------- */

static void free_request(struct load_rig *rig, struct request *r)
{
    loader_forget(r);
    request_release(r, rig->store);
    rig->live[r->id % RIG_ANSWERS] = NULL;
    request_free(r);
}

static void on_started(void *arg, struct request *r)
{
    (void)arg;
    (void)r;
}

static uint32_t on_chunk(void *arg, struct request *r, uint32_t most)
{
    struct load_rig *rig = arg;

    return loader_chunk(rig->loader, r, most);
}

static void on_stalled(void *arg, struct request *r)
{
    struct load_rig *rig = arg;

    rig->n_stalled++;
    loader_stalled(rig->loader, r);
}

static void note(struct load_rig *rig, const struct request *r)
{
    struct rig_answer *a = &rig->answers[r->id % RIG_ANSWERS];

    if (a->id != r->id)
        *a = (struct rig_answer){.id = r->id,
                                 .n_local = r->load.n_local,
                                 .n_fetched = r->load.n_fetched,
                                 .n_disk = r->load.n_disk};
    if (a->n < 16)
        a->tokens[a->n++] = r->last_token;
}

static void end(struct load_rig *rig, struct request *r)
{
    rig->n_done++;
    CU_ASSERT(batch_remove(rig->batch, r));
    free_request(rig, r);
}

static void on_prefilled(void *arg, struct request *r)
{
    struct load_rig *rig = arg;

    CU_ASSERT_PTR_NULL(r->load.job);
    rig->prefilled_us = rig_now_us;
    rig->last = *r;
    note(rig, r);
    if (r->max_tokens == 1)
        end(rig, r);
}

static void on_token(void *arg, struct request *r)
{
    note(arg, r);
}

static void on_finished(void *arg, struct request *r)
{
    end(arg, r);
}

static void on_failed(void *arg, struct request *r, const char *why)
{
    struct load_rig *rig = arg;

    (void)why;
    rig->n_failed++;
    end(rig, r);
}

static void on_removed(void *arg, struct request *r)
{
    free_request(arg, r);
}

static const struct batch_ops batch_ops = {
    .started = on_started,
    .chunk = on_chunk,
    .stalled = on_stalled,
    .prefilled = on_prefilled,
    .token = on_token,
    .finished = on_finished,
    .failed = on_failed,
    .removed = on_removed,
};

static void on_poke(void *arg)
{
    struct load_rig *rig = arg;

    rig->poked = true;
}

static void on_load_failed(void *arg, struct request *r, const char *why)
{
    struct load_rig *rig = arg;

    (void)why;
    rig->n_failed++;
    rig->answers[r->id % RIG_ANSWERS] =
        (struct rig_answer){.id = r->id, .no_room = true};
    CU_ASSERT(batch_remove(rig->batch, r));
    free_request(rig, r);
}

static const struct loader_ops loader_ops = {.poke = on_poke,
                                             .failed = on_load_failed};

void load_rig_init(struct load_rig *rig, const struct load_rig_config *c)
{
    memset(rig, 0, sizeof(*rig));
    rig->engine = c->engine;
    rig->layout = c->engine ? *engine_kv_layout(c->engine) : c->layout;
    struct kv_store_config sc = {.capacity_blocks = c->blocks,
                                 .block_tokens = rig->layout.block_tokens,
                                 .block_bytes = rig->layout.block_bytes,
                                 .event_capacity = 16};
    CU_ASSERT_EQUAL_FATAL(kv_store_new(&sc, &rig->store), 0);
    struct batch_config bc = {.store = rig->store,
                              .layout = &rig->layout,
                              .step_tokens = rig->layout.step_tokens,
                              .max_batch = 8,
                              .max_prefills = c->max_prefills,
                              .max_queue = 16};
    rig->batch = batch_new(&bc, &batch_ops, rig);
    struct loader_config lc = {.store = rig->store,
                               .layout = &rig->layout,
                               .engine = c->engine,
                               .cost = c->cost,
                               .bytes_per_s = c->bytes_per_s,
                               .now_us = now_us};
    rig->loader = loader_new(&lc, &loader_ops, rig);
    CU_ASSERT_FATAL(rig->batch && rig->loader);
    rig->next_id = 1;
}

void load_rig_settle(struct load_rig *rig)
{
    for (uint32_t i = 0; i < rig->n_sources; i++) {
        struct rig_source *s = &rig->sources[i];

        while (s->n_pieces > 0)
            source_deliver(s, 0);
        if (s->busy_until_us > rig_now_us)
            rig_now_us = s->busy_until_us;
    }
    load_rig_poke(rig);
}

void load_rig_fini(struct load_rig *rig)
{
    struct kv_store_stats stats;

    load_rig_settle(rig);

    for (uint32_t i = 0; i < rig->n_sources; i++)
        source_clear(&rig->sources[i]);
    loader_free(rig->loader);
    kv_store_check(rig->store);
    kv_store_stats(rig->store, &stats);
    CU_ASSERT_EQUAL(stats.private_blocks, 0);
    CU_ASSERT_EQUAL(stats.evictable_blocks, stats.held_blocks);
    batch_free(rig->batch);
    kv_store_free(rig->store);
}

static void name_source(struct load_request *plan, struct loader_source *s,
                        const struct request *r)
{
    plan->sources[plan->n_sources].source = s;
    plan->sources[plan->n_sources].to_block = r->prompt.n_reusable;
    plan->n_sources++;
}

struct request *load_rig_request(struct load_rig *rig, const uint32_t *tokens,
                                 uint32_t n_tokens, uint32_t max_tokens,
                                 enum load_mode mode)
{
    struct load_request plan = {.mode = mode};
    struct request *r = request_new(
        &(struct request_spec){.id = rig->next_id++,
                               .key_seed = 1,
                               .tokens = (const void *)tokens,
                               .n_tokens = n_tokens,
                               .max_tokens = max_tokens,
                               .block_tokens = rig->layout.block_tokens,
                               .decodes_here = true});

    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    r->turn.arrival_us = rig_now_us;
    rig->live[r->id % RIG_ANSWERS] = r;
    CU_ASSERT_EQUAL_FATAL(batch_enqueue(rig->batch, r), 0);
    for (uint32_t i = 0; i < rig->n_sources; i++)
        if (!rig->sources[i].unused)
            name_source(&plan, rig->sources[i].source, r);
    if (rig->disk)
        name_source(&plan, rig->disk, r);
    if (mode != LOAD_MODE_COMPUTE && plan.n_sources && r->prompt.n_reusable)
        CU_ASSERT_EQUAL_FATAL(loader_add(rig->loader, r, &plan), 0);
    load_rig_poke(rig);
    return r;
}

void load_rig_cancel(struct load_rig *rig, uint64_t id)
{
    struct request *r = rig->live[id % RIG_ANSWERS];

    if (!r || r->id != id || r->dead)
        return;
    loader_forget(r);
    if (batch_remove(rig->batch, r))
        free_request(rig, r);
}

static int take(void *arg, struct request *r)
{
    struct load_rig *rig = arg;

    return batch_take_ahead(rig->batch, r);
}

void load_rig_poke(struct load_rig *rig)
{
    do {
        rig->poked = false;
        loader_poke(rig->loader, take, rig);
    } while (rig->poked);
}

uint32_t load_rig_form(struct load_rig *rig)
{
    rig->n = batch_form(rig->batch, rig_now_us, &rig->segments);
    return rig->n;
}

void load_rig_complete(struct load_rig *rig, int rc)
{
    rig->n = 0;
    batch_complete(rig->batch, rc);
    load_rig_poke(rig);
}

/* --- sources ------------------------------------------------------------ */

static uint32_t blocks_of(const struct rig_source *s, const uint32_t *tokens,
                          uint32_t n, const struct source_prompt **found)
{
    uint32_t bt = s->rig->layout.block_tokens;
    uint32_t best = 0;

    for (uint32_t i = 0; i < s->n_prompts; i++) {
        const struct source_prompt *p = &s->prompts[i];
        uint32_t k = 0;

        while (k < n && k < p->n_blocks &&
               memcmp(p->tokens + (size_t)k * bt, tokens + (size_t)k * bt,
                      bt * sizeof(*tokens)) == 0)
            k++;
        if (k > best) {
            best = k;
            *found = p;
        }
    }
    return s->limit_blocks && best > s->limit_blocks ? s->limit_blocks : best;
}

static void say(struct source_session *x)
{
    x->said = true;
    loader_opened(x->run, x->n_blocks);
}

static void *source_open(void *arg, struct load_run *run,
                         const struct request *r, uint32_t to_block)
{
    struct rig_source *s = arg;
    struct source_session *x = s->sessions;

    while (x < s->sessions + 32 && x->run)
        x++;
    if (s->refuses || x == s->sessions + 32)
        return NULL;
    *x = (struct source_session){.run = run};
    x->n_blocks = blocks_of(s, r->prompt.tokens, to_block, &x->prompt);
    if (!s->late_open)
        say(x);
    return x;
}

static int source_read(void *arg, void *session, struct loader_piece *piece)
{
    struct rig_source *s = arg;
    const struct source_session *x = session;

    CU_ASSERT(piece->block < x->n_blocks);
    if (s->n_pieces == 0 && s->busy_until_us < rig_now_us)
        s->busy_until_us = rig_now_us;
    piece->own = (void *)(uintptr_t)x->prompt;
    TAILQ_INSERT_TAIL(&s->pieces, piece, link);
    s->n_pieces++;
    return 0;
}

/* Bytes arrive, also when nobody waits for them any more: those are wrong. */
static void fill(const struct rig_source *s, const struct loader_piece *piece,
                 int rc)
{
    const struct engine_kv_layout *l = &s->rig->layout;
    size_t offset = (size_t)piece->from_layer * (l->block_bytes / l->layers);
    const struct source_prompt *p = piece->own;

    if (!p || !p->kv)
        return;
    if (rc == 0 && piece->run)
        memcpy(piece->data, p->kv + piece->block * l->block_bytes + offset,
               piece->bytes);
    else
        memset(piece->data, 0xee, piece->bytes);
}

static void source_close(void *arg, void *session)
{
    struct rig_source *s = arg;
    struct source_session *x = session;

    x->run = NULL;
    struct loader_piece *piece = TAILQ_FIRST(&s->pieces);
    while (piece && !s->lingers) {
        struct loader_piece *next = TAILQ_NEXT(piece, link);

        if (piece->session == x) {
            TAILQ_REMOVE(&s->pieces, piece, link);
            s->n_pieces--;
            loader_done(piece, -ECANCELED);
        }
        piece = next;
    }
}

struct rig_source *load_rig_source(struct load_rig *rig,
                                   enum block_origin origin)
{
    struct rig_source *s = &rig->sources[rig->n_sources++];

    s->rig = rig;
    s->ops = (struct loader_source_ops){.origin = origin,
                                        .open = source_open,
                                        .read = source_read,
                                        .close = source_close};
    s->lingers = origin == BLOCK_FROM_DISK;
    TAILQ_INIT(&s->pieces);
    s->source = loader_add_source(
        rig->loader, origin == BLOCK_FROM_DISK ? "disk" : "peer", &s->ops, s);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s->source);
    return s;
}

void source_add(struct rig_source *s, const uint32_t *tokens, uint32_t n_blocks,
                uint8_t *kv)
{
    CU_ASSERT_FATAL(s->n_prompts < SOURCE_PROMPTS_MAX);
    s->prompts[s->n_prompts++] = (struct source_prompt){tokens, n_blocks, kv};
}

void source_clear(struct rig_source *s)
{
    while (s->n_prompts > 0)
        free(s->prompts[--s->n_prompts].kv);
}

void source_open_all(struct rig_source *s)
{
    for (uint32_t i = 0; i < 32; i++)
        if (s->sessions[i].run && !s->sessions[i].said)
            say(&s->sessions[i]);
}

void source_deliver(struct rig_source *s, uint32_t i)
{
    struct loader_piece *piece = TAILQ_FIRST(&s->pieces);
    int rc = s->fail_in == 1 ? -EBADMSG : 0;

    while (i-- > 0)
        piece = TAILQ_NEXT(piece, link);
    s->fail_in -= s->fail_in > 0;
    fill(s, piece, rc);
    TAILQ_REMOVE(&s->pieces, piece, link);
    s->n_pieces--;
    s->n_read++;
    loader_done(piece, rc);
}

void source_lose(struct rig_source *s)
{
    struct loader_piece *piece;

    for (uint32_t i = 0; i < 32; i++) {
        if (s->sessions[i].run)
            loader_run_failed(s->sessions[i].run, "lost");
        s->sessions[i].run = NULL;
    }
    while ((piece = TAILQ_FIRST(&s->pieces))) {
        TAILQ_REMOVE(&s->pieces, piece, link);
        s->n_pieces--;
        loader_done(piece, -ECONNRESET);
    }
}

/* --- time --------------------------------------------------------------- */

int64_t source_next_us(const struct rig_source *s)
{
    const struct loader_piece *piece = TAILQ_FIRST(&s->pieces);

    return piece && !s->hangs
               ? s->busy_until_us +
                     (int64_t)(s->us_per_byte * (double)piece->bytes)
               : INT64_MAX;
}

/* The next thing that happens, at the latest at end_us. Returns false if
 * nothing will and there is no end. */
static bool pass_time(struct load_rig *rig, int64_t end_us)
{
    struct rig_source *next = NULL;
    int64_t at_us = end_us;

    for (uint32_t i = 0; i < rig->n_sources; i++) {
        int64_t us = source_next_us(&rig->sources[i]);

        if (us < at_us) {
            at_us = us;
            next = &rig->sources[i];
        }
    }
    int64_t wake_us = rig->loader->wake_us;
    if (wake_us < at_us) {
        at_us = wake_us;
        next = NULL;
    }
    if (at_us == INT64_MAX)
        return false;
    rig_now_us = at_us > rig_now_us ? at_us : rig_now_us;
    if (next) {
        next->busy_until_us = at_us;
        source_deliver(next, 0);
    } else if (wake_us <= at_us) {
        loader_tick(rig->loader);
    }
    load_rig_poke(rig);
    return true;
}

bool load_rig_run(struct load_rig *rig,
                  int64_t (*step_us)(const struct engine_segment *s,
                                     uint32_t n))
{
    struct batch_counts counts;

    for (;;) {
        batch_counts(rig->batch, &counts);
        if (counts.waiting + counts.prefills + counts.ready + counts.decodes ==
            0)
            return true;
        if (load_rig_form(rig) == 0) {
            if (!pass_time(rig, INT64_MAX))
                return false;
            continue;
        }
        int64_t us = step_us(rig->segments, rig->n);
        int64_t end_us = rig_now_us + us;
        while (rig_now_us < end_us)
            pass_time(rig, end_us);
        for (uint32_t i = 0; i < rig->n; i++)
            rig->segments[i].token_out = 65;
        loader_learn(rig->loader, rig->segments, rig->n, us);
        load_rig_complete(rig, 0);
    }
}

void load_rig_forget(struct load_rig *rig)
{
    uint32_t id = KV_BLOCK_NONE;
    struct kv_store_event e;

    while (kv_store_inventory(rig->store, &id, &e)) {
        kv_store_drop(rig->store, id);
        id = KV_BLOCK_NONE;
    }
}
