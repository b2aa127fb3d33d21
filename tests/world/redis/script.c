/*
 * Scripts: EVAL, EVALSHA, SCRIPT. The model has no Lua: each script of
 * Conductor is a C function with the same commands in the same order, found by
 * the SHA of its text. A changed script is not found any more, by name; then
 * its C function has to follow, and its SHA below.
 */
#include <ctype.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define SHA_BYTES 20

static const struct known {
    const char *sha;
    void (*run)(struct mr_lua *l);
} known[] = {
    /* conductor/cluster/registry.c */
    {"817ce9d5b0e56506fdcb97f54225becb86d2d556", mr_script_renew},
    /* conductor/cluster/limits.c */
    {"3a017dfba82c3ff80adcbffbdad7ff6c6f9da471", mr_script_limits},
};

static void sha_of(struct mr_bytes text, char out[41])
{
    unsigned char digest[EVP_MAX_MD_SIZE];

    if (!EVP_Digest(text.data, text.n, digest, NULL, EVP_sha1(), NULL))
        abort();
    for (size_t i = 0; i < SHA_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* --- which are loaded ----------------------------------------------------- */

const struct mr_script *mr_script_find(const struct mr *m, struct mr_bytes sha)
{
    const struct mr_script *s;

    SLIST_FOREACH(s, &m->scripts, entry)
    {
        if (sha.n == 40 && mr_is(sha, s->sha))
            return s;
    }
    return NULL;
}

static const struct mr_script *load(struct mr *m, struct mr_bytes text)
{
    struct mr_script *s;
    char sha[41];
    const struct mr_script *old;

    sha_of(text, sha);
    old = mr_script_find(m, mr_bytes_of(sha));
    if (old)
        return old;
    s = mr_alloc(sizeof(*s));
    memcpy(s->sha, sha, sizeof(sha));
    s->text = mr_bytes_copy(text);
    SLIST_INSERT_HEAD(&m->scripts, s, entry);
    return s;
}

void mr_scripts_forget(struct mr *m)
{
    struct mr_script *s;

    while ((s = SLIST_FIRST(&m->scripts))) {
        SLIST_REMOVE_HEAD(&m->scripts, entry);
        mr_bytes_free(s->text);
        free(s);
    }
}

/* --- commands of a script ------------------------------------------------- */

static int line_of(const struct mr_script *s, const char *statement)
{
    const char *at = strstr(s->text.data, statement);
    int line = 1;

    if (!at) /* the C function is not of this script */
        abort();
    for (const char *p = s->text.data; p < at; p++)
        line += *p == '\n';
    return line;
}

/* Why this command may not run now; NULL = it may. */
static const char *refusal(const struct mr_lua *l, const struct mr_command *d)
{
    if (l->call->replay)
        return NULL;
    if (l->call->m->role == MR_REPLICA && (d->flags & MR_WRITES))
        return "-READONLY You can't write against a read only replica.\r\n";
    if (l->full && !l->wrote && (d->flags & MR_GROWS))
        return "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    return NULL;
}

static void run(struct mr_lua *l, const struct mr_bytes *words, size_t n,
                struct mr_buf *out)
{
    const struct mr_command *d = mr_command_find(words[0]);
    struct mr_call inner = *l->call;
    const char *no;

    if (!d || !mr_command_fits(d, n) || (d->flags & MR_NO_LUA))
        abort(); /* the C function is wrong */
    no = refusal(l, d);
    if (no) {
        mr_put(out, no, strlen(no));
        return;
    }
    l->wrote = l->wrote || (d->flags & MR_WRITES);
    inner.argv = words;
    inner.argc = n;
    inner.out = out;
    inner.in_script = true;
    d->run(&inner);
    l->call->changed = inner.changed;
    l->call->added = inner.added;
    l->call->n_added = inner.n_added;
    l->call->added_room = inner.added_room;
}

struct mr_reply mr_lua_call(struct mr_lua *l, const char *statement,
                            bool protect, size_t n,
                            const struct mr_bytes *words)
{
    struct mr_buf out = {0};
    struct mr_reply r = {0};

    if (l->failed)
        return r;
    run(l, words, n, &out);
    if (mr_reply_read(out.data, out.n, &r) != (long)out.n)
        abort();
    free(out.data);
    if (r.kind == MR_R_ERROR && !protect) {
        mr_out_error(l->call->out, "%s script: %s, on @user_script:%d.",
                     r.text.data, l->script->sha,
                     line_of(l->script, statement));
        l->failed = true;
        mr_reply_free(&r);
    }
    return r;
}

/* --- what Lua does with texts and numbers --------------------------------- */

struct mr_bytes mr_lua_word(double value, char room[MR_NUMBER_MAX])
{
    return (struct mr_bytes){
        room, (size_t)snprintf(room, MR_NUMBER_MAX, "%.17g", value)};
}

bool mr_lua_number(struct mr_bytes b, double *value)
{
    char *end;

    if (!b.data)
        return false;
    double read = strtod(b.data, &end);

    if (end == b.data)
        return false;
    while (isspace((unsigned char)*end))
        end++;
    *value = read;
    return !*end;
}

static size_t word_at(struct mr_bytes b, size_t from)
{
    size_t n = 0;

    while (from + n < b.n && !isspace((unsigned char)b.data[from + n]))
        n++;
    return n;
}

bool mr_lua_pair(struct mr_bytes b, bool last, struct mr_bytes part[2])
{
    for (size_t at = 0; at <= (last ? b.n : 0); at++) {
        size_t n = word_at(b, at);
        size_t second = at + n + 1;
        size_t m = n > 0 && second < b.n && b.data[at + n] == ' '
                       ? word_at(b, second)
                       : 0;

        if (m == 0 || (last && second + m != b.n))
            continue;
        part[0] = (struct mr_bytes){b.data + at, n};
        part[1] = (struct mr_bytes){b.data + second, m};
        return true;
    }
    return false;
}

void mr_lua_time(const struct mr_lua *l, double *s, double *us)
{
    *s = (double)(l->call->clock_us / 1000000);
    *us = (double)(l->call->clock_us % 1000000);
}

/* --- EVAL, EVALSHA, SCRIPT ------------------------------------------------ */

/* Reads the number of keys. Returns false if that was answered. */
static bool read_keys(struct mr_call *call, long long *n)
{
    if (!mr_read_int(call->argv[2], n)) {
        mr_out_not_int(call->out);
        return false;
    }
    if (*n > (long long)call->argc - 3) {
        mr_out_error(call->out,
                     "ERR Number of keys can't be greater than number of args");
        return false;
    }
    if (*n < 0) {
        mr_out_error(call->out, "ERR Number of keys can't be negative");
        return false;
    }
    return true;
}

static void run_script(struct mr_call *call, const struct mr_script *s,
                       size_t n_keys)
{
    struct mr_lua l = {.call = call,
                       .script = s,
                       .keys = call->argv + 3,
                       .n_keys = n_keys,
                       .args = call->argv + 3 + n_keys,
                       .n_args = call->argc - 3 - n_keys,
                       .full = !call->replay && mr_full(call->m)};

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (strcmp(known[i].sha, s->sha) == 0) {
            known[i].run(&l);
            return;
        }
    }
    mr_out_lacks(call->out, "script %s", s->sha);
}

static void eval(struct mr_call *call)
{
    long long n;

    if (!read_keys(call, &n))
        return;
    if (call->replay) { /* scripts are not replicated */
        struct mr_script s = {.text = call->argv[1]};

        sha_of(s.text, s.sha);
        run_script(call, &s, (size_t)n);
    } else {
        run_script(call, load(call->m, call->argv[1]), (size_t)n);
    }
}

static void evalsha(struct mr_call *call)
{
    const struct mr_script *s = mr_script_find(call->m, call->argv[1]);
    long long n;

    if (call->argv[1].n == 40 && !read_keys(call, &n))
        return;
    if (s)
        run_script(call, s, (size_t)n);
    else
        mr_out_error(call->out,
                     "NOSCRIPT No matching script. Please use EVAL.");
}

/* Redis compiles it; a text that is no Lua would have another answer. */
static void script_load(struct mr_call *call)
{
    mr_out_text(call->out, load(call->m, call->argv[2])->sha);
}

static void script_flush(struct mr_call *call)
{
    if (call->argc > 3 || (call->argc == 3 && !mr_is(call->argv[2], "async") &&
                           !mr_is(call->argv[2], "sync"))) {
        mr_out_error(call->out,
                     "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    mr_scripts_forget(call->m);
    mr_out_status(call->out, "OK");
}

const struct mr_command mr_script_commands[] = {
    {"eval", -3, MR_NO_LUA, eval},
    {"evalsha", -3, MR_NO_LUA, evalsha},
    {"script|flush", -2, MR_NO_LUA, script_flush},
    {"script|load", 3, MR_NO_LUA, script_load},
    {0},
};
