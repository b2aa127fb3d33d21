/*
 * See http_request.h. libevent frees a request after its callback. The
 * connection is ours: it is never freed inside one of its callbacks, but from a
 * zero timer (`reap`).
 */
#include "tools/replay/live/http_request.h"

#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/loop/loop.h"
#include "tools/replay/live/answer.h"

/* Servers close idle connections, some after a few seconds. */
#define IDLE_MAX_US 1000000

struct replay_request {
    struct replay_request_params params;
    struct evhttp_connection *connection;
    struct loop_timer timer; /* first the timeout, then the reaper */
    struct evbuffer *body;
    bool reused; /* the connection has served another request */
    bool again;  /* the reused connection had been closed: send it again */
    bool over;
    const char *failure; /* from the error callback, or NULL */
    struct replay_answer answer;
};

void replay_idle_fini(struct replay_idle *idle)
{
    for (size_t i = 0; i < idle->count; i++)
        evhttp_connection_free(idle->last[i].connection);
    free(idle->last);
    *idle = (struct replay_idle){0};
}

/* Returns the most recently used connection, now the caller's; or NULL, with
 * all connections closed, if it has been idle too long. The server may still
 * have closed it. */
static struct evhttp_connection *idle_take(struct replay_idle *idle)
{
    size_t n = idle->count;

    if (n > 0 && clock_now_us() - idle->last[n - 1].since_us < IDLE_MAX_US)
        return idle->last[--idle->count].connection;
    replay_idle_fini(idle); /* the others are older */
    return NULL;
}

/* Keeps a connection whose answer is complete. Returns NULL, or the connection,
 * still the caller's, when out of memory. */
static struct evhttp_connection *idle_keep(struct replay_idle *idle,
                                           struct evhttp_connection *one)
{
    if (array_reserve(idle->last, idle->capacity, idle->count + 1))
        return one;
    idle->last[idle->count].connection = one;
    idle->last[idle->count++].since_us = clock_now_us();
    return NULL;
}

static struct timeval timeval_of(int64_t us)
{
    return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

static void request_free(struct replay_request *r)
{
    if (r->connection)
        evhttp_connection_free(r->connection);
    evbuffer_free(r->body);
    loop_timer_stop(&r->timer);
    free(r);
}

static int64_t request_now_us(const struct replay_request *r)
{
    return clock_now_us() - r->params.start_us;
}

static void on_chunk(struct evhttp_request *request, void *arg)
{
    struct replay_request *r = arg;
    struct evbuffer *input = evhttp_request_get_input_buffer(request);
    int64_t now_us = request_now_us(r);
    int status = evhttp_request_get_response_code(request);
    struct evbuffer_iovec piece;

    while (evbuffer_peek(input, -1, NULL, &piece, 1) > 0 && piece.iov_len > 0) {
        replay_answer_feed(&r->answer, status, piece.iov_base, piece.iov_len,
                           now_us);
        if (evbuffer_drain(input, piece.iov_len) != 0)
            break;
    }
}

static void on_error(enum evhttp_request_error error, void *arg)
{
    struct replay_request *r = arg;
    static const char *const names[] = {
        [EVREQ_HTTP_TIMEOUT] = "timeout",
        [EVREQ_HTTP_EOF] = "connection closed",
        [EVREQ_HTTP_INVALID_HEADER] = "invalid HTTP header",
        [EVREQ_HTTP_BUFFER_ERROR] = "connection error",
        [EVREQ_HTTP_REQUEST_CANCEL] = "cancelled",
        [EVREQ_HTTP_DATA_TOO_LONG] = "answer too long",
    };
    r->failure = (size_t)error < sizeof names / sizeof names[0]
                     ? names[error]
                     : "connection error";
}

/* Reads the prediction from a header, for answers without usage. */
static void read_headers(struct replay_request *r,
                         struct evhttp_request *request)
{
    struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
    struct replay_record *record = r->params.record;
    const char *ms =
        evhttp_find_header(headers, "x-conductor-predicted-ttft-ms");
    char *end = NULL;
    double value = ms ? strtod(ms, &end) : -1.0;

    if (record->predicted_ttft_us < 0 && ms && end != ms && value >= 0 &&
        value < 1e12)
        record->predicted_ttft_us = (int64_t)(value * 1000.0 + 0.5);
}

static void on_done(struct evhttp_request *request, void *arg)
{
    struct replay_request *r = arg;
    int status = request ? evhttp_request_get_response_code(request) : 0;
    const char *failure = r->failure;

    if (status == 0 && r->reused && !r->again) {
        r->again = true;
        loop_timer_start(&r->timer, 0);
        return;
    }
    if (status == 0 && !failure)
        failure = "cannot connect";
    if (status != 0)
        read_headers(r, request);
    replay_answer_finish(&r->answer, status, failure, request_now_us(r));
    r->over = true;
    loop_timer_start(&r->timer, 0);
}

/* Sends the tenant as its key, unless the server has one key for all. */
static int add_tenant(const struct replay_request *r, struct evkeyvalq *headers)
{
    char key[48];

    if (r->params.record->tenant == 0 || *r->params.server->authorization)
        return 0;
    snprintf(key, sizeof key, "Bearer tenant-%" PRIu64,
             r->params.record->tenant);
    return evhttp_add_header(headers, "Authorization", key);
}

static struct evhttp_request *request_new(struct replay_request *r)
{
    struct evhttp_request *request = evhttp_request_new(on_done, r);

    if (!request)
        return NULL;
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_request_set_chunked_cb(request, on_chunk);
    evhttp_request_set_error_cb(request, on_error);
    if (replay_server_headers(r->params.server, request) != 0 ||
        add_tenant(r, headers) != 0 ||
        evhttp_add_header(headers, "Content-Type", "application/json") != 0 ||
        evbuffer_add_buffer_reference(evhttp_request_get_output_buffer(request),
                                      r->body) != 0) {
        evhttp_request_free(request);
        return NULL;
    }
    return request;
}

/* Disables Nagle: the last bytes of a request must not wait until the server
 * has acknowledged the ones before. */
static void send_at_once(struct evhttp_connection *connection)
{
    struct bufferevent *bev = evhttp_connection_get_bufferevent(connection);
    int on = 1;

    setsockopt(bufferevent_getfd(bev), IPPROTO_TCP, TCP_NODELAY, &on,
               sizeof on);
}

/* Sends the request. Returns 0 or -ENOMEM. */
static int send_request(struct replay_request *r)
{
    char path[sizeof r->params.server->path + 32];
    /* Only our own timer ends a request: libevent's default of 50 s of silence
     * is shorter than a long queue. */
    struct timeval silence = timeval_of(r->params.timeout_us + 5000000);

    if (!r->again)
        r->connection = idle_take(r->params.idle);
    r->reused = r->connection;
    if (!r->connection)
        r->connection = replay_server_connect(r->params.server, r->params.loop);
    if (!r->connection)
        return -ENOMEM;
    evhttp_connection_set_timeout_tv(r->connection, &silence);
    struct evhttp_request *request = request_new(r);
    snprintf(path, sizeof path, "%s/v1/completions", r->params.server->path);
    loop_timer_start(&r->timer, r->params.timeout_us);
    if (!request ||
        evhttp_make_request(r->connection, request, EVHTTP_REQ_POST, path) != 0)
        return -ENOMEM;
    send_at_once(r->connection);
    return 0;
}

/* Ends the request outside of the connection's callbacks. */
static void reap(struct replay_request *r)
{
    if (r->over && r->answer.record->status != 0 && !r->failure)
        r->connection = idle_keep(r->params.idle, r->connection);
    r->params.done(r->params.arg, r->params.record);
    request_free(r);
}

static void on_timer(void *arg)
{
    struct replay_request *r = arg;
    const char *why = "timeout";

    if (r->again && r->reused) {
        evhttp_connection_free(r->connection);
        r->connection = NULL;
        r->failure = NULL;
        if (send_request(r) == 0)
            return;
        why = "out of memory";
    }
    if (!r->over)
        replay_answer_finish(&r->answer, 0, why, request_now_us(r));
    reap(r);
}

int replay_request_start(const struct replay_request_params *params,
                         struct evbuffer *body, struct replay_request **out)
{
    struct replay_request *r = calloc(1, sizeof *r);

    if (!r) {
        evbuffer_free(body);
        return -ENOMEM;
    }
    r->params = *params;
    r->body = body;
    replay_answer_init(&r->answer, params->record);
    loop_timer_init(params->loop, &r->timer, on_timer, r);
    if (send_request(r) != 0) {
        request_free(r);
        return -ENOMEM;
    }
    *out = r;
    return 0;
}

void replay_request_cancel(struct replay_request *r, const char *reason)
{
    if (!r->over)
        replay_answer_finish(&r->answer, 0, reason, request_now_us(r));
    request_free(r);
}

static void on_signal(void *arg, unsigned)
{
    struct replay_flight *f = arg;

    f->interrupted = true;
    loop_stop(f->params.loop);
}

int replay_flight_init(struct replay_flight *f, size_t count)
{
    bool good = (f->requests = calloc(count, sizeof f->requests[0]));

    f->count = count;
    for (size_t i = 0; good && i < 2; i++) {
        loop_signal_init(f->params.loop, &f->signals[i], i ? SIGTERM : SIGINT,
                         on_signal, f);
        good = loop_watch_start(&f->signals[i], 0) == 0;
    }
    return good ? 0 : -ENOMEM;
}

static void on_flight_done(void *arg, struct replay_record *record)
{
    struct replay_flight *f = arg;

    f->requests[record - f->records] = NULL;
    f->in_flight--;
    f->params.done(f->params.arg, record);
}

int replay_flight_send(struct replay_flight *f, size_t i, struct evbuffer *body)
{
    struct replay_request_params params = f->params;

    params.record = &f->records[i];
    params.idle = &f->idle;
    params.done = on_flight_done;
    params.arg = f;
    int rc =
        body ? replay_request_start(&params, body, &f->requests[i]) : -ENOMEM;
    f->in_flight += rc == 0;
    return rc;
}

void replay_flight_drop(struct replay_flight *f)
{
    for (size_t i = 0; f->in_flight > 0 && i < f->count; i++) {
        if (!f->requests[i])
            continue;
        replay_request_cancel(f->requests[i], "interrupted");
        f->records[i].outcome = REPLAY_PENDING;
        f->requests[i] = NULL;
        f->in_flight--;
    }
}

void replay_flight_fini(struct replay_flight *f)
{
    if (f->requests)
        replay_flight_drop(f);
    for (size_t i = 0; i < 2; i++)
        loop_watch_stop(&f->signals[i]);
    free(f->requests);
    replay_idle_fini(&f->idle);
}
