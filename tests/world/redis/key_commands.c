/* Commands about keys of any kind, and about strings. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

static const char *const kind_names[] = {"none", "string", "hash",
                                         "zset", "stream", "set"};

/* --- when a key expires --------------------------------------------------- */

static void out_bad_time(struct mr_call *call, const char *command)
{
    mr_out_error(call->out, "ERR invalid expire time in '%s' command", command);
}

/* Adds a time from a command to Redis's clock. Returns false if that was
 * answered. */
static bool add_time(struct mr_call *call, struct mr_bytes word,
                     int64_t unit_ms, const char *command, int64_t *at_ms)
{
    int64_t now_ms = mr_call_ms(call);
    long long t;

    if (!mr_read_int(word, &t)) {
        mr_out_not_int(call->out);
        return false;
    }
    if (t > LLONG_MAX / unit_ms || t < LLONG_MIN / unit_ms ||
        t * unit_ms > LLONG_MAX - now_ms) {
        out_bad_time(call, command);
        return false;
    }
    *at_ms = t * unit_ms + now_ms;
    return true;
}

static void expire_in(struct mr_call *call, int64_t unit_ms,
                      const char *command)
{
    struct mr_key *k;
    int64_t at_ms;

    if (call->argc > 3) {
        mr_out_lacks(call->out, "options of %s", command);
        return;
    }
    if (!add_time(call, call->argv[2], unit_ms, command, &at_ms))
        return;
    k = mr_look(call, call->argv[1]);
    if (k && at_ms <= mr_call_ms(call)) {
        mr_remove(call, k);
    } else if (k) {
        k->expires_ms = at_ms;
        mr_changed(call, k);
    }
    mr_out_int(call->out, k ? 1 : 0);
}

static void expire(struct mr_call *call)
{
    expire_in(call, 1000, "expire");
}

static void pexpire(struct mr_call *call)
{
    expire_in(call, 1, "pexpire");
}

static void left(struct mr_call *call, int64_t unit_ms)
{
    struct mr_key *k = mr_look(call, call->argv[1]);
    int64_t ms = k ? k->expires_ms : MR_MS_NONE;

    if (k && ms != MR_MS_NONE)
        mr_out_int(call->out, (ms - mr_call_ms(call) + unit_ms / 2) / unit_ms);
    else
        mr_out_int(call->out, k ? -1 : -2);
}

static void ttl(struct mr_call *call)
{
    left(call, 1000);
}

static void pttl(struct mr_call *call)
{
    left(call, 1);
}

/* --- any kind ------------------------------------------------------------- */

static void del(struct mr_call *call)
{
    long long gone = 0;

    for (size_t i = 1; i < call->argc; i++) {
        struct mr_key *k = mr_look(call, call->argv[i]);

        if (k) {
            mr_remove(call, k);
            gone++;
        }
    }
    mr_out_int(call->out, gone);
}

static void exists(struct mr_call *call)
{
    long long n = 0;

    for (size_t i = 1; i < call->argc; i++)
        n += mr_look(call, call->argv[i]) ? 1 : 0;
    mr_out_int(call->out, n);
}

static void type(struct mr_call *call)
{
    struct mr_key *k = mr_look(call, call->argv[1]);

    mr_out_status(call->out, kind_names[k ? k->kind : MR_NONE]);
}

/* Matches a name with a pattern of '*' and '?'. */
static bool matches(const char *pattern, size_t n, const char *text, size_t m)
{
    while (n > 0 && *pattern != '*') {
        if (m == 0 || (*pattern != '?' && *pattern != *text))
            return false;
        pattern++, n--, text++, m--;
    }
    if (n == 0)
        return m == 0;
    for (size_t skip = 0; skip <= m; skip++)
        if (matches(pattern + 1, n - 1, text + skip, m - skip))
            return true;
    return false;
}

static void keys(struct mr_call *call)
{
    const struct mr_database *d = &call->data->databases[call->database];
    struct mr_bytes pattern = call->argv[1];
    struct mr_buf found = {0};
    size_t n = 0;

    if (strpbrk(pattern.data, "[\\")) {
        mr_out_lacks(call->out, "patterns with [ or \\");
        return;
    }
    for (size_t i = 0; i < d->n; i++) {
        const struct mr_key *k = d->at[i];

        if ((k->expires_ms != MR_MS_NONE && k->expires_ms < mr_call_ms(call)) ||
            !matches(pattern.data, pattern.n, k->name.data, k->name.n))
            continue;
        mr_out_bulk(&found, k->name);
        n++;
    }
    mr_out_array(call->out, n);
    mr_put(call->out, found.data, found.n);
    free(found.data);
}

static void flushall(struct mr_call *call)
{
    if (call->argc > 2 || (call->argc == 2 && !mr_is(call->argv[1], "async") &&
                           !mr_is(call->argv[1], "sync"))) {
        mr_out_syntax(call->out);
        return;
    }
    mr_data_clear(call->data);
    call->changed = true;
    mr_out_status(call->out, "OK");
}

/* --- strings -------------------------------------------------------------- */

static void get(struct mr_call *call)
{
    struct mr_key *k;

    if (!mr_look_for(call, call->argv[1], MR_STRING, &k))
        return;
    if (k)
        mr_out_bulk(call->out, k->string);
    else
        mr_out_nil(call->out);
}

/* Reads the options of SET. Returns false if that was answered. */
static bool read_set(struct mr_call *call, bool *new_only,
                     struct mr_bytes *time, int64_t *unit_ms)
{
    static const char *const others[] = {"xx",   "get",  "keepttl",
                                         "exat", "pxat", NULL};

    for (size_t i = 3; i < call->argc; i++) {
        bool more = i + 1 < call->argc;

        for (const char *const *o = others; *o; o++) {
            if (mr_is(call->argv[i], *o)) {
                mr_out_lacks(call->out, "SET with %s", *o);
                return false;
            }
        }
        if (mr_is(call->argv[i], "nx")) {
            *new_only = true;
        } else if (!*unit_ms && more &&
                   (mr_is(call->argv[i], "ex") || mr_is(call->argv[i], "px"))) {
            *unit_ms = mr_is(call->argv[i], "ex") ? 1000 : 1;
            *time = call->argv[++i];
        } else {
            mr_out_syntax(call->out);
            return false;
        }
    }
    return true;
}

/* Reads the time of SET. Returns false if that was answered. */
static bool set_time(struct mr_call *call, struct mr_bytes word,
                     int64_t unit_ms, int64_t *at_ms)
{
    long long t;

    if (mr_read_int(word, &t) && t <= 0) {
        out_bad_time(call, "set");
        return false;
    }
    return add_time(call, word, unit_ms, "set", at_ms);
}

static void set(struct mr_call *call)
{
    bool new_only = false;
    struct mr_bytes time = {0};
    int64_t unit_ms = 0, at_ms = MR_MS_NONE;
    struct mr_key *k;

    if (!read_set(call, &new_only, &time, &unit_ms) ||
        (unit_ms && !set_time(call, time, unit_ms, &at_ms)))
        return;
    k = mr_look(call, call->argv[1]);
    if (k && new_only) {
        mr_out_nil(call->out);
        return;
    }
    if (k)
        mr_key_clear(k);
    else
        k = mr_data_make(call->data, call->database, call->argv[1], MR_STRING);
    k->kind = MR_STRING;
    k->string = mr_bytes_copy(call->argv[2]);
    k->expires_ms = at_ms;
    mr_changed(call, k);
    mr_out_status(call->out, "OK");
}

const struct mr_command mr_key_commands[] = {
    {"del", -2, MR_WRITES, del},
    {"exists", -2, 0, exists},
    {"expire", -3, MR_WRITES, expire},
    {"flushall", -1, MR_WRITES, flushall},
    {"get", 2, 0, get},
    {"keys", 2, 0, keys},
    {"pexpire", -3, MR_WRITES, pexpire},
    {"pttl", 2, 0, pttl},
    {"set", -3, MR_WRITES | MR_GROWS, set},
    {"ttl", 2, 0, ttl},
    {"type", 2, 0, type},
    {"unlink", -2, MR_WRITES, del},
    {0},
};
