/* Accepted connections, until they send the token of an offer. */
#include <stdlib.h>

#include "base/loop/loop.h"
#include "base/loop/net.h"
#include "workers/transfer/engine/rdma/internal.h"

static void free_stranger(struct stranger_channel *s)
{
    TAILQ_REMOVE(&s->rdma->strangers, s, link);
    s->rdma->n_strangers--;
    channel_fini(&s->channel);
    free(s);
}

static void stranger_gone(void *arg, int, const char *)
{
    free_stranger(arg);
}

/* Compares in constant time. */
static bool is_token(const uint8_t *a, const uint8_t *b)
{
    uint8_t differ = 0;

    for (uint32_t i = 0; i < WIRE_TOKEN_BYTES; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

static bool stranger_message(void *arg, const struct wire_message *m)
{
    struct stranger_channel *s = arg;
    struct rdma_offer *o;

    TAILQ_FOREACH(o, &s->rdma->offers, link)
    if (m->type == WIRE_HELLO && m->id == WIRE_VERSION &&
        is_token(m->data, o->token))
        break;
    if (o)
        offer_take(o, &s->channel);
    free_stranger(s);
    return false;
}

void rdma_accept(void *arg, int fd)
{
    struct rdma *r = arg;
    struct stranger_channel *s = calloc(1, sizeof(*s));

    if (!s) {
        net_close(r->config.loop, fd);
        return;
    }
    s->rdma = r;
    s->since_us = loop_now_us(r->config.loop);
    s->channel.message = stranger_message;
    s->channel.gone = stranger_gone;
    s->channel.arg = s;
    if (channel_take(&s->channel, r->config.stream_loop, fd) < 0) {
        free(s);
        return;
    }
    TAILQ_INSERT_TAIL(&r->strangers, s, link);
    if (++r->n_strangers > RDMA_STRANGERS_MAX)
        free_stranger(TAILQ_FIRST(&r->strangers));
}

void rdma_strangers_drop(struct rdma *r, int64_t since_us)
{
    struct stranger_channel *s;

    while ((s = TAILQ_FIRST(&r->strangers)) && s->since_us <= since_us)
        free_stranger(s);
}
