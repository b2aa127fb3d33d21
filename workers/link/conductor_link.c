/* The connection to the conductor. */
#include "workers/link/conductor_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/frame_conn.h"
#include "base/handshake.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "base/tls.h"

#define RETRY_FIRST_MS 100
#define RETRY_MOST_MS 5000
#define TOLD_EACH_US 600000000 /* between logs of the same failure */
#define WELCOME_USUAL_MS 2000  /* later: log it */
#define WELCOME_PATIENCE_MS 10000
/* A name in use may belong to a hung worker, which the conductor will drop
 * soon, or to a live one, for which waiting does not help. */
#define NAME_PATIENCE_US 15000000
#define HEARTBEAT_MIN_MS 20
#define HEARTBEAT_MAX_MS 60000

struct conductor_link {
    struct conductor_link_config config;
    struct handshake handshake;
    const struct conductor_link_ops *ops;
    void *arg;
    struct msg_hello hello;
    struct frame_conn *conn; /* NULL = waiting for the next attempt */
    struct loop_timer retry; /* the next attempt, or the end of patience */
    struct loop_timer heartbeat;
    int64_t retry_ms;
    bool overdue; /* WELCOME_USUAL_MS passed without WELCOME */
    bool up;
    bool was_up;  /* at least once */
    bool refuses; /* this worker refuses the conductor: close */
    /* First refusal of the name as in use; 0 = not refused last time. */
    int64_t name_taken_us;
    /* Last failure logged, and its time; "" = none since registering. */
    char told[MSG_TEXT_MAX + 128];
    int64_t told_us;
};

static int on_welcome(struct conductor_link *l, const struct msg_welcome *m)
{
    int64_t beat_ms = m->heartbeat_ms / 2; /* one heartbeat may be late */

    if (beat_ms < HEARTBEAT_MIN_MS)
        beat_ms = HEARTBEAT_MIN_MS;
    if (beat_ms > HEARTBEAT_MAX_MS)
        beat_ms = HEARTBEAT_MAX_MS;
    log_info("conductor %s:%u: registered as %s, instance %u",
             l->config.at.host, l->config.at.port, l->hello.name,
             m->instance_id);
    loop_timer_stop(&l->retry);
    l->retry_ms = RETRY_FIRST_MS;
    *l->told = '\0';
    l->up = true;
    l->was_up = true;
    l->name_taken_us = 0;
    const char *why = l->ops->up(l->arg, m);
    if (why) {
        l->up = false;
        l->refuses = true;
        frame_conn_refuse(l->conn, PROTO_E_INCOMPATIBLE, why);
        return 0;
    }
    loop_timer_repeat(&l->heartbeat, 1000 * beat_ms);
    l->ops->heartbeat(l->arg);
    return 0;
}

/* A frame before WELCOME. */
static int on_opening(struct conductor_link *l, const struct frame_header *h,
                      const uint8_t *payload)
{
    struct msg_welcome m;
    char why[MSG_TEXT_MAX], text[MSG_TEXT_MAX + 64];
    int rc = handshake_answer(&l->handshake, l->conn, h, payload, &m, why);

    if (rc == -EACCES) {
        snprintf(text, sizeof(text), "the conductor is not trusted: %s", why);
        l->ops->refused(l->arg, text);
    }
    if (rc <= 0)
        return rc == -EACCES ? 0 : rc;
    frame_conn_take(l->conn, 4 * l->hello.window_tokens + 4096);
    return on_welcome(l, &m);
}

/* Whether waiting for the name may help: this worker's own lost connection may
 * still hold it at the conductor. */
static bool name_may_come_free(struct conductor_link *l)
{
    int64_t now_us = loop_now_us(l->config.loop);

    if (l->name_taken_us == 0)
        l->name_taken_us = now_us;
    return l->was_up || now_us - l->name_taken_us < NAME_PATIENCE_US;
}

/* Whether retrying cannot help. */
static bool is_final(struct conductor_link *l, uint16_t code)
{
    return code == PROTO_E_VERSION || code == PROTO_E_INCOMPATIBLE ||
           code == PROTO_E_INVALID || code == PROTO_E_REFUSED ||
           (code == PROTO_E_DUPLICATE && !name_may_come_free(l));
}

static int on_error(struct conductor_link *l, const uint8_t *payload,
                    size_t len)
{
    struct msg_error m;
    char text[MSG_TEXT_MAX + 128];

    if (msg_error_unpack(payload, len, &m))
        return -EBADMSG;
    bool final = is_final(l, m.code);
    bool waits = m.code == PROTO_E_DUPLICATE && !final;
    snprintf(text, sizeof(text), "the conductor refuses this worker (%s): %s%s",
             proto_code_name(m.code), m.text,
             waits
                 ? "; waiting until the conductor drops the worker of that name"
                 : "");
    if (final)
        l->ops->refused(l->arg, text);
    else
        frame_conn_fail(l->conn, text);
    return 0;
}

static int on_frame(void *arg, const struct frame_header *h,
                    const uint8_t *payload)
{
    struct conductor_link *l = arg;

    if (h->type == FRAME_ERROR)
        return on_error(l, payload, h->length);
    return l->up ? l->ops->frame(l->arg, h, payload)
                 : on_opening(l, h, payload);
}

/* Logs a failure; the same one only every TOLD_EACH_US, since a conductor may
 * be away for days. A name in use needs an operator and is always logged. */
static void tell(struct conductor_link *l, const char *reason)
{
    int64_t now_us = loop_now_us(l->config.loop);

    if (!l->name_taken_us && strcmp(l->told, reason) == 0 &&
        now_us - l->told_us < TOLD_EACH_US)
        return;
    snprintf(l->told, sizeof(l->told), "%s", reason);
    l->told_us = now_us;
    log_warn(
        "conductor %s:%u: %s; trying again, at intervals that grow to %d s",
        l->config.at.host, l->config.at.port, reason, RETRY_MOST_MS / 1000);
}

static void retry_later(struct conductor_link *l, const char *reason)
{
    tell(l, reason);
    loop_timer_start(&l->retry, 1000 * l->retry_ms);
    l->retry_ms *= 2;
    if (l->retry_ms > RETRY_MOST_MS)
        l->retry_ms = RETRY_MOST_MS;
}

static void on_closed(void *arg, const char *reason)
{
    struct conductor_link *l = arg;
    bool was_up = l->up;

    l->up = false;
    frame_conn_free(l->conn);
    l->conn = NULL;
    loop_timer_stop(&l->heartbeat);
    if (was_up)
        l->ops->down(l->arg);
    if (l->refuses)
        l->ops->refused(l->arg, reason);
    else
        retry_later(l, reason);
}

static const struct frame_conn_ops conn_ops = {
    .frame = on_frame,
    .closed = on_closed,
};

static void connect_now(struct conductor_link *l)
{
    struct frame_conn_limits limits = {
        .payload_bytes = HANDSHAKE_PAYLOAD_BYTES,
        .output_watermark_bytes = 64u << 20,
        .output_limit_bytes = 64u << 20,
    };

    if (!*l->told)
        log_info("conductor %s:%u: connecting", l->config.at.host,
                 l->config.at.port);
    if (l->config.tls)
        limits.ssl = tls_ssl(l->config.tls, l->config.at.host);
    if (!l->config.tls || limits.ssl)
        l->conn = frame_conn_connect(l->config.stream_loop, l->config.dns,
                                     l->config.at.host, l->config.at.port,
                                     &limits, &conn_ops, l);
    if (!l->conn) {
        retry_later(l, "out of memory");
        return;
    }
    if (handshake_connect(&l->handshake, l->config.secret, &l->hello, l->conn))
        frame_conn_fail(l->conn, "no random numbers for HELLO");
    l->overdue = false;
    loop_timer_start(&l->retry, 1000 * WELCOME_USUAL_MS);
}

static void on_retry(void *arg)
{
    struct conductor_link *l = arg;

    if (!l->conn) {
        connect_now(l);
    } else if (l->overdue) {
        frame_conn_fail(l->conn, "no answer to HELLO");
    } else {
        l->overdue = true;
        log_warn("conductor %s:%u: no answer to HELLO yet; is this its "
                 "worker_listen, not its port for clients?",
                 l->config.at.host, l->config.at.port);
        loop_timer_start(&l->retry,
                         1000 * (WELCOME_PATIENCE_MS - WELCOME_USUAL_MS));
    }
}

static void on_heartbeat(void *arg)
{
    struct conductor_link *l = arg;

    l->ops->heartbeat(l->arg);
}

struct conductor_link *
conductor_link_new(const struct conductor_link_config *config,
                   const struct conductor_link_ops *ops, void *arg)
{
    struct conductor_link *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->config = *config;
    l->ops = ops;
    l->arg = arg;
    l->hello = *config->hello;
    l->config.hello = &l->hello;
    l->retry_ms = RETRY_FIRST_MS;
    loop_timer_init(l->config.loop, &l->retry, on_retry, l);
    loop_timer_init(l->config.loop, &l->heartbeat, on_heartbeat, l);
    connect_now(l);
    return l;
}

void conductor_link_free(struct conductor_link *l)
{
    if (!l)
        return;
    frame_conn_free(l->conn);
    loop_timer_stop(&l->retry);
    loop_timer_stop(&l->heartbeat);
    free(l);
}

bool conductor_link_sent(const struct conductor_link *l)
{
    return !l->conn || frame_conn_sent(l->conn);
}

void conductor_link_set_role(struct conductor_link *l, uint8_t role)
{
    l->hello.role = role;
}

void conductor_link_again(struct conductor_link *l, const char *why)
{
    if (l->conn)
        frame_conn_fail(l->conn, why);
}

void conductor_link_send(struct conductor_link *l, const struct wire_buf *buf)
{
    if (l->up && (buf->len > 0 || buf->failed))
        frame_conn_send(l->conn, buf);
}
