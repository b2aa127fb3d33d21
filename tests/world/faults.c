/* The faults of a world: its seed draws them for processes and links. */
#include <stdlib.h>

#include "tests/world/internal.h"

#define EVERY_US (2 * WORLD_SECOND_US) /* in the mean */

static int64_t pick_us(struct world *w, int64_t max_us)
{
    return 1 + (int64_t)world_pick(w, (uint32_t)max_us);
}

/* Clients' connections may break from now on. */
static void breaks(struct world *w)
{
    w->broke_us = world_now_us(w);
}

static void start_in(struct world *w, struct loop_timer *t, int64_t us)
{
    if (!loop_timer_pending(t) && loop_timer_start(t, us))
        world_violation(w, "out of memory");
}

/* --- the faults ------------------------------------------------------------
 */

static void kill_worker(struct world *w)
{
    uint32_t i = world_pick(w, WORLD_WORKERS);
    bool off = world_pick(w, 3) == 0;

    if (!w->workers[i].loop)
        return;
    world_say(w, "fault: w%u is killed%s", i, off ? ", with its machine" : "");
    world_worker_kill(&w->workers[i], off);
    start_in(w, &w->restart[i], pick_us(w, 10 * WORLD_SECOND_US));
}

static void pause_worker(struct world *w)
{
    uint32_t i = world_pick(w, WORLD_WORKERS);
    int64_t us = pick_us(w, 15 * WORLD_SECOND_US);

    if (!w->workers[i].loop)
        return;
    world_say(w, "fault: w%u stops for %lld us", i, (long long)us);
    virtual_loop_pause(w->workers[i].loop, world_now_us(w) + us);
}

static void cut(struct world *w, uint32_t a, uint32_t b, const char *what)
{
    uint32_t ways = 1 + world_pick(w, 3);

    if (a == b)
        return;
    world_say(w, "fault: link %s of %08x and %08x is cut, ways %u", what, a, b,
              ways);
    if (ways & 1)
        virtual_net_cut(w->net, a, b, true);
    if (ways & 2)
        virtual_net_cut(w->net, b, a, true);
    start_in(w, &w->mend, pick_us(w, 20 * WORLD_SECOND_US));
}

static void cut_worker(struct world *w)
{
    cut(w, WORLD_CONDUCTOR, WORLD_WORKER + world_pick(w, WORLD_WORKERS),
        "to the conductor");
}

static void cut_workers(struct world *w)
{
    uint32_t a = world_pick(w, WORLD_WORKERS), b = world_pick(w, WORLD_WORKERS);

    cut(w, WORLD_WORKER + a, WORLD_WORKER + b, "between workers");
}

static void cut_client(struct world *w)
{
    breaks(w);
    cut(w, WORLD_CONDUCTOR, WORLD_CLIENT + world_pick(w, WORLD_CLIENTS),
        "to a client");
}

static void reset(struct world *w)
{
    breaks(w);
    if (virtual_net_reset(w->net, world_pick(w, 1000)))
        world_say(w, "fault: a connection is reset");
}

static void pause_conductor(struct world *w)
{
    int64_t us = pick_us(w, 5 * WORLD_SECOND_US);

    world_say(w, "fault: the conductor stops for %lld us", (long long)us);
    virtual_loop_pause(w->conductor.loop, world_now_us(w) + us);
}

/* It runs again a moment later. */
static void restart_conductor(struct world *w)
{
    bool off = world_pick(w, 3) == 0;

    breaks(w);
    world_say(w, "fault: the conductor is killed%s",
              off ? ", with its machine" : "");
    world_conductor_kill(&w->conductor, off);
    (void)!world_conductor_start(&w->conductor); /* a failure is a violation */
}

static void (*const faults[])(struct world *w) = {
    kill_worker, kill_worker, pause_worker,    pause_worker,
    cut_worker,  cut_workers, cut_client,      reset,
    reset,       reset,       pause_conductor, restart_conductor,
};

#define N_FAULTS (sizeof(faults) / sizeof(faults[0]))

/* --- timers ----------------------------------------------------------------
 */

static void next(struct world *w)
{
    start_in(w, &w->next, pick_us(w, 2 * EVERY_US));
}

static void on_next(void *arg)
{
    struct world *w = arg;

    if (w->conductor.loop)
        faults[world_pick(w, N_FAULTS)](w);
    w->result->faults++;
    next(w);
}

static void on_restart(void *arg)
{
    (void)!world_worker_start(arg); /* a failure is a violation */
}

/* All addresses of the net. */
static uint32_t address(uint32_t i)
{
    if (i == 0)
        return WORLD_CONDUCTOR;
    return i <= WORLD_WORKERS ? WORLD_WORKER + i - 1
                              : WORLD_CLIENT + i - 1 - WORLD_WORKERS;
}

static void on_mend(void *arg)
{
    struct world *w = arg;
    uint32_t n = 1 + WORLD_WORKERS + WORLD_CLIENTS;

    breaks(w);
    world_say(w, "all links are mended");
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++)
            if (a != b)
                virtual_net_cut(w->net, address(a), address(b), false);
}

int world_faults_start(struct world *w)
{
    w->hand = virtual_loop_new(w->time);
    if (!w->hand)
        return -1;
    loop_timer_init(w->hand, &w->next, on_next, w);
    loop_timer_init(w->hand, &w->mend, on_mend, w);
    for (uint32_t i = 0; i < WORLD_WORKERS; i++)
        loop_timer_init(w->hand, &w->restart[i], on_restart, &w->workers[i]);
    if (w->options.faults)
        next(w);
    return 0;
}

void world_faults_end(struct world *w)
{
    loop_timer_stop(&w->next);
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        if (loop_timer_pending(&w->restart[i])) {
            loop_timer_stop(&w->restart[i]);
            on_restart(&w->workers[i]);
        }
        if (w->workers[i].loop)
            virtual_loop_pause(w->workers[i].loop, 0);
    }
    if (w->conductor.loop)
        virtual_loop_pause(w->conductor.loop, 0);
    if (loop_timer_pending(&w->mend)) {
        loop_timer_stop(&w->mend);
        on_mend(w);
    }
}
