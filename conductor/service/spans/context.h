/*
 * The trace of a request, in its header traceparent (W3C Trace Context, level
 * 1, section 3.2):
 *
 *   00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
 *   version, trace id (not 0), id of the span above (not 0), flags
 *
 * and the answers of receivers of spans. Pure.
 */
#ifndef CONDUCTOR_SERVICE_SPANS_CONTEXT_H
#define CONDUCTOR_SERVICE_SPANS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_HEX 32 /* digits of a trace id */
#define SPAN_HEX 16
#define TRACEPARENT_BYTES 56 /* with the NUL */

struct trace_context {
    char trace[TRACE_HEX + 1]; /* lower case */
    char span[SPAN_HEX + 1];   /* likewise */
    bool sampled;
};

/* trace_context_parse(text, n, out): reads a traceparent of any version but ff;
 * of later versions only the members of version 00. Returns whether it is
 * valid; if not, *out is untouched. */
bool trace_context_parse(const char *text, size_t n, struct trace_context *out);

/* trace_context_write(c, out): writes a traceparent of version 00. */
void trace_context_write(const struct trace_context *c,
                         char out[TRACEPARENT_BYTES]);

/* Returns the number of spans rejected by a receiver, from partialSuccess in
 * its 200 answer of n bytes, and copies its message to why[256]. 0 = none, or
 * not told. */
uint64_t otlp_rejected(const char *text, size_t n, char why[256]);

/* Returns the seconds of a Retry-After header (n bytes) in us, at most most_us;
 * 0 = not a number. */
int64_t otlp_retry_after_us(const char *text, size_t n, int64_t most_us);

#endif
