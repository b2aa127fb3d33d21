/*
 * The open loop: sends each request at its time in the trace, whether or not
 * earlier requests are answered. A request held back by max_in_flight is late;
 * its TTFT counts from its intended time.
 */
#ifndef TOOLS_REPLAY_LIVE_RUN_H
#define TOOLS_REPLAY_LIVE_RUN_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/live/http_request.h"
#include "tools/replay/report/record.h"
#include "tools/replay/trace/load.h"
#include "traces/tokens.h"

struct replay_run_params {
    struct event_base *base;            /* borrowed */
    const struct replay_server *server; /* borrowed */
    const struct replay_trace *trace;   /* borrowed */
    const char *model;                  /* name in the request */
    struct trace_token_options tokens;
    uint64_t first_index; /* index of the first request in its file */
    double speed;         /* 2 = twice as fast as the trace */
    uint64_t max_in_flight;
    int64_t timeout_us;
    int64_t slo_ttft_us; /* the server's own SLO; 0 = unknown */
};

struct replay_run_result {
    int64_t wall_us;
    bool interrupted; /* SIGINT or SIGTERM; the rest was not sent */
};

/*
 * Replays the trace into records (trace->count, filled here) and shows progress
 * on stderr. Requests not sent, or in flight when the user stops it, stay
 * REPLAY_PENDING. Returns 0 or -ENOMEM.
 */
[[nodiscard]] int replay_run(const struct replay_run_params *params,
                             struct replay_record *records,
                             struct replay_run_result *result);

/*
 * Returns the JSON body of a streamed completion for `request`, with its
 * priority if it has one: owned, or NULL when out of memory. O(tokens).
 */
[[nodiscard]] struct evbuffer *
replay_body_new(const struct trace_request *request, const char *model,
                const struct trace_token_options *tokens);

/*
 * Returns a body as replay_body_new(), of the tokens prompt[n]. `fields`:
 * further members, each with a comma behind it. O(n).
 */
[[nodiscard]] struct evbuffer *replay_body_of(const char *model,
                                              uint32_t max_tokens,
                                              const char *fields,
                                              const uint32_t *prompt, size_t n);

#endif
