/* ZeroMQ sockets in the event loop, which take turns. */
#include "conductor/link/events/socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/loop/loop.h"

/* Messages that libzmq buffers for us; the publisher keeps more. */
#define QUEUE_MESSAGES 512
/* Messages taken from a socket in its turn. */
#define TURN_MESSAGES 16
/* Time for all sockets in one turn of the loop. */
#define TURN_US 1000

#define HANDSHAKE_FAILED                    \
    (ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | \
     ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

TAILQ_HEAD(socket_list, kv_socket);

struct kv_loop {
    struct loop *base;
    void *context;
    struct loop_timer turn;   /* pending while any socket is ready, or work is
                             left */
    struct socket_list ready; /* may have messages */
    struct kv_socket *taking; /* its callback runs; NULL = it was closed */
    enum kv_work left;
    void (*work)(void *arg);
    void *work_arg;
};

struct kv_socket {
    TAILQ_ENTRY(kv_socket) entry; /* in loop->ready, if `ready` */
    struct kv_loop *loop;
    void *zmq;
    struct loop_watch readable;
    void *monitor; /* reports the end and begin of a SUB's connection; NULL =
                      unused */
    struct loop_watch monitored;
    uint32_t n_lost; /* connections lost and not back */
    bool refused;    /* the next one to end is one that failed its handshake */
    bool ready, paused;
    const struct kv_socket_ops *ops;
    void *arg;
};

static void wake(struct kv_loop *loop)
{
    loop_timer_start(&loop->turn, 0);
}

static void set_ready(struct kv_socket *s, bool ready)
{
    if (s->ready == ready)
        return;
    s->ready = ready;
    if (ready)
        TAILQ_INSERT_TAIL(&s->loop->ready, s, entry);
    else
        TAILQ_REMOVE(&s->loop->ready, s, entry);
    if (ready)
        wake(s->loop);
}

static void on_readable(void *arg, unsigned)
{
    struct kv_socket *s = arg;

    set_ready(s, !s->paused);
    /* Runs in this turn of the loop, without another poll. */
    loop_defer(&s->loop->turn);
}

/* Whether a message is waiting. Reading ZMQ_EVENTS also re-arms the
 * descriptor. */
static bool has_message(const struct kv_socket *s)
{
    int events = 0;
    size_t n = sizeof(events);

    return zmq_getsockopt(s->zmq, ZMQ_EVENTS, &events, &n) == 0 &&
           (events & ZMQ_POLLIN);
}

/* Receives a whole message into at most KV_FRAMES_MAX frames. Returns their
 * number; 0 = no message. */
static size_t receive(void *zmq, zmq_msg_t frames[KV_FRAMES_MAX])
{
    size_t n = 0;
    int more = 1;

    while (more) {
        zmq_msg_t spare, *frame = n < KV_FRAMES_MAX ? &frames[n] : &spare;

        zmq_msg_init(frame);
        if (zmq_msg_recv(frame, zmq, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(frame);
            return n < KV_FRAMES_MAX ? n : KV_FRAMES_MAX;
        }
        more = zmq_msg_more(frame);
        if (n++ >= KV_FRAMES_MAX)
            zmq_msg_close(&spare);
    }
    return n;
}

/* Returns whether the socket may have more. */
static bool take_message(struct kv_socket *s)
{
    zmq_msg_t frames[KV_FRAMES_MAX];
    struct kv_loop *loop = s->loop;
    size_t n = receive(s->zmq, frames);
    size_t kept = n < KV_FRAMES_MAX ? n : KV_FRAMES_MAX;

    if (n == 0)
        return has_message(s);
    loop->taking = s;
    s->ops->message(s->arg, frames, n <= KV_FRAMES_MAX ? n : 0);
    for (size_t i = 0; i < kept; i++)
        zmq_msg_close(&frames[i]);
    return loop->taking && !s->paused;
}

/* Takes a socket's turn: at least one message, and none after until_us. The
 * socket stays in `ready` if it may have more. */
static void take_turn(struct kv_socket *s, int64_t until_us)
{
    struct kv_loop *loop = s->loop;
    int i = 0;
    bool more;

    do
        more = take_message(s);
    while (more && ++i < TURN_MESSAGES && loop_now_us(loop->base) < until_us);
    if (!loop->taking)
        return;
    set_ready(s, false);
    set_ready(s, more);
}

static void on_turn(void *arg)
{
    struct kv_loop *loop = arg;
    int64_t until_us = loop_now_us(loop->base) + TURN_US;
    struct kv_socket *s;

    if (loop->left != KV_WORK_NONE)
        loop->work(loop->work_arg);
    while (loop->left != KV_WORK_FIRST && (s = TAILQ_FIRST(&loop->ready)) &&
           loop_now_us(loop->base) < until_us) {
        loop->taking = s;
        take_turn(s, until_us);
    }
    if (loop->left != KV_WORK_NONE || !TAILQ_EMPTY(&loop->ready))
        wake(loop);
}

void kv_loop_set_work(struct kv_loop *loop, void (*work)(void *arg), void *arg)
{
    loop->work = work;
    loop->work_arg = arg;
}

void kv_loop_set_left(struct kv_loop *loop, enum kv_work left)
{
    loop->left = left;
    if (left != KV_WORK_NONE)
        wake(loop);
}

struct kv_loop *kv_loop_new(struct loop *base)
{
    struct kv_loop *loop = calloc(1, sizeof(*loop));

    if (!loop)
        return NULL;
    loop->base = base;
    TAILQ_INIT(&loop->ready);
    loop->context = zmq_ctx_new();
    loop_timer_init(base, &loop->turn, on_turn, loop);
    if (!loop->context) {
        kv_loop_free(loop);
        return NULL;
    }
    return loop;
}

void kv_loop_free(struct kv_loop *loop)
{
    if (!loop)
        return;
    loop_timer_stop(&loop->turn);
    if (loop->context)
        zmq_ctx_term(loop->context);
    free(loop);
}

/* Drops messages of an earlier connection, perhaps with some of the new one. */
static void drop_queued(struct kv_socket *s)
{
    zmq_msg_t frames[KV_FRAMES_MAX];
    size_t n;

    for (int i = 0; i < 2 * QUEUE_MESSAGES && (n = receive(s->zmq, frames));
         i++)
        for (size_t k = 0; k < n && k < KV_FRAMES_MAX; k++)
            zmq_msg_close(&frames[k]);
    set_ready(s, !s->paused);
}

/* Takes an event of the monitor. Returns whether a connection has come back.
 * Connections that failed their handshake do not count. */
static bool connection_event(struct kv_socket *s, uint16_t event)
{
    bool back = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED && s->n_lost > 0;

    if (event == ZMQ_EVENT_DISCONNECTED && !s->refused &&
        s->n_lost < UINT32_MAX)
        s->n_lost++;
    s->n_lost -= back;
    s->refused = event & HANDSHAKE_FAILED;
    return back;
}

/* Takes the monitor's messages: an event's number in 16 bits and a value; the
 * endpoint. Its descriptor only signals that something happened. */
static void on_monitored(void *arg, unsigned)
{
    zmq_msg_t frames[KV_FRAMES_MAX];
    struct kv_socket *s = arg;
    uint16_t event = 0;
    size_t n;
    bool again = false;

    while ((n = receive(s->monitor, frames)) > 0) {
        if (zmq_msg_size(&frames[0]) >= sizeof(event))
            memcpy(&event, zmq_msg_data(&frames[0]), sizeof(event));
        again |= connection_event(s, event);
        for (size_t k = 0; k < n && k < KV_FRAMES_MAX; k++)
            zmq_msg_close(&frames[k]);
    }
    if (!again)
        return;
    drop_queued(s);
    s->ops->again(s->arg);
}

/* Watches the connections of a SUB. */
static int watch(struct kv_socket *s)
{
    size_t n = sizeof(int);
    char at[64];
    int fd;

    snprintf(at, sizeof(at), "inproc://monitor-%p", (void *)s);
    s->monitor = zmq_socket(s->loop->context, ZMQ_PAIR);
    if (!s->monitor ||
        zmq_socket_monitor(s->zmq, at,
                           ZMQ_EVENT_DISCONNECTED | HANDSHAKE_FAILED |
                               ZMQ_EVENT_HANDSHAKE_SUCCEEDED) ||
        zmq_connect(s->monitor, at) ||
        zmq_getsockopt(s->monitor, ZMQ_FD, &fd, &n))
        return -1;
    loop_watch_init(s->loop->base, &s->monitored, fd, LOOP_READ, on_monitored,
                    s);
    if (loop_watch_start(&s->monitored, 0) == 0) {
        loop_watch_report(&s->monitored, LOOP_READ); /* for earlier events */
        return 0;
    }
    errno = ENOMEM;
    return -1;
}

static int set_options(void *zmq, enum kv_socket_kind kind, const char *topic)
{
    const int no = 0, queue = QUEUE_MESSAGES, reconnect_max_ms = 2000;
    const int yes = 1, silent_s = 30;
    const int64_t frame = KV_FRAME_MAX_BYTES;
    int bad = 0;

    bad |= zmq_setsockopt(zmq, ZMQ_LINGER, &no, sizeof(no));
    bad |= zmq_setsockopt(zmq, ZMQ_RCVHWM, &queue, sizeof(queue));
    bad |= zmq_setsockopt(zmq, ZMQ_MAXMSGSIZE, &frame, sizeof(frame));
    bad |= zmq_setsockopt(zmq, ZMQ_RECONNECT_IVL_MAX, &reconnect_max_ms,
                          sizeof(reconnect_max_ms));
    bad |= zmq_setsockopt(zmq, ZMQ_TCP_KEEPALIVE, &yes, sizeof(yes));
    bad |= zmq_setsockopt(zmq, ZMQ_TCP_KEEPALIVE_IDLE, &silent_s,
                          sizeof(silent_s));
    if (kind != KV_SOCKET_DEALER)
        bad |= zmq_setsockopt(zmq, ZMQ_SUBSCRIBE, topic, strlen(topic));
    return bad;
}

static int open_at(struct kv_socket *s, enum kv_socket_kind kind,
                   const char *endpoint, const char *topic)
{
    size_t n = sizeof(int);
    int fd;

    s->zmq = zmq_socket(s->loop->context,
                        kind == KV_SOCKET_DEALER ? ZMQ_DEALER : ZMQ_SUB);
    if (!s->zmq || set_options(s->zmq, kind, topic) ||
        (s->ops->again && watch(s)) ||
        (kind == KV_SOCKET_SUB_BIND ? zmq_bind(s->zmq, endpoint)
                                    : zmq_connect(s->zmq, endpoint)) ||
        zmq_getsockopt(s->zmq, ZMQ_FD, &fd, &n))
        return -1;
    loop_watch_init(s->loop->base, &s->readable, fd, LOOP_READ, on_readable, s);
    if (loop_watch_start(&s->readable, 0) == 0)
        return 0;
    errno = ENOMEM;
    return -1;
}

struct kv_socket *kv_socket_open(struct kv_loop *loop, enum kv_socket_kind kind,
                                 const char *endpoint, const char *topic,
                                 const struct kv_socket_ops *ops, void *arg)
{
    struct kv_socket *s = calloc(1, sizeof(*s));
    int error;

    if (!s)
        return NULL;
    s->loop = loop;
    s->ops = ops;
    s->arg = arg;
    if (open_at(s, kind, endpoint, topic)) {
        error = errno;
        kv_socket_close(s);
        errno = error;
        return NULL;
    }
    set_ready(s, true); /* for messages that came earlier */
    return s;
}

void kv_socket_close(struct kv_socket *s)
{
    if (!s)
        return;
    set_ready(s, false);
    if (s->loop->taking == s)
        s->loop->taking = NULL;
    loop_watch_stop(&s->readable);
    loop_watch_stop(&s->monitored);
    if (s->monitor)
        zmq_close(s->monitor);
    if (s->zmq)
        zmq_close(s->zmq);
    free(s);
}

void kv_socket_pause(struct kv_socket *s, bool pause)
{
    if (s->paused == pause)
        return;
    s->paused = pause;
    set_ready(s, !pause);
    if (pause)
        loop_watch_stop(&s->readable);
    else
        loop_watch_start(&s->readable, 0);
}

int kv_socket_ask(struct kv_socket *s, const void *bytes, size_t n)
{
    if (zmq_send(s->zmq, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(s->zmq, bytes, n, ZMQ_DONTWAIT) < 0)
        return -EAGAIN;
    set_ready(s, !s->paused); /* sending may have swallowed a wake-up */
    return 0;
}
