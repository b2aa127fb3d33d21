/*
 * Sends spans to a receiver, by OTLP over HTTP in JSON, without blocking the
 * loop: in bounded memory, one batch at a time, once a second or when it is
 * long enough. Spans without room are dropped, and counted.
 */
#ifndef CONDUCTOR_SERVICE_SPANS_EXPORTER_H
#define CONDUCTOR_SERVICE_SPANS_EXPORTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dns;
struct exporter;
struct loop;

/* Most bytes of spans not sent yet; the batch being sent may take as many. */
#define EXPORTER_BYTES ((size_t)4 << 20)

struct exporter_counts {
    uint64_t sent;     /* spans that the receiver accepted */
    uint64_t dropped;  /* spans without room, or without receiver */
    uint64_t rejected; /* spans that the receiver refused */
};

/* exporter_new(loop, dns): creates an exporter without a receiver. Borrows
 * both. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct exporter *exporter_new(struct loop *loop, struct dns *dns);

/* exporter_take(x, endpoint): sends later spans to this endpoint, already
 * checked by option_check_otlp(); "" = no receiver. If it changes, unsent spans
 * are dropped. Returns 0, or -ENOMEM: there is no receiver. */
[[nodiscard]] int exporter_take(struct exporter *x, const char *endpoint);

/* Returns whether a receiver is set. */
bool exporter_is_open(const struct exporter *x);

/* exporter_add(x, spans, n, count): queues `count` spans, given as n bytes of
 * JSON objects with commas between; copied. */
void exporter_add(struct exporter *x, const char *spans, size_t n,
                  uint64_t count);

/* exporter_flush(x): begins to send queued spans at once, if no batch is being
 * sent. Returns whether nothing is left to send. */
bool exporter_flush(struct exporter *x);

struct exporter_counts exporter_counts(const struct exporter *x);

/* Returns the bytes not sent yet, including the batch being sent. */
size_t exporter_waiting(const struct exporter *x);

/* exporter_free(x): drops unsent spans. NULL is a no-op. */
void exporter_free(struct exporter *x);

#endif
