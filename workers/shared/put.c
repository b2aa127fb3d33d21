/* Puts a block into the shared store: makes room, writes the layers, and the
 * head last, so that a block with a head is complete. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "workers/shared/internal.h"
#include "workers/transfer/engine/sum.h"

/* Blocks to evict when the store has no memory for a new one. */
#define SHED_BLOCKS 2

/* Arguments of the commands for one block. */
struct putting {
    struct shared_store *s;
    const struct shared_block *block;
    char name[SHARED_NAME_MAX];
    char index[SHARED_NAME_MAX];
    char member[SHARED_MEMBER_BYTES + 1];
    char ttl[SHARED_NUMBER_MAX];
};

static void name_all(struct putting *p, struct shared_store *s,
                     const struct shared_known *known)
{
    p->s = s;
    shared_block_name(&s->shape, known->key, p->name);
    shared_name(&s->shape, "index", p->index);
    shared_member_encode(known->key, known->parent_key, p->member);
    snprintf(p->ttl, sizeof(p->ttl), "%u", s->ttl_s);
}

/* --- room --------------------------------------------------------------- */

/* Takes an answer that lists members, and removes their blocks. `step` 2 =
 * each member is followed by its score. */
static int drop_listed(struct putting *p, size_t step, struct shared_gone *gone)
{
    redisReply *reply = shared_line_get(p->s->line);
    int rc = shared_refused(p->s, reply);
    uint32_t from = gone->n;

    for (size_t i = 0; rc == 0 && reply->type == REDIS_REPLY_ARRAY &&
                       i < reply->elements && gone->n < SHARED_GONE_MAX;
         i += step) {
        const redisReply *m = reply->element[i];
        struct shared_known k;

        if (m->type != REDIS_REPLY_STRING ||
            shared_member_decode(m->str, (size_t)m->len, &k.key,
                                 &k.parent_key) < 0)
            continue;
        gone->keys[gone->n++] = k.key;
    }
    for (uint32_t i = from; i < gone->n; i++) {
        char name[SHARED_NAME_MAX];

        shared_block_name(&p->s->shape, gone->keys[i], name);
        shared_ask(p->s, 2, (const char *const[]){"UNLINK", name});
    }
    shared_reply_free(reply);
    return rc ? rc : shared_take_all(p->s, gone->n - from);
}

static int drop_oldest(struct putting *p, long long n, struct shared_gone *gone)
{
    char count[SHARED_NUMBER_MAX];
    long long most = SHARED_GONE_MAX - gone->n;

    if (n <= 0 || most <= 0)
        return 0;
    snprintf(count, sizeof(count), "%lld", n < most ? n : most);
    shared_ask(p->s, 3, (const char *const[]){"ZPOPMIN", p->index, count});
    return drop_listed(p, 2, gone);
}

/* Enters the block in the index, where it counts from then on, and evicts
 * expired blocks and the oldest ones beyond max_blocks. */
static int make_room(struct putting *p, struct shared_gone *gone)
{
    char now[SHARED_NUMBER_MAX];
    char expired[SHARED_NUMBER_MAX];
    char twice[SHARED_NUMBER_MAX];
    long long held = 0;

    shared_now(p->s, 0, now);
    shared_now(p->s, (int64_t)p->s->ttl_s + 1, expired);
    snprintf(twice, sizeof(twice), "%llu", 2ull * p->s->ttl_s);
    shared_ask(p->s, 4,
               (const char *const[]){"ZADD", p->index, now, p->member});
    shared_ask(p->s, 3, (const char *const[]){"EXPIRE", p->index, twice});
    shared_ask(p->s, 2, (const char *const[]){"ZCARD", p->index});
    shared_ask(p->s, 4,
               (const char *const[]){"ZCOUNT", p->index, "-inf", expired});
    int rc = shared_take_all(p->s, 2);
    long long late = 0;
    int card = rc == -ENOTCONN ? rc : shared_take(p->s, &held);
    int count = card == -ENOTCONN ? card : shared_take(p->s, &late);
    rc = rc ? rc : card ? card : count;
    if (rc)
        return rc;
    long long most = p->s->max_blocks < (1ull << 32)
                         ? (long long)p->s->max_blocks
                         : 1ll << 32;
    return drop_oldest(p, held - most > late ? held - most : late, gone);
}

/* --- the block ---------------------------------------------------------- */

static int unlink_one(struct putting *p, const char *name)
{
    shared_ask(p->s, 2, (const char *const[]){"UNLINK", name});
    return shared_take(p->s, NULL);
}

/* Renews the block if it is there and complete. Returns 1 if it is, 0 if not,
 * or an error. */
static int renew(struct putting *p)
{
    long long len = 0;

    shared_ask(p->s, 3, (const char *const[]){"HSTRLEN", p->name, "h"});
    int rc = shared_take(p->s, &len);
    if (rc == -EBADMSG) /* the key is no block */
        return unlink_one(p, p->name);
    if (rc)
        return rc;
    if (len != (long long)shared_head_bytes(&p->s->shape))
        return 0;
    rc = shared_touch(p->s, &p->block->known, 1);
    return rc ? rc : 1;
}

/* Queues HSET of layers [from, to) and sends it, to keep the queue small. */
static void ask_part(struct putting *p, uint32_t from, uint32_t to)
{
    static const size_t set_len = 4;
    size_t layer_bytes = p->s->shape.block_bytes / p->s->shape.layers;
    char fields[SHARED_LAYERS_MAX][12];
    const char *words[2 + 2 * SHARED_LAYERS_MAX] = {"HSET", p->name};
    size_t lens[2 + 2 * SHARED_LAYERS_MAX] = {set_len, strlen(p->name)};
    int n = 2;

    for (uint32_t i = from; i < to; i++) {
        char *field = fields[i - from];

        lens[n] = (size_t)snprintf(field, sizeof(fields[0]), "%u", i);
        words[n++] = field;
        lens[n] = layer_bytes;
        words[n++] = (const char *)p->block->data + i * layer_bytes;
    }
    shared_line_add(p->s->line, n, words, lens);
    shared_line_send(p->s->line);
}

/* Waits for each part's answer, so that a store without memory does not get the
 * rest. */
static int put_layers(struct putting *p)
{
    uint32_t layers = p->s->shape.layers;
    uint32_t part = shared_part_layers(p->s);

    for (uint32_t at = 0; at < layers; at += part) {
        uint32_t end = layers - at < part ? layers : at + part;

        ask_part(p, at, end);
        shared_ask(p->s, 3, (const char *const[]){"EXPIRE", p->name, p->ttl});
        int rc = shared_take_all(p->s, 2);
        if (rc)
            return rc;
    }
    return 0;
}

/* Writes the head. -ESTALE: the block was evicted from the index
 * meanwhile. */
static int put_head(struct putting *p, const uint8_t *head)
{
    const char *words[] = {"HSET", p->name, "h", (const char *)head};
    size_t lens[] = {4, strlen(p->name), 1, shared_head_bytes(&p->s->shape)};
    long long score = 0;

    shared_line_add(p->s->line, 4, words, lens);
    shared_ask(p->s, 3, (const char *const[]){"EXPIRE", p->name, p->ttl});
    shared_ask(p->s, 3, (const char *const[]){"ZSCORE", p->index, p->member});
    int rc = shared_take_all(p->s, 2);
    int last = rc == -ENOTCONN ? rc : shared_take(p->s, &score);
    rc = rc ? rc : last;
    return rc ? rc : score < 0 ? -ESTALE : 0;
}

static int put_all(struct putting *p, struct shared_gone *gone)
{
    uint64_t sums[SHARED_LAYERS_MAX];
    struct shared_head head = {.sums = sums};
    uint8_t bytes[SHARED_HEAD_MAX];
    size_t layer_bytes = p->s->shape.block_bytes / p->s->shape.layers;
    int rc = make_room(p, gone);

    if (rc == 0)
        rc = put_layers(p);
    if (rc)
        return rc;
    head.key = p->block->known.key;
    head.parent_key = p->block->known.parent_key;
    memcpy(head.chain, p->block->chain, sizeof(head.chain));
    for (uint32_t i = 0; i < p->s->shape.layers; i++)
        sums[i] =
            sum_of((const char *)p->block->data + i * layer_bytes, layer_bytes);
    shared_head_encode(&p->s->shape, &head, bytes);
    return put_head(p, bytes);
}

static int put_once(struct putting *p, struct shared_gone *gone)
{
    int rc = renew(p);

    if (rc)
        return rc == 1 ? 0 : rc;
    rc = put_all(p, gone);
    if (rc == 0 || rc == -ENOTCONN || rc == -EBADMSG)
        return rc;
    /* Remove the incomplete block. */
    if (shared_remove(p->s, &p->block->known) == -ENOTCONN ||
        (rc == -ENOSPC && drop_oldest(p, SHED_BLOCKS, gone) == -ENOTCONN))
        return -ENOTCONN;
    return rc;
}

int shared_put(struct shared_store *s, const struct shared_block *block,
               struct shared_gone *gone)
{
    struct putting p = {.block = block};

    gone->n = 0;
    name_all(&p, s, &block->known);
    int rc = put_once(&p, gone);
    if (rc != -EBADMSG)
        return rc;
    /* The index has another type: deletes it and tries again. */
    rc = unlink_one(&p, p.index);
    return rc ? rc : put_once(&p, gone);
}
