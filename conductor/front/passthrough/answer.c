/*
 * A forwarded request, and the engine's answer, which the client gets as it
 * comes.
 *
 *   waiting --answer--> answering --done--> freed
 *           --failed--> freed       --failed--> broken off, freed
 *   the client goes: the request is cancelled, and the call freed
 *   a comment was sent while it waited: the head has left, and an answer
 *   that is no stream of events becomes one event
 *
 * Output that the client does not read is bounded: on http_is_full() the engine
 * is paused until the client has read all of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "conductor/front/cors.h"
#include "conductor/front/openai/reply.h"
#include "conductor/front/passthrough/state.h"

void forward_call_free(void *arg)
{
    struct forward_call *c = arg;

    service_cancel(c->request, SERVICE_CLIENT_LEFT);
    keepalive_stop(&c->keepalive);
    c->front->in_flight--;
    free(c->tokenize);
    free(c->redirect);
    free(c->head);
    free(c);
}

static void on_taken(void *arg)
{
    struct forward_call *c = arg;

    if (c->paused)
        service_pause(c->request, false);
    c->paused = false;
}

static void on_scheduled(void *arg, const struct service_decision *d)
{
    struct forward_call *c = arg;

    endpoint_note(&c->told, d);
}

/* Tells proxies in front of the conductor not to hold events back. */
static void add_no_buffering(struct http_conn *conn)
{
    http_add_header(conn, "X-Accel-Buffering", "no");
}

/* Whether the answer has this header already, as the client sent it, or only
 * this conductor sets it, even if the engine is a conductor, too. */
static bool is_own(const struct forward_call *c, struct http_slice name)
{
    return http_begins_fold(name, "x-conductor-") ||
           (c->named && http_is_fold(name, "x-request-id")) ||
           (c->traced && http_is_fold(name, "traceparent"));
}

static bool is_event_stream(const struct http_head *head)
{
    const struct http_slice *type = http_find(head, "content-type");

    return type && http_begins_fold(*type, "text/event-stream");
}

void forward_begin_stream(void *arg)
{
    struct forward_call *c = arg;

    http_add_header(c->conn, "Content-Type", "text/event-stream");
    http_add_header(c->conn, "Cache-Control", "no-cache");
    if (*c->told.request_id)
        endpoint_tell(c->conn, &c->told, false);
    if (!c->named && *c->told.request_id)
        http_add_header(c->conn, "x-request-id", c->told.request_id);
    add_no_buffering(c->conn);
    http_on_taken(c->conn, on_taken, c);
    http_begin(c->conn, 200, -1);
}

static void on_answer(void *arg, const struct http_head *head)
{
    struct forward_call *c = arg;

    keepalive_stop(&c->keepalive);
    c->answering = true;
    c->streams = head->status == 200 && is_event_stream(head);
    if (c->keepalive.began) {
        c->as_event = head->status != 200 || !is_event_stream(head);
        return;
    }
    c->left = head->chunked ? -1 : head->content_length;
    if (head->status == 204 || head->status == 304)
        c->left = 0;
    for (size_t i = 0; i < head->n_headers; i++) {
        struct http_slice name = head->headers[i].name;

        if (forward_tells(head, name) && !cors_decides(c->front, name) &&
            !is_own(c, name))
            http_pass_header(c->conn, &head->headers[i]);
    }
    endpoint_tell(c->conn, &c->told, false);
    if (!c->named && !http_find(head, "x-request-id"))
        http_add_header(c->conn, "x-request-id", c->told.request_id);
    if (is_event_stream(head))
        add_no_buffering(c->conn);
    http_on_taken(c->conn, on_taken, c);
    http_begin(c->conn, head->status, c->left);
}

/* Writes the bytes as lines of one event. Returns 0 or a negative error. */
static int write_lines(struct forward_call *c, const char *bytes, size_t n)
{
    struct text_buf out;

    text_buf_init(&out, SIZE_MAX);
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\r')
            continue;
        if (!c->in_line)
            text_buf_puts(&out, "data: ");
        c->in_line = bytes[i] != '\n';
        text_buf_add(&out, bytes + i, 1);
    }
    int rc = out.error ? out.error : http_write(c->conn, out.data, out.len);
    text_buf_fini(&out);
    return rc;
}

/* Keeps the last bytes of the answer, to know where in an event it stops. */
static void keep_last(struct forward_call *c, const char *bytes, size_t n)
{
    size_t some = n < sizeof(c->last) ? n : sizeof(c->last);

    memmove(c->last, c->last + some, sizeof(c->last) - some);
    if (some) /* else `bytes` may be NULL */
        memcpy(c->last + sizeof(c->last) - some, bytes + n - some, some);
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct forward_call *c = arg;

    keep_last(c, bytes, n);
    if (c->as_event ? write_lines(c, bytes, n)
                    : http_write(c->conn, bytes, n)) {
        http_abort(c->conn);
        forward_call_free(c);
        return;
    }
    if (!c->paused && http_is_full(c->conn)) {
        c->paused = true;
        service_pause(c->request, true);
    }
}

static void end_event(struct forward_call *c)
{
    static const char end[] = "\n\ndata: [DONE]\n\n";
    size_t skip = c->in_line ? 0 : 1; /* the line has ended */

    /* The stream ends in any case; so below. */
    (void)!http_write(c->conn, end + skip, sizeof(end) - 1 - skip);
}

/* Sends an error as an event, and ends the stream. */
static void fail_stream(struct forward_call *c, const struct openai_error *e)
{
    struct text_buf out;

    text_buf_init(&out, SIZE_MAX);
    openai_chunk_error(e, &out);
    openai_chunk_done(&out);
    if (!out.error)
        (void)!http_write(c->conn, out.data, out.len);
    text_buf_fini(&out);
    http_end(c->conn);
}

static void on_done(void *arg, const struct service_result *result)
{
    struct forward_call *c = arg;

    (void)result;
    c->request = NULL;
    if (c->as_event)
        end_event(c);
    http_end(c->conn);
    forward_call_free(c);
}

void forward_refuse(struct forward_call *c,
                    const struct service_failure *failure)
{
    struct openai_error error;

    c->request = NULL;
    endpoint_set_failure(failure, NULL, &error);
    if (c->keepalive.began) {
        fail_stream(c, &error);
    } else {
        http_add_header(c->conn, "x-conductor-request-id", failure->request_id);
        if (!c->named)
            http_add_header(c->conn, "x-request-id", failure->request_id);
        endpoint_reply_error(c->conn, &error, failure->retry_after_us);
    }
    forward_call_free(c);
}

/* Ends an event that has come in part, by the rest of an empty line. */
static void end_part(struct forward_call *c)
{
    const char *last = c->last + sizeof(c->last);

    if (!last[-1] || memcmp(last - 2, "\n\n", 2) == 0 ||
        memcmp(last - 3, "\n\r\n", 3) == 0)
        return;
    bool line = last[-1] == '\n' || memcmp(last - 2, "\n\r", 2) == 0;
    (void)!http_write(c->conn, "\n\n", line ? 1 : 2);
}

/* Ends a stream that an engine had begun: first an incomplete event, then an
 * error. */
static void end_stream(struct forward_call *c,
                       const struct service_failure *failure)
{
    struct openai_error error;

    endpoint_set_failure(failure, NULL, &error);
    end_part(c);
    fail_stream(c, &error);
}

static void on_failed(void *arg, const struct service_failure *failure)
{
    struct forward_call *c = arg;

    if (!c->answering) {
        forward_refuse(c, failure);
        return;
    }
    c->request = NULL;
    if (c->streams && strcmp(failure->code, "shutting_down") == 0)
        end_stream(c, failure);
    else
        http_break(c->conn);
    forward_call_free(c);
}

const struct service_reply_ops forward_reply_ops = {
    .scheduled = on_scheduled,
    .answer = on_answer,
    .bytes = on_bytes,
    .done = on_done,
    .failed = on_failed,
};
