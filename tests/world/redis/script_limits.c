/* The script of conductor/cluster/limits.c: what tenants have taken. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define VALUES 9
#define ID_BYTES 16
#define LONGEST_MS 60000.0
#define BOOK_MS 864e5

#define ME l->args[0]

/* One client of a report: the total of all, by requests and by tokens. */
struct client {
    double v[VALUES + 1];   /* as in the script, from index 1 */
    struct mr_reply h;      /* the book's fields and values */
    struct mr_bytes had[2]; /* what this conductor has in the book */
    bool booked;
    double at, taken[2], others, longest;
    char text[2][MR_NUMBER_MAX]; /* of taken */
};

/* The script's number(). Returns whether it is one. */
static bool number(struct mr_bytes b, double *n)
{
    return mr_lua_number(b, n) && *n >= 0 && *n < 1e15;
}

static struct mr_bytes field(const struct client *c, struct mr_bytes name)
{
    for (size_t i = 0; i + 1 < c->h.n; i += 2)
        if (mr_bytes_equal(c->h.at[i].text, name))
            return c->h.at[i + 1].text;
    return (struct mr_bytes){0};
}

static void read_book(struct mr_lua *l, struct client *c, struct mr_bytes key)
{
    c->h = mr_lua_call(l, "redis.pcall('HGETALL'", true, 2,
                       MR_WORDS(MR_LIT("HGETALL"), key));
    if (c->h.kind != MR_R_ERROR)
        return;
    MR_DO(l, "redis.call('DEL'", MR_LIT("DEL"), key);
    mr_reply_free(&c->h);
}

/* Counts what others have in work, and removes those whose lease is over. */
static void count_others(struct mr_lua *l, struct client *c,
                         struct mr_bytes key, double now)
{
    for (size_t i = 0; i + 1 < c->h.n; i += 2) {
        struct mr_bytes id = c->h.at[i].text, part[2];
        double open, till;

        if (id.n != ID_BYTES || mr_bytes_equal(id, ME))
            continue;
        if (!mr_lua_pair(c->h.at[i + 1].text, true, part)) {
            part[0] = part[1] = (struct mr_bytes){0};
        } else {
            part[0] = mr_bytes_copy(part[0]);
            part[1] = mr_bytes_copy(part[1]);
        }
        if (!number(part[0], &open) || !number(part[1], &till) || till < now ||
            till > now + LONGEST_MS)
            MR_DO(l, "redis.call('HDEL'", MR_LIT("HDEL"), key, id);
        else
            c->others += open;
        mr_bytes_free(part[0]);
        mr_bytes_free(part[1]);
    }
}

/* Takes over the totals, if all are numbers; otherwise the book is empty. */
static void read_totals(struct mr_lua *l, struct client *c, double now)
{
    struct mr_bytes part[2];

    if (!number(field(c, MR_LIT("at")), &c->at) ||
        !number(field(c, MR_LIT("asks")), &c->taken[0]) ||
        !number(field(c, MR_LIT("tokens")), &c->taken[1])) {
        c->at = now;
        c->taken[0] = c->taken[1] = 0.0;
    } else if (mr_lua_pair(field(c, ME), false, part)) {
        c->had[0] = mr_bytes_copy(part[0]);
        c->had[1] = mr_bytes_copy(part[1]);
    }
}

/* i: 0 = requests, 1 = tokens. */
static void add_own(struct client *c, int i, double passed)
{
    double limit = c->v[1 + i], own = c->v[3 + 2 * i], told = c->v[4 + 2 * i];
    double in_book = -1.0, taken;

    if (!number(c->had[i], &in_book))
        in_book = -1.0;
    taken = c->taken[i] - limit / 60000 * passed;
    taken = taken > 0 ? taken : 0.0;
    if (in_book < told && c->v[7 + i] > taken)
        taken = c->v[7 + i];
    if (in_book < told || in_book > own)
        in_book = told;
    taken = limit > 0 ? taken + own - in_book : 0.0;
    if (limit > 0 && taken / limit > c->longest)
        c->longest = taken / limit;
    snprintf(c->text[i], MR_NUMBER_MAX, "%.9f", taken);
}

static void write_book(struct mr_lua *l, const struct client *c,
                       struct mr_bytes key, double now, double lease)
{
    char at[MR_NUMBER_MAX], own[4 * MR_NUMBER_MAX], ms[MR_NUMBER_MAX];
    double book = c->longest * 60000;

    book = book < BOOK_MS ? book : BOOK_MS;
    snprintf(at, sizeof(at), "%.3f", now);
    snprintf(own, sizeof(own), "%.17g %.17g %ld %.0f", c->v[3], c->v[5],
             (long)c->v[9], now + lease);
    MR_DO(l, "redis.call('HSET'", MR_LIT("HSET"), key, MR_LIT("asks"),
          mr_bytes_of(c->text[0]), MR_LIT("tokens"), mr_bytes_of(c->text[1]),
          MR_LIT("at"), mr_bytes_of(at), ME, mr_bytes_of(own));
    MR_DO(l, "redis.call('PEXPIRE'", MR_LIT("PEXPIRE"), key,
          mr_lua_word(floor(book + 60000 + lease), ms));
}

static void report(struct mr_lua *l, size_t k, double now, double lease,
                   struct mr_buf *out)
{
    struct client c = {0};
    double passed;

    for (size_t i = 0; i < VALUES; i++)
        mr_lua_number(l->args[2 + k * VALUES + i], &c.v[1 + i]);
    read_book(l, &c, l->keys[k]);
    count_others(l, &c, l->keys[k], now);
    read_totals(l, &c, now);
    passed = now - c.at > 0 ? now - c.at : 0.0;
    add_own(&c, 0, passed);
    add_own(&c, 1, passed);
    write_book(l, &c, l->keys[k], now, lease);
    mr_out_text(out, c.text[0]);
    mr_out_text(out, c.text[1]);
    mr_out_int(out, (long long)(c.others + c.v[9]));
    mr_bytes_free(c.had[0]);
    mr_bytes_free(c.had[1]);
    mr_reply_free(&c.h);
}

static bool has_arguments(const struct mr_lua *l)
{
    double n;

    if (l->n_args < 2 + l->n_keys * VALUES || !mr_lua_number(l->args[1], &n))
        return false;
    for (size_t i = 0; i < l->n_keys * VALUES; i++)
        if (!mr_lua_number(l->args[2 + i], &n))
            return false;
    return true;
}

void mr_script_limits(struct mr_lua *l)
{
    struct mr_buf out = {0};
    double s, us, lease;

    if (!has_arguments(l)) {
        mr_out_lacks(l->call->out, "report without its arguments");
        return;
    }
    mr_lua_time(l, &s, &us);
    mr_lua_number(l->args[1], &lease);
    for (size_t k = 0; k < l->n_keys && !l->failed; k++)
        report(l, k, s * 1000 + us / 1000, lease, &out);
    if (!l->failed) {
        mr_out_array(l->call->out, 3 * l->n_keys);
        mr_put(l->call->out, out.data, out.n);
    }
    free(out.data);
}
