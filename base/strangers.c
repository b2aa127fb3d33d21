/* See strangers.h. */
#include "base/strangers.h"

#include "base/host_key.h"

void strangers_init(struct strangers *s)
{
    *s = (struct strangers){.n = 0};
    TAILQ_INIT(&s->list);
}

/* Returns the connection's host key; colliding keys share their quota. */
static uint64_t host_of(const struct frame_conn *conn)
{
    char host[MSG_HOST_MAX] = "";

    if (frame_conn_peer_host(conn, host, sizeof(host)))
        host[0] = '\0'; /* already disconnected */
    return host_key(host);
}

static void add(struct strangers *s, struct stranger *x, uint64_t host)
{
    x->host = host;
    TAILQ_INSERT_TAIL(&s->list, x, link);
    s->n++;
}

void strangers_add(struct strangers *s, struct stranger *x,
                   const struct frame_conn *conn)
{
    add(s, x, host_of(conn));
}

void strangers_add_socket(struct strangers *s, struct stranger *x,
                          struct loop *loop, int fd)
{
    add(s, x, host_key_of(loop, fd));
}

void strangers_remove(struct strangers *s, struct stranger *x)
{
    TAILQ_REMOVE(&s->list, x, link);
    s->n--;
}

static unsigned count_of(const struct strangers *s, uint64_t host)
{
    const struct stranger *x;
    unsigned n = 0;

    TAILQ_FOREACH(x, &s->list, link)
    {
        n += x->host == host;
    }
    return n;
}

struct stranger *strangers_surplus(const struct strangers *s)
{
    struct stranger *x, *worst = NULL;
    unsigned most = 0;

    if (s->n < HANDSHAKE_STRANGERS_MAX)
        return NULL;
    TAILQ_FOREACH(x, &s->list, link)
    {
        bool silent = !x->handshake || !x->handshake->challenged;
        unsigned bad = 2 * count_of(s, x->host) + silent;

        if (bad > most) {
            most = bad;
            worst = x;
        }
    }
    return worst;
}
