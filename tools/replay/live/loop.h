/*
 * The closed loop against a server: a turn is sent when the answers that it
 * waits for have ended and its client has thought. Where all slots are taken,
 * turns that are due wait for one, and their TTFT counts from when they were
 * due.
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
    struct closed_loop *loop;           /* borrowed; goes on from where it is */
    const char *model;                  /* name in the request */
    struct trace_token_options tokens;
    uint32_t length_scale; /* divides the lengths of the loop's requests */
    size_t slots;          /* requests in flight at most */
    int64_t timeout_us;
    /* Sees each turn that is sent (scaled) and each record of one that ended;
     * both borrowed. A negative errno ends the run. */
    int (*sent)(void *arg, const struct trace_request *request);
    int (*ended)(void *arg, const struct replay_record *record);
    void *arg;
};

struct replay_loop_result {
    int64_t wall_us;
    bool interrupted; /* SIGINT or SIGTERM: what was in flight is dropped */
};

/* Runs the loop to its end. Returns 0 or a negative errno: see
 * closed_loop_error(). */
[[nodiscard]] int replay_loop_run(const struct replay_loop_params *params,
                                  struct replay_loop_result *result);

#endif
