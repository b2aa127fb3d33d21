/* FAULT NAME [VALUE...]: the faults of mr.h as commands, where the options
 * allow them: for tests that have the model behind a port. */
#include "tests/world/redis/internal.h"

static long long value_of(const struct mr_call *call, size_t i)
{
    long long n;

    return i < call->argc && mr_read_int(call->argv[i], &n) ? n : 0;
}

static void jump(struct mr_call *call)
{
    call->m->clock_us += value_of(call, 2) * 1000; /* mr_tick() follows */
}

static void restart(struct mr_call *call)
{
    mr_restart(call->m);
}

static void fail_over(struct mr_call *call)
{
    mr_fail_over(call->m, (unsigned)value_of(call, 2));
}

static void evict(struct mr_call *call)
{
    mr_evict(call->m, "allkeys-random", (unsigned)value_of(call, 2));
}

static void slow(struct mr_call *call)
{
    mr_set_slow(call->m, value_of(call, 2));
}

static void stall(struct mr_call *call)
{
    mr_stall(call->m, call->m->now_us + value_of(call, 2) * 1000);
}

static void role(struct mr_call *call)
{
    mr_set_role(call->m, (enum mr_role)(value_of(call, 2) % 3));
}

static const struct {
    const char *name; /* with the value's meaning */
    void (*run)(struct mr_call *call);
} faults[] = {
    {"jump", jump},           /* ms, of the clock */
    {"restart", restart},     /* empty */
    {"fail-over", fail_over}, /* writes that are lost */
    {"evict", evict},         /* keys */
    {"slow", slow},           /* us, each command */
    {"stall", stall},         /* ms */
    {"role", role},           /* 0 = primary, 1 = replica, 2 = it loads */
};

static void fault(struct mr_call *call)
{
    for (size_t i = 0;
         call->m->options.faults && i < sizeof(faults) / sizeof(*faults); i++) {
        if (!mr_is(call->argv[1], faults[i].name))
            continue;
        faults[i].run(call);
        mr_out_status(call->out, "OK");
        return;
    }
    mr_out_lacks(call->out, "fault %s", call->argv[1].data);
}

const struct mr_command mr_fault_commands[] = {
    {"fault", -2, MR_OPEN | MR_LOADS, fault},
    {0},
};
