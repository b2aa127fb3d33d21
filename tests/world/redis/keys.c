/* The data of a server: databases of keys, each ordered by name. */
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define KEY_BYTES 64u /* of a key, beside its name and value */

/* Returns where the key is, or would be. */
static size_t place_of(const struct mr_database *d, struct mr_bytes name,
                       bool *found)
{
    size_t low = 0, high = d->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = mr_bytes_order(d->at[mid]->name, name);

        if (order == 0) {
            *found = true;
            return mid;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *found = false;
    return low;
}

struct mr_key *mr_data_find(const struct mr_data *d, unsigned database,
                            struct mr_bytes name)
{
    bool found;
    size_t at = place_of(&d->databases[database], name, &found);

    return found ? d->databases[database].at[at] : NULL;
}

struct mr_key *mr_data_make(struct mr_data *d, unsigned database,
                            struct mr_bytes name, enum mr_kind kind)
{
    struct mr_database *b = &d->databases[database];
    struct mr_key *k = mr_alloc(sizeof(*k));
    bool found;
    size_t at = place_of(b, name, &found);

    if (found)
        abort();
    *k = (struct mr_key){
        .name = mr_bytes_copy(name), .kind = kind, .expires_ms = MR_MS_NONE};
    if (kind == MR_HASH || kind == MR_SET)
        k->hash.packed = true;
    if (kind == MR_ZSET)
        k->zset.packed = true;
    b->at = mr_grow(b->at, &b->room, b->n + 1, sizeof(struct mr_key *));
    memmove(b->at + at + 1, b->at + at, (b->n - at) * sizeof(struct mr_key *));
    b->at[at] = k;
    b->n++;
    mr_data_count(d, k);
    return k;
}

void mr_key_clear(struct mr_key *k)
{
    switch (k->kind) {
    case MR_STRING:
        mr_bytes_free(k->string);
        k->string = (struct mr_bytes){0};
        break;
    case MR_HASH:
    case MR_SET:
        mr_hash_clear(&k->hash);
        break;
    case MR_ZSET:
        mr_zset_clear(&k->zset);
        break;
    case MR_STREAM:
        mr_stream_clear(&k->stream);
        break;
    case MR_NONE:
        break;
    }
}

static void key_free(struct mr_key *k)
{
    mr_key_clear(k);
    mr_bytes_free(k->name);
    free(k);
}

void mr_data_remove(struct mr_data *d, unsigned database, struct mr_key *k)
{
    struct mr_database *b = &d->databases[database];
    bool found;
    size_t at = place_of(b, k->name, &found);

    if (!found)
        abort();
    memmove(b->at + at, b->at + at + 1,
            (b->n - at - 1) * sizeof(struct mr_key *));
    b->n--;
    d->bytes -= k->bytes;
    key_free(k);
}

static size_t value_bytes(const struct mr_key *k)
{
    switch (k->kind) {
    case MR_STRING:
        return k->string.n;
    case MR_HASH:
    case MR_SET:
        return k->hash.bytes;
    case MR_ZSET:
        return k->zset.bytes;
    case MR_STREAM:
        return k->stream.bytes;
    case MR_NONE:
        break;
    }
    return 0;
}

void mr_data_count(struct mr_data *d, struct mr_key *k)
{
    d->bytes -= k->bytes;
    k->bytes = KEY_BYTES + k->name.n + value_bytes(k);
    d->bytes += k->bytes;
}

void mr_data_clear(struct mr_data *d)
{
    for (unsigned i = 0; i < MR_DATABASES; i++) {
        struct mr_database *b = &d->databases[i];

        for (size_t k = 0; k < b->n; k++)
            key_free(b->at[k]);
        free(b->at);
    }
    *d = (struct mr_data){0};
}

static void value_copy(struct mr_key *to, const struct mr_key *from)
{
    switch (from->kind) {
    case MR_STRING:
        to->string = mr_bytes_copy(from->string);
        break;
    case MR_HASH:
    case MR_SET:
        for (size_t i = 0; i < from->hash.n; i++)
            mr_hash_set(&to->hash, from->hash.at[i].name,
                        from->hash.at[i].value);
        to->hash.packed = from->hash.packed;
        break;
    case MR_ZSET:
        for (size_t i = 0; i < from->zset.n; i++)
            mr_zset_set(&to->zset, from->zset.at[i].score,
                        from->zset.at[i].name);
        to->zset.packed = from->zset.packed;
        break;
    case MR_STREAM:
        mr_stream_copy(&to->stream, &from->stream);
        break;
    case MR_NONE:
        break;
    }
}

void mr_data_copy(struct mr_data *to, const struct mr_data *from)
{
    mr_data_clear(to);
    for (unsigned i = 0; i < MR_DATABASES; i++) {
        for (size_t k = 0; k < from->databases[i].n; k++) {
            const struct mr_key *old = from->databases[i].at[k];
            struct mr_key *copy = mr_data_make(to, i, old->name, old->kind);

            copy->expires_ms = old->expires_ms;
            copy->used = old->used;
            value_copy(copy, old);
            mr_data_count(to, copy);
        }
    }
}

static bool hash_equal(const struct mr_hash *a, const struct mr_hash *b)
{
    bool equal = a->n == b->n;

    for (size_t i = 0; equal && i < a->n; i++)
        equal = mr_bytes_equal(a->at[i].name, b->at[i].name) &&
                mr_bytes_equal(a->at[i].value, b->at[i].value);
    return equal;
}

static bool zset_equal(const struct mr_zset *a, const struct mr_zset *b)
{
    bool equal = a->n == b->n;

    for (size_t i = 0; equal && i < a->n; i++)
        equal = mr_bytes_equal(a->at[i].name, b->at[i].name) &&
                !(a->at[i].score < b->at[i].score) &&
                !(a->at[i].score > b->at[i].score);
    return equal;
}

static bool stream_equal(const struct mr_stream *a, const struct mr_stream *b)
{
    bool equal = a->n == b->n && a->n_nodes == b->n_nodes &&
                 mr_id_order(a->last, b->last) == 0;

    for (size_t i = 0; equal && i < a->n; i++) {
        const struct mr_words *x = &a->at[i].words, *y = &b->at[i].words;

        equal = x->n == y->n && mr_id_order(a->at[i].id, b->at[i].id) == 0;
        for (size_t k = 0; equal && k < x->n; k++)
            equal = mr_bytes_equal(x->at[k], y->at[k]);
    }
    return equal;
}

static bool key_equal(const struct mr_key *a, const struct mr_key *b)
{
    if (a->kind != b->kind || !mr_bytes_equal(a->name, b->name) ||
        a->expires_ms != b->expires_ms || a->bytes != b->bytes)
        return false;
    switch (a->kind) {
    case MR_STRING:
        return mr_bytes_equal(a->string, b->string);
    case MR_HASH:
    case MR_SET:
        return hash_equal(&a->hash, &b->hash);
    case MR_ZSET:
        return zset_equal(&a->zset, &b->zset);
    case MR_STREAM:
        return stream_equal(&a->stream, &b->stream);
    case MR_NONE:
        break;
    }
    return true;
}

bool mr_data_equal(const struct mr_data *a, const struct mr_data *b)
{
    bool equal = a->bytes == b->bytes;

    for (unsigned i = 0; equal && i < MR_DATABASES; i++) {
        const struct mr_database *x = &a->databases[i], *y = &b->databases[i];

        equal = x->n == y->n;
        for (size_t k = 0; equal && k < x->n; k++)
            equal = key_equal(x->at[k], y->at[k]);
    }
    return equal;
}
