/* Answering a peer's FETCH: the held run of the chain, block by block, while
 * the connection's output takes them. The run is pinned until its end. */
#include <errno.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "workers/transfer_internal.h"

static void free_serve(struct inbound *in, struct serve *s)
{
    struct kv_store *store = in->transfer->config.store;

    while (s->n > 0)
        kv_store_release(store, s->ids[--s->n]);
    TAILQ_REMOVE(&in->serves, s, link);
    in->n_serves--;
    free(s->ids);
    free(s);
}

static void send_end(struct inbound *in, uint64_t id, uint16_t code, uint32_t n)
{
    struct msg_fetch_end m = {.code = code, .n_blocks = n};

    msg_fetch_end_encode(&in->transfer->buf, id, &m);
    transfer_send(in->transfer, in->conn);
}

static void send_block(struct inbound *in, struct serve *s)
{
    struct transfer *t = in->transfer;
    struct kv_store *store = t->config.store;
    uint32_t id = s->ids[s->next];
    struct msg_fetch_block m = {
        .key = kv_store_key(store, id),
        .parent = s->next ? kv_store_key(store, s->ids[s->next - 1]) : 0,
        .n_tokens = t->config.layout->block_tokens,
        .tokens = (const uint8_t *)kv_store_tokens(store, id),
    };

    if (s->next >= s->n_known) {
        m.data = kv_store_data(store, id);
        m.n_data = (uint32_t)t->config.layout->block_bytes;
        m.checksum = XXH3_64bits(m.data, m.n_data);
    }
    msg_fetch_block_encode(&t->buf, s->request_id, &m);
    transfer_send(t, in->conn);
}

void serve_pump(struct inbound *in)
{
    struct serve *s;

    while ((s = TAILQ_FIRST(&in->serves)) && !frame_conn_full(in->conn)) {
        if (s->next < s->n) {
            send_block(in, s);
            s->next++;
            continue;
        }
        send_end(in, s->request_id, PROTO_OK, s->n);
        free_serve(in, s);
    }
}

void serve_drop(struct inbound *in, uint64_t id)
{
    struct serve *s;

    TAILQ_FOREACH(s, &in->serves, link)
    {
        if (s->request_id == id) {
            free_serve(in, s);
            return;
        }
    }
}

void serve_drop_all(struct inbound *in)
{
    while (!TAILQ_EMPTY(&in->serves))
        free_serve(in, TAILQ_FIRST(&in->serves));
}

/* A job for the chain in `m`, whose held run is pinned; NULL: no memory. */
static struct serve *new_serve(struct inbound *in, uint64_t id,
                               const struct msg_fetch *m)
{
    struct serve *s = calloc(1, sizeof(*s));
    uint64_t *keys = calloc(m->n, sizeof(*keys));
    uint32_t *ids = calloc(m->n, sizeof(*ids));

    if (!s || !keys || !ids) {
        free(ids);
        free(keys);
        free(s);
        return NULL;
    }
    for (uint32_t i = 0; i < m->n; i++)
        keys[i] = wire_u64_at(m->keys, i);
    s->request_id = id;
    s->n_known = m->n_known;
    s->ids = ids;
    s->n = kv_store_match_keys(in->transfer->config.store, keys, m->n, ids);
    free(keys);
    return s;
}

int serve_on_fetch(struct inbound *in, uint64_t id, const uint8_t *payload,
                   size_t len)
{
    const struct engine_kv_layout *layout = in->transfer->config.layout;
    struct msg_fetch m;

    if (msg_fetch_decode(payload, len, &m) || m.n == 0 ||
        m.n > layout->window_tokens / layout->block_tokens)
        return -EBADMSG;
    struct serve *s =
        in->n_serves < TRANSFER_SERVES_MAX ? new_serve(in, id, &m) : NULL;
    if (!s) {
        send_end(in, id, PROTO_E_BUSY, 0);
        return 0;
    }
    TAILQ_INSERT_TAIL(&in->serves, s, link);
    in->n_serves++;
    serve_pump(in);
    return 0;
}
