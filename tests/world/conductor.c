/* A conductor of the world: what conductor/daemon.c makes of a configuration,
 * without signals and files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "conductor/config/config.h"
#include "conductor/front/front.h"
#include "conductor/service/setup.h"
#include "tests/world/internal.h"

/* The options that differ from the defaults. */
static int configure(struct config *c, const char *secret_file,
                     char err[CONFIG_ERROR_MAX])
{
    const char *const settings[][2] = {
        {"secret_file", secret_file},
        {"listen", "10.0.0.1:8080"},
        {"worker_listen", "10.0.0.1:8081"},
        {"block_tokens", WORLD_BLOCK_TOKENS_TEXT},
        {"cost_model", WORLD_COST_MODEL},
        {"seed", "1"},
    };
    int rc = 0;

    config_defaults(c);
    for (size_t i = 0; rc == 0 && i < sizeof(settings) / sizeof(settings[0]);
         i++)
        rc = config_set(c, settings[i][0], settings[i][1], err);
    return rc ? rc : config_check(c, err);
}

static int open_front(struct world_conductor *c)
{
    struct front_options o;

    front_options_default(&o);
    o.http.host = "10.0.0.1";
    o.http.port = WORLD_HTTP_PORT;
    o.keepalive_us = c->config->keepalive_ms * 1000;
    return front_new(c->loop, c->models, &o, &c->front);
}

int world_conductor_start(struct world_conductor *c)
{
    char err[CONFIG_ERROR_MAX] = "out of memory";

    c->config = calloc(1, sizeof(*c->config));
    if (c->config && configure(c->config, c->world->secret_file, err) == 0)
        c->loop = world_join(c->world, WORLD_CONDUCTOR);
    if (c->loop)
        c->models = models_new(c->loop, c->config, err);
    if (c->models && open_front(c) == 0) {
        world_say(c->world, "conductor: starts");
        return 0;
    }
    world_violation(c->world, "conductor: cannot start: %s", err);
    world_conductor_kill(c, false);
    return -EINVAL;
}

void world_conductor_kill(struct world_conductor *c, bool off)
{
    if (c->loop)
        virtual_net_kill(c->loop, off);
    front_free(c->front);
    models_free(c->models);
    loop_free(c->loop);
    c->front = NULL;
    c->models = NULL;
    c->loop = NULL;
    if (c->config)
        config_fini(c->config);
    free(c->config);
    c->config = NULL;
}
