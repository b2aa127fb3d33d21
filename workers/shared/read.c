/* Reads layers of a block from the shared store. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "workers/shared/internal.h"
#include "workers/transfer/engine/sum.h"

/* Parts requested ahead: the store prepares them while one is read, and its
 * output buffer stays bounded. */
#define PARTS_ASKED 4u

struct reading {
    struct shared_store *s;
    const struct shared_head *head;
    uint32_t from, to; /* layers, half open */
    uint32_t asked;    /* next layer to request */
    uint32_t taken;    /* next layer to take */
    char *data;        /* of layer `from` */
    size_t layer_bytes;
    int rc; /* error of the first bad part */
};

static uint32_t part_end(const struct reading *r, uint32_t from)
{
    uint32_t n = shared_part_layers(r->s);

    return r->to - from < n ? r->to : from + n;
}

static void ask_part(struct reading *r)
{
    char name[SHARED_NAME_MAX];
    char fields[SHARED_LAYERS_MAX][12];
    const char *words[2 + SHARED_LAYERS_MAX] = {"HMGET", name};
    uint32_t end = part_end(r, r->asked);
    int n = 2;

    shared_block_name(&r->s->shape, r->head->key, name);
    for (; r->asked < end; r->asked++, n++) {
        snprintf(fields[n - 2], sizeof(fields[0]), "%u", r->asked);
        words[n] = fields[n - 2];
    }
    shared_ask(r->s, n, words);
}

/* Checks and copies a layer. Returns 0, -ENOENT or -EBADMSG. */
static int take_layer(struct reading *r, const redisReply *layer)
{
    if (layer->type != REDIS_REPLY_STRING)
        return -ENOENT;
    if ((size_t)layer->len != r->layer_bytes ||
        sum_of(layer->str, r->layer_bytes) != r->head->sums[r->taken])
        return -EBADMSG;
    memcpy(r->data + (r->taken - r->from) * r->layer_bytes, layer->str,
           r->layer_bytes);
    return 0;
}

/* Takes the next part. Returns whether the line is still open. */
static bool take_part(struct reading *r)
{
    uint32_t end = part_end(r, r->taken);
    redisReply *reply = shared_line_get(r->s->line);
    int rc = shared_refused(r->s, reply);

    if (rc == 0 &&
        (reply->type != REDIS_REPLY_ARRAY || reply->elements != end - r->taken))
        rc = -EPROTO;
    for (size_t i = 0; rc == 0 && r->taken < end; r->taken++, i++)
        rc = take_layer(r, reply->element[i]);
    r->taken = end;
    r->rc = r->rc ? r->rc : rc;
    shared_reply_free(reply);
    return rc != -ENOTCONN;
}

int shared_read(struct shared_store *s, const struct shared_head *head,
                uint32_t from, uint32_t n, void *data)
{
    struct reading r = {.s = s,
                        .head = head,
                        .from = from,
                        .to = from + n,
                        .asked = from,
                        .taken = from,
                        .data = data,
                        .layer_bytes = s->shape.block_bytes / s->shape.layers};

    for (uint32_t i = 0; i < PARTS_ASKED && r.asked < r.to; i++)
        ask_part(&r);
    while (r.taken < r.to) {
        if (!take_part(&r))
            return -ENOTCONN;
        if (r.asked < r.to && r.rc == 0)
            ask_part(&r);
        else if (r.rc != 0)
            r.to = r.asked; /* takes only the parts already requested */
    }
    /* A damaged block never repairs itself: removes it. */
    if (r.rc != -EBADMSG && r.rc != -ENOENT)
        return r.rc;
    int rc =
        shared_remove(s, &(struct shared_known){head->key, head->parent_key});
    return rc == -ENOTCONN ? rc : r.rc;
}
