/* The invariants of the prefix index, counted anew. */
#ifndef TESTS_UNIT_PREFIX_CHECK_H
#define TESTS_UNIT_PREFIX_CHECK_H

#include "conductor/core/index/prefix_index.h"

/* Returns whether every invariant at the top of pages.h holds. O(keys *
 * holders). */
bool prefix_index_check(const struct prefix_index *index);

#endif
