/*
 * Blocks that the conductor orders copied here before a request needs them
 * (COPY), and blocks that it orders evicted (DROP).
 *
 * A copy is made in pieces, each as many blocks as its rate sends in
 * COPY_PIECE_US, and only while no request loads. A piece is an internal
 * request that computes nothing: the loader fetches its blocks. It is in no
 * list of the batch and not in the table. Its tokens are unknown; the peer
 * sends them, and they are accepted only if they give the keys of the COPY
 * (transfer/fetch.c). Blocks already here under these keys are compared with
 * the tokens before the fetched blocks are committed behind them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/service/internal.h"

#define COPIES_MAX 4u
#define COPY_PIECE_US 50000

struct copy {
    TAILQ_ENTRY(copy) link;
    uint64_t id;
    struct conductor *conductor; /* conductor that ordered it */
    uint64_t key_seed;
    char host[MSG_HOST_MAX];
    uint16_t port;
    double bytes_per_s;
    uint64_t *keys; /* (n), owned */
    uint32_t n;
    uint32_t next;         /* next block to copy */
    uint32_t came;         /* blocks copied so far */
    int64_t due_us;        /* start of the next piece */
    struct request *piece; /* running piece; NULL = none */
    uint32_t n_local;      /* blocks of the piece that were here already */
    bool failed;
};

static void piece_free(struct worker *w, struct copy *c)
{
    if (!c->piece)
        return;
    loader_forget(c->piece);
    request_release(c->piece, w->store);
    request_free(c->piece);
    c->piece = NULL;
}

static void copy_free(struct worker *w, struct copy *c)
{
    piece_free(w, c);
    TAILQ_REMOVE(&w->copies, c, link);
    w->n_copies--;
    free(c->keys);
    free(c);
}

static void copy_over(struct worker *w, struct copy *c)
{
    struct msg_copied m = {.blocks = c->came};

    worker_send_events(w);
    msg_copied_pack(&w->out, c->id, &m);
    worker_send(w, c->conductor);
    copy_free(w, c);
}

static struct copy *copy_find(const struct worker *w, uint64_t id)
{
    struct copy *c;

    TAILQ_FOREACH(c, &w->copies, link)
    {
        if (c->id == id)
            return c;
    }
    return NULL;
}

/* --- a piece ------------------------------------------------------------ */

/* Makes the request of a piece that ends with block `end`, tokens unknown. */
static struct request *piece_new(const struct worker *w, const struct copy *c,
                                 uint32_t end)
{
    uint32_t bt = w->layout->block_tokens;
    uint8_t *tokens = calloc(end, sizeof(uint32_t) * bt);
    struct request *r = NULL;

    if (tokens)
        r = request_new(&(struct request_spec){.id = c->id,
                                               .conductor = c->conductor,
                                               .key_seed = c->key_seed,
                                               .tokens = tokens,
                                               .n_tokens = end * bt,
                                               .max_tokens = 1,
                                               .block_tokens = bt});
    free(tokens);
    if (!r)
        return NULL;
    memcpy(r->prompt.keys, c->keys, end * sizeof(*c->keys));
    r->prompt.n_reusable = end;
    r->prompt.learns = true;
    r->prompt.key_seed = c->key_seed;
    return r;
}

/* Pins the piece's blocks that are here, and allocates the rest. Returns 0 or
 * -ENOSPC. */
static int piece_take(struct worker *w, struct copy *c)
{
    struct request *r = c->piece;
    uint32_t n = kv_store_match(w->store, r->prompt.keys, NULL,
                                r->prompt.n_full, r->blocks.ids);
    uint32_t *ids = r->blocks.ids;

    if (kv_store_alloc(w->store, r->prompt.n_full - n, ids + n) < 0) {
        while (n > 0)
            kv_store_release(w->store, ids[--n]);
        return -ENOSPC;
    }
    while (r->blocks.n < r->prompt.n_full)
        request_append(r, w->store, ids[r->blocks.n]);
    c->n_local = r->blocks.n_chained = n;
    r->blocks.tip = n > 0 ? ids[n - 1] : KV_BLOCK_NONE;
    r->position = n * w->layout->block_tokens;
    return 0;
}

static int piece_load(struct worker *w, struct copy *c)
{
    struct loader_source *s = transfer_source(w->transfer, c->host, c->port);
    struct load_request plan = {.mode = LOAD_MODE_LOAD, .n_sources = 1};

    if (!s)
        return -ENOSPC;
    plan.sources[0].source = s;
    plan.sources[0].from_block = c->n_local;
    plan.sources[0].to_block = c->piece->prompt.n_full;
    return loader_add(w->loader, c->piece, &plan);
}

/* Returns the block at which the next piece ends. */
static uint32_t next_end(const struct worker *w, const struct copy *c)
{
    double blocks =
        c->bytes_per_s * COPY_PIECE_US / 1e6 / (double)w->layout->block_bytes;
    uint32_t left = c->n - c->next;

    if (blocks >= left)
        return c->n;
    return c->next + (blocks < 1.0 ? 1 : (uint32_t)blocks);
}

static int piece_begin(struct worker *w, struct copy *c, int64_t now_us)
{
    uint32_t end = next_end(w, c);
    double us;

    c->piece = piece_new(w, c, end);
    if (!c->piece)
        return -ENOMEM;
    int rc = piece_take(w, c);
    if (rc == 0 && c->n_local < end)
        rc = piece_load(w, c);
    us = (end - c->n_local) * (double)w->layout->block_bytes * 1e6 /
         c->bytes_per_s;
    c->due_us = now_us + (us < 1e12 ? (int64_t)us : (int64_t)1e12);
    return rc;
}

/* Returns whether the blocks that were here have the peer's tokens. */
static bool stands(const struct worker *w, const struct copy *c)
{
    const struct request *r = c->piece;
    uint32_t bt = w->layout->block_tokens;

    for (uint32_t i = 0; i < c->n_local; i++)
        if (memcmp(kv_store_tokens(w->store, r->blocks.ids[i]),
                   r->prompt.tokens + (size_t)i * bt,
                   bt * sizeof(*r->prompt.tokens)) != 0)
            return false;
    return true;
}

/* Ends a piece after its load: commits the fetched blocks. */
static void piece_end(struct worker *w, struct copy *c)
{
    struct request *r = c->piece;
    uint32_t end = r->prompt.n_full;

    if (c->n_local < end) {
        if (stands(w, c))
            request_advance(r, w->store, w->layout->block_tokens);
        c->came += r->blocks.n_chained - c->n_local;
        c->failed = r->blocks.n_chained < end;
    }
    c->next = end;
    piece_free(w, c);
}

/* --- frames and turns --------------------------------------------------- */

/* Returns whether something changed. */
static bool copy_go_on(struct worker *w, struct copy *c, int64_t now_us)
{
    if (c->piece && c->piece->load.job)
        return false;
    if (c->piece) {
        piece_end(w, c);
        return true;
    }
    if (c->failed || c->next == c->n) {
        copy_over(w, c);
        return true;
    }
    if (loader_busy(w->loader))
        return false;
    if (now_us < c->due_us) {
        loop_timer_start(&w->copy_next, c->due_us - now_us);
        return false;
    }
    if (piece_begin(w, c, now_us) == 0) {
        worker_load_poke(w);
        return true;
    }
    log_warn("copy %llu: no room for its blocks", (unsigned long long)c->id);
    piece_free(w, c);
    c->failed = true;
    return true;
}

void worker_copy_poke(struct worker *w)
{
    struct copy *c, *next;
    int64_t now_us = TAILQ_EMPTY(&w->copies) ? 0 : loop_now_us(w->loop);

    for (c = TAILQ_FIRST(&w->copies); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (copy_go_on(w, c, now_us))
            worker_poke(w);
    }
}

int worker_on_copy(struct conductor *from, uint64_t id, const uint8_t *payload,
                   size_t len)
{
    struct worker *w = from->worker;
    struct msg_copy m;
    struct copy *c;

    if (msg_copy_unpack(payload, len, &m) ||
        m.n > w->layout->window_tokens / w->layout->block_tokens ||
        copy_find(w, id) || request_find(&w->requests, id))
        return -EBADMSG;
    if (!worker_is_led_by(from)) {
        worker_send_failed(w, from, id, PROTO_E_REFUSED,
                           "another conductor leads");
        return 0;
    }
    c = w->n_copies < COPIES_MAX ? calloc(1, sizeof(*c)) : NULL;
    if (c)
        c->keys = malloc(m.n * sizeof(*c->keys));
    if (!c || !c->keys) {
        free(c);
        worker_send_failed(w, from, id, PROTO_E_BUSY, "too many copies");
        return 0;
    }
    c->id = id;
    c->conductor = from;
    c->key_seed = m.key_seed;
    memcpy(c->host, m.host, sizeof(c->host));
    c->port = m.port;
    c->bytes_per_s = (double)m.bytes_per_s;
    c->n = m.n;
    c->next = m.from_block;
    for (uint32_t i = 0; i < m.n; i++)
        c->keys[i] = wire_u64_at(m.keys, i);
    TAILQ_INSERT_TAIL(&w->copies, c, link);
    w->n_copies++;
    worker_poke(w);
    return 0;
}

int worker_on_drop(struct worker *w, const uint8_t *payload, size_t len)
{
    struct msg_drop m;

    if (msg_drop_unpack(payload, len, &m))
        return -EBADMSG;
    uint32_t gone = kv_store_let_go(w->store, m.key, m.n);
    log_debug("%u of %u cold blocks are dropped", gone, m.n);
    worker_poke(w);
    return 0;
}

void worker_cancel_copy(struct conductor *from, uint64_t id)
{
    struct copy *c = copy_find(from->worker, id);

    if (c && c->conductor == from)
        copy_free(from->worker, c);
}

bool worker_copy_gives_up(struct worker *w, const struct request *r)
{
    struct copy *c = copy_find(w, r->id);

    if (!c || c->piece != r)
        return false;
    piece_free(w, c);
    c->failed = true;
    worker_poke(w);
    return true;
}

void worker_drop_copies(struct worker *w, const struct conductor *of)
{
    struct copy *c, *next;

    for (c = TAILQ_FIRST(&w->copies); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (!of || c->conductor == of)
            copy_free(w, c);
    }
}
