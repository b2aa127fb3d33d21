/* Executes a command: finds it, checks what Redis checks before any command,
 * and what commands use to look at keys. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define ARGS_SHOWN 128 /* bytes of arguments in an error */
#define NAME_MAX_BYTES 32

static const struct mr_command *const tables[] = {
    mr_key_commands,    mr_hash_commands,   mr_zset_commands,
    mr_stream_commands, mr_script_commands, mr_server_commands,
    mr_fault_commands};

/* Commands that have commands of their own: "script|load". */
static const char *const containers[] = {"script", "config"};

static const char *container_of(struct mr_bytes word)
{
    for (size_t i = 0; i < sizeof(containers) / sizeof(*containers); i++)
        if (mr_is(word, containers[i]))
            return containers[i];
    return NULL;
}

static const struct mr_command *find_name(const char *name)
{
    for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
        for (const struct mr_command *d = tables[t]; d->name; d++)
            if (strcasecmp(d->name, name) == 0)
                return d;
    return NULL;
}

const struct mr_command *mr_command_find(struct mr_bytes name)
{
    return strlen(name.data) == name.n ? find_name(name.data) : NULL;
}

static const struct mr_command *find_within(const char *container,
                                            struct mr_bytes word)
{
    char name[NAME_MAX_BYTES];

    snprintf(name, sizeof(name), "%s|%s", container, word.data);
    return strlen(word.data) == word.n ? find_name(name) : NULL;
}

bool mr_command_fits(const struct mr_command *d, size_t argc)
{
    return d->arity < 0 ? argc >= (size_t)-d->arity : argc == (size_t)d->arity;
}

static void out_arity(struct mr_call *call, const char *name)
{
    mr_out_error(call->out, "ERR wrong number of arguments for '%s' command",
                 name);
}

static void out_unknown(struct mr_call *call)
{
    char args[ARGS_SHOWN + 8] = "";
    size_t n = 0;

    for (size_t i = 1; i < call->argc && n < ARGS_SHOWN; i++)
        n += (size_t)snprintf(args + n, sizeof(args) - n, "'%.*s' ",
                              (int)(ARGS_SHOWN - n), call->argv[i].data);
    mr_out_error(call->out,
                 "ERR unknown command '%.128s', with args beginning with: %s",
                 call->argv[0].data, args);
    call->m->counts.unknown++;
}

static void out_unknown_within(struct mr_call *call, const char *container)
{
    char shown[NAME_MAX_BYTES];
    size_t n = 0;

    for (; container[n]; n++)
        shown[n] = (char)toupper((unsigned char)container[n]);
    shown[n] = '\0';
    mr_out_error(call->out, "ERR unknown subcommand '%.128s'. Try %s HELP.",
                 call->argv[1].data, shown);
    call->m->counts.unknown++;
}

/* Finds it, or answers and returns NULL. */
static const struct mr_command *find(struct mr_call *call)
{
    const char *container = container_of(call->argv[0]);
    const struct mr_command *d;

    if (container && call->argc == 1) {
        out_arity(call, container);
        return NULL;
    }
    d = container ? find_within(container, call->argv[1])
                  : mr_command_find(call->argv[0]);
    if (d && mr_command_fits(d, call->argc))
        return d;
    if (d)
        out_arity(call, d->name);
    else if (container)
        out_unknown_within(call, container);
    else
        out_unknown(call);
    return NULL;
}

/* Checks whether it may run now; otherwise answers and returns false. */
static bool may_run(struct mr_call *call, const struct mr_command *d)
{
    struct mr *m = call->m;

    if (call->replay)
        return true;
    if (call->c && !call->c->known && !(d->flags & MR_OPEN)) {
        mr_out_error(call->out, "NOAUTH Authentication required.");
        return false;
    }
    if (mr_full(m) && (d->flags & MR_GROWS)) {
        mr_out_error(call->out, "OOM command not allowed when used memory > "
                                "'maxmemory'.");
        return false;
    }
    if (m->role == MR_REPLICA && (d->flags & MR_WRITES)) {
        mr_out_error(call->out,
                     "READONLY You can't write against a read only replica.");
        return false;
    }
    if (m->role == MR_LOADING && !(d->flags & MR_LOADS)) {
        mr_out_error(call->out,
                     "LOADING Redis is loading the dataset in memory");
        return false;
    }
    return true;
}

void mr_execute(struct mr_call *call)
{
    size_t began = call->out->n;
    const struct mr_command *d = find(call);

    if (d && may_run(call, d))
        d->run(call);
    if (call->replay)
        return;
    call->m->counts.commands++;
    if (call->out->n > began && call->out->data[began] == '-') {
        call->m->counts.errors++;
        call->m->counts.unknown += strncmp(call->out->data + began, mr_lacks(),
                                           strlen(mr_lacks())) == 0;
    }
}

void mr_call_end(struct mr_call *call)
{
    for (size_t i = 0; i < call->n_added; i++)
        mr_bytes_free(call->added[i]);
    free(call->added);
    call->added = NULL;
    call->n_added = 0;
}

/* --- what commands use ---------------------------------------------------- */

int64_t mr_call_ms(const struct mr_call *call)
{
    return call->clock_us / 1000;
}

/* A replica is told of a key that is over. */
struct mr_key *mr_look(struct mr_call *call, struct mr_bytes name)
{
    struct mr_key *k = mr_data_find(call->data, call->database, name);

    if (!k)
        return NULL;
    if (k->expires_ms != MR_MS_NONE && k->expires_ms < mr_call_ms(call)) {
        if (!call->replay) {
            call->m->counts.expired++;
            mr_write_del(call->m, call->database, k, call->clock_us);
        }
        mr_data_remove(call->data, call->database, k);
        return NULL;
    }
    k->used = call->m->counts.commands;
    return k;
}

bool mr_look_for(struct mr_call *call, struct mr_bytes name, enum mr_kind kind,
                 struct mr_key **k)
{
    *k = mr_look(call, name);
    if (!*k || (*k)->kind == kind)
        return true;
    mr_out_wrong_type(call->out);
    return false;
}

void mr_remove(struct mr_call *call, struct mr_key *k)
{
    mr_data_remove(call->data, call->database, k);
    call->changed = true;
}

void mr_changed(struct mr_call *call, struct mr_key *k)
{
    mr_data_count(call->data, k);
    k->used = call->m->counts.commands;
    call->changed = true;
}
