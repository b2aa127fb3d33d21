/* Checksums with the processor's widest vectors, if libxxhash was built with
 * dispatching. */
#include "workers/transfer/engine/sum.h"

#include <stdlib.h>
#ifdef CONDUCTOR_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* redefines the functions of XXH3 */
#else
#include <xxhash.h>
#endif

struct sum_run {
    XXH3_state_t *state;
    const uint64_t *sums; /* expected, from this piece on; NULL = no check */
    uint64_t piece_bytes;
    uint64_t left_bytes; /* of this piece */
    bool wrong;
};

uint64_t sum_of(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

struct sum_run *sum_run_new(void)
{
    struct sum_run *run = calloc(1, sizeof(*run));

    if (run && !(run->state = XXH3_createState())) {
        free(run);
        return NULL;
    }
    return run;
}

void sum_run_free(struct sum_run *run)
{
    if (!run)
        return;
    XXH3_freeState(run->state);
    free(run);
}

void sum_run_begin(struct sum_run *run, const uint64_t *sums,
                   uint64_t piece_bytes)
{
    run->sums = sums;
    run->piece_bytes = run->left_bytes = piece_bytes;
    run->wrong = false;
    XXH3_64bits_reset(run->state);
}

void sum_run_add(struct sum_run *run, const void *data, size_t n)
{
    const char *at = data;

    while (run->sums && n > 0) {
        size_t k = n < run->left_bytes ? n : (size_t)run->left_bytes;

        XXH3_64bits_update(run->state, at, k);
        at += k;
        n -= k;
        run->left_bytes -= k;
        if (run->left_bytes > 0)
            return;
        run->wrong |= XXH3_64bits_digest(run->state) != *run->sums++;
        run->left_bytes = run->piece_bytes;
        XXH3_64bits_reset(run->state);
    }
}

bool sum_run_ok(const struct sum_run *run)
{
    return !run->wrong;
}
