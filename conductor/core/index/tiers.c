/* The tiers of KV blocks. */
#include "conductor/core/index/prefix_index.h"

const struct block_tier_kind block_tiers[LOAD_TIERS] = {
    [TIER_DEVICE] = {"device", true, {"GPU"}},
    [TIER_HOST] = {"host", true, {"CPU", "CPU_PINNED", "HOST"}},
    [TIER_DISK] = {"disk",
                   false,
                   {"DISK", "STORAGE", "FS", "OBJ", "NVME", "EXTERNAL"}},
    [TIER_SHARED] = {"shared",
                     false,
                     {NULL}}, /* instances read it themselves */
};
