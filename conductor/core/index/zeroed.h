/* Memory for tables that are looked up at random. */
#ifndef CONDUCTOR_CORE_INDEX_ZEROED_H
#define CONDUCTOR_CORE_INDEX_ZEROED_H

#include <stddef.h>

/* calloc() for what is looked up at random; asks for huge pages, without
 * which look-ups miss the TLB. free() frees it. */
[[nodiscard]] void *table_zeroed(size_t n, size_t size);

#endif
