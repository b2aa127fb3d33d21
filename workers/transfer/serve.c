/* Answers FETCHes of peers: sends the tokens of the chain's leading held
 * blocks, and then the places of the layers asked for, as fast as the
 * connection takes them. The blocks are pinned until the fetch ends, under a
 * lease: a peer that is silent for TRANSFER_LEASE_US loses its connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/internal.h"

static void free_serve(struct inbound *in, struct serve *s)
{
    struct kv_store *store = in->transfer->config.store;

    if (s->granted)
        guest_revoke(in->guest, s->grant_id);
    while (s->n > 0)
        kv_store_release(store, s->ids[--s->n]);
    TAILQ_REMOVE(&in->serves, s, link);
    in->n_serves--;
    free(s->ids);
    free(s);
    in->transfer->ops->released(in->transfer->arg);
}

static struct serve *serve_of(struct inbound *in, uint64_t id)
{
    struct serve *s;

    TAILQ_FOREACH(s, &in->serves, link)
    {
        if (s->request_id == id)
            return s;
    }
    return NULL;
}

static void send_chain(struct inbound *in, const struct serve *s)
{
    struct transfer *t = in->transfer;
    uint32_t bt = t->config.layout->block_tokens;
    uint32_t *tokens = calloc((size_t)s->n * bt + 1, sizeof(*tokens));
    struct msg_fetch_chain m = {.n_tokens = tokens ? s->n * bt : 0,
                                .tokens = (const uint8_t *)tokens};

    for (uint32_t i = 0; tokens && i < s->n; i++)
        memcpy(tokens + (size_t)i * bt,
               kv_store_tokens(t->config.store, s->ids[i]),
               bt * sizeof(*tokens));
    msg_fetch_chain_pack(&t->buf, s->request_id, &m);
    transfer_send(t, in->conn);
    free(tokens);
}

/* Answers the oldest FETCH_WANT. Returns false if its checksums are not ready.
 */
static bool send_grant(struct inbound *in, struct serve *s)
{
    struct transfer *t = in->transfer;
    const struct msg_fetch_want *want = &s->wants[s->first_want];
    uint32_t id = s->ids[want->block];
    const uint64_t *sums = layer_sums_want(t->sums, id);
    uint64_t layer_bytes =
        t->config.layout->block_bytes / t->config.layout->layers;
    struct guest_place place = {0};

    if (!sums)
        return false;
    guest_place(in->guest, s->grant_id, want->block, &place);
    struct msg_fetch_grant m = {
        .block = want->block,
        .from_layer = want->from_layer,
        .grant_id = s->grant_id,
        .region = place.region,
        .offset = place.offset + want->from_layer * layer_bytes,
        .n_layers = want->n_layers,
        .sums = (const uint8_t *)(sums + want->from_layer),
    };
    msg_fetch_grant_pack(&t->buf, s->request_id, &m);
    transfer_send(t, in->conn);
    s->first_want = (s->first_want + 1) % TRANSFER_WANTS_MAX;
    s->n_wants--;
    return true;
}

/* Sends one frame of `s`. Returns false if nothing is to be sent now. */
static bool send_next(struct inbound *in, struct serve *s)
{
    if (!s->chain_sent) {
        send_chain(in, s);
        s->chain_sent = true;
        return true;
    }
    return s->n_wants > 0 && send_grant(in, s);
}

/* Serves all FETCHes in turn, one frame each. */
void serve_pump(struct inbound *in)
{
    bool any = true;

    while (any) {
        struct serve *s;

        any = false;
        TAILQ_FOREACH(s, &in->serves, link)
        {
            if (frame_conn_full(in->conn))
                return;
            any |= send_next(in, s);
        }
    }
}

void serve_check_lease(struct inbound *in, int64_t now_us)
{
    if (in->n_serves > 0 && now_us - in->heard_us >= TRANSFER_LEASE_US)
        frame_conn_fail(in->conn, "it holds blocks and is silent");
}

void serve_drop(struct inbound *in, uint64_t id)
{
    struct serve *s = serve_of(in, id);

    if (s)
        free_serve(in, s);
}

void serve_drop_all(struct inbound *in)
{
    while (!TAILQ_EMPTY(&in->serves))
        free_serve(in, TAILQ_FIRST(&in->serves));
}

/* Makes a job for the chain in `m`, and pins its leading held blocks. Returns
 * NULL if out of memory. */
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
    s->ids = ids;
    s->n = kv_store_match(in->transfer->config.store, keys, NULL, m->n, ids);
    free(keys);
    return s;
}

/* Answers FETCH_END, unless `rc` is -EPROTO, which closes the connection. */
static int refuse(struct inbound *in, uint64_t id, int rc)
{
    struct msg_fetch_end end = {.code = PROTO_E_BUSY};

    if (rc == -EPROTO)
        return rc; /* the peer chose no transport */
    msg_fetch_end_pack(&in->transfer->buf, id, &end);
    transfer_send(in->transfer, in->conn);
    return 0;
}

int serve_on_fetch(struct inbound *in, uint64_t id, const uint8_t *payload,
                   size_t len)
{
    const struct engine_kv_layout *layout = in->transfer->config.layout;
    struct msg_fetch m;

    if (msg_fetch_unpack(payload, len, &m) || m.n == 0)
        return -EBADMSG;
    /* The asker's window may be longer than ours; we hold no longer chain. */
    if (m.n > layout->window_tokens / layout->block_tokens)
        m.n = layout->window_tokens / layout->block_tokens;
    serve_drop(in, id);
    struct serve *s =
        in->n_serves < TRANSFER_SERVES_MAX ? new_serve(in, id, &m) : NULL;
    if (!s)
        return refuse(in, id, -ENOBUFS);
    TAILQ_INSERT_TAIL(&in->serves, s, link);
    in->n_serves++;
    serve_pump(in);
    return 0;
}

int serve_on_want(struct inbound *in, uint64_t id, const uint8_t *payload,
                  size_t len)
{
    uint32_t layers = in->transfer->config.layout->layers;
    struct serve *s = serve_of(in, id);
    struct msg_fetch_want m;

    if (msg_fetch_want_unpack(payload, len, &m))
        return -EBADMSG;
    if (!s)
        return 0; /* the fetch ended here: FETCH_END is on its way */
    if (m.block >= s->n || m.from_layer >= layers ||
        m.n_layers > layers - m.from_layer || s->n_wants == TRANSFER_WANTS_MAX)
        return -EBADMSG;
    if (!s->granted) {
        int rc = guest_grant(in->guest, s->ids, s->n, &s->grant_id);

        if (rc < 0) {
            serve_drop(in, id); /* FETCH_END is answered by no CANCEL */
            return refuse(in, id, rc);
        }
        s->granted = true;
    }
    s->wants[(s->first_want + s->n_wants++) % TRANSFER_WANTS_MAX] = m;
    layer_sums_want(in->transfer->sums, s->ids[m.block]);
    serve_pump(in);
    return 0;
}
