/*
 * The closed loop against a server: sends a turn when the answers it waits for
 * have ended and its client has thought. A due turn waits while all slots are
 * taken; its TTFT counts from its due time.
 */
#ifndef TOOLS_REPLAY_LIVE_LOOP_H
#define TOOLS_REPLAY_LIVE_LOOP_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/live/http_request.h"
#include "tools/replay/report/record.h"
#include "traces/recorded/loop.h"
#include "traces/tokens.h"

struct replay_loop_params {
    struct event_base *base;            /* borrowed */
    const struct replay_server *server; /* borrowed */
    struct closed_loop *loop;           /* borrowed; continues from its state */
    const char *model;                  /* name in the request */
    struct trace_token_options tokens;
    uint32_t length_scale; /* divides the token counts of the loop's requests */
    size_t slots;          /* most requests in flight */
    int64_t timeout_us;
    /* Called with each turn sent (scaled), and with each record that ended;
     * both borrowed. A negative errno ends the run. */
    int (*sent)(void *arg, const struct trace_request *request);
    int (*ended)(void *arg, const struct replay_record *record);
    void *arg;
};

struct replay_loop_result {
    int64_t wall_us;
    bool interrupted; /* SIGINT or SIGTERM; requests in flight were dropped */
};

/* Runs the loop to its end. Returns 0 or a negative errno: see
 * closed_loop_error(). */
[[nodiscard]] int replay_loop_run(const struct replay_loop_params *params,
                                  struct replay_loop_result *result);

#endif
