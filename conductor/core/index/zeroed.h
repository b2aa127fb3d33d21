/* Memory for tables that are read at random positions. */
#ifndef CONDUCTOR_CORE_INDEX_ZEROED_H
#define CONDUCTOR_CORE_INDEX_ZEROED_H

#include <stddef.h>

/* Allocates a zeroed table, as calloc(), with huge pages, since random reads
 * miss the TLB without them. A large table comes untouched from the kernel:
 * calloc() might clear used memory, all of it at once. */
[[nodiscard]] void *table_zeroed(size_t n, size_t size);

/* Enlarges a table from n to `more` entries, the new ones zeroed; NULL is a
 * table of 0. The kernel remaps a large table, without a copy. Returns the
 * table, or NULL: out of memory, and the old table is unchanged. */
[[nodiscard]] void *table_resized(void *table, size_t n, size_t more,
                                  size_t size);

/* Frees a table of n entries. NULL is a no-op. */
void table_free(void *table, size_t n, size_t size);

#endif
