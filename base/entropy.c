#include "base/entropy.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

/* n <= 256: getrandom() then gives all bytes, or fails with EINTR. */
static void take(void *to, size_t n)
{
    while (getrandom(to, n, 0) != (ssize_t)n)
        if (errno != EINTR)
            abort();
}

uint64_t entropy_u64(void)
{
    uint64_t number = 0;

    take(&number, sizeof(number));
    return number;
}

uint64_t entropy_next(struct entropy_store *store)
{
    uint64_t number;

    static_assert(sizeof(store->numbers) <= 256);
    if (store->left == 0) {
        take(store->numbers, sizeof(store->numbers));
        store->left = ENTROPY_AHEAD;
    }
    number = store->numbers[--store->left];
    store->numbers[store->left] = 0;
    return number;
}
