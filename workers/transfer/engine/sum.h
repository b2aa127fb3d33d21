/* Checksums of KV: XXH3-64. On any thread. */
#ifndef WORKERS_TRANSFER_ENGINE_SUM_H
#define WORKERS_TRANSFER_ENGINE_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Compares bytes, as they come, with the sums of equally long pieces. */
struct sum_run;

/* XXH3-64 of n bytes. */
uint64_t sum_of(const void *data, size_t n);

/* Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct sum_run *sum_run_new(void);

/* NULL is a no-op. */
void sum_run_free(struct sum_run *run);

/* What comes next are pieces of piece_bytes with these sums (borrowed until all
 * came). NULL: nothing is compared. */
void sum_run_begin(struct sum_run *run, const uint64_t *sums,
                   uint64_t piece_bytes);

/* n bytes came. */
void sum_run_add(struct sum_run *run, const void *data, size_t n);

/* Whether all pieces that are complete had their sums. */
bool sum_run_ok(const struct sum_run *run);

#endif
