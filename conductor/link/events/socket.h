/*
 * ZeroMQ sockets in the event loop. Sockets with messages take turns: a turn of
 * the loop spends about a millisecond on all of them together, and none keeps
 * others waiting. A message that takes longer is left unfinished, and its owner
 * continues in later turns.
 *
 * libzmq's descriptor signals once, not as long as messages are left: a socket,
 * once woken, is read until it is empty.
 */
#ifndef CONDUCTOR_LINK_EVENTS_SOCKET_H
#define CONDUCTOR_LINK_EVENTS_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <zmq.h>

struct kv_loop;
struct kv_socket;
struct loop;

/* Most bytes of one frame: a larger one ends the connection. */
#define KV_FRAME_MAX_BYTES (4u << 20)
/* Most frames of one message; a longer message is handed over as 0 frames. */
#define KV_FRAMES_MAX 4

/* Work left on messages that were handed over. */
enum kv_work {
    KV_WORK_NONE,
    KV_WORK_MORE,
    KV_WORK_FIRST, /* so much work that new messages wait */
};

struct kv_socket_ops {
    /* Takes a whole message: n frames, borrowed; n is 0 if there were too many.
     * May pause or close its socket. */
    void (*message)(void *arg, zmq_msg_t *frames, size_t n);
    /* For a SUB; may be NULL. A lost connection is back; messages queued from
     * it were dropped. May not close its socket. */
    void (*again)(void *arg);
};

/* Makes the state that sockets share: libzmq's context with one thread for I/O.
 * Returns owned, or NULL. */
[[nodiscard]] struct kv_loop *kv_loop_new(struct loop *base);

/* Sets the function that continues unfinished work, once in each turn of the
 * loop.
 *   work  does some 100 us of the work. */
void kv_loop_set_work(struct kv_loop *loop, void (*work)(void *arg), void *arg);

/* Sets how much work is left. */
void kv_loop_set_left(struct kv_loop *loop, enum kv_work left);

/* Frees the loop; its sockets must be closed. NULL is allowed. */
void kv_loop_free(struct kv_loop *loop);

/* The use of an endpoint by a socket. */
enum kv_socket_kind {
    KV_SOCKET_SUB,      /* connects, and receives published messages */
    KV_SOCKET_SUB_BIND, /* waits for publishers */
    KV_SOCKET_DEALER,   /* connects, and asks */
};

/*
 * Opens a socket. Connections come and go by themselves.
 *   endpoint  "tcp://host:port".
 *   topic     of a SUB: a prefix; "" for all.
 *   ops       borrowed; arg is its first argument.
 * Returns owned, or NULL with errno: a bad endpoint, a port in use, or out of
 * memory.
 */
[[nodiscard]] struct kv_socket *
kv_socket_open(struct kv_loop *loop, enum kv_socket_kind kind,
               const char *endpoint, const char *topic,
               const struct kv_socket_ops *ops, void *arg);

/* Closes a socket at once; also from inside its callback. NULL is a no-op. */
void kv_socket_close(struct kv_socket *socket);

/* Stops taking messages, or resumes; meanwhile libzmq buffers a bounded number,
 * and the publisher the rest. */
void kv_socket_pause(struct kv_socket *socket, bool pause);

/* Sends a message of two frames, the first of them empty. Returns 0, or
 * -EAGAIN: it cannot be sent now. */
[[nodiscard]] int kv_socket_ask(struct kv_socket *socket, const void *bytes,
                                size_t n);

#endif
