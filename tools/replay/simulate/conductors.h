/* Options of subcommands for several conductors: how many, and when each hears
 * of the others' requests. */
#ifndef TOOLS_REPLAY_SIMULATE_CONDUCTORS_H
#define TOOLS_REPLAY_SIMULATE_CONDUCTORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/sim.h"
#include "tools/replay/options.h"

/* The options' values, initially REPLAY_CONDUCTORS_DEFAULT. */
struct replay_conductors {
    uint64_t n;
    double delay_ms;
    bool nothing_shared;
    bool drawn;
};

#define REPLAY_CONDUCTORS_DEFAULT \
    {                             \
        .n = 1, .delay_ms = 5     \
    }

/* How they appear in a subcommand's table. */
#define REPLAY_CONDUCTOR_SPECS(o)                                              \
    OPTION_SPEC("conductors", OPTION_COUNT, &(o).n, "N", 1,                    \
                SIM_CONDUCTORS_MAX,                                            \
                "number of conductors; requests go to them in turn, and each " \
                "has its own view (default 1)"),                               \
        OPTION_SPEC(                                                           \
            "state-delay", OPTION_NUMBER, &(o).delay_ms, "MS", 0,              \
            (double)SIM_STATE_DELAY_MAX_US / 1e3,                              \
            "milliseconds until a conductor learns another's decisions "       \
            "(default 5)"),                                                    \
        OPTION_SPEC("nothing-shared", OPTION_FLAG, &(o).nothing_shared, NULL,  \
                    0, 0, "conductors do not learn each other's decisions"),   \
        OPTION_SPEC("conductors-drawn", OPTION_FLAG, &(o).drawn, NULL, 0, 0,   \
                    "requests go to conductors at random, not in turn")

/* Copies the options to a simulation's configuration. */
void replay_conductors_set(const struct replay_conductors *c,
                           struct sim_config *config);

/* Prints a line about the conductors, if there are several. */
void replay_conductors_print(const struct sim_config *config, FILE *file);

/* Adds "conductors" to a report, if there are several. Returns 0 or -1. */
[[nodiscard]] int replay_conductors_json(const struct sim_config *config,
                                         const struct sim_summary *summary,
                                         json_t *json);

#endif
