/*
 * Parses server-sent events from bytes as they come (WHATWG HTML, 9.2). Only
 * the `data` field matters to the OpenAI API; other fields and comments are
 * skipped. Pure but for its buffer.
 */
#ifndef TOOLS_REPLAY_LIVE_SSE_H
#define TOOLS_REPLAY_LIVE_SSE_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
