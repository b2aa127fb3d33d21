/* Shared by the files of virtual time and its net; private to them. */
#ifndef BASE_LOOP_VIRTUAL_INTERNAL_H
#define BASE_LOOP_VIRTUAL_INTERNAL_H

#include "base/loop/ops.h"
#include "base/loop/virtual.h"

struct virtual_process;

struct virtual_loop {
    struct loop loop;
    struct virtual_time *time;
    int64_t paused_until_us;
    int64_t wall_ahead_us; /* of the virtual time */
    uint64_t random;       /* a state of splitmix64 */
    bool stopped;
    struct virtual_process *process; /* its sockets; NULL = it has no net */
};

/* --- virtual.c --- */

static inline struct virtual_loop *virtual_loop_of(const struct loop *loop)
{
    return (struct virtual_loop *)loop;
}

/* Returns the next random number. */
uint32_t virtual_draw(struct virtual_time *time);

/* Reports to a pending watch in this microsecond that its socket is ready for
 * some of `what`; the report falls away if the socket is not, when it comes. */
void virtual_watch_ready(struct loop_watch *w, unsigned what);

/* --- virtual_socket.c, virtual_net.c --- */

/* A loop without a net: each call fails with -ENETDOWN. */
extern const struct net_ops virtual_net_ops;

/* Returns what the socket of a watch is ready for; 0 = nothing, or no
 * socket. */
unsigned virtual_socket_ready(const struct loop_watch *w);

/* Adds the watch to its socket's, or removes it. No-ops without a socket. */
void virtual_socket_watch(struct loop_watch *w);
void virtual_socket_unwatch(struct loop_watch *w);

/* Closes all sockets of a process and frees it. NULL is a no-op. */
void virtual_process_free(struct virtual_process *process);

#endif
