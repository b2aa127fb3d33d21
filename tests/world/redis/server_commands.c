/* Commands about the server and the connection. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

static void ping(struct mr_call *call)
{
    if (call->argc > 2)
        mr_out_error(call->out,
                     "ERR wrong number of arguments for 'ping' command");
    else if (call->argc == 2)
        mr_out_bulk(call->out, call->argv[1]);
    else
        mr_out_status(call->out, "PONG");
}

static void echo(struct mr_call *call)
{
    mr_out_bulk(call->out, call->argv[1]);
}

/* The only user is "default". */
static void auth(struct mr_call *call)
{
    const char *right = call->m->password;
    struct mr_bytes given = call->argv[call->argc - 1];

    if (call->argc > 3) {
        mr_out_syntax(call->out);
        return;
    }
    if (call->argc == 2 && !right) {
        mr_out_error(call->out,
                     "ERR AUTH <password> called without any password "
                     "configured for the default user. Are you sure your "
                     "configuration is correct?");
        return;
    }
    if ((call->argc == 3 &&
         !mr_bytes_equal(call->argv[1], MR_LIT("default"))) ||
        (right && !mr_bytes_equal(given, mr_bytes_of(right)))) {
        mr_out_error(call->out, "WRONGPASS invalid username-password pair or "
                                "user is disabled.");
        return;
    }
    if (call->c)
        call->c->known = true;
    mr_out_status(call->out, "OK");
}

static void select_database(struct mr_call *call)
{
    long long n;

    if (!mr_read_int(call->argv[1], &n)) {
        mr_out_not_int(call->out);
        return;
    }
    if (n < INT32_MIN || n > INT32_MAX) {
        mr_out_error(call->out, "ERR value is out of range, value must between "
                                "-2147483648 and 2147483647");
        return;
    }
    if (n < 0 || n >= MR_DATABASES) {
        mr_out_error(call->out, "ERR DB index is out of range");
        return;
    }
    if (call->c)
        call->c->database = (unsigned)n;
    mr_out_status(call->out, "OK");
}

/* It has no replicas that anybody sees. */
static void role(struct mr_call *call)
{
    if (call->m->role == MR_REPLICA) {
        mr_out_array(call->out, 5);
        mr_out_text(call->out, "slave");
        mr_out_text(call->out, "127.0.0.1");
        mr_out_int(call->out, 1);
        mr_out_text(call->out, "connect");
        mr_out_int(call->out, -1);
        return;
    }
    mr_out_array(call->out, 3);
    mr_out_text(call->out, "master");
    mr_out_int(call->out, 0);
    mr_out_array(call->out, 0);
}

static void time_of(struct mr_call *call)
{
    char text[MR_NUMBER_MAX];

    mr_out_array(call->out, 2);
    snprintf(text, sizeof(text), "%" PRId64, call->clock_us / 1000000);
    mr_out_text(call->out, text);
    snprintf(text, sizeof(text), "%" PRId64, call->clock_us % 1000000);
    mr_out_text(call->out, text);
}

static void set_max(struct mr_call *call, struct mr_bytes value)
{
    long long bytes;

    if (mr_read_int(value, &bytes) && bytes >= 0) {
        call->m->max_bytes = (uint64_t)bytes;
        mr_out_status(call->out, "OK");
    } else {
        mr_out_lacks(call->out, "maxmemory with a unit");
    }
}

static void config_set(struct mr_call *call)
{
    struct mr_bytes value = call->argv[3];
    const char *policy = mr_policy_find(value.data);

    if (call->argc > 4) {
        mr_out_lacks(call->out, "CONFIG SET of several options");
    } else if (mr_is(call->argv[2], "maxmemory")) {
        set_max(call, value);
    } else if (!mr_is(call->argv[2], "maxmemory-policy")) {
        mr_out_lacks(call->out, "CONFIG SET of %s", call->argv[2].data);
    } else if (policy) {
        call->m->policy = policy;
        mr_out_status(call->out, "OK");
    } else {
        mr_out_error(call->out,
                     "ERR CONFIG SET failed (possibly related to argument "
                     "'%s') - argument(s) must be one of the following: %s",
                     call->argv[2].data, mr_policy_names);
    }
}

const struct mr_command mr_server_commands[] = {
    {"auth", -2, MR_OPEN | MR_LOADS, auth},
    {"config|set", -4, MR_LOADS, config_set},
    {"echo", 2, MR_LOADS, echo},
    {"ping", -1, 0, ping},
    {"role", 1, MR_LOADS, role},
    {"select", 2, MR_LOADS, select_database},
    {"time", 1, MR_LOADS, time_of},
    {0},
};
