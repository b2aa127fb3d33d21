/* The server of `live` and `live-sessions`: their common options, and the setup
 * before the first request. */
#ifndef TOOLS_REPLAY_LIVE_TARGET_H
#define TOOLS_REPLAY_LIVE_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/replay/live/http_request.h"
#include "tools/replay/options.h"
#include "traces/tokens.h"

struct loop;

/* A model of a server, from GET /v1/models. Zeros where the server does not
 * say; llama.cpp's server has them in `meta`.
 */
struct replay_model {
    char name[256];
    char policy[64];
    uint32_t vocab_tokens, window_tokens, block_tokens;
};

/*
 * Asks for the model `name`, or for the first one if `name` is NULL. A model
 * that the server does not list gets its name only. Returns 0, or -1 after
 * printing an error of `command`. Blocks for 10 s at most.
 */
[[nodiscard]] int replay_model_ask(struct loop *loop,
                                   const struct replay_server *server,
                                   const char *command, const char *name,
                                   struct replay_model *model);

/* Returns the bound of token ids: `wanted`; if 0, the model's vocabulary; if
 * unknown, 512, the smallest one of our own models. */
uint32_t replay_model_vocab(const struct replay_model *model, uint64_t wanted);

#define REPLAY_TARGET_IN_FLIGHT_MAX 65536

struct replay_target {
    const char *url, *report; /* borrowed; report NULL = none */
    double timeout_s;
    uint64_t max_in_flight, seed;
    uint64_t vocab;              /* 0 = the model's */
    struct replay_server server; /* set by replay_target_parse() */
    /* Set by replay_target_open(). */
    struct loop *loop; /* owned */
    struct replay_model model;
};

/* The options' defaults. */
#define REPLAY_TARGET_DEFAULT                             \
    {                                                     \
        .url = "http://127.0.0.1:8080", .timeout_s = 300, \
        .max_in_flight = 512,                             \
    }

/* Rows of a table of options. */
#define REPLAY_TARGET_URL_SPEC(t)                          \
    OPTION_SPEC("url", OPTION_TEXT, &(t).url, "URL", 0, 0, \
                "URL of the server (default http://127.0.0.1:8080)")
#define REPLAY_TARGET_SPECS(t)                                                 \
    OPTION_SPEC("timeout", OPTION_NUMBER, &(t).timeout_s, "S", 1e-3, 1e6,      \
                "time limit for one answer, in seconds (default 300)"),        \
        OPTION_SPEC("max-in-flight", OPTION_COUNT, &(t).max_in_flight, "N", 1, \
                    REPLAY_TARGET_IN_FLIGHT_MAX,                               \
                    "most requests in flight (default 512)"),                  \
        OPTION_SPEC("seed", OPTION_COUNT, &(t).seed, "S", 0, 9e15,             \
                    "seed of token ids; a new seed avoids a warm server's "    \
                    "cache (default 0)"),                                      \
        OPTION_SPEC("vocab", OPTION_COUNT, &(t).vocab, "N", 1, UINT32_MAX,     \
                    "token ids stay below N (default: the server's "           \
                    "vocabulary, or 512)"),                                    \
        OPTION_SPEC("report", OPTION_OUTPUT, &(t).report, "FILE", 0, 0,        \
                    "write the report as JSON")

/* Parses t->url into t->server. Returns 0, or the exit status after printing an
 * error of `command`. */
[[nodiscard]] int replay_target_parse(struct replay_target *t,
                                      const char *command);

/* Creates t->loop, raises the limit of open files, and asks the server for its
 * model. Returns 0, or -1 after printing an error of `command`; call
 * replay_target_close() either way. Blocks for 10 s at most. */
[[nodiscard]] int replay_target_open(struct replay_target *t,
                                     const char *command);

void replay_target_close(struct replay_target *t);

/* Returns how prompts become tokens; needs replay_target_open(). */
struct trace_token_options replay_target_tokens(const struct replay_target *t,
                                                uint32_t block_tokens);

#endif
