/* Connections of the virtual net: how they open and end, and what an end
 * notices of the other. */
#include <errno.h>
#include <stdlib.h>

#include "base/bug.h"
#include "base/loop/virtual_net_internal.h"

#define FIRST_RETRY_US 1000000
#define TRIES_MAX 7u
#define PATIENCE_US (15 * INT64_C(60000000))

/* The pipe that an end writes to, and the one that it reads from. */
static struct pipe *out_of(const struct sock *s)
{
    return &s->conn->pipes[s->end];
}

static struct pipe *in_of(const struct sock *s)
{
    return &s->conn->pipes[1 - s->end];
}

static void conn_free(struct conn *c)
{
    TAILQ_REMOVE(&c->net->conns, c, link);
    pipe_fini(&c->pipes[0]);
    pipe_fini(&c->pipes[1]);
    free(c);
}

struct conn *conn_new(struct virtual_net *net, struct sock *s)
{
    struct conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->net = net;
    c->places[0] = c->places[1] = s->process->place;
    c->socks[0] = s;
    pipe_init(&c->pipes[0], c, 0);
    pipe_init(&c->pipes[1], c, 1);
    TAILQ_INSERT_TAIL(&net->conns, c, link);
    s->conn = c;
    return c;
}

/* --- what an end notices of the other ------------------------------------- */

static bool is_away(const struct conn *c, unsigned end)
{
    const struct place *here = c->places[1 - end], *there = c->places[end];

    return path_of(c->net, here, there)->cut ||
           path_of(c->net, there, here)->cut || (c->silent[end] && there->off);
}

/* Whether an end is gone and the other has not been told. */
static bool is_secretly_gone(const struct conn *c, unsigned end)
{
    const struct sock *s = c->socks[end];
    const struct pipe *out = &c->pipes[end];

    return (!s || s->state == SOCK_BROKEN) && !out->reset &&
           (!out->shut || out->end_lost);
}

/* Whether it sends something by itself: probes, or output again. */
static bool would_notice(const struct sock *s)
{
    const struct pipe *out = out_of(s);

    return s->keeps_alive || out->n_packets || !pipe_room(out);
}

void conn_mind(struct sock *s)
{
    struct conn *c = s->conn;
    unsigned other = 1 - s->end;
    bool away = s->state == SOCK_OPEN && is_away(c, other);

    if (!away)
        loop_timer_stop(&s->patience);
    if (s->state != SOCK_OPEN || !would_notice(s))
        return;
    if (!away && is_secretly_gone(c, other))
        pipe_send_reset(&c->pipes[other]);
    if (away && !loop_timer_pending(&s->patience) &&
        loop_timer_start(&s->patience,
                         s->patience_us ? s->patience_us : PATIENCE_US))
        bug("no memory for the virtual net");
}

/* --- opening -------------------------------------------------------------- */

void conn_ask(struct sock *s)
{
    struct conn *c = s->conn;

    if (s->tries == TRIES_MAX) {
        conn_fail(s, ETIMEDOUT);
        return;
    }
    if (loop_timer_start(&s->retry, FIRST_RETRY_US << s->tries++))
        bug("no memory for the virtual net");
    struct place *to = place_at(c->net, s->other.address);
    if (to)
        c->places[1] = to;
    /* A packet that waits for the link is as good as another one. */
    if (!c->pipes[0].n_packets &&
        (to ? !to->off : address_is_own(s->other.address)))
        pipe_send(&c->pipes[0], PACKET_CONNECT);
}

/* Makes the other end, which waits to be accepted. */
static void welcome(struct conn *c, struct sock *listener)
{
    const struct sock *from = c->socks[0];
    struct sock *s = sock_new(listener->process, SOCK_OPEN);

    if (!s) /* it asks again */
        return;
    s->own = from->other;
    s->other = from->own;
    s->conn = c;
    s->end = 1;
    c->socks[1] = s;
    TAILQ_INSERT_TAIL(&listener->waiting, s, entry);
    listener->n_waiting++;
    sock_notify(listener);
    pipe_send(&c->pipes[1], PACKET_WELCOME);
}

/* A connection is asked for at the place of end 1. */
static void on_connect(struct conn *c)
{
    const struct place *to = c->places[1];
    struct sock *listener;

    if (c->socks[1] || !c->socks[0] || to->off)
        return;
    listener = to->process
                   ? process_listener(to->process, c->socks[0]->other.port,
                                      to == c->places[0])
                   : NULL;
    if (!listener)
        pipe_send_reset(&c->pipes[1]);
    else if (listener->n_waiting < c->net->options.accept_max)
        welcome(c, listener);
}

static void on_welcome(struct sock *s)
{
    loop_timer_stop(&s->retry);
    s->state = SOCK_OPEN;
    sock_notify(s);
}

/* --- what comes ----------------------------------------------------------- */

void conn_take(struct conn *c, unsigned end, const struct packet *packet)
{
    struct sock *s = c->socks[end];

    if (packet->kind == PACKET_CONNECT) {
        on_connect(c);
    } else if (s && packet->kind == PACKET_RESET) {
        conn_fail(s, s->state == SOCK_CONNECTS ? ECONNREFUSED : ECONNRESET);
    } else if (s && s->state != SOCK_BROKEN) {
        if (packet->kind == PACKET_WELCOME)
            on_welcome(s);
        else
            sock_notify(s);
    } else {
        pipe_lose(&c->pipes[1 - end]);
        c->pipes[1 - end].lost = true;
        if ((packet->kind == PACKET_DATA || packet->kind == PACKET_WELCOME) &&
            !(c->silent[end] && c->places[end]->off))
            pipe_send_reset(&c->pipes[end]);
    }
}

void conn_acked(struct conn *c, unsigned end)
{
    if (c->socks[end])
        sock_notify(c->socks[end]);
}

/* --- ends ----------------------------------------------------------------- */

void conn_fail(struct sock *s, int error)
{
    if (s->state != SOCK_CONNECTS && s->state != SOCK_OPEN)
        return;
    s->state = SOCK_BROKEN;
    s->error = error;
    loop_timer_stop(&s->retry);
    loop_timer_stop(&s->patience);
    pipe_lose(out_of(s));
    pipe_lose(in_of(s));
    in_of(s)->lost = true;
    sock_notify(s);
    if (s->conn->socks[1 - s->end])
        conn_mind(s->conn->socks[1 - s->end]);
}

void conn_vanish(struct sock *s)
{
    struct conn *c = s->conn;

    loop_timer_stop(&s->retry);
    loop_timer_stop(&s->patience);
    c->socks[s->end] = NULL;
    s->conn = NULL;
    if (!c->socks[1 - s->end])
        conn_free(c);
}

void conn_leave(struct sock *s)
{
    struct pipe *out = out_of(s), *in = in_of(s);

    if (s->state == SOCK_OPEN && (in->come || in->lost))
        pipe_send_reset(out);
    else if (s->state == SOCK_OPEN)
        pipe_shut(out);
    if (s->conn)
        conn_vanish(s);
}

void conn_relink(struct conn *c)
{
    pipe_resume(&c->pipes[0]);
    pipe_resume(&c->pipes[1]);
    for (int i = 0; i < 2; i++)
        if (c->socks[i])
            conn_mind(c->socks[i]);
}

static uint64_t pipe_check(const struct pipe *p)
{
    uint32_t size = p->conn->net->options.buffer_bytes, flying = 0;

    for (uint32_t i = 0; i < p->n_packets; i++)
        flying += p->packets[p->packets_at + i].bytes;
    if (p->come > p->held || p->held > size || p->unacked > size - p->held ||
        flying != p->held - p->come)
        bug("a virtual pipe: %u come, %u flying, %u held, %u unacked, of %u",
            p->come, flying, p->held, p->unacked, size);
    return p->held;
}

uint64_t conn_check(const struct conn *c)
{
    return pipe_check(&c->pipes[0]) + pipe_check(&c->pipes[1]);
}
