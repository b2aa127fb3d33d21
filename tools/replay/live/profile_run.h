/* The measuring part of `conductor-replay profile`: asks an engine, times its
 * answers and writes the rows. */
#ifndef TOOLS_REPLAY_LIVE_PROFILE_RUN_H
#define TOOLS_REPLAY_LIVE_PROFILE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/replay/live/http_request.h"

#define REPLAY_PROFILE_LEAST_TOKENS 64 /* of the longest prompt */
/* Lower token ids are mostly special tokens. */
#define REPLAY_PROFILE_FIRST_ID 4

/* The options of the command. Texts are borrowed; NULL, and max_tokens and
 * vocab 0, = not given. */
struct replay_profile_settings {
    const char *url, *model, *engine, *machine, *out, *key_file, *ca_file;
    bool insecure;
    uint64_t max_tokens, max_batch, max_kv, repeats, block_tokens, vocab, seed;
    double timeout_s;
};

/*
 * Measures the engine at `server` until all points are done or a signal
 * interrupts. Blocks. Writes to settings->out; prints errors of the command
 * `profile`. Returns the exit status of the program.
 */
[[nodiscard]] int
replay_profile_run(const struct replay_profile_settings *settings,
                   struct replay_server *server);

#endif
