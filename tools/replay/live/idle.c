/* See idle.h. */
#include "tools/replay/live/idle.h"

#include <event2/http.h>

#include "base/array.h"
#include "base/clock.h"

/* Servers close idle connections, some after a few seconds. */
#define IDLE_MAX_US 1000000

struct evhttp_connection *replay_idle_take(struct replay_idle *idle)
{
    size_t n = idle->count;

    if (n > 0 && clock_now_us() - idle->last[n - 1].since_us < IDLE_MAX_US)
        return idle->last[--idle->count].connection;
    replay_idle_fini(idle); /* the others are older */
    return NULL;
}

struct evhttp_connection *replay_idle_keep(struct replay_idle *idle,
                                           struct evhttp_connection *one)
{
    if (array_reserve(idle->last, idle->capacity, idle->count + 1))
        return one;
    idle->last[idle->count].connection = one;
    idle->last[idle->count++].since_us = clock_now_us();
    return NULL;
}

void replay_idle_fini(struct replay_idle *idle)
{
    for (size_t i = 0; i < idle->count; i++)
        evhttp_connection_free(idle->last[i].connection);
    free(idle->last);
    *idle = (struct replay_idle){0};
}
