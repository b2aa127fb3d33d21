/* Times the points of the grid. */
#include "workers/engine/profile.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "predictor/profile_csv.h"
#include "predictor/profile_grid.h"

/* One decode measurement is the mean of steps until both are reached, or of
 * MAX_STEPS. */
#define MIN_STEPS 2
#define MAX_STEPS 16
#define DECODE_US 4000

/* Pause before each request: a request that arrives alone finds sleeping
 * threads (BLAS threads spin for some milliseconds first) and cold caches. */
#define PAUSE_US 20000

struct run {
    struct engine *e;
    const struct engine_kv_layout *layout;
    struct profile_config config;
    uint32_t max_tokens;
    uint32_t *tokens; /* [max_tokens], the prompt of all points */
    uint32_t *mixed;  /* [max_tokens], its first tokens, then new ones */
    uint64_t random;
    void *memory;  /* of the blocks */
    void **blocks; /* [n_blocks]; the first ones hold the prompt's KV */
    uint32_t n_blocks;
    struct engine_segment *segments; /* [max_batch] */
    struct profile_point points[PROFILE_GRID_MAX];
    uint32_t n_points;
};

static uint32_t blocks_of(const struct run *r, uint32_t tokens)
{
    uint32_t bt = r->layout->block_tokens;

    return (tokens + bt - 1) / bt;
}

static void plan(struct run *r)
{
    const struct profile_limits limits = {
        .max_tokens = r->max_tokens,
        .max_batch = r->config.max_batch,
        .max_kv = (uint64_t)r->n_blocks * r->layout->block_tokens,
        .prefix_of = 1,
        .kv_of = r->layout->block_tokens,
        .short_kv = 16,
        .min_kv = 1,
    };

    r->n_points = (uint32_t)profile_grid(&limits, r->points);
}

static int step(struct run *r, struct engine_segment *segments, uint32_t n)
{
    const struct profile_way *way = r->config.way;

    if (r->config.stop && atomic_load(r->config.stop))
        return -ECANCELED;
    return way ? way->step(way->arg, segments, n)
               : engine_step(r->e, segments, n, NULL, NULL, r->config.stop);
}

/* Prefills prompt tokens [from, from + n), in steps. */
static int prefill(struct run *r, uint32_t from, uint32_t n)
{
    for (uint32_t at = from; at < from + n;) {
        uint32_t left = from + n - at;
        uint32_t most = r->layout->step_tokens;
        struct engine_segment s = {
            .tokens = r->tokens + at,
            .n_tokens = left < most ? left : most,
            .position = at,
            .cached_tokens = from,
            .want_token = left <= most,
            .blocks = r->blocks,
        };
        int rc = step(r, &s, 1);
        if (rc != 0)
            return rc;
        at += s.n_tokens;
    }
    return 0;
}

/* Prefills cached prompt tokens followed by new ones. Sets the point to the
 * tokens really reused (whole blocks). */
static int time_request(struct run *r, struct profile_point *p, double *us)
{
    const struct profile_way *way = r->config.way;
    uint32_t n = p->a + p->b;

    memcpy(r->mixed, r->tokens, p->b * sizeof(*r->mixed));
    for (uint32_t i = p->b; i < n; i++)
        r->mixed[i] =
            MODEL_FIRST_OUTPUT + profile_random(&r->random, MODEL_OUTPUTS);
    usleep(PAUSE_US);
    int rc = way->prefill(way->arg, r->mixed, n, &p->b, us);
    p->a = n - p->b;
    return rc;
}

static int time_prefill(struct run *r, struct profile_point *p, double *us)
{
    if (r->config.way)
        return time_request(r, p, us);
    int64_t start_us = clock_now_us();
    int rc = prefill(r, p->b, p->a);

    *us = (double)(clock_now_us() - start_us);
    return rc;
}

/* Every request has its own blocks: shared ones would stay in the cache. They
 * contain some earlier KV, whose values do not change the time. */
static int time_decode(struct run *r, const struct profile_point *p, double *us)
{
    uint32_t each = blocks_of(r, p->b);
    uint32_t steps = 0;
    int64_t took_us = 0;

    for (uint32_t i = 0; i < p->a; i++)
        r->segments[i] = (struct engine_segment){
            .tokens = r->tokens + p->b - 1,
            .n_tokens = 1,
            .position = p->b - 1,
            .decode = true,
            .want_token = true,
            .blocks = r->blocks + (size_t)i * each,
        };
    int64_t start_us = clock_now_us();
    while (steps < MIN_STEPS || (took_us < DECODE_US && steps < MAX_STEPS)) {
        int rc = step(r, r->segments, p->a);

        if (rc != 0)
            return rc;
        took_us = clock_now_us() - start_us;
        steps++;
    }
    *us = (double)took_us / steps;
    return 0;
}

static int measure(struct run *r, FILE *out, profile_progress_fn *progress,
                   void *arg)
{
    uint32_t of = r->config.repeats * r->n_points;
    uint64_t state = r->config.seed;

    for (uint32_t round = 0; round < r->config.repeats; round++) {
        profile_shuffle(r->points, r->n_points, &state);
        for (uint32_t i = 0; i < r->n_points; i++) {
            struct profile_point p = r->points[i];
            double us = 0;
            int rc =
                p.decode ? time_decode(r, &p, &us) : time_prefill(r, &p, &us);

            if (rc != 0)
                return rc;
            /* The reader refuses 0, and the clock counts whole
             * microseconds. */
            us = us < 1 ? 1 : us;
            profile_write_point(out, &p, us);
            if (progress)
                progress(arg, round * r->n_points + i + 1, of);
        }
    }
    return 0;
}

/* "<cores> x <processor>", as Linux names it. */
static void machine_name(char *name, size_t bytes)
{
    char line[256], processor[256] = "unknown processor";
    FILE *f = fopen("/proc/cpuinfo", "r");

    while (f && fgets(line, sizeof(line), f)) {
        char *value = strstr(line, ": ");

        if (strncmp(line, "model name", 10) == 0 && value) {
            value[strcspn(value, "\n")] = '\0';
            snprintf(processor, sizeof(processor), "%s", value + 2);
            break;
        }
    }
    if (f)
        fclose(f);
    snprintf(name, bytes, "%ld x %s", sysconf(_SC_NPROCESSORS_ONLN), processor);
}

static void write_head(const struct run *r, FILE *out)
{
    struct profile head = {.block_tokens = r->layout->block_tokens,
                           .seed = (int64_t)r->config.seed};

    snprintf(head.engine, sizeof(head.engine), "%s", engine_kind(r->e));
    snprintf(head.model, sizeof(head.model), "%s", r->config.model);
    if (r->config.machine)
        snprintf(head.machine, sizeof(head.machine), "%s", r->config.machine);
    else
        machine_name(head.machine, sizeof(head.machine));
    if (engine_simulates(r->e))
        fprintf(out, "# note: simulated; these times come from a cost model\n");
    profile_write_head(out, &head);
}

static int configure(struct run *r, char *err, size_t err_bytes)
{
    struct profile_config *c = &r->config;
    uint32_t window = r->layout->window_tokens;

    if (c->max_tokens == 0)
        c->max_tokens =
            window < PROFILE_DEFAULT_TOKENS ? window : PROFILE_DEFAULT_TOKENS;
    if (c->max_batch == 0)
        c->max_batch = r->layout->step_tokens < PROFILE_DEFAULT_BATCH
                           ? r->layout->step_tokens
                           : PROFILE_DEFAULT_BATCH;
    if (c->repeats == 0)
        c->repeats = PROFILE_DEFAULT_REPEATS;
    if (c->max_kv_bytes == 0)
        c->max_kv_bytes = PROFILE_DEFAULT_KV_BYTES;
    r->max_tokens = c->max_tokens;
    if (c->max_tokens < 16 || c->max_tokens > window)
        return error_say(
            err, err_bytes, -EINVAL,
            "profile: max_tokens is %u: must be 16 to %u, the window",
            c->max_tokens, window);
    if (c->max_batch > r->layout->step_tokens)
        return error_say(
            err, err_bytes, -EINVAL,
            "profile: max_batch is %u: must be at most %u, the tokens of "
            "a step",
            c->max_batch, r->layout->step_tokens);
    uint64_t least = blocks_of(r, c->max_tokens) * r->layout->block_bytes;
    if (c->max_kv_bytes < least)
        return error_say(err, err_bytes, -EINVAL,
                         "profile: max_kv_bytes is %llu: %u tokens need %llu",
                         (unsigned long long)c->max_kv_bytes, c->max_tokens,
                         (unsigned long long)least);
    return 0;
}

/* Blocks for the largest prompt, or for the largest batch as far as
 * max_kv_bytes goes. */
static int allocate(struct run *r)
{
    uint64_t want = (uint64_t)blocks_of(r, r->max_tokens) * r->config.max_batch;
    uint64_t have = r->config.max_kv_bytes / r->layout->block_bytes;
    uint64_t state = r->config.seed;
    uint32_t n = (uint32_t)(want < have ? want : have);

    r->tokens = calloc(r->max_tokens, sizeof(*r->tokens));
    r->mixed = calloc(r->max_tokens, sizeof(*r->mixed));
    r->random = state + 1;
    r->segments = calloc(r->config.max_batch, sizeof(*r->segments));
    r->blocks = calloc(n, sizeof(*r->blocks));
    if (!r->tokens || !r->mixed || !r->segments || !r->blocks)
        return -ENOMEM;
    r->memory = engine_kv_alloc(r->e, n * (size_t)r->layout->block_bytes);
    if (!r->memory)
        return -ENOMEM;
    for (; r->n_blocks < n; r->n_blocks++)
        r->blocks[r->n_blocks] =
            (char *)r->memory + r->n_blocks * r->layout->block_bytes;
    for (uint32_t i = 0; i < r->max_tokens; i++)
        r->tokens[i] =
            MODEL_FIRST_OUTPUT + profile_random(&state, MODEL_OUTPUTS);
    return 0;
}

/* Computes the prompt once, which also warms up the engine, and copies its KV
 * to all further blocks. */
static int fill_blocks(struct run *r)
{
    uint32_t filled = r->max_tokens / r->layout->block_tokens;
    uint32_t n = blocks_of(r, r->max_tokens);
    int rc;

    for (uint32_t i = 0; i < n; i++)
        memset(r->blocks[i], 0, r->layout->block_bytes);
    rc = prefill(r, 0, r->max_tokens);
    for (uint32_t i = n; rc == 0 && i < r->n_blocks; i++) {
        engine_kv_forget(r->e, r->blocks[i]);
        memcpy(r->blocks[i], r->blocks[filled ? i % filled : 0],
               r->layout->block_bytes);
    }
    if (rc == 0 && r->config.way) {
        struct profile_point whole = {.b = r->max_tokens};
        double us;

        rc = time_request(r, &whole, &us);
    }
    return rc;
}

int profile_run(struct engine *e, const struct profile_config *config,
                FILE *out, profile_progress_fn *progress, void *arg, char *err,
                size_t err_bytes)
{
    struct run r = {.e = e, .layout = engine_kv_layout(e), .config = *config};
    int rc = configure(&r, err, err_bytes);

    if (rc != 0)
        return rc;
    rc = allocate(&r);
    if (rc == 0)
        rc = fill_blocks(&r);
    if (rc == 0) {
        plan(&r);
        write_head(&r, out);
        rc = measure(&r, out, progress, arg);
    }
    if (rc == 0 && (fflush(out) != 0 || ferror(out)))
        rc = -EIO;
    if (rc != 0)
        snprintf(err, err_bytes, "profile: %s", strerror(-rc));
    for (uint32_t i = 0; i < r.n_blocks; i++)
        engine_kv_forget(e, r.blocks[i]);
    engine_kv_free(e, r.memory);
    free(r.blocks);
    free(r.segments);
    free(r.tokens);
    free(r.mixed);
    return rc;
}
