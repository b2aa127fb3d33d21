/*
 * Reads a server's response to one request into its record: the events of a
 * streamed completion, or the body of an error. Pure: time is an argument.
 */
#ifndef TOOLS_REPLAY_LIVE_ANSWER_H
#define TOOLS_REPLAY_LIVE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/live/sse.h"
#include "tools/replay/report/record.h"

/* Bytes kept of an error body. */
#define ANSWER_BODY_BYTES_MAX 4096

struct replay_answer {
    struct replay_record *record; /* borrowed */
    struct sse_parser sse;
    int64_t now_us; /* when the bytes being read arrived */
    int64_t last_token_us;
    int64_t finish_us;     /* of the event with only a finish reason, or -1 */
    int64_t *intervals_us; /* between tokens */
    size_t interval_count;
    size_t interval_capacity;
    bool has_usage;
    bool done; /* the last event has come */
    char body[ANSWER_BODY_BYTES_MAX + 1];
    size_t body_bytes;
};

/* Starts an answer for `record`, borrowed until replay_answer_finish(). */
void replay_answer_init(struct replay_answer *answer,
                        struct replay_record *record);

/*
 * Reads the next bytes of a response, which came at now_us with HTTP status
 * `status`. Invalid input makes the record a failure. O(bytes).
 */
void replay_answer_feed(struct replay_answer *answer, int status,
                        const char *bytes, size_t count, int64_t now_us);

/*
 * Ends the response at now_us, with HTTP status `status`; 0 = the connection
 * failed, and `reason` says how (else NULL). Sets the record's outcome and
 * times, and frees the answer's memory.
 */
void replay_answer_finish(struct replay_answer *answer, int status,
                          const char *reason, int64_t now_us);

#endif
