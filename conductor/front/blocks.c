/* /admin/blocks, /admin/replicas and /admin/copies: where native workers have
 * blocks, how many shall have them, and what was copied. */
#include <errno.h>
#include <event2/buffer.h>

#include "base/log.h"
#include "conductor/front/chain.h"
#include "conductor/front/internal.h"

/* Reads which blocks the request is about. On false it was answered. */
static bool read_chain(const struct front_call *call, bool copies,
                       struct chain *chain)
{
    struct openai_error error;

    if (chain_read(call->head->query, call->body, call->n, copies, chain,
                   &error) == 0)
        return true;
    http_reply_error(call->conn, &error);
    return false;
}

void view_blocks(const struct front_call *call)
{
    struct evbuffer *buf;
    struct chain chain;
    int rc;

    if (!read_chain(call, false, &chain))
        return;
    buf = evbuffer_new();
    rc = buf ? models_blocks(call->front->models, chain.key, chain.tokens,
                             chain.n, buf)
             : -ENOMEM;
    chain_fini(&chain);
    if (rc == -ENOENT)
        http_refuse(call->conn, 404, "no_native_workers", NULL,
                    "this server has no native workers");
    view_reply(call->conn, buf, rc);
}

void change_replicas(const struct front_call *call)
{
    char peer[HTTP_PEER_BYTES];
    struct evbuffer *buf;
    struct chain chain;
    int rc;

    if (!admin_may_change(call) || !read_chain(call, true, &chain))
        return;
    buf = evbuffer_new();
    rc = buf ? models_replicas(call->front->models, chain.tokens, chain.n,
                               chain.copies, buf)
             : -ENOMEM;
    if (rc != -ENOENT && rc != -EBUSY) {
        http_peer(call->conn, peer);
        log_info(
            "%u copies of a prompt of %zu tokens: ordered over /admin by %s",
            chain.copies, chain.n, peer);
    }
    chain_fini(&chain);
    if (rc == -EBUSY)
        http_refuse(call->conn, 409, "another_leads", NULL,
                    "another conductor leads, and only the leader orders "
                    "copies: ask that one (conductor_state_leader)");
    else if (rc == -ENOENT)
        http_refuse(call->conn, 404, "no_blocks", NULL,
                    "no native worker has a block of this prompt");
    view_reply(call->conn, buf, rc);
}
