/* Memory for tables that are looked up at random. */
#ifndef CONDUCTOR_CORE_INDEX_ZEROED_H
#define CONDUCTOR_CORE_INDEX_ZEROED_H

#include <stddef.h>

/* calloc() for what is looked up at random; asks for huge pages, without
 * which look-ups miss the TLB. A large table comes from the kernel, untouched:
 * calloc() may clear memory that was used before, all of it at once. */
[[nodiscard]] void *table_zeroed(size_t n, size_t size);

/* Gives a table of n, or NULL for 0, room for `more`, at least n: zeroed behind
 * the n. A large table is moved by the kernel, not copied. Returns it; NULL:
 * out of memory, and the table is as it was. */
[[nodiscard]] void *table_resized(void *table, size_t n, size_t more,
                                  size_t size);

/* Frees that, with the same n and size. NULL is a no-op. */
void table_free(void *table, size_t n, size_t size);

#endif
