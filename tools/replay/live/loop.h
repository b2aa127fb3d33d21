/*
 * Requests to a server, each when its source says that it is due. A due request
 * waits while as many as may are in flight; its TTFT counts from its due time.
 */
#ifndef TOOLS_REPLAY_LIVE_LOOP_H
#define TOOLS_REPLAY_LIVE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/live/http_request.h"
#include "tools/replay/report/record.h"
#include "traces/tokens.h"

struct loop;

struct replay_loop_params {
    struct loop *loop;                  /* borrowed */
    const struct replay_server *server; /* borrowed */
    const char *model;                  /* name in the request */
    struct trace_token_options tokens;
    size_t max_in_flight;
    int64_t timeout_us;
    struct replay_record *records; /* [n_records], borrowed */
    size_t n_records;
    /* Returns when the next request is due, in us from the start; -1 = not
     * before an answer ends, or never. */
    int64_t (*due_us)(void *arg);
    /* Takes the due request, borrowed until the next call, and fills its
     * record. Returns the record's index, or a negative errno, which ends the
     * run. */
    int64_t (*next)(void *arg, int64_t due_us,
                    const struct trace_request **request);
    /* The record ended at now_us; it is in use until this returns. A negative
     * errno ends the run. */
    int (*ended)(void *arg, struct replay_record *record, int64_t now_us);
    void *arg;
};

struct replay_loop_result {
    int64_t wall_us;
    bool interrupted; /* SIGINT or SIGTERM; requests in flight were dropped */
};

/* Returns the record of a request that was not sent. */
struct replay_record replay_record_new(uint64_t index, int64_t intended_us,
                                       const struct trace_request *request);

/* Sends until nothing is due nor in flight. Returns 0 or a negative errno. */
[[nodiscard]] int replay_loop_run(const struct replay_loop_params *params,
                                  struct replay_loop_result *result);

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
