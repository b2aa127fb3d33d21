/* A worker of the world: what workers/main.c makes of a command line. */
#include "workers/service/worker.h"

#include <errno.h>
#include <stdio.h>

#include "base/secret.h"
#include "tests/world/internal.h"
#include "workers/engine/model.h"
#include "workers/trust.h"

/* A little more than a request needs, so that requests wait for room and blocks
 * are evicted; or plenty. */
#define BLOCKS_MIN 40
#define BLOCKS_MORE 160

static int parse(struct world_worker *w)
{
    char blocks[16];
    char *argv[] = {"conductor-worker",
                    "--conductor",
                    "10.0.0.1:8081",
                    "--listen",
                    w->address,
                    "--name",
                    w->name,
                    "--engine",
                    "timed",
                    "--cost-model",
                    WORLD_COST_MODEL,
                    "--block-tokens",
                    WORLD_BLOCK_TOKENS_TEXT,
                    "--kv-blocks",
                    blocks,
                    "--secret-file",
                    w->world->secret_file,
                    "--transports",
                    "tcp",
                    NULL};
    int status;

    snprintf(blocks, sizeof(blocks), "%u",
             BLOCKS_MIN + world_pick(w->world, BLOCKS_MORE));
    snprintf(w->name, sizeof(w->name), "w%u", w->i);
    snprintf(w->address, sizeof(w->address), "10.0.0.%u:7000", 10 + w->i);
    return worker_options_parse((int)(sizeof(argv) / sizeof(argv[0])) - 1, argv,
                                &w->options, &status);
}

static struct engine *make_engine(const struct world_worker *w, char *err,
                                  size_t err_bytes)
{
    const struct worker_options *o = &w->options;
    const struct engine_config config = {.kind = o->engine,
                                         .shape = model_find(o->model),
                                         .seed = o->seed,
                                         .block_tokens = o->block_tokens,
                                         .step_tokens = o->step_tokens,
                                         .cost = &w->world->cost,
                                         .speed = o->engine_speed};

    return engine_new(&config, err, err_bytes);
}

int world_worker_start(struct world_worker *w)
{
    char err[512] = "out of memory";

    if (parse(w) == 0)
        w->loop = world_join(w->world, WORLD_WORKER + w->i);
    if (w->loop)
        w->engine = make_engine(w, err, sizeof(err));
    if (w->engine &&
        worker_trust(&w->options, &w->secret, err, sizeof(err)) == 0)
        w->worker = worker_new(w->loop, &w->options, w->secret, w->engine,
                               &w->world->cost, err, sizeof(err));
    if (w->worker) {
        world_say(w->world, "%s: starts", w->name);
        return 0;
    }
    world_violation(w->world, "%s: cannot start: %s", w->name, err);
    world_worker_kill(w, false);
    return -EINVAL;
}

void world_worker_kill(struct world_worker *w, bool off)
{
    if (w->loop)
        virtual_net_kill(w->loop, off);
    worker_free(w->worker);
    engine_free(w->engine);
    secret_free(w->secret);
    loop_free(w->loop);
    w->worker = NULL;
    w->engine = NULL;
    w->secret = NULL;
    w->loop = NULL;
}
