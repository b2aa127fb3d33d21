/* Sorted sets. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

/* zset-max-listpack-entries and -value: a smaller set is scanned at once, in
 * its order. */
#define PACKED_MEMBERS 128
#define PACKED_BYTES 64
#define SCAN_COUNT 10
#define SCORE_BYTES 8

static bool same(double a, double b)
{
    return !(a < b) && !(a > b);
}

struct mr_member *mr_zset_find(const struct mr_zset *z, struct mr_bytes name)
{
    for (size_t i = 0; i < z->n; i++)
        if (mr_bytes_equal(z->at[i].name, name))
            return &z->at[i];
    return NULL;
}

static bool is_before(const struct mr_member *a, const struct mr_member *b)
{
    return same(a->score, b->score) ? mr_bytes_order(a->name, b->name) < 0
                                    : a->score < b->score;
}

static void insert(struct mr_zset *z, struct mr_member m)
{
    size_t low = 0, high = z->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (is_before(&z->at[mid], &m))
            low = mid + 1;
        else
            high = mid;
    }
    z->at = mr_grow(z->at, &z->room, z->n + 1, sizeof(*z->at));
    memmove(z->at + low + 1, z->at + low, (z->n - low) * sizeof(*z->at));
    z->at[low] = m;
    z->n++;
}

/* Takes it out, and its name is not freed. */
static void take_out(struct mr_zset *z, struct mr_member *m)
{
    z->n--;
    memmove(m, m + 1, (size_t)(z->at + z->n - m) * sizeof(*m));
}

bool mr_zset_set(struct mr_zset *z, double score, struct mr_bytes name)
{
    struct mr_member *old = mr_zset_find(z, name);
    struct mr_member m = {.score = score};

    if (old && same(old->score, score))
        return false;
    if (old) {
        m.name = old->name;
        take_out(z, old);
    } else {
        m.name = mr_bytes_copy(name);
        z->bytes += name.n + SCORE_BYTES;
    }
    if (z->n >= PACKED_MEMBERS || name.n > PACKED_BYTES)
        z->packed = false;
    if (z->packed)
        m.score += 0.0; /* a listpack has whole scores as integers: no -0 */
    insert(z, m);
    return !old;
}

void mr_zset_remove(struct mr_zset *z, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++) {
        z->bytes -= z->at[i].name.n + SCORE_BYTES;
        mr_bytes_free(z->at[i].name);
    }
    memmove(z->at + at, z->at + at + n, (z->n - at - n) * sizeof(*z->at));
    z->n -= n;
}

void mr_zset_clear(struct mr_zset *z)
{
    mr_zset_remove(z, 0, z->n);
    free(z->at);
    *z = (struct mr_zset){.packed = true};
}

/* --- commands ------------------------------------------------------------- */

static void zadd(struct mr_call *call)
{
    static const char *const options[] = {"nx", "xx", "ch", "incr", "gt", "lt"};
    struct mr_key *k;
    double score;
    long long added = 0;

    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
        if (mr_is(call->argv[2], options[i])) {
            mr_out_lacks(call->out, "ZADD with %s", options[i]);
            return;
        }
    }
    if (call->argc % 2 != 0) {
        mr_out_syntax(call->out);
        return;
    }
    for (size_t i = 2; i < call->argc; i += 2) {
        if (!mr_read_double(call->argv[i], &score)) {
            mr_out_error(call->out, "ERR value is not a valid float");
            return;
        }
    }
    if (!mr_look_for(call, call->argv[1], MR_ZSET, &k))
        return;
    if (!k)
        k = mr_data_make(call->data, call->database, call->argv[1], MR_ZSET);
    for (size_t i = 2; i < call->argc; i += 2) {
        mr_read_double(call->argv[i], &score);
        added += mr_zset_set(&k->zset, score, call->argv[i + 1]);
    }
    mr_changed(call, k);
    mr_out_int(call->out, added);
}

static void zrem(struct mr_call *call)
{
    struct mr_key *k;
    long long gone = 0;

    if (!mr_look_for(call, call->argv[1], MR_ZSET, &k))
        return;
    for (size_t i = 2; k && i < call->argc; i++) {
        struct mr_member *m = mr_zset_find(&k->zset, call->argv[i]);

        if (m) {
            mr_zset_remove(&k->zset, (size_t)(m - k->zset.at), 1);
            gone++;
        }
    }
    if (gone > 0) {
        mr_changed(call, k);
        if (k->zset.n == 0)
            mr_remove(call, k);
    }
    mr_out_int(call->out, gone);
}

static void zcard(struct mr_call *call)
{
    struct mr_key *k;

    if (mr_look_for(call, call->argv[1], MR_ZSET, &k))
        mr_out_int(call->out, k ? (long long)k->zset.n : 0);
}

static void zscore(struct mr_call *call)
{
    struct mr_key *k;

    if (!mr_look_for(call, call->argv[1], MR_ZSET, &k))
        return;
    struct mr_member *m = k ? mr_zset_find(&k->zset, call->argv[2]) : NULL;

    if (m)
        mr_out_double(call->out, m->score);
    else
        mr_out_nil(call->out);
}

struct range {
    double min, max;
    bool min_open, max_open;
};

static bool is_within(const struct range *r, double score)
{
    return (r->min_open ? score > r->min : score >= r->min) &&
           (r->max_open ? score < r->max : score <= r->max);
}

/* Reads the limits and finds the set. Returns false if that was answered. */
static bool begin_range(struct mr_call *call, struct range *r,
                        struct mr_key **k)
{
    if (!mr_read_limit(call->argv[2], &r->min, &r->min_open) ||
        !mr_read_limit(call->argv[3], &r->max, &r->max_open)) {
        mr_out_error(call->out, "ERR min or max is not a float");
        return false;
    }
    return mr_look_for(call, call->argv[1], MR_ZSET, k);
}

static size_t count_within(const struct range *r, const struct mr_key *k)
{
    size_t n = 0;

    for (size_t i = 0; k && i < k->zset.n; i++)
        n += is_within(r, k->zset.at[i].score);
    return n;
}

static void zcount(struct mr_call *call)
{
    struct range r;
    struct mr_key *k;

    if (begin_range(call, &r, &k))
        mr_out_int(call->out, (long long)count_within(&r, k));
}

static void zrangebyscore(struct mr_call *call)
{
    struct range r;
    struct mr_key *k;

    if (call->argc > 4) {
        mr_out_lacks(call->out, "options of ZRANGEBYSCORE");
        return;
    }
    if (!begin_range(call, &r, &k))
        return;
    mr_out_array(call->out, count_within(&r, k));
    for (size_t i = 0; k && i < k->zset.n; i++)
        if (is_within(&r, k->zset.at[i].score))
            mr_out_bulk(call->out, k->zset.at[i].name);
}

static void zpopmin(struct mr_call *call)
{
    struct mr_key *k;
    long long count = 1;

    if (call->argc > 3) {
        mr_out_syntax(call->out);
        return;
    }
    if (call->argc == 3 && (!mr_read_int(call->argv[2], &count) || count < 0)) {
        mr_out_error(call->out, "ERR value is out of range, must be positive");
        return;
    }
    if (!mr_look_for(call, call->argv[1], MR_ZSET, &k))
        return;
    size_t n = !k ? 0 : (size_t)count < k->zset.n ? (size_t)count : k->zset.n;

    mr_out_array(call->out, 2 * n);
    for (size_t i = 0; i < n; i++) {
        mr_out_bulk(call->out, k->zset.at[i].name);
        mr_out_double(call->out, k->zset.at[i].score);
    }
    if (n == 0)
        return;
    mr_zset_remove(&k->zset, 0, n);
    mr_changed(call, k);
    if (k->zset.n == 0)
        mr_remove(call, k);
}

/* --- scanning ------------------------------------------------------------- */

static void put_scanned(struct mr_buf *out, const struct mr_zset *z,
                        const struct mr_member *m)
{
    char text[MR_NUMBER_MAX];

    mr_out_bulk(out, m->name);
    if (z->packed)
        mr_write_score(m->score, text);
    else
        snprintf(text, sizeof(text), "%.17Lg", (long double)m->score);
    mr_out_text(out, text);
}

/* A member's place in a scan: never 0, and the same whatever else comes and
 * goes. FNV-1a. */
static uint64_t place_of(struct mr_bytes name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < name.n; i++)
        h = (h ^ (uint8_t)name.data[i]) * UINT64_C(0x100000001b3);
    return h | 1;
}

struct placed {
    uint64_t place;
    const struct mr_member *member;
};

static int by_place(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;

    return x->place < y->place ? -1 : x->place > y->place;
}

/* Puts the next `count` members by place, from `cursor` on, and all that share
 * the last one's place. */
static void scan_some(struct mr_call *call, const struct mr_zset *z,
                      uint64_t cursor, long long count)
{
    struct placed *p = mr_alloc(z->n * sizeof(*p));
    size_t n = 0, end;
    char text[MR_NUMBER_MAX];

    for (size_t i = 0; i < z->n; i++) {
        uint64_t place = place_of(z->at[i].name);

        if (place >= cursor)
            p[n++] = (struct placed){place, &z->at[i]};
    }
    qsort(p, n, sizeof(*p), by_place);
    end = n < (size_t)count ? n : (size_t)count;
    while (end > 0 && end < n && p[end].place == p[end - 1].place)
        end++;
    snprintf(text, sizeof(text), "%" PRIu64, end < n ? p[end].place : 0);
    mr_out_array(call->out, 2);
    mr_out_text(call->out, text);
    mr_out_array(call->out, 2 * end);
    for (size_t i = 0; i < end; i++)
        put_scanned(call->out, z, p[i].member);
    free(p);
}

/* Reads the options. Returns false if that was answered. */
static bool read_count(struct mr_call *call, long long *count)
{
    for (size_t i = 3; i < call->argc; i += 2) {
        if (!mr_is(call->argv[i], "count") || i + 1 == call->argc) {
            if (mr_is(call->argv[i], "match") && i + 1 < call->argc)
                mr_out_lacks(call->out, "ZSCAN with MATCH");
            else
                mr_out_syntax(call->out);
            return false;
        }
        if (!mr_read_int(call->argv[i + 1], count)) {
            mr_out_not_int(call->out);
            return false;
        }
        if (*count < 1) {
            mr_out_syntax(call->out);
            return false;
        }
    }
    return true;
}

static void zscan(struct mr_call *call)
{
    long long count = SCAN_COUNT;
    struct mr_key *k;
    char *end;
    unsigned long long cursor;

    errno = 0;
    cursor = strtoull(call->argv[2].data, &end, 10);
    if (isspace((unsigned char)call->argv[2].data[0]) || *end || errno) {
        mr_out_error(call->out, "ERR invalid cursor");
        return;
    }
    if (!mr_look_for(call, call->argv[1], MR_ZSET, &k))
        return;
    if (!k) {
        mr_out_array(call->out, 2);
        mr_out_text(call->out, "0");
        mr_out_array(call->out, 0);
        return;
    }
    if (!read_count(call, &count))
        return;
    if (!k->zset.packed) {
        scan_some(call, &k->zset, cursor ? cursor : 1, count);
        return;
    }
    mr_out_array(call->out, 2);
    mr_out_text(call->out, "0");
    mr_out_array(call->out, 2 * k->zset.n);
    for (size_t i = 0; i < k->zset.n; i++)
        put_scanned(call->out, &k->zset, &k->zset.at[i]);
}

const struct mr_command mr_zset_commands[] = {
    {"zadd", -4, MR_WRITES | MR_GROWS, zadd},
    {"zcard", 2, 0, zcard},
    {"zcount", 4, 0, zcount},
    {"zpopmin", -2, MR_WRITES, zpopmin},
    {"zrangebyscore", -4, 0, zrangebyscore},
    {"zrem", -3, MR_WRITES, zrem},
    {"zscan", -3, 0, zscan},
    {"zscore", 3, 0, zscore},
    {0},
};
