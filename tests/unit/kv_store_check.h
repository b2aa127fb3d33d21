/* The invariants of the KV store as assertions. */
#ifndef TESTS_UNIT_KV_STORE_CHECK_H
#define TESTS_UNIT_KV_STORE_CHECK_H

#include "workers/store/kv_store.h"

/* Assert every invariant of the store. O(capacity). */
void kv_store_check(const struct kv_store *store);

#endif
