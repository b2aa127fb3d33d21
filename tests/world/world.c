/* The time and the net of the world, its log, and the course of a play. */
#include "tests/world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conductor/front/front.h"
#include "predictor/cost_model_json.h"
#include "tests/world/internal.h"

#define LINE_MAX_BYTES 512
/* Patience after the last fault: connections end, workers come back. */
#define ANSWER_US (600 * WORLD_SECOND_US)
#define SETTLE_US (60 * WORLD_SECOND_US)

int64_t world_now_us(const struct world *w)
{
    return virtual_time_us(w->time);
}

uint32_t world_pick(struct world *w, uint32_t bound)
{
    return random_below(&w->random, bound);
}

/* Adds a line to the digest (FNV-1a) and to the log. */
static void add_line(struct world *w, const char *kind, const char *format,
                     va_list args)
{
    char line[LINE_MAX_BYTES];
    int n =
        snprintf(line, sizeof(line), "%" PRId64 " %s", world_now_us(w), kind);

    vsnprintf(line + n, sizeof(line) - (size_t)n, format, args);
    for (const char *c = line; *c; c++)
        w->result->digest =
            (w->result->digest ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    if (w->options.log)
        fprintf(w->options.log, "%s\n", line);
}

void world_say(struct world *w, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_line(w, "", format, args);
    va_end(args);
}

void world_violation(struct world *w, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_line(w, "VIOLATION: ", format, args);
    va_end(args);
    w->result->violations++;
}

struct loop *world_join(struct world *w, uint32_t address)
{
    struct loop *loop = virtual_loop_new(w->time);

    if (loop && virtual_net_join(w->net, loop, address)) {
        loop_free(loop);
        loop = NULL;
    }
    return loop;
}

/* --- making and freeing ----------------------------------------------------
 */

static uint32_t drawn(void *arg)
{
    return (uint32_t)random_u64(arg);
}

static int make_net(struct world *w)
{
    const struct virtual_net_options options = {
        .link = {.latency_us = 1 + world_pick(w, 1000),
                 .jitter_us = world_pick(w, 500),
                 .bytes_per_s = UINT64_C(1000000) << world_pick(w, 8)},
        .buffer_bytes = 1u << (10 + world_pick(w, 7)),
        .accept_max = 16,
        .sockets_max = 1024,
        .torn_of_256 = world_pick(w, 128)};

    w->time = virtual_time_new(0, drawn, &w->ties);
    w->net = w->time ? virtual_net_new(w->time, &options,
                                       1 + WORLD_WORKERS + WORLD_CLIENTS)
                     : NULL;
    return w->net ? 0 : -ENOMEM;
}

/* Writes what conductor and workers prove to each other. */
static int make_secret(struct world *w)
{
    static const char text[] = "the same in each world, and not secret\n";

    strcpy(w->secret_file, "/tmp/world-XXXXXX");
    int fd = mkstemp(w->secret_file);
    if (fd < 0) {
        w->secret_file[0] = '\0';
        return -errno;
    }
    ssize_t n = write(fd, text, sizeof(text) - 1);
    close(fd);
    return n == sizeof(text) - 1 ? 0 : -EIO;
}

static int make(struct world *w)
{
    char err[512];

    if (make_net(w) || make_secret(w))
        return -ENOMEM;
    if (cost_model_load_file(WORLD_COST_MODEL, &w->cost, err, sizeof(err))) {
        world_violation(w, "%s", err);
        return -ENOMEM;
    }
    w->reference = reference_new(&w->cost);
    if (!w->reference || world_faults_start(w))
        return -ENOMEM;
    w->conductor.world = w;
    if (world_conductor_start(&w->conductor))
        return -ENOMEM;
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        w->workers[i].world = w;
        w->workers[i].i = i;
        if (world_worker_start(&w->workers[i]))
            return -ENOMEM;
    }
    for (uint32_t i = 0; i < WORLD_CLIENTS; i++) {
        w->clients[i] = world_client_new(w, i);
        if (!w->clients[i])
            return -ENOMEM;
    }
    return 0;
}

static void unmake(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
        world_client_free(w->clients[i]);
    for (uint32_t i = 0; i < WORLD_WORKERS; i++)
        world_worker_kill(&w->workers[i], false);
    world_conductor_kill(&w->conductor, false);
    loop_timer_stop(&w->next);
    loop_timer_stop(&w->mend);
    for (uint32_t i = 0; i < WORLD_WORKERS; i++)
        loop_timer_stop(&w->restart[i]);
    loop_free(w->hand);
    if (*w->secret_file)
        remove(w->secret_file);
    reference_free(w->reference);
    virtual_net_free(w->net);
    virtual_time_free(w->time);
    free(w);
}

/* --- the play --------------------------------------------------------------
 */

static void run_until(struct world *w, int64_t until_us)
{
    while (virtual_time_step(w->time, until_us))
        ;
}

static bool all_quiet(const struct world *w)
{
    for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
        if (!world_client_quiet(w->clients[i]))
            return false;
    return true;
}

/* Lets all requests end. */
static void run_quiet(struct world *w)
{
    int64_t until_us = world_now_us(w) + ANSWER_US;

    while (!all_quiet(w) && virtual_time_step(w->time, until_us))
        ;
    for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
        if (!world_client_quiet(w->clients[i]))
            world_violation(w, "client %u: no answer", i);
}

static void check_conductor(struct world *w)
{
    size_t n = front_in_flight(w->conductor.front);

    if (n > 0)
        world_violation(w, "the conductor holds %zu requests of nobody", n);
    if (!front_drained(w->conductor.front))
        world_violation(w, "the conductor has answers that nobody reads");
}

static void play(struct world *w)
{
    run_until(w, w->until_us);
    world_faults_end(w);
    run_quiet(w);
    run_until(w, world_now_us(w) + SETTLE_US);
    world_say(w, "all is quiet, the last requests follow");
    for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
        world_client_last(w->clients[i]);
    run_quiet(w);
    run_until(w, world_now_us(w) + SETTLE_US);
    check_conductor(w);
    virtual_net_check(w->net);
}

int world_play(const struct world_options *options, struct world_result *result)
{
    struct world *w = calloc(1, sizeof(*w));
    int rc;

    *result = (struct world_result){.digest = UINT64_C(0xcbf29ce484222325)};
    if (!w)
        return -ENOMEM;
    w->options = *options;
    w->result = result;
    w->until_us = options->busy_us;
    random_init(&w->random, options->seed);
    random_init(&w->ties, random_mix(options->seed));
    w->think_us = WORLD_SECOND_US / (1 + world_pick(w, 10));
    rc = make(w);
    if (rc == 0)
        play(w);
    result->us = w->time ? world_now_us(w) : 0;
    unmake(w);
    return rc;
}
