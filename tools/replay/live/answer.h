/*
 * Reads a server's response to one request into its record: the events of a
 * streamed completion, or the body of an error. Pure: time is an argument.
 */
#ifndef TOOLS_REPLAY_LIVE_ANSWER_H
#define TOOLS_REPLAY_LIVE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/report/record.h"

/* Bytes kept of an error body. */
#define ANSWER_BODY_BYTES_MAX 4096

/* Server-sent events as their bytes come (WHATWG HTML, 9.2). Only the `data`
 * field matters to the OpenAI API; other fields and comments are skipped. */
/* Longest event, in bytes. */
#define SSE_EVENT_BYTES_MAX ((size_t)1 << 20)

/* {0} is a valid fresh parser. */
struct sse_parser {
    char *buffer; /* data of this event, then the unfinished line */
    size_t capacity;
    size_t data_bytes; /* data lines so far, joined by newlines */
    size_t line_bytes; /* of the unfinished line */
    bool has_data;
    bool after_cr; /* a \n now ends the same line as the \r before it */
};

/* Called for each event; `data` (`bytes` long, NUL-terminated) is borrowed. */
typedef void sse_event_cb(void *arg, const char *data, size_t bytes);

/*
 * Parses the next bytes, cut anywhere, and calls `cb` for every event they
 * complete. Returns 0, -EMSGSIZE when an event is too long, or -ENOMEM; after
 * an error only sse_fini() may be called. O(bytes).
 */
[[nodiscard]] int sse_feed(struct sse_parser *parser, const char *bytes,
                           size_t count, sse_event_cb *cb, void *arg);

/* Frees the buffer. */
void sse_fini(struct sse_parser *parser);

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
