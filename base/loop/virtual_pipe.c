/* One way of a connection of the virtual net: bytes in a ring, and packets that
 * say when they come. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bug.h"
#include "base/loop/virtual_net_internal.h"

/* After a cut a sender tries again within this time. */
#define RETRANSMIT_US 200000u

static struct virtual_net *net_of(const struct pipe *p)
{
    return p->conn->net;
}

static struct path *path_to(const struct pipe *p)
{
    struct conn *c = p->conn;

    return path_of(c->net, c->places[p->from], c->places[1 - p->from]);
}

static struct path *path_back(const struct pipe *p)
{
    struct conn *c = p->conn;

    return path_of(c->net, c->places[1 - p->from], c->places[p->from]);
}

static int64_t now_us(const struct pipe *p)
{
    return virtual_time_us(net_of(p)->time);
}

static int64_t delay_us(const struct pipe *p, const struct path *path)
{
    const struct virtual_link *link = &path->link;
    int64_t us = link->latency_us;

    if (link->jitter_us > 0)
        us += (int64_t)virtual_draw(net_of(p)->time) % (link->jitter_us + 1);
    return us < 1 ? 1 : us;
}

/* The world's own memory: without it there is no world. */
static void arm(struct loop_timer *timer, int64_t us)
{
    if (loop_timer_start(timer, us))
        bug("no memory for the virtual net");
}

/* --- packets -------------------------------------------------------------- */

/* Returns a free packet behind the last one, or NULL: out of memory. */
static struct packet *packet_room(struct pipe *p)
{
    if (p->packets_at + p->n_packets < p->packets_cap)
        return &p->packets[p->packets_at + p->n_packets];
    if (p->packets_at > p->packets_cap / 2) {
        memmove(p->packets, p->packets + p->packets_at,
                p->n_packets * sizeof(*p->packets));
        p->packets_at = 0;
        return &p->packets[p->n_packets];
    }
    uint32_t cap = p->packets_cap ? 2 * p->packets_cap : 8;
    struct packet *packets = realloc(p->packets, cap * sizeof(*packets));
    if (!packets)
        return NULL;
    p->packets = packets;
    p->packets_cap = cap;
    return &packets[p->packets_at + p->n_packets];
}

void pipe_poke(struct pipe *p)
{
    const struct packet *head = &p->packets[p->packets_at];

    if (p->unacked && !path_back(p)->cut && !loop_timer_pending(&p->ack))
        arm(&p->ack, delay_us(p, path_back(p)));
    if (!p->n_packets || path_to(p)->cut)
        loop_timer_stop(&p->arrival);
    else
        arm(&p->arrival, head->due_us - now_us(p));
}

void pipe_resume(struct pipe *p)
{
    struct packet *head = &p->packets[p->packets_at];

    if (p->n_packets && head->due_us <= now_us(p))
        head->due_us = now_us(p) + delay_us(p, path_to(p)) +
                       virtual_draw(net_of(p)->time) % RETRANSMIT_US;
    pipe_poke(p);
}

/* When a packet that leaves now comes, unless one that left before comes later:
 * the order holds. */
static int64_t due_us(struct pipe *p, uint32_t bytes)
{
    struct path *path = path_to(p);
    int64_t leaves_us = now_us(p);

    if (path->link.bytes_per_s && bytes) {
        if (leaves_us < path->free_us)
            leaves_us = path->free_us;
        leaves_us +=
            (int64_t)((uint64_t)bytes * 1000000 / path->link.bytes_per_s);
        path->free_us = leaves_us;
    }
    return leaves_us + delay_us(p, path);
}

/* Returns 0 or -ENOMEM. */
static int send_packet(struct pipe *p, enum packet_kind kind, uint32_t bytes)
{
    struct packet *packet = packet_room(p);

    if (!packet)
        return -ENOMEM;
    *packet = (struct packet){
        .kind = kind, .bytes = bytes, .due_us = due_us(p, bytes)};
    if (p->n_packets++ == 0)
        pipe_poke(p);
    return 0;
}

void pipe_send(struct pipe *p, enum packet_kind kind)
{
    struct conn *c = p->conn;

    if (send_packet(p, kind, 0) == 0)
        return;
    for (int i = 0; i < 2; i++)
        if (c->socks[i])
            conn_fail(c->socks[i], ENOMEM);
}

void pipe_shut(struct pipe *p)
{
    if (p->shut)
        return;
    p->shut = true;
    pipe_send(p, PACKET_END);
}

void pipe_send_reset(struct pipe *p)
{
    if (p->reset)
        return;
    if (virtual_draw(net_of(p)->time) & 1) /* it overtakes what is lost */
        pipe_lose(p);
    p->reset = true;
    pipe_send(p, PACKET_RESET);
}

void pipe_lose(struct pipe *p)
{
    struct packet *all = p->packets + p->packets_at;
    uint32_t n = p->n_packets;

    p->n_packets = 0;
    for (uint32_t i = 0; i < n; i++)
        if (all[i].kind == PACKET_RESET)
            all[p->n_packets++] = all[i];
        else if (all[i].kind == PACKET_END)
            p->end_lost = true;
    p->held = p->come;
    pipe_poke(p);
}

static void on_arrival(void *arg)
{
    struct pipe *p = arg;
    struct packet packet = p->packets[p->packets_at++];

    if (--p->n_packets == 0)
        p->packets_at = 0;
    if (packet.kind == PACKET_DATA)
        p->come += packet.bytes;
    if (packet.kind == PACKET_END)
        p->ended = true;
    pipe_poke(p);
    conn_take(p->conn, 1 - p->from, &packet);
}

static void on_ack(void *arg)
{
    struct pipe *p = arg;

    if (path_back(p)->cut) /* conn_relink() goes on */
        return;
    p->unacked = 0;
    conn_acked(p->conn, p->from);
}

/* --- bytes ---------------------------------------------------------------- */

uint32_t pipe_room(const struct pipe *p)
{
    return net_of(p)->options.buffer_bytes - p->held - p->unacked;
}

/* Copies n bytes into the ring at `at`, counted from `first`. */
static void put(struct pipe *p, uint32_t at, const char *from, uint32_t n)
{
    uint32_t size = net_of(p)->options.buffer_bytes;
    uint32_t begin = (uint32_t)(((uint64_t)p->first + at) % size);
    uint32_t before = n < size - begin ? n : size - begin;

    memcpy(p->ring + begin, from, before);
    memcpy(p->ring, from + before, n - before);
}

int pipe_write(struct pipe *p, const struct iovec *parts, uint32_t n)
{
    uint32_t size = net_of(p)->options.buffer_bytes, at = p->held;

    if (p->lost) /* the kernel takes it, and learns that nobody reads it */
        return send_packet(p, PACKET_DATA, 0);
    if (!p->ring && !(p->ring = malloc(size)))
        return -ENOMEM;
    int rc = send_packet(p, PACKET_DATA, n);
    if (rc)
        return rc;
    for (p->held += n; n; parts++) {
        uint32_t some = parts->iov_len < n ? (uint32_t)parts->iov_len : n;

        put(p, at, parts->iov_base, some);
        at += some;
        n -= some;
    }
    return 0;
}

void pipe_peek(const struct pipe *p, char *to, uint32_t n)
{
    uint32_t size = net_of(p)->options.buffer_bytes;
    uint32_t before = n < size - p->first ? n : size - p->first;

    memcpy(to, p->ring + p->first, before);
    memcpy(to + before, p->ring, n - before);
}

void pipe_read(struct pipe *p, char *to, uint32_t n)
{
    pipe_peek(p, to, n);
    p->first =
        (uint32_t)(((uint64_t)p->first + n) % net_of(p)->options.buffer_bytes);
    p->come -= n;
    p->held -= n;
    p->unacked += n;
    if (!p->held) {
        free(p->ring);
        p->ring = NULL;
        p->first = 0;
    }
    if (!loop_timer_pending(&p->ack) && !path_back(p)->cut)
        arm(&p->ack, delay_us(p, path_back(p)));
}

void pipe_init(struct pipe *p, struct conn *conn, unsigned from)
{
    *p = (struct pipe){.conn = conn, .from = from};
    loop_timer_init(conn->net->loop, &p->arrival, on_arrival, p);
    loop_timer_init(conn->net->loop, &p->ack, on_ack, p);
}

void pipe_fini(struct pipe *p)
{
    loop_timer_stop(&p->arrival);
    loop_timer_stop(&p->ack);
    free(p->ring);
    free(p->packets);
}
