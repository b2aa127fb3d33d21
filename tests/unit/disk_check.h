/* The invariants of the disk tier as assertions. */
#ifndef TESTS_UNIT_DISK_CHECK_H
#define TESTS_UNIT_DISK_CHECK_H

#include "workers/disk/tier/tier.h"

/* Assert every invariant of the tier. O(slots). */
void disk_tier_check(const struct disk_tier *t);

#endif
