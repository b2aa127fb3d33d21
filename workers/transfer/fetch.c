/* Reads blocks of a prompt from a peer: a source of the loader.
 *
 * Sends the whole chain of keys to the peer, which answers with the tokens of
 * the blocks that it holds. All tokens are compared with the prompt: so the
 * peer's chain is this prompt from its first token on, not one whose keys
 * collide. The peer's store knows each block's exact parent. Then blocks and
 * layers come over a transport (move.c). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/core/index/block_key.h"
#include "workers/transfer/internal.h"

/* The peer of a source. */
struct fetch_source {
    struct transfer *transfer;
    char host[MSG_HOST_MAX];
    uint16_t port;
};

void fetch_send(struct peer *p, struct fetch *f)
{
    struct msg_fetch m = {.n = f->n_keys, .keys = (const uint8_t *)f->keys};

    f->asked = true;
    msg_fetch_pack(&p->transfer->buf, f->id, &m);
    transfer_send(p->transfer, p->conn);
}

void fetch_keep(struct peer *p, int64_t now_us)
{
    if (!p->welcome || TAILQ_EMPTY(&p->fetches) ||
        now_us - p->kept_us < TRANSFER_KEEP_US)
        return;
    p->kept_us = now_us;
    msg_empty_pack(&p->transfer->buf, FRAME_FETCH_KEEP, 0);
    transfer_send(p->transfer, p->conn);
}

static void *fetch_open(void *arg, struct load_run *run,
                        const struct request *r, uint32_t to_block)
{
    const struct fetch_source *source = arg;
    struct transfer *t = source->transfer;
    struct peer *p = transfer_peer(t, source->host, source->port);
    bool asks = p && to_block > 0;
    struct fetch *f = asks ? calloc(1, sizeof(*f)) : NULL;

    if (!f)
        return NULL;
    f->transfer = t;
    f->peer = p;
    f->run = run;
    f->id = r->id;
    f->keys = r->prompt.keys;
    f->tokens = r->prompt.tokens;
    f->n_keys = to_block;
    f->learner = r->prompt.learns ? r : NULL;
    f->since_us = loop_now_us(t->config.loop);
    TAILQ_INIT(&f->moves);
    TAILQ_INSERT_TAIL(&p->fetches, f, link);
    if (p->welcome)
        fetch_send(p, f);
    return f;
}

static int fetch_read(void *, void *session, struct loader_piece *piece)
{
    struct fetch *f = session;

    if (!route_hopes(f->peer->route))
        return -ENOTCONN;
    if (TAILQ_EMPTY(&f->moves))
        f->since_us = loop_now_us(f->transfer->config.loop);
    int rc = move_add(f, piece);
    if (rc == 0)
        move_pump(f);
    return rc;
}

/* Ends `f`, whose blocks will not come. */
static void fetch_fail(struct fetch *f, const char *why)
{
    loader_run_failed(f->run, why);
    move_end(f, -ECONNRESET);
}

void fetch_ready(void *peer)
{
    struct peer *p = peer;
    struct fetch *f, *next;

    for (f = TAILQ_FIRST(&p->fetches); f; f = next) {
        next = TAILQ_NEXT(f, link);
        if (f->closed)
            continue;
        if (route_stands(p->route))
            move_pump(f);
        else
            fetch_fail(f, "no transport to it is connected");
    }
}

static void fetch_close(void *, void *session)
{
    struct fetch *f = session;

    move_end(f, -ECANCELED);
}

void fetch_lose(struct fetch *f, const char *why)
{
    bool closed = f->closed;

    if (!closed)
        loader_run_failed(f->run, why);
    TAILQ_REMOVE(&f->peer->fetches, f, link);
    f->peer = NULL;
    if (!closed)
        move_end(f, -ECONNRESET);
}

static const struct loader_source_ops fetch_ops = {
    .origin = BLOCK_FETCHED,
    .open = fetch_open,
    .read = fetch_read,
    .close = fetch_close,
    .forget = free,
};

struct loader_source *transfer_source(struct transfer *t, const char *host,
                                      uint16_t port)
{
    char name[MSG_HOST_MAX + 8];
    struct loader *l = t->config.loader;

    snprintf(name, sizeof(name), "%s:%u", host, port);
    struct loader_source *s = loader_find_source(l, name);
    if (s)
        return s;
    struct fetch_source *source = calloc(1, sizeof(*source));
    if (!source)
        return NULL;
    source->transfer = t;
    source->port = port;
    snprintf(source->host, sizeof(source->host), "%s", host);
    s = loader_add_source(l, name, &fetch_ops, source);
    if (!s)
        free(source);
    return s;
}

/* Returns how many leading blocks have the tokens of the prompt. */
static uint32_t verified_blocks(const struct fetch *f,
                                const struct msg_fetch_chain *m, uint32_t bt)
{
    uint32_t i = 0;

    while (i < m->n_tokens && f->tokens[i] == wire_u32_at(m->tokens, i))
        i++;
    return i / bt;
}

/* Takes the peer's tokens as the prompt's. Returns how many leading blocks of
 * them have the keys asked for: a peer cannot insert others. */
static uint32_t learn(const struct fetch *f, const struct msg_fetch_chain *m,
                      uint32_t bt)
{
    const struct request_prompt *prompt = &f->learner->prompt;
    uint32_t n = m->n_tokens / bt, i = 0;
    uint64_t *keys = calloc(n + 1, sizeof(*keys));

    if (!keys)
        return 0;
    for (uint32_t t = 0; t < m->n_tokens; t++)
        prompt->tokens[t] = wire_u32_at(m->tokens, t);
    block_keys_compute(prompt->tokens, m->n_tokens, bt, prompt->key_seed, keys);
    while (i < n && keys[i] == f->keys[i])
        i++;
    free(keys);
    return i;
}

int fetch_on_chain(struct peer *p, uint64_t id, const uint8_t *payload,
                   size_t len, int64_t now_us)
{
    uint32_t bt = p->transfer->config.layout->block_tokens;
    struct fetch *f = fetch_of(p, id);
    struct msg_fetch_chain m;

    if (msg_fetch_chain_unpack(payload, len, &m))
        return -EBADMSG;
    if (!f)
        return 0;
    if (f->chain || m.n_tokens % bt || m.n_tokens / bt > f->n_keys)
        return -EBADMSG;
    f->chain = true;
    p->progress_us = now_us;
    uint32_t n = f->learner ? learn(f, &m, bt) : verified_blocks(f, &m, bt);
    if (n < m.n_tokens / bt)
        log_warn("request %llu: at %s:%u, block %u has the key of this "
                 "prompt's block but other tokens",
                 (unsigned long long)id, p->host, p->port, n);
    loader_opened(f->run, n);
    return 0;
}

int fetch_on_end(struct peer *p, uint64_t id, const uint8_t *payload,
                 size_t len)
{
    struct fetch *f = fetch_of(p, id);
    struct msg_fetch_end m;

    if (msg_fetch_end_unpack(payload, len, &m))
        return -EBADMSG;
    if (!f)
        return 0;
    f->asked = false;
    fetch_fail(f, proto_code_name(m.code));
    return 0;
}
