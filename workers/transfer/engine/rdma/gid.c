/* Chooses the address (GID) of a card. */
#include <errno.h>
#include <string.h>

#include "workers/transfer/engine/rdma/internal.h"

/* Returns how good an address is; 0 = unusable. RoCE v2 over IPv4 is best. */
static int worth(const struct ibv_gid_entry *entry)
{
    static const uint8_t ipv4[12] = {[10] = 0xff, [11] = 0xff};

    switch (entry->gid_type) {
    case IBV_GID_TYPE_ROCE_V2:
        if (memcmp(entry->gid.raw, ipv4, sizeof(ipv4)) == 0)
            return 4;
        return entry->gid.raw[0] == 0xfe ? 2 : 3;
    case IBV_GID_TYPE_IB:
    case IBV_GID_TYPE_ROCE_V1:
        return 1;
    }
    return 0;
}

int card_find_gid(struct card *c, int n)
{
    struct ibv_gid_entry entry;
    int best = 0;

    for (int i = 0; i < n; i++) {
        if (ibv_query_gid_ex(c->verbs, 1, (uint32_t)i, &entry, 0) != 0 ||
            worth(&entry) <= best)
            continue;
        best = worth(&entry);
        c->gid = entry.gid;
    }
    return best > 0 ? 0 : -EADDRNOTAVAIL;
}

int card_gid_index(const struct card *c)
{
    struct ibv_gid_entry entry;
    struct ibv_port_attr port;
    int best = -EADDRNOTAVAIL, most = 0;

    if (ibv_query_port(c->verbs, 1, &port) != 0)
        return -EIO;
    for (int i = 0; i < port.gid_tbl_len; i++)
        if (ibv_query_gid_ex(c->verbs, 1, (uint32_t)i, &entry, 0) == 0 &&
            memcmp(&entry.gid, &c->gid, sizeof(c->gid)) == 0 &&
            worth(&entry) > most) {
            most = worth(&entry);
            best = i;
        }
    return best;
}
