/* The virtual net: who is where, and what is done to links and machines. */
#include "base/loop/virtual_net.h"

#include <errno.h>
#include <stdlib.h>

#include "base/loop/virtual_net_internal.h"

struct virtual_net *virtual_net_new(struct virtual_time *time,
                                    const struct virtual_net_options *options,
                                    uint32_t processes_max)
{
    struct virtual_net *net = calloc(1, sizeof(*net));
    size_t n = processes_max;

    if (!net)
        return NULL;
    TAILQ_INIT(&net->conns);
    net->time = time;
    net->options = *options;
    net->places_max = processes_max;
    net->places = calloc(n, sizeof(*net->places));
    net->paths = calloc(n * n, sizeof(*net->paths));
    net->loop = virtual_loop_new(time);
    if (!net->places || !net->paths || !net->loop) {
        virtual_net_free(net);
        return NULL;
    }
    for (size_t i = 0; i < n * n; i++)
        net->paths[i].link = options->link;
    return net;
}

void virtual_net_free(struct virtual_net *net)
{
    if (!net)
        return;
    loop_free(net->loop);
    free(net->paths);
    free(net->places);
    free(net);
}

struct place *place_at(struct virtual_net *net, uint32_t address)
{
    for (uint32_t i = 0; i < net->n_places; i++)
        if (net->places[i].address == address)
            return &net->places[i];
    return NULL;
}

/* Lets each connection between two places look at its links again; b NULL =
 * between a and any. */
static void relink(struct virtual_net *net, const struct place *a,
                   const struct place *b)
{
    struct conn *c;

    TAILQ_FOREACH(c, &net->conns, link)
    {
        if ((c->places[0] == a && (!b || c->places[1] == b)) ||
            (c->places[1] == a && (!b || c->places[0] == b)))
            conn_relink(c);
    }
}

int virtual_net_join(struct virtual_net *net, struct loop *loop,
                     uint32_t address)
{
    struct place *at = place_at(net, address);
    struct virtual_process *p;

    if ((at && at->process) || (!at && net->n_places == net->places_max))
        return -EADDRINUSE;
    p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    if (!at) {
        at = &net->places[net->n_places];
        *at = (struct place){.address = address, .number = net->n_places++};
    }
    *p = (struct virtual_process){
        .net = net, .loop = virtual_loop_of(loop), .place = at};
    at->process = p;
    at->off = false;
    virtual_loop_of(loop)->process = p;
    relink(net, at, NULL);
    return 0;
}

void virtual_net_link(struct virtual_net *net, uint32_t from, uint32_t to,
                      const struct virtual_link *link)
{
    const struct place *a = place_at(net, from), *b = place_at(net, to);

    if (a && b)
        path_of(net, a, b)->link = *link;
}

void virtual_net_cut(struct virtual_net *net, uint32_t from, uint32_t to,
                     bool cut)
{
    const struct place *a = place_at(net, from), *b = place_at(net, to);

    if (!a || !b || path_of(net, a, b)->cut == cut)
        return;
    path_of(net, a, b)->cut = cut;
    relink(net, a, b);
}

static bool is_open(const struct conn *c)
{
    return c->socks[0] && c->socks[0]->state == SOCK_OPEN && c->socks[1] &&
           c->socks[1]->state == SOCK_OPEN;
}

bool virtual_net_reset(struct virtual_net *net, uint32_t which)
{
    struct conn *c;
    uint32_t n = 0;

    TAILQ_FOREACH(c, &net->conns, link)
    n += is_open(c);
    if (!n)
        return false;
    which %= n;
    TAILQ_FOREACH(c, &net->conns, link)
    {
        if (is_open(c) && which-- == 0)
            break;
    }
    pipe_send_reset(&c->pipes[0]);
    pipe_send_reset(&c->pipes[1]);
    return true;
}

/* Ends a socket without a word, because its machine is off. */
static void silence(struct sock *s)
{
    struct sock *waits;
    struct conn *c = s->conn;

    while ((waits = TAILQ_FIRST(&s->waiting))) {
        TAILQ_REMOVE(&s->waiting, waits, entry);
        silence(waits);
        sock_free(waits);
    }
    s->n_waiting = 0;
    if (!c)
        return;
    pipe_lose(&c->pipes[s->end]);
    c->silent[s->end] = true;
    struct sock *other = c->socks[1 - s->end];
    conn_vanish(s);
    if (other)
        conn_mind(other);
}

void virtual_net_kill(struct loop *loop, bool off)
{
    struct virtual_process *p = virtual_loop_of(loop)->process;

    if (p->place->process != p)
        return;
    p->place->process = NULL;
    p->place->off = off;
    for (uint32_t i = 0; i < p->n_table; i++) {
        struct sock *s = p->table[i];

        if (!s)
            continue;
        if (off)
            silence(s);
        else
            sock_leave(s);
        s->state = SOCK_DEAD;
        s->error = ENETDOWN;
        sock_notify(s);
    }
}

void virtual_process_free(struct virtual_process *p)
{
    if (!p)
        return;
    virtual_net_kill(&p->loop->loop, false);
    for (uint32_t i = 0; i < p->n_table; i++)
        if (p->table[i])
            sock_free(p->table[i]);
    free(p->table);
    free(p);
}

uint64_t virtual_net_check(const struct virtual_net *net)
{
    const struct conn *c;
    uint64_t held = 0;

    TAILQ_FOREACH(c, &net->conns, link)
    held += conn_check(c);
    return held;
}
