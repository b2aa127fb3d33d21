/*
 * Options of the simulator alone: conventions of papers, and hardware that no
 * worker has. All zero in the daemon.
 */
#ifndef CONDUCTOR_CORE_SIMULATED_WORLD_H
#define CONDUCTOR_CORE_SIMULATED_WORLD_H

#include <stdbool.h>
#include <stdint.h>

struct prefix_index;

struct simulated_world {
    bool pooled_cache;       /* every instance reads every stored block at no
                                cost */
    bool whole_prompt_reuse; /* a prompt may be reused completely, its partial
                                last block too, in no time; real engines have to
                                compute the last token */
    bool links_unshared;     /* transfers don't slow each other down */
    int64_t slowdown;        /* factor for fixed time spans; 0 = 1 */
    bool disks_send; /* an instance also sends blocks that only its disk holds,
                        if that has a rate; workers send from memory alone */
    /* The blocks that instances expect: local matches, instead of the pool's
     * pending blocks, for instances that hold places for blocks from the
     * decision on. Commits then give the pool no keys. Borrowed; with as many
     * instances as the scheduler's index. NULL = the pool's pending blocks. */
    struct prefix_index *expected;
};

#endif
