/* The protocols by their connectors. */
#include "conductor/connector/pair.h"

const char *const pair_connector_names[PAIR_CONNECTORS + 1] = {
    [PAIR_NONE] = "none",
    [PAIR_NIXL] = "nixl",
    [PAIR_SHARED_STORAGE] = "shared_storage",
    [PAIR_SGLANG] = "sglang",
    [PAIR_OFFLOADING] = "offloading",
    [PAIR_MOONCAKE] = "mooncake",
};

static const struct pair_protocol *const protocols[PAIR_CONNECTORS] = {
    [PAIR_NIXL] = &pair_nixl,
    [PAIR_SHARED_STORAGE] = &pair_shared_storage,
    [PAIR_SGLANG] = &pair_sglang,
    [PAIR_OFFLOADING] = &pair_offloading,
    [PAIR_MOONCAKE] = &pair_mooncake,
};

const struct pair_protocol *pair_protocol(enum pair_connector connector)
{
    return connector < PAIR_CONNECTORS ? protocols[connector] : NULL;
}

uint32_t pair_apart(bool usual)
{
    uint32_t apart = UINT32_MAX;

    for (uint32_t i = 1; i < PAIR_CONNECTORS; i++)
        if (usual || protocols[i]->any)
            apart &= ~(1u << i);
    return apart;
}
