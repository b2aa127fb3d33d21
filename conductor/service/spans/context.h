/*
 * Which trace a request is of, as the header traceparent says it (W3C Trace
 * Context, level 1, section 3.2):
 *
 *   00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
 *   version, trace id (not 0), id of the span above (not 0), flags
 *
 * and what a receiver of spans answers. Pure.
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

/* trace_context_parse(text, n, out): of any version but ff; of a later one than
 * 00 the members that 00 has. Returns whether it is one; if not, *out is
 * untouched. */
bool trace_context_parse(const char *text, size_t n, struct trace_context *out);

/* trace_context_write(c, out): as version 00. */
void trace_context_write(const struct trace_context *c,
                         char out[TRACEPARENT_BYTES]);

/* How many spans a receiver that answered 200 says that it did not take, in the
 * n bytes of its answer (partialSuccess), with its own words in why[256]; 0:
 * none, or nothing is said. */
uint64_t otlp_rejected(const char *text, size_t n, char why[256]);

/* The seconds of a Retry-After header (n bytes) in us, at most most_us; 0: it
 * has none. */
int64_t otlp_retry_after_us(const char *text, size_t n, int64_t most_us);

#endif
