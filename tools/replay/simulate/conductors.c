/* See conductors.h. */
#include "tools/replay/simulate/conductors.h"

#include <inttypes.h>
#include <math.h>

void replay_conductors_set(const struct replay_conductors *c,
                           struct sim_config *config)
{
    config->conductors = (uint32_t)c->n;
    config->state_delay_us = llround(c->delay_ms * 1e3);
    config->nothing_shared = c->nothing_shared;
    config->conductors_drawn = c->drawn;
}

void replay_conductors_print(const struct sim_config *config, FILE *file)
{
    if (config->conductors <= 1)
        return;
    fprintf(file, "%" PRIu32 " conductors, requests %s; ", config->conductors,
            config->conductors_drawn ? "at random" : "in turn");
    if (config->nothing_shared)
        fputs("nothing shared\n", file);
    else
        fprintf(file, "state %g ms old\n",
                (double)config->state_delay_us / 1e3);
}

int replay_conductors_json(const struct sim_config *config,
                           const struct sim_summary *summary, json_t *json)
{
    if (config->conductors <= 1)
        return 0;
    return json_object_set_new(
        json, "conductors",
        json_pack("{s:I, s:o, s:b, s:I}", "count",
                  (json_int_t)config->conductors, "state_delay_ms",
                  config->nothing_shared
                      ? json_null()
                      : json_real((double)config->state_delay_us / 1e3),
                  "drawn", config->conductors_drawn, "crowded",
                  (json_int_t)summary->crowded));
}
