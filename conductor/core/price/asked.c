/* Counts of blocks asked for. See asked.h. */
#include "conductor/core/price/asked.h"

#include <errno.h>
#include <string.h>

#include "conductor/core/index/zeroed.h"

#define COUNT_MASK UINT64_C(0xff)
#define KNOWN_MIN 20u     /* fewer blocks tell nothing */
#define AGAIN_UNKNOWN 0.5 /* expected while nothing is known */

int asked_init(struct asked *a, uint64_t max_blocks, uint64_t seed)
{
    *a = (struct asked){.n_sets = max_blocks / ASKED_WAYS + 1, .seed = seed};
    a->max_blocks = a->n_sets * ASKED_WAYS;
    a->sets = table_zeroed(a->max_blocks, sizeof(*a->sets));
    return a->sets ? 0 : -ENOMEM;
}

void asked_fini(struct asked *a)
{
    table_free(a->sets, a->max_blocks, sizeof(*a->sets));
    a->sets = NULL;
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Halves H once as many new blocks came as the table has places. */
static void age(struct asked *a)
{
    if (++a->first_asks < a->max_blocks)
        return;
    a->first_asks = 0;
    for (uint32_t k = 1; k <= ASKED_COUNT_MAX; k++)
        a->at_least[k] /= 2;
}

static uint64_t hash_of(const struct asked *a, uint64_t key)
{
    return mix(mix(key ^ a->seed) + a->seed);
}

static uint64_t *set_of(const struct asked *a, uint64_t hash)
{
    return a->sets + hash % a->n_sets * ASKED_WAYS;
}

void asked_fetch(const struct asked *a, uint64_t key)
{
    __builtin_prefetch(set_of(a, hash_of(a, key)), 1);
}

uint32_t asked_count(struct asked *a, uint64_t key)
{
    uint64_t hash = hash_of(a, key);
    uint64_t *set = set_of(a, hash);
    uint64_t tag = mix(hash) & ~COUNT_MASK, count = 0;
    uint32_t at = 0;

    while (at < ASKED_WAYS - 1 && set[at] != 0 &&
           (set[at] & ~COUNT_MASK) != tag)
        at++;
    if ((set[at] & ~COUNT_MASK) == tag)
        count = set[at] & COUNT_MASK;
    memmove(set + 1, set, at * sizeof(*set));
    if (count == 0)
        age(a);
    if (count < ASKED_COUNT_MAX)
        a->at_least[++count]++;
    set[0] = tag | count;
    return (uint32_t)count;
}

void asked_expect(const struct asked *a, double again[ASKED_EXPECT_MAX + 1])
{
    uint64_t more = 0;

    for (uint32_t k = ASKED_COUNT_MAX; k > 0; k--) {
        uint64_t n = a->at_least[k];

        if (k <= ASKED_EXPECT_MAX)
            again[k] = n > KNOWN_MIN ? (double)more / (double)n : AGAIN_UNKNOWN;
        more += n;
    }
    again[0] = again[1];
}
