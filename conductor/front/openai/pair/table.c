/* The protocols by their connectors. */
#include "conductor/front/openai/pair/pair.h"

const char *const pair_connector_names[PAIR_CONNECTORS + 1] = {
    [PAIR_NONE] = "none",
    [PAIR_NIXL] = "nixl",
    [PAIR_SHARED_STORAGE] = "shared_storage",
};

static const struct pair_protocol *const protocols[PAIR_CONNECTORS] = {
    [PAIR_NIXL] = &pair_nixl,
    [PAIR_SHARED_STORAGE] = &pair_shared_storage,
};

const struct pair_protocol *pair_protocol(enum pair_connector connector)
{
    return connector < PAIR_CONNECTORS ? protocols[connector] : NULL;
}
