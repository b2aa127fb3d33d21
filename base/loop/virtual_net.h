/*
 * A net of processes in virtual time, each a loop of virtual_loop_new() at an
 * IPv4 address of its own. base/loop/net.h works on it as on the kernel's
 * sockets. Bytes take time: latency, jitter and bandwidth of the link from one
 * process to another; writes and reads take less than there is, as the seed
 * says; links are cut one way or both; connections break; processes die with
 * or without a word to the others. All that is random is drawn from the seed of
 * the virtual time.
 *
 *   written -> in flight -> has come -> read -> acknowledged
 *   '------------ at most buffer_bytes ------------------'
 *
 * A connection behaves as TCP: its bytes come in order and once, or it ends. A
 * socket closed with unread input resets its connection; bytes in flight may be
 * lost. A cut link delays. An end with output on its way, or with SO_KEEPALIVE,
 * gives up after TCP_USER_TIMEOUT (15 minutes by default), and the other end
 * hears nothing of it. Connecting is refused where a process is without a
 * listener or is dead, and repeated after 1, 3, 7, 15, 31 and 63 s where nobody
 * answers or too many connections wait to be accepted; it fails after 127 s.
 *
 * There is no TLS, no IPv6, no datagram, and no second address of a process.
 */
#ifndef BASE_LOOP_VIRTUAL_NET_H
#define BASE_LOOP_VIRTUAL_NET_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct virtual_net;
struct virtual_time;

/* Descriptors begin here, where the kernel has none. */
#define VIRTUAL_NET_FIRST_FD (1 << 24)

/* The link from one process to another. */
struct virtual_link {
    int64_t latency_us;   /* at least 1 */
    int64_t jitter_us;    /* added: 0 to this */
    uint64_t bytes_per_s; /* shared by all connections; 0 = unlimited */
};

struct virtual_net_options {
    struct virtual_link link; /* of new pairs */
    uint32_t buffer_bytes;    /* of a connection, each way; at least 1 */
    uint32_t accept_max;      /* connections that wait at a listener */
    uint32_t sockets_max;     /* descriptors of a process */
    uint32_t torn_of_256;     /* how many reads and writes are partial */
};

/* Makes a net of up to processes_max addresses. Borrows time, which outlives
 * it. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct virtual_net *
virtual_net_new(struct virtual_time *time,
                const struct virtual_net_options *options,
                uint32_t processes_max);

/* Frees it, after its loops. NULL is a no-op. */
void virtual_net_free(struct virtual_net *net);

/* Puts a virtual loop at an address (host order), which must be free or its
 * process dead; a machine that was off is on then. Returns 0, -ENOMEM, or
 * -EADDRINUSE, also when there are too many addresses. */
[[nodiscard]] int virtual_net_join(struct virtual_net *net, struct loop *loop,
                                   uint32_t address);

/* Changes the link between two addresses that were joined, one way. */
void virtual_net_link(struct virtual_net *net, uint32_t from, uint32_t to,
                      const struct virtual_link *link);

/* Cuts the link one way, or mends it. */
void virtual_net_cut(struct virtual_net *net, uint32_t from, uint32_t to,
                     bool cut);

/* Resets one of the open connections, chosen by `which`, as a box in between
 * does: both ends hear of it. Returns false if there is none. */
bool virtual_net_reset(struct virtual_net *net, uint32_t which);

/* Kills the loop's process: its sockets fail with -ENETDOWN, and it only closes
 * them. off: with its machine, so that no other end hears of it; else the
 * others hear what a kernel says when a process ends. */
void virtual_net_kill(struct loop *loop, bool off);

/* Checks the invariants of all connections; a broken one is a bug(). Returns
 * the bytes that they hold. O(sockets). */
uint64_t virtual_net_check(const struct virtual_net *net);

#endif
