/*
 * Simulator only: conventions of papers, and hardware that no worker has. The
 * simulator fills it in; the daemon leaves all of it zero.
 */
#ifndef CONDUCTOR_CORE_SIMULATED_WORLD_H
#define CONDUCTOR_CORE_SIMULATED_WORLD_H

#include <stdbool.h>
#include <stdint.h>

struct prefix_index;

struct simulated_world {
    bool pooled_cache;       /* every instance reads every stored block at no
                                cost */
    bool whole_prompt_reuse; /* all of a prompt may be reused, its partial last
                                block too, and computing nothing takes no time;
                                an engine has to compute the last token */
    bool links_unshared;     /* transfers don't slow each other down */
    int64_t slowdown; /* times pass so many times more slowly; 0: as they are */
    bool disks_send; /* an instance also sends what only its disk holds, if that
                        has a rate; workers send from memory alone */
    /* The blocks that instances expect, which count as local matches, instead
     * of what the pool derives from accepted prefills: for instances that hold
     * places for blocks from the moment of the decision on. Commits then give
     * the pool no keys. Borrowed; of as many instances as the scheduler's
     * index. NULL: what the pool derives. */
    struct prefix_index *expected;
};

#endif
