/*
 * ZeroMQ sockets in the event loop. Sockets with messages take turns: a turn of
 * the loop spends about a millisecond on all of them together, and none keeps
 * others waiting. A message that takes longer is left unfinished by its
 * owner, who goes on with it in later turns.
 *
 * libzmq says by a descriptor that something happened, once, and not that
 * messages are left: a socket that was woken is read until it is empty.
 */
#ifndef CONDUCTOR_LINK_EVENTS_SOCKET_H
#define CONDUCTOR_LINK_EVENTS_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <zmq.h>

struct event_base;
struct kv_loop;
struct kv_socket;

/* Of one message: larger ones end the connection. */
#define KV_FRAME_MAX_BYTES (4u << 20)
/* Frames of one message; a message with more is handed over without. */
#define KV_FRAMES_MAX 4

/* What is left of messages that were handed over. */
enum kv_work {
    KV_WORK_NONE,
    KV_WORK_MORE,
    KV_WORK_FIRST, /* more, and so much that messages wait */
};

struct kv_socket_ops {
    /* A whole message: n frames, borrowed; n is 0 if there were too many. May
     * pause or close its socket. */
    void (*message)(void *arg, zmq_msg_t *frames, size_t n);
    /* Of a SUB, may be NULL: a connection that had ended is there again, and
     * what it had got and not handed over is dropped. May not close its
     * socket. */
    void (*again)(void *arg);
};

/* Makes what the sockets share: libzmq's context with one thread for I/O.
 * Returns owned, or NULL. kv_loop_free(NULL) is a no-op; its sockets are
 * closed before. */
[[nodiscard]] struct kv_loop *kv_loop_new(struct event_base *base);

/* Sets what goes on with what is left, once in each turn of the loop.
 *   work  does some 100 us of it. */
void kv_loop_set_work(struct kv_loop *loop, void (*work)(void *arg), void *arg);

/* Says what is left now. */
void kv_loop_set_left(struct kv_loop *loop, enum kv_work left);

/* Frees it; its sockets must be closed. NULL is allowed. */
void kv_loop_free(struct kv_loop *loop);

/* What a socket does at its endpoint. */
enum kv_socket_kind {
    KV_SOCKET_SUB,      /* connects, and gets what is published */
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

/* Closes it at once; also from inside its callback. NULL is a no-op. */
void kv_socket_close(struct kv_socket *socket);

/* Takes no messages, or takes them again; libzmq keeps a bounded number, and
 * the publisher the rest. */
void kv_socket_pause(struct kv_socket *socket, bool pause);

/* Sends a message of two frames, the first of them empty. Returns 0, or
 * -EAGAIN: it cannot be sent now. */
[[nodiscard]] int kv_socket_ask(struct kv_socket *socket, const void *bytes,
                                size_t n);

#endif
