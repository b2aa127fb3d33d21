/* Paths: the messages of the channel. */
#include <errno.h>
#include <string.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/internal.h"

/* --- queue pairs --- */

static void on_paired(struct rdma_path *p, const struct wire_message *m)
{
    for (uint32_t i = 0; i < p->rdma->n_cards; i++)
        if (p->ends[i] && p->ends[i]->id == m->id) {
            end_paired(p->ends[i], m);
            return;
        }
}

/* --- rails --- */

/* Pause before a rail that came up is tried: the other end of the link mostly
 * comes up with it, but the RAIL message about that arrives later. */
#define LINK_UP_US 100000

void path_rail_changed(struct rdma_path *p, uint32_t rail, bool up)
{
    if (!up && p->ends[rail])
        end_fail(p->ends[rail], "its port is down");
    p->attempts[rail] = 0;
    if (up)
        spread_rail_renew(p->spread, rail,
                          loop_now_us(p->rdma->config.loop) + LINK_UP_US);
    path_mark(p);
}

static void on_rail(struct rdma_path *p, uint32_t peer_rail, bool up)
{
    if (peer_rail >= p->peer.n_rails || p->peer.rails[peer_rail].up == up)
        return;
    p->peer.rails[peer_rail].up = up;
    for (uint32_t i = 0; i < p->rdma->n_cards; i++) {
        if (!up && p->ends[i] && p->ends[i]->peer_rail == peer_rail)
            end_fail(p->ends[i], "the peer's port is down");
        if (!up || !p->rdma->cards[i].up)
            continue;
        p->attempts[i] = 0;
        spread_rail_renew(p->spread, i, loop_now_us(p->rdma->config.loop));
    }
}

/* --- the channel --- */

void path_opened(void *arg)
{
    struct rdma_path *p = arg;
    struct wire_message m = {.type = WIRE_HELLO, .id = WIRE_VERSION};

    memcpy(m.data, p->peer.token, sizeof(m.data));
    channel_send(&p->channel, &m);
}

void path_channel_gone(void *arg, int rc, const char *why)
{
    path_fail(arg, rc, why);
}

bool path_message(void *arg, const struct wire_message *m)
{
    struct rdma_path *p = arg;
    int rc = 0;

    if (m->type == WIRE_WELCOME)
        p->welcome = true;
    else if (m->type == WIRE_PAIRED)
        on_paired(p, m);
    else if (m->type == WIRE_GRANT)
        rc = path_granted(p, m->id);
    else if (m->type == WIRE_REVOKE)
        rc = path_revoke(p, m->id);
    else if (m->type == WIRE_RAIL)
        on_rail(p, m->rail, m->rc == 1);
    else
        rc = -EPROTO;
    if (rc < 0)
        path_fail(p, rc, "a message that does not fit");
    path_mark(p);
    return p->rc == 0;
}
