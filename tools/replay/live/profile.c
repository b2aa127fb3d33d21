/* conductor-replay profile: the costs of a running engine. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop/loop.h"
#include "predictor/profile_csv.h"
#include "tools/replay/command.h"
#include "tools/replay/live/loop.h"
#include "tools/replay/live/target.h"
#include "tools/replay/live/timing.h"
#include "tools/replay/ticker.h"
#include "tools/result_file.h"

static const struct option_usage usage = {
    .name = "profile",
    .synopsis = "--url URL [OPTIONS]",
    .text = "Measures a running engine that speaks OpenAI's completions API "
            "and takes token ids, and\nwrites a profile for conductor-fit. The "
            "engine must have no other load meanwhile.\nPrefill time is "
            "measured from sending to the first token, over new and cached "
            "tokens;\ndecode step time is the mean of 16 steps, over requests "
            "that decode at once. A prefill\nfor which the engine reports "
            "other cached tokens than planned is left out.",
    .examples =
        "  conductor-replay profile --url http://127.0.0.1:8000 --out "
        "engine.csv\n"
        "  conductor-fit --out engine.json engine.csv\n"
        "  conductor-replay profile --url http://127.0.0.1:8000 --model qwen "
        "--engine vllm \\\n      --machine 'H100 SXM' --max-tokens 16384 "
        "--out engine.csv\n",
};

#define DEFAULT_TOKENS 4096
#define LEAST_TOKENS 64 /* of the longest prompt */
/* Lower token ids are mostly special tokens. */
#define FIRST_ID 4

/* The options of the command. Texts are borrowed; NULL, and max_tokens and
 * vocab 0, = not given. */
struct settings {
    const char *url, *model, *engine, *machine, *out, *key_file, *ca_file;
    bool insecure;
    uint64_t max_tokens, max_batch, max_kv, repeats, block_tokens, vocab, seed;
    double timeout_s;
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        {"url", OPTION_TEXT, &s->url, "URL", 0, 0, "the engine's URL",
         .required = true},
        {"key-file", OPTION_TEXT, &s->key_file, "FILE", 0, 0,
         "file with the API key of the engine"},
        {"ca-file", OPTION_TEXT, &s->ca_file, "FILE", 0, 0,
         "https: PEM with the certificate authorities to trust (default: the "
         "machine's)"},
        {"insecure", OPTION_FLAG, &s->insecure, NULL, 0, 0,
         "https: accept any certificate"},
        {"model", OPTION_TEXT, &s->model, "NAME", 0, 0,
         "model to request (default: the first in the engine's list)"},
        {"out", OPTION_OUTPUT, &s->out, "FILE", 0, 0,
         "write the CSV to this file (default: stdout)"},
        {"engine", OPTION_TEXT, &s->engine, "NAME", 0, 0,
         "kind of engine to write into the CSV (default openai)"},
        {"machine", OPTION_TEXT, &s->machine, "NAME", 0, 0,
         "name of the machine to write into the CSV (default: the URL's host)"},
        {"max-tokens", OPTION_COUNT, &s->max_tokens, "N", LEAST_TOKENS, 1e7,
         "longest prompt, in tokens (default 4096, or the engine's limit)"},
        {"max-batch", OPTION_COUNT, &s->max_batch, "N", 1, TIMING_BATCH_MAX,
         "most requests that decode at once (default 64)"},
        {"max-kv", OPTION_COUNT, &s->max_kv, "N", LEAST_TOKENS, 1e9,
         "most tokens of requests that decode at once (default 65536)"},
        {"repeats", OPTION_COUNT, &s->repeats, "N", 1, 1000,
         "repeats of every point (default 3)"},
        {"block-tokens", OPTION_COUNT, &s->block_tokens, "N", 1, 65536,
         "tokens per KV block of the engine (default 16)"},
        {"vocab", OPTION_COUNT, &s->vocab, "N", FIRST_ID + 2, UINT32_MAX,
         "token ids stay below N (default: the engine's vocabulary, or 512)"},
        {"seed", OPTION_COUNT, &s->seed, "S", 0, 9e15,
         "seed of the token ids (default: a new one each time)"},
        {"timeout", OPTION_NUMBER, &s->timeout_s, "S", 1e-3, 1e6,
         "time limit for one answer, in seconds (default 300)"},
    };

    return replay_parse(&usage, OPTION_TABLE(specs), argc, argv, status);
}

struct bench {
    const struct settings *settings;
    struct loop *loop;
    struct replay_server *server;
    struct replay_flight flight; /* [max_batch] */
    struct replay_model model;
    struct profile_limits limits;
    struct replay_record *records; /* [max_batch] */
    uint32_t *prompts; /* [max_batch][max_tokens], reused by all points */
    uint32_t *mixed;   /* [max_tokens]: the front of prompt 0, then new
                          tokens */
    uint32_t vocab;
    uint64_t random;
    FILE *file;
    size_t rows;
    uint32_t batch;   /* most requests seen to decode at once */
    bool *apart;      /* [max_batch + 1]: batches once seen not to */
    bool told;        /* reported that such points are left out */
    bool told_cached; /* reported that prefills are left out */
    bool untold;
};

static void on_done(void *arg, struct replay_record *)
{
    struct bench *b = arg;

    if (b->flight.in_flight == 0)
        loop_stop(b->loop);
}

static int send_one(struct bench *b, size_t i, const uint32_t *prompt,
                    uint32_t tokens, uint32_t max_tokens)
{
    struct evbuffer *body = replay_body_of(
        b->model.name, max_tokens, max_tokens > 1 ? "\"ignore_eos\":true," : "",
        prompt, tokens);

    b->records[i] = (struct replay_record){.first_token_us = -1,
                                           .sent_us = clock_now_us() -
                                                      b->flight.params.start_us,
                                           .input_tokens = tokens};
    return replay_flight_send(&b->flight, i, body);
}

/* Returns whether an engine's error refuses the prompt. vLLM sends it within a
 * stream that has begun. */
static bool is_refusal(const struct replay_record *r)
{
    static const char http[] = "http 400", event[] = "error event BadRequest";

    return strncmp(r->reason, http, sizeof http - 1) == 0 ||
           strncmp(r->reason, event, sizeof event - 1) == 0;
}

/* Returns whether the engine answered as asked; prints an error if not. */
static bool answered(const struct bench *b, const struct replay_record *r)
{
    bool guessed = b->settings->vocab == 0 && b->model.vocab_tokens == 0;

    if (r->outcome != REPLAY_COMPLETED)
        replay_complain(
            usage.name, "a prompt of %u token ids: %s%s%s%s", r->input_tokens,
            r->reason, r->message[0] != '\0' ? ": " : "", r->message,
            guessed && is_refusal(r) ? " (--vocab N keeps ids below N)" : "");
    else if (r->prompt_tokens != r->input_tokens)
        replay_complain(usage.name,
                        "a prompt of %u token ids: the engine counted %u",
                        r->input_tokens, r->prompt_tokens);
    else
        return true;
    return false;
}

/* Requests max_tokens after the first `tokens` tokens of n prompts, at once.
 * Returns 0, or -1 after an error or an interrupt. */
static int ask(struct bench *b, const uint32_t *prompts, size_t n,
               uint32_t tokens, uint32_t max_tokens)
{
    bool *interrupted = &b->flight.interrupted;
    int rc = 0;

    b->flight.params.start_us = clock_now_us();
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = send_one(b, i, prompts + i * b->limits.max_tokens, tokens,
                      max_tokens);
    if (rc == 0 && !*interrupted)
        loop_run(b->loop);
    replay_flight_drop(&b->flight);
    if (rc != 0)
        return replay_complain(usage.name, "%s", strerror(-rc));
    for (size_t i = 0; !*interrupted && i < n; i++)
        if (!answered(b, &b->records[i]))
            return -1;
    return *interrupted ? -1 : 0;
}

static uint32_t new_token(struct bench *b)
{
    return FIRST_ID + profile_random(&b->random, b->vocab - FIRST_ID);
}

/* Builds b->mixed: the first p->b tokens of prompt 0, then new ones. The first
 * new token differs from the prompt's, so nothing else is cached. */
static void mix(struct bench *b, const struct profile_point *p)
{
    memcpy(b->mixed, b->prompts, p->b * sizeof *b->mixed);
    for (uint32_t i = p->b; i < p->a + p->b; i++)
        b->mixed[i] = new_token(b);
    while (b->mixed[p->b] == b->prompts[p->b])
        b->mixed[p->b] = new_token(b);
}

static void write_row(struct bench *b, const struct profile_point *p, double us)
{
    profile_write_point(b->file, p, us);
    b->rows++;
}

static int time_prefill(struct bench *b, struct profile_point p)
{
    const struct replay_record *r = &b->records[0];

    if (p.b > 0 && ask(b, b->prompts, 1, p.b, 1) != 0)
        return -1;
    mix(b, &p);
    if (ask(b, b->mixed, 1, p.a + p.b, 1) != 0)
        return -1;
    b->untold = b->untold || !r->tells_reused;
    if (!timing_take_cached(&p, r, (uint32_t)b->settings->block_tokens)) {
        if (!b->told_cached)
            replay_complain(usage.name,
                            "%u tokens behind %u cached ones: left out, as are "
                            "others: the engine had %u (--block-tokens %u: is "
                            "it the size of its blocks?)",
                            p.a, p.b, r->reused_tokens,
                            (uint32_t)b->settings->block_tokens);
        b->told_cached = true;
        return 0;
    }
    write_row(b, &p, (double)(r->first_token_us - r->sent_us + 1));
    return 0;
}

/* Times a decode point. A first round fills the caches, so that in the second
 * all requests begin to decode together. */
static int time_decode(struct bench *b, struct profile_point p)
{
    uint32_t tokens = p.b - TIMING_DECODE_TOKENS / 2;

    if (ask(b, b->prompts, p.a, tokens, 1) != 0 ||
        ask(b, b->prompts, p.a, tokens, TIMING_DECODE_TOKENS) != 0)
        return -1;
    double us = timing_step_us(b->records, p.a);
    if (!(us > 0)) {
        if (!b->told)
            replay_complain(usage.name,
                            "%u requests of %u tokens: left out, as are "
                            "others: not decoded at once",
                            p.a, p.b);
        b->told = b->apart[p.a] = true;
        return 0;
    }
    if (p.a > b->batch)
        b->batch = p.a;
    write_row(b, &p, us);
    return 0;
}

static void write_head(const struct bench *b)
{
    const struct settings *s = b->settings;
    struct profile head = {.block_tokens = (int64_t)s->block_tokens,
                           .seed = (int64_t)s->seed};

    snprintf(head.engine, sizeof head.engine, "%.255s", s->engine);
    snprintf(head.model, sizeof head.model, "%.255s", b->model.name);
    snprintf(head.machine, sizeof head.machine, "%.255s",
             s->machine ? s->machine : b->server->host);
    profile_write_head(b->file, &head);
}

static int measure(struct bench *b)
{
    struct profile_point points[PROFILE_GRID_MAX];
    size_t n = profile_grid(&b->limits, points);
    struct replay_ticker ticker;
    int rc = 0;

    write_head(b);
    replay_ticker_init(&ticker, "measurements", b->settings->repeats * n);
    for (uint64_t round = 0; rc == 0 && round < b->settings->repeats; round++) {
        profile_shuffle(points, n, &b->random);
        for (size_t i = 0; rc == 0 && i < n; i++) {
            rc = points[i].decode ? time_decode(b, points[i])
                                  : time_prefill(b, points[i]);
            replay_ticker_show(&ticker, round * n + i + 1);
        }
    }
    replay_ticker_end(&ticker);
    return rc;
}

/* Warns of the smallest batch that never decoded at once. */
static void advise(const struct bench *b)
{
    uint64_t most = b->settings->max_batch;

    for (uint32_t n = b->batch + 1; b->batch > 0 && n <= most; n++)
        if (b->apart[n]) {
            replay_complain(usage.name,
                            "warning: it decodes fewer than %u requests at "
                            "once: --max-batch %u leaves those out",
                            n, b->batch);
            return;
        }
}

static int write_rows(struct bench *b)
{
    const char *path = b->settings->out;

    b->file = path ? result_open(path) : stdout;
    if (!b->file)
        return replay_complain_output(usage.name, path, -errno);
    int status = measure(b) == 0 ? 0 : 1;
    if (path &&
        replay_complain_output(usage.name, path, result_close(b->file)) != 0)
        return 1;
    if (b->untold)
        replay_complain(usage.name,
                        "warning: it tells no cached tokens (vLLM: "
                        "--enable-prompt-tokens-details), taken as planned");
    advise(b);
    replay_complain(usage.name, "%s%zu measurements",
                    b->flight.interrupted ? "interrupted: " : "", b->rows);
    return b->flight.interrupted ? REPLAY_EXIT_INTERRUPTED : status;
}

/* Sets the limits of prompts and batches. */
static int set_limits(struct bench *b)
{
    const struct settings *s = b->settings;
    uint32_t window = b->model.window_tokens;
    uint32_t most = window > TIMING_DECODE_TOKENS
                        ? window - TIMING_DECODE_TOKENS
                        : DEFAULT_TOKENS;

    if (window != 0 && (most < LEAST_TOKENS || most < s->max_tokens))
        return replay_complain(usage.name,
                               "--max-tokens: must be %d to %u, as the "
                               "engine takes %u tokens",
                               LEAST_TOKENS, most, window);
    most = most < DEFAULT_TOKENS ? most : DEFAULT_TOKENS;
    b->limits = (struct profile_limits){
        .max_tokens = s->max_tokens ? (uint32_t)s->max_tokens : most,
        .max_batch = (uint32_t)s->max_batch,
        .max_kv = s->max_kv,
        .prefix_of = (uint32_t)s->block_tokens,
        .kv_of = 1,
        .min_kv = TIMING_DECODE_TOKENS};
    b->vocab = replay_model_vocab(&b->model, s->vocab);
    if (b->vocab >= FIRST_ID + 2)
        return 0;
    return replay_complain(usage.name, "the engine's vocabulary is too small");
}

/* Runs the profile. The first request warms the engine up, and shows whether it
 * takes requests. */
static int run(struct bench *b)
{
    const struct settings *s = b->settings;

    if (replay_model_ask(b->loop, b->server, usage.name, s->model, &b->model) !=
            0 ||
        set_limits(b) != 0)
        return 1;
    size_t n = (size_t)s->max_batch * b->limits.max_tokens;
    b->prompts = calloc(n, sizeof *b->prompts);
    b->mixed = calloc(b->limits.max_tokens, sizeof *b->mixed);
    if (!b->prompts || !b->mixed)
        return replay_complain(usage.name, "%s", strerror(ENOMEM));
    for (size_t i = 0; i < n; i++)
        b->prompts[i] = new_token(b);
    if (ask(b, b->prompts, 1, b->limits.max_tokens, 1) != 0)
        return b->flight.interrupted ? REPLAY_EXIT_INTERRUPTED : 1;
    return write_rows(b);
}

/* Measures until all points are done or a signal interrupts. Blocks. Returns
 * the exit status. */
static int measure_server(const struct settings *s,
                          struct replay_server *server)
{
    struct bench b = {.settings = s,
                      .server = server,
                      .loop = loop_new(),
                      .records = calloc(s->max_batch, sizeof *b.records),
                      .apart = calloc(s->max_batch + 1, sizeof *b.apart),
                      .random = s->seed};

    b.flight = (struct replay_flight){
        .params = {.loop = b.loop,
                   .server = server,
                   .timeout_us = (int64_t)(s->timeout_s * 1e6),
                   .done = on_done,
                   .arg = &b},
        .records = b.records};
    bool good = b.loop && b.records && b.apart &&
                replay_flight_init(&b.flight, s->max_batch) == 0;
    int status =
        good ? run(&b) : replay_complain(usage.name, "%s", strerror(ENOMEM));
    replay_flight_fini(&b.flight);
    free(b.prompts);
    free(b.mixed);
    free(b.records);
    free(b.apart);
    if (b.loop)
        loop_free(b.loop);
    return status;
}

int replay_command_profile(int argc, char **argv)
{
    struct settings s = {.engine = "openai",
                         .max_batch = 64,
                         .max_kv = 65536,
                         .repeats = 3,
                         .block_tokens = 16,
                         .timeout_s = 300};
    struct replay_server server = {0};
    char error[512];
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (replay_server_parse(s.url, &server) != 0)
        return replay_refuse(
            usage.name,
            "--url %s: must be http[s]://HOST[:PORT][/PREFIX], "
            "without /v1/completions",
            s.url);
    if (!server.https && (s.insecure || s.ca_file))
        return replay_refuse(usage.name, "%s: only with https",
                             s.insecure ? "--insecure" : "--ca-file");
    if (s.insecure && s.ca_file)
        return replay_refuse(
            usage.name,
            "--insecure: not with --ca-file, which names the authorities");
    server.has_options = true;
    if (s.key_file &&
        replay_server_key(&server, s.key_file, error, sizeof error) != 0)
        return replay_refuse(usage.name, "--key-file %s", error);
    if (replay_server_trust(&server, s.ca_file ? s.ca_file : "", s.insecure,
                            error, sizeof error) != 0)
        return replay_refuse(usage.name, "--ca-file %s", error);
    if (s.seed == 0)
        s.seed = (uint64_t)clock_now_us();
    status = measure_server(&s, &server);
    replay_server_fini(&server);
    return status;
}
