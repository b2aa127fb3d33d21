/* The models of a server, from GET /v1/models. */
#ifndef TOOLS_REPLAY_LIVE_MODEL_H
#define TOOLS_REPLAY_LIVE_MODEL_H

#include <event2/event.h>
#include <stdint.h>

#include "tools/replay/live/http_request.h"

/* Zeros where the server does not say; llama.cpp's server has them in `meta`.
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
[[nodiscard]] int replay_model_ask(struct event_base *base,
                                   const struct replay_server *server,
                                   const char *command, const char *name,
                                   struct replay_model *model);

/* Returns the bound of token ids: `wanted`; if 0, the model's vocabulary; if
 * unknown, 512, the smallest one of our own models. */
uint32_t replay_model_vocab(const struct replay_model *model, uint64_t wanted);

#endif
