/* Hashes, and the sets that only a mistake makes. */
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

/* hash-max-listpack-entries and -value: beyond them the order is unknown. */
#define PACKED_FIELDS 512
#define PACKED_BYTES 64

struct mr_field *mr_hash_find(const struct mr_hash *h, struct mr_bytes name)
{
    for (size_t i = 0; i < h->n; i++)
        if (mr_bytes_equal(h->at[i].name, name))
            return &h->at[i];
    return NULL;
}

bool mr_hash_set(struct mr_hash *h, struct mr_bytes name, struct mr_bytes value)
{
    struct mr_field *f = mr_hash_find(h, name);
    bool is_new = !f;

    if (is_new) {
        h->at = mr_grow(h->at, &h->room, h->n + 1, sizeof(*h->at));
        f = &h->at[h->n++];
        *f = (struct mr_field){.name = mr_bytes_copy(name)};
        h->bytes += name.n;
    }
    struct mr_bytes old = f->value;

    f->value = mr_bytes_copy(value);
    h->bytes += value.n - old.n;
    mr_bytes_free(old);
    if (h->n > PACKED_FIELDS || name.n > PACKED_BYTES || value.n > PACKED_BYTES)
        h->packed = false;
    return is_new;
}

bool mr_hash_remove(struct mr_hash *h, struct mr_bytes name)
{
    struct mr_field *f = mr_hash_find(h, name);

    if (!f)
        return false;
    h->bytes -= f->name.n + f->value.n;
    mr_bytes_free(f->name);
    mr_bytes_free(f->value);
    h->n--;
    memmove(f, f + 1, (size_t)(h->at + h->n - f) * sizeof(*f));
    return true;
}

void mr_hash_clear(struct mr_hash *h)
{
    for (size_t i = 0; i < h->n; i++) {
        mr_bytes_free(h->at[i].name);
        mr_bytes_free(h->at[i].value);
    }
    free(h->at);
    *h = (struct mr_hash){.packed = true};
}

/* --- commands ------------------------------------------------------------- */

static void out_value(struct mr_buf *out, const struct mr_field *f)
{
    if (f)
        mr_out_bulk(out, f->value);
    else
        mr_out_nil(out);
}

static void hget(struct mr_call *call)
{
    struct mr_key *k;

    if (mr_look_for(call, call->argv[1], MR_HASH, &k))
        out_value(call->out, k ? mr_hash_find(&k->hash, call->argv[2]) : NULL);
}

static void hmget(struct mr_call *call)
{
    struct mr_key *k;

    if (!mr_look_for(call, call->argv[1], MR_HASH, &k))
        return;
    mr_out_array(call->out, call->argc - 2);
    for (size_t i = 2; i < call->argc; i++)
        out_value(call->out, k ? mr_hash_find(&k->hash, call->argv[i]) : NULL);
}

static void hstrlen(struct mr_call *call)
{
    struct mr_key *k;

    if (!mr_look_for(call, call->argv[1], MR_HASH, &k))
        return;
    struct mr_field *f = k ? mr_hash_find(&k->hash, call->argv[2]) : NULL;

    mr_out_int(call->out, f ? (long long)f->value.n : 0);
}

static void put_fields(struct mr_call *call, bool names, bool values)
{
    struct mr_key *k;

    if (!mr_look_for(call, call->argv[1], MR_HASH, &k))
        return;
    mr_out_array(call->out,
                 k ? k->hash.n * ((size_t)names + (size_t)values) : 0);
    for (size_t i = 0; k && i < k->hash.n; i++) {
        if (names)
            mr_out_bulk(call->out, k->hash.at[i].name);
        if (values)
            mr_out_bulk(call->out, k->hash.at[i].value);
    }
}

static void hkeys(struct mr_call *call)
{
    put_fields(call, true, false);
}

static void hvals(struct mr_call *call)
{
    put_fields(call, false, true);
}

static void hgetall(struct mr_call *call)
{
    put_fields(call, true, true);
}

static void hset(struct mr_call *call)
{
    struct mr_key *k;
    long long added = 0;

    if (call->argc % 2 != 0) {
        mr_out_error(call->out,
                     "ERR wrong number of arguments for 'hset' command");
        return;
    }
    if (!mr_look_for(call, call->argv[1], MR_HASH, &k))
        return;
    if (!k)
        k = mr_data_make(call->data, call->database, call->argv[1], MR_HASH);
    for (size_t i = 2; i < call->argc; i += 2)
        added += mr_hash_set(&k->hash, call->argv[i], call->argv[i + 1]);
    mr_changed(call, k);
    mr_out_int(call->out, added);
}

static void hdel(struct mr_call *call)
{
    struct mr_key *k;
    long long gone = 0;

    if (!mr_look_for(call, call->argv[1], MR_HASH, &k))
        return;
    for (size_t i = 2; k && i < call->argc; i++)
        gone += mr_hash_remove(&k->hash, call->argv[i]);
    if (gone > 0) {
        mr_changed(call, k);
        if (k->hash.n == 0)
            mr_remove(call, k);
    }
    mr_out_int(call->out, gone);
}

static void sadd(struct mr_call *call)
{
    struct mr_key *k;
    long long added = 0;

    if (!mr_look_for(call, call->argv[1], MR_SET, &k))
        return;
    if (!k)
        k = mr_data_make(call->data, call->database, call->argv[1], MR_SET);
    for (size_t i = 2; i < call->argc; i++)
        added += mr_hash_set(&k->hash, call->argv[i], MR_LIT(""));
    mr_changed(call, k);
    mr_out_int(call->out, added);
}

const struct mr_command mr_hash_commands[] = {
    {"hdel", -3, MR_WRITES, hdel},
    {"hget", 3, 0, hget},
    {"hgetall", 2, 0, hgetall},
    {"hkeys", 2, 0, hkeys},
    {"hmget", -3, 0, hmget},
    {"hset", -4, MR_WRITES | MR_GROWS, hset},
    {"hstrlen", 3, 0, hstrlen},
    {"hvals", 2, 0, hvals},
    {"sadd", -3, MR_WRITES | MR_GROWS, sadd},
    {0},
};
