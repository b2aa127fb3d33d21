/* conductor-worker: one engine process under a conductor. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/listener.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "base/options.h"
#include "predictor/cost_model_json.h"
#include "workers/engine/model.h"
#include "workers/engine/profile.h"
#include "workers/memory.h"
#include "workers/service/worker.h"
#include "workers/step/alone.h"
#include "workers/trust.h"

/* Connections from and to other workers, and the worker's own files. */
#define DESCRIPTORS_MIN 640
#define SAY_WEIGHTS_BYTES (256u << 20)

/* Prints a message about the command line. */
#define usage(...) options_complain("conductor-worker", __VA_ARGS__)

static void on_signal(void *arg, unsigned number)
{
    log_info("signal %d: leaving", (int)number);
    worker_leave(*(struct worker **)arg);
}

/* Nothing to reload, and losing the terminal must not end the worker. */
static void on_hangup(void *, unsigned)
{
    log_warn("SIGHUP is ignored");
}

/* Runs the worker until a signal, a lost engine, or the last conductor's
 * refusal. */
static int serve(const struct worker_options *o, const struct secret *secret,
                 struct engine *engine, const struct cost_model *cost)
{
    char err[512] = "out of memory";
    int status = EXIT_FAILURE;
    struct loop *loop = loop_new();
    struct loop_watch term = {0};
    struct loop_watch intr = {0};
    struct loop_watch hup = {0};
    struct worker *w = NULL;

    if (!loop)
        goto done;
    loop_signal_init(loop, &term, SIGTERM, on_signal, &w);
    loop_signal_init(loop, &intr, SIGINT, on_signal, &w);
    loop_signal_init(loop, &hup, SIGHUP, on_hangup, NULL);
    /* The signals stay ignored when a watch has stopped: one more must not kill
     * a program that is ending. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    if (loop_watch_start(&term, 0) || loop_watch_start(&intr, 0) ||
        loop_watch_start(&hup, 0))
        goto done;
    w = worker_new(loop, o, secret, engine, cost, err, sizeof(err));
    if (!w)
        goto done;
    loop_run(loop);
    status = worker_exit_status(w);
    err[0] = '\0';
done:
    if (err[0])
        log_error("%s", err);
    worker_free(w);
    loop_watch_stop(&term);
    loop_watch_stop(&intr);
    loop_watch_stop(&hup);
    loop_free(loop);
    return status;
}

static void on_progress(void *arg, uint32_t done, uint32_t of)
{
    bool terminal = *(const bool *)arg;

    /* On a terminal one changing line, else ten lines in all. */
    if (terminal)
        fprintf(stderr, "\rprofiling: %u of %u%s", done, of,
                done == of ? "\n" : "");
    else if (done == of || done % ((of + 9) / 10) == 0)
        fprintf(stderr, "profiling: %u of %u\n", done, of);
}

static int time_prefill(void *arg, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t *cached_tokens, double *us)
{
    return step_alone_prefill(arg, tokens, n_tokens, cached_tokens, us);
}

static int run_step(void *arg, struct engine_segment *segments, uint32_t n)
{
    return step_alone_step(arg, segments, n);
}

/* Times the engine in the step loop that serves, into `out`. */
static int profile_into(FILE *out, const struct worker_options *o,
                        struct engine *engine, char *err, size_t err_bytes)
{
    const struct engine_kv_layout *layout = engine_kv_layout(engine);
    bool terminal = isatty(STDERR_FILENO);
    struct profile_way way = {.prefill = time_prefill, .step = run_step};
    struct profile_config config = {
        .model = o->model,
        .seed = o->seed,
        .max_batch = o->max_batch,
        .max_tokens = layout->window_tokens < PROFILE_DEFAULT_TOKENS
                          ? layout->window_tokens
                          : PROFILE_DEFAULT_TOKENS,
        .way = &way,
    };
    /* Blocks for one cached prompt and one more. */
    uint32_t n_blocks = 2 * (config.max_tokens / layout->block_tokens + 1);

    snprintf(err, err_bytes, "out of memory");
    way.arg = step_alone_new(engine, n_blocks, o->max_batch);
    int rc = way.arg ? profile_run(engine, &config, out, on_progress, &terminal,
                                   err, err_bytes)
                     : -ENOMEM;
    step_alone_free(way.arg);
    return rc;
}

/* Profiles into a file, which is removed on failure. */
static int profile(const struct worker_options *o, struct engine *engine)
{
    char err[512] = "cannot write the file";
    FILE *out = fopen(o->profile, "w");

    if (!out)
        return usage("--profile %s: %s", o->profile, strerror(errno));
    int rc = profile_into(out, o, engine, err, sizeof(err));
    if (fclose(out) != 0 && rc == 0) {
        rc = -errno;
        snprintf(err, sizeof(err), "%s", strerror(-rc));
    }
    if (rc == 0)
        return EXIT_SUCCESS;
    usage("--profile %s: %s", o->profile, err);
    remove(o->profile);
    return EXIT_FAILURE;
}

/* Checks the memory; logs that large weights take a while. */
static int check_memory(const struct worker_options *o,
                        const struct engine_kv_layout *layout,
                        const struct engine_needs *needs)
{
    char err[512];

    if (worker_memory_check(o, layout, needs, worker_memory_of_machine(), err,
                            sizeof(err)) < 0) {
        log_error("%s", err);
        return -1;
    }
    if (needs->weights_bytes >= SAY_WEIGHTS_BYTES)
        log_info("making %.1f GiB of weights of %s",
                 (double)needs->weights_bytes / 0x1p30, o->model);
    return 0;
}

/* Makes the engine, and serves or profiles. Returns the exit status. */
static int run(const struct worker_options *o, const struct secret *secret,
               const struct engine_config *config)
{
    char err[512];
    struct engine_kv_layout layout;
    struct engine_needs needs;

    if (engine_plan(config, &layout, &needs, err, sizeof(err)) < 0)
        return usage("%s", err);
    if (check_memory(o, &layout, &needs) < 0)
        return EXIT_FAILURE;
    struct engine *engine = engine_new(config, err, sizeof(err));
    if (!engine)
        return usage("%s", err);
    int status = o->profile ? profile(o, engine)
                            : serve(o, secret, engine, config->cost);
    engine_free(engine);
    return status;
}

int main(int argc, char **argv)
{
    struct worker_options o;
    struct cost_model cost;
    char err[512];
    int status;

    signal(SIGHUP, SIG_IGN); /* until serve() logs it: weights take a while */
    signal(SIGPIPE, SIG_IGN);
    /* Under a file size limit (ulimit -f), writes then fail instead of killing
     * the worker. */
    signal(SIGXFSZ, SIG_IGN);
    if (worker_options_parse(argc, argv, &o, &status))
        return status;
    log_init("worker", o.log_level);
    log_set_format(o.log_format);
    const struct model_shape *shape = model_find(o.model);
    if (o.layers > shape->layers)
        return usage("--layers %u: model %s has %u layers", o.layers,
                     shape->name, shape->layers);
    if (o.cost_model &&
        cost_model_load_file(o.cost_model, &cost, err, sizeof(err)) < 0)
        return usage("--cost-model: %s", err);
    if (o.cost_model && cost.block_tokens &&
        cost.block_tokens != o.block_tokens)
        return usage("--cost-model %.150s: was fitted for blocks of %lld "
                     "tokens, but --block-tokens is %u",
                     o.cost_model, (long long)cost.block_tokens,
                     o.block_tokens);
    struct engine_config config = {
        .kind = o.engine,
        .shape = shape,
        .seed = o.seed,
        .block_tokens = o.block_tokens,
        .layers = o.layers,
        .step_tokens = o.step_tokens,
        .device_kv_bytes = (uint64_t)o.device_kv_mib << 20,
        .cost = o.cost_model ? &cost : NULL,
        .speed = o.engine_speed,
        .prefill_sigma = o.prefill_error_sigma,
        .decode_sigma = o.decode_error_sigma,
    };
    struct secret *secret = NULL;
    if (!o.profile && worker_trust(&o, &secret, err, sizeof(err)) < 0)
        return usage("%s", err);
    if (!o.profile && descriptors_raise() < DESCRIPTORS_MIN)
        log_warn("fewer than %d files may be open (ulimit -n): peers may have "
                 "to wait",
                 DESCRIPTORS_MIN);
    status = run(&o, secret, &config);
    secret_free(secret);
    return status;
}
