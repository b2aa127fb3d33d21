/* Checksums of KV: XXH3-64. May be used on any thread. */
#ifndef WORKERS_TRANSFER_ENGINE_SUM_H
#define WORKERS_TRANSFER_ENGINE_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Compares bytes, as they arrive, with the expected checksums of equally long
 * pieces. */
struct sum_run;

/* Returns the XXH3-64 of data[n]. */
uint64_t sum_of(const void *data, size_t n);

/* Makes a run. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct sum_run *sum_run_new(void);

/* Frees it. NULL is a no-op. */
void sum_run_free(struct sum_run *run);

/* Begins anew with pieces of piece_bytes. `sums` has the sum of each, borrowed
 * until the last piece came; NULL = no check. */
void sum_run_begin(struct sum_run *run, const uint64_t *sums,
                   uint64_t piece_bytes);

/* Adds the next n bytes. */
void sum_run_add(struct sum_run *run, const void *data, size_t n);

/* Returns whether all complete pieces matched their sums. */
bool sum_run_ok(const struct sum_run *run);

#endif
