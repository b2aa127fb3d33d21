/* Engine "timed": SIMULATES. It has no tensors, and a step takes the time that
 * a cost model predicts, so that the step loop, the store and the transfers can
 * be loaded as on a large machine.
 *
 * Its KV is real in one respect, which matters to reuse: it depends on the
 * tokens and on the KV before them. A row is 8 bytes:
 *   K[t] = hash(K[t - 1], token t, layer), K[-1] = hash(seed)
 *   V[t] = hash(K[t])
 * and the token that is answered is a digest of the last rows and of one row in
 * every SAMPLE_TOKENS, read from the blocks. Wrong KV gives a wrong answer.
 * The digest is built layer by layer, so that the next stage of a pipeline can
 * continue it: a token passes on its id and, if it is the last one, the digest
 * so far.
 *
 * Invariants: the chunks of a prompt take together exactly prefill_us(uncached,
 * cached), times the request's factor, over the speed; the times of consecutive
 * steps do not drift. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "predictor/cost_model.h"
#include "traces/noise.h"
#include "workers/engine/impl.h"

#define SAMPLE_TOKENS 64

/* A step that begins this soon after the planned end of the last one counts
 * from there: the loop's work between steps, and late wake-ups, cost
 * nothing. */
#define CONTINUE_WITHIN_US 1000

/* How often the abort flag is checked while a layer passes. */
#define NAP_US 5000

struct timed_engine {
    struct engine loop;
    uint64_t seed;
    uint32_t n_layers;
    const struct cost_model *cost;
    double speed;
    double prefill_sigma, decode_sigma;
    int64_t busy_until_us; /* planned end of the last step */
};

static struct engine *timed_create(const struct engine_config *config,
                                   struct engine_kv_layout *, char *err,
                                   size_t err_bytes)
{
    struct timed_engine *e;

    if (!config->cost)
        return error_null(
            err, err_bytes,
            "timed: cost is missing: this engine takes its times from a "
            "cost model");
    e = calloc(1, sizeof(*e));
    if (!e)
        return error_null(err, err_bytes, "timed: %s", strerror(ENOMEM));
    e->seed = config->seed;
    e->n_layers = config->layers;
    e->cost = config->cost;
    e->speed = config->speed > 0.0 ? config->speed : 1.0;
    e->prefill_sigma = config->prefill_sigma;
    e->decode_sigma = config->decode_sigma;
    return &e->loop;
}

static void timed_destroy(struct engine *loop)
{
    free(loop);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ b) + UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t *row_at(const struct timed_engine *e,
                        const struct engine_segment *s, uint32_t token,
                        uint32_t layer, enum engine_which which)
{
    uint32_t bt = e->loop.layout.block_tokens;

    return engine_kv_row(&e->loop.layout, s->blocks[token / bt], layer, which,
                         token % bt);
}

/* Data that a token passes from layer to layer: activation_bytes. */
struct activation {
    uint64_t token;
    uint64_t digest; /* of the last token of a segment; else 0 */
};

/* Returns the n-th token of a segment, in any layer. */
static uint32_t token_at(const struct engine_segment *s,
                         const struct activation *in, uint32_t n)
{
    return s->tokens ? s->tokens[n] : (uint32_t)in[n].token;
}

/* Writes the rows of `layer`. in: activations, if the segment has no
 * tokens. */
static void write_rows(const struct timed_engine *e,
                       const struct engine_segment *s,
                       const struct activation *in, uint32_t layer)
{
    uint64_t last = s->position == 0
                        ? mix(e->seed, 0)
                        : *row_at(e, s, s->position - 1, layer, ENGINE_K);

    for (uint32_t i = 0; i < s->n_tokens; i++) {
        uint32_t t = s->position + i;

        last = mix(last, (uint64_t)layer << 32 | token_at(s, in, i));
        *row_at(e, s, t, layer, ENGINE_K) = last;
        *row_at(e, s, t, layer, ENGINE_V) = mix(last, ~UINT64_C(0));
    }
}

static uint64_t mix_rows(const struct timed_engine *e,
                         const struct engine_segment *s, uint32_t token,
                         uint32_t layer, uint64_t digest)
{
    digest = mix(digest, *row_at(e, s, token, layer, ENGINE_K));
    return mix(digest, *row_at(e, s, token, layer, ENGINE_V));
}

/* Continues the digest of a segment's last token through layers [from,
 * to). */
static uint64_t digest_layers(const struct timed_engine *e,
                              const struct engine_segment *s, uint32_t from,
                              uint32_t to, uint64_t digest)
{
    uint32_t last = s->position + s->n_tokens - 1;

    for (uint32_t layer = from; layer < to; layer++) {
        uint32_t first = SAMPLE_TOKENS * layer + SAMPLE_TOKENS / 4;

        for (uint32_t t = first; t < last; t += SAMPLE_TOKENS * e->n_layers)
            digest = mix_rows(e, s, t, layer, digest);
        digest = mix_rows(e, s, last, layer, digest);
    }
    return digest;
}

static uint32_t answer(uint64_t digest)
{
    return MODEL_FIRST_OUTPUT + (uint32_t)(digest % MODEL_OUTPUTS);
}

/* Factor on the cost model's time of a segment. */
static double error_of(const struct timed_engine *e,
                       const struct engine_segment *s)
{
    return s->decode ? noise_factor(e->seed, s->request_id, NOISE_DECODE,
                                    e->decode_sigma)
                     : noise_factor(e->seed, s->request_id, NOISE_PREFILL,
                                    e->prefill_sigma);
}

/* Time of a step; its decodes use the mean of their factors. */
static int64_t step_us(const struct timed_engine *e,
                       const struct engine_segment *segments, size_t n)
{
    double us = 0.0;
    double errors = 0.0; /* of the decodes */
    int64_t batch = 0;
    int64_t kv_tokens = 0;

    for (size_t i = 0; i < n; i++) {
        const struct engine_segment *s = &segments[i];
        double error = error_of(e, s);

        if (s->decode) {
            batch++;
            errors += error;
            kv_tokens += (int64_t)s->position + s->n_tokens;
        } else {
            us += error * (double)cost_model_chunk_us(
                              e->cost, s->n_tokens,
                              s->position - s->cached_tokens, s->cached_tokens);
        }
    }
    if (batch > 0) {
        int64_t saved_us = cost_model_mixed_saves_us(e->cost, llround(us));

        us += errors / (double)batch *
                  (double)cost_model_decode_step_us(e->cost, batch, kv_tokens,
                                                    NULL) -
              (double)saved_us;
    }
    return llround(us / e->speed);
}

/* Sleeps until `when_us`. Returns false as soon as it finds *abort set. */
static bool sleep_until(int64_t when_us, const atomic_bool *abort)
{
    int64_t now_us = clock_now_us();

    while (now_us < when_us && !engine_aborted(abort)) {
        int64_t wake_us = now_us + NAP_US;

        if (wake_us > when_us || !abort)
            wake_us = when_us;
        const struct timespec wake = {
            .tv_sec = wake_us / 1000000,
            .tv_nsec = wake_us % 1000000 * 1000,
        };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
        now_us = clock_now_us();
    }
    return !engine_aborted(abort);
}

static const struct timed_engine *timed_of(const struct engine *e)
{
    return (const struct timed_engine *)e;
}

static int64_t timed_us(const struct engine *engine,
                        const struct engine_segment *segments, size_t n,
                        const struct engine_stage *stage)
{
    const struct timed_engine *e = timed_of(engine);
    int64_t us = step_us(e, segments, n);

    return stage ? us * (stage->to_layer - stage->from_layer) / e->n_layers
                 : us;
}

static void timed_layer(const struct engine *e,
                        const struct engine_segment *segments, size_t n,
                        const struct engine_stage *stage, uint32_t layer)
{
    for (size_t s = 0; s < n; s++)
        write_rows(timed_of(e), &segments[s], stage ? stage->in : NULL, layer);
}

static void end_stage(const struct timed_engine *e, struct engine_segment *s,
                      const struct engine_stage *stage)
{
    const struct activation *in = s->tokens ? NULL : stage->in;
    struct activation *out = stage->out;
    uint32_t last = s->n_tokens - 1;
    uint64_t digest = digest_layers(e, s, stage->from_layer, stage->to_layer,
                                    in ? in[last].digest : 0);

    if (s->want_token)
        s->token_out = answer(digest);
    for (uint32_t i = 0; stage->to_layer < e->n_layers && i <= last; i++)
        out[i] =
            (struct activation){token_at(s, in, i), i == last ? digest : 0};
}

static void timed_end(const struct engine *engine,
                      struct engine_segment *segments, size_t n,
                      const struct engine_stage *stage)
{
    const struct timed_engine *e = timed_of(engine);

    if (stage)
        end_stage(e, segments, stage);
    for (size_t s = 0; !stage && s < n; s++)
        if (segments[s].want_token)
            segments[s].token_out =
                answer(digest_layers(e, &segments[s], 0, e->n_layers, 0));
}

/* Passes the layers of a step. Returns as timed_step(). */
static int pass_layers(struct timed_engine *e,
                       const struct engine_segment *segments, size_t n,
                       const struct engine_stage *stage,
                       const struct engine_step_ops *ops, void *arg,
                       const atomic_bool *abort)
{
    int64_t start_us = clock_now_us();
    int64_t total_us = timed_us(&e->loop, segments, n, stage);
    uint32_t first = stage ? stage->from_layer : 0;
    uint32_t n_layers = (stage ? stage->to_layer : e->n_layers) - first;

    if (start_us - e->busy_until_us < CONTINUE_WITHIN_US)
        start_us = e->busy_until_us;
    for (uint32_t i = 0; i < n_layers; i++) {
        uint32_t layer = first + i;
        int64_t wait_us = clock_now_us();

        if (engine_wait_layer(ops, arg, 0, n, layer) < 0)
            return -EIO;
        /* A late layer delays the rest of the step. */
        start_us += clock_now_us() - wait_us;
        timed_layer(&e->loop, segments, n, stage, layer);
        e->busy_until_us = start_us + total_us * (i + 1) / n_layers;
        if (!sleep_until(e->busy_until_us, abort)) {
            e->busy_until_us = clock_now_us();
            return -ECANCELED;
        }
        engine_layer_done(ops, arg, 0, n, layer);
    }
    return 0;
}

static int timed_step(struct engine *loop, struct engine_segment *segments,
                      size_t n, const struct engine_step_ops *ops, void *arg,
                      const atomic_bool *abort)
{
    int rc = pass_layers((struct timed_engine *)loop, segments, n, NULL, ops,
                         arg, abort);

    if (rc == 0)
        timed_end(loop, segments, n, NULL);
    return rc;
}

static int timed_stage(struct engine *loop, struct engine_segment *s,
                       const struct engine_stage *stage,
                       const struct engine_step_ops *ops, void *arg,
                       const atomic_bool *abort)
{
    int rc =
        pass_layers((struct timed_engine *)loop, s, 1, stage, ops, arg, abort);

    if (rc == 0)
        timed_end(loop, s, 1, stage);
    return rc;
}

static const struct engine_simulation timed_simulation = {
    .step_us = timed_us,
    .layer = timed_layer,
    .end = timed_end,
};

const struct engine_ops engine_timed_ops = {
    .kind = "timed",
    .simulation = &timed_simulation,
    .element = MODEL_HASH64,
    .create = timed_create,
    .destroy = timed_destroy,
    .step = timed_step,
    .stage = timed_stage,
};
