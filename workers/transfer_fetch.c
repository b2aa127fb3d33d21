/* Fetching blocks of a waiting prefill from a peer.
 *
 * The whole chain of keys is asked for. Blocks that the store has already come
 * back without data: comparing their tokens too makes sure that the peer's
 * chain is this prompt from its first token on, and not another prompt whose
 * keys collide. */
#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/log.h"
#include "workers/transfer_internal.h"

/* The request that fetches from `p` under that id, or NULL: it is over here. */
static struct request *fetch_of(const struct peer *p, uint64_t id)
{
    struct request *r = transfer_find(p->transfer, id);

    return r && r->fetch.peer == p ? r : NULL;
}

void fetch_send(struct peer *p, struct request *r)
{
    struct msg_fetch m = {.n_known = r->fetch.n_known,
                          .n = r->fetch.to_block,
                          .keys = (const uint8_t *)r->keys};

    msg_fetch_encode(&p->transfer->buf, r->id, &m);
    transfer_send(p->transfer, p->conn);
}

int transfer_fetch(struct transfer *t, struct request *r, const char *host,
                   uint16_t port, uint32_t to_block, int64_t now_us)
{
    struct peer *p = transfer_peer(t, host, port);

    if (!p)
        return -ENOBUFS;
    r->fetch.peer = p;
    r->fetch.next_block = 0;
    r->fetch.n_known = r->n_chained;
    r->fetch.to_block = to_block;
    r->fetch.since_us = now_us;
    TAILQ_INSERT_TAIL(&p->fetches, r, fetch.link);
    if (p->welcome)
        fetch_send(p, r);
    return 0;
}

static void unlink_fetch(struct request *r)
{
    TAILQ_REMOVE(&r->fetch.peer->fetches, r, fetch.link);
    r->fetch.peer = NULL;
}

void fetch_end(struct transfer *t, struct request *r, const char *why,
               int64_t now_us)
{
    struct peer *p = r->fetch.peer;

    if (why)
        log_warn("request %llu: fetch from %s:%u ended at block %u of %u: %s; "
                 "computing the rest",
                 (unsigned long long)r->id, p->host, p->port,
                 r->fetch.next_block, r->fetch.to_block, why);
    unlink_fetch(r);
    r->fetch.took_us = now_us - r->arrival_us;
    t->ops->fetch_ended(t->arg, r);
}

/* The answer is of no use: tell the peer to stop. */
static void fetch_abandon(struct peer *p, struct request *r, const char *why,
                          int64_t now_us)
{
    struct transfer *t = p->transfer;

    msg_empty_encode(&t->buf, FRAME_CANCEL, r->id);
    transfer_send(t, p->conn);
    fetch_end(t, r, why, now_us);
}

/* NULL if the block is what this prompt needs next, else what is wrong. */
static const char *verify(const struct transfer *t, const struct request *r,
                          const struct msg_fetch_block *m)
{
    const struct engine_kv_layout *layout = t->config.layout;
    uint32_t i = r->fetch.next_block;
    const uint32_t *tokens = r->tokens + (size_t)i * layout->block_tokens;
    bool known = i < r->fetch.n_known;

    if (i >= r->fetch.to_block)
        return "more blocks came than were asked for";
    if (m->key != r->keys[i] || m->parent != (i ? r->keys[i - 1] : 0))
        return "another block came than the one expected";
    if (m->n_tokens != layout->block_tokens)
        return "the block has another number of tokens";
    for (uint32_t k = 0; k < m->n_tokens; k++)
        if (wire_u32_at(m->tokens, k) != tokens[k])
            return "the block has other tokens under the same key";
    if (m->n_data != (known ? 0 : layout->block_bytes))
        return "the block has another size";
    if (!known && XXH3_64bits(m->data, m->n_data) != m->checksum)
        return "the block's checksum is wrong";
    return NULL;
}

static const char *keep(struct transfer *t, struct request *r,
                        const struct msg_fetch_block *m)
{
    uint32_t id;

    if (kv_store_alloc(t->config.store, 1, &id) < 0)
        return "no room in the store";
    memcpy(kv_store_data(t->config.store, id), m->data, m->n_data);
    request_append(r, t->config.store, id);
    if (!request_commit(r, t->config.store, t->config.layout->block_tokens))
        return "the key belongs to other tokens here";
    r->fetch.n_stored++;
    r->fetch.bytes += m->n_data;
    return NULL;
}

int fetch_on_block(struct peer *p, uint64_t id, const uint8_t *payload,
                   size_t len, int64_t now_us)
{
    struct request *r = fetch_of(p, id);
    struct msg_fetch_block m;

    if (msg_fetch_block_decode(payload, len, &m))
        return -EBADMSG;
    if (!r)
        return 0; /* cancelled or timed out here while it was on its way */
    const char *why = verify(p->transfer, r, &m);
    if (!why && r->fetch.next_block >= r->fetch.n_known)
        why = keep(p->transfer, r, &m);
    if (why) {
        fetch_abandon(p, r, why, now_us);
        return 0;
    }
    r->fetch.next_block++;
    p->progress_us = now_us;
    return 0;
}

int fetch_on_end(struct peer *p, uint64_t id, const uint8_t *payload,
                 size_t len, int64_t now_us)
{
    struct request *r = fetch_of(p, id);
    struct msg_fetch_end m;

    if (msg_fetch_end_decode(payload, len, &m))
        return -EBADMSG;
    if (!r)
        return 0;
    if (m.code != PROTO_OK)
        fetch_end(p->transfer, r, proto_code_name(m.code), now_us);
    else if (r->fetch.next_block < r->fetch.to_block)
        fetch_end(p->transfer, r, "the peer holds no more of it", now_us);
    else
        fetch_end(p->transfer, r, NULL, now_us);
    return 0;
}
