/*
 * Spans on their way to a receiver, by OTLP over HTTP in JSON. The loop writes
 * them into memory that is bounded, and never waits: a batch at a time is sent,
 * once a second or when it is long enough. What finds no room is dropped, and
 * counted.
 */
#ifndef CONDUCTOR_SERVICE_SPANS_EXPORTER_H
#define CONDUCTOR_SERVICE_SPANS_EXPORTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct dns;
struct exporter;

/* Of spans that are not sent yet; as many again of the batch under way. */
#define EXPORTER_BYTES ((size_t)4 << 20)

struct exporter_counts {
    uint64_t sent;     /* spans that the receiver took */
    uint64_t dropped;  /* for which there was no room, or no receiver */
    uint64_t rejected; /* that it did not take */
};

/* exporter_new(base, dns): without a receiver. Borrows both. Returns it owned,
 * or NULL: out of memory. */
[[nodiscard]] struct exporter *exporter_new(struct event_base *base,
                                            struct dns *dns);

/* exporter_take(x, endpoint): spans go there from now on, which
 * option_check_otlp() has found good; "": nowhere. Those that were not sent are
 * dropped if that is elsewhere. Returns 0 or -ENOMEM: nowhere. */
[[nodiscard]] int exporter_take(struct exporter *x, const char *endpoint);

/* Whether there is a receiver. */
bool exporter_is_open(const struct exporter *x);

/* exporter_add(x, spans, n, count): so many spans as objects of JSON with
 * commas between them, n bytes, copied. */
void exporter_add(struct exporter *x, const char *spans, size_t n,
                  uint64_t count);

/* exporter_flush(x): sends what there is without waiting for more. Returns
 * whether nothing is left. */
bool exporter_flush(struct exporter *x);

struct exporter_counts exporter_counts(const struct exporter *x);

/* Bytes that are not sent yet, with the batch under way. */
size_t exporter_waiting(const struct exporter *x);

/* exporter_free(x): drops what is left. NULL is a no-op. */
void exporter_free(struct exporter *x);

#endif
