/*
 * /metrics: the service writes it in pieces, one per turn of the loop for all
 * clients together; a client that reads slowly delays only itself. So the
 * memory of a scrape is bounded by UNSENT_BYTES and a piece, and that of all by
 * SCRAPES_MAX; limits on unread output do not apply.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/loop/loop.h"
#include "conductor/front/internal.h"
#include "conductor/json/text_buf.h"

#define UNSENT_BYTES ((size_t)256 << 10)
#define SCRAPES_MAX 16

struct scrape {
    TAILQ_ENTRY(scrape) entry;
    struct front *front;
    struct http_conn *conn;
    struct models_report *report;
    bool waits; /* for its client; not in the list then */
};

static int put(struct text_buf *out, const char *name, const char *type,
               const char *help, uint64_t value)
{
    return text_buf_printf(out,
                           "# HELP conductor_http_%s %s\n"
                           "# TYPE conductor_http_%s %s\n"
                           "conductor_http_%s %" PRIu64 "\n",
                           name, help, name, type, name, value) < 0;
}

/* Counts of the clients' door. */
static int write_door(const struct front *front, struct text_buf *out)
{
    const struct http_stats *s = http_server_stats(front->door.server);
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } all[] = {
        {"connections", "gauge", "Open client connections.", s->connections},
        {"in_flight", "gauge", "Completion requests in flight.",
         front->in_flight},
        {"connections_total", "counter", "Accepted connections.", s->accepted},
        {"refused_total", "counter",
         "Client connections refused over max_connections.", s->refused},
        {"evicted_total", "counter",
         "Idle connections closed to make room for others.", s->evicted},
        {"gone_total", "counter",
         "Clients that disconnected before their answer was sent.", s->gone},
        {"slow_total", "counter", "Clients cut off for reading too slowly.",
         s->slow},
        {"body_bytes", "gauge", "Bytes of request bodies being received.",
         s->body_bytes},
        {"unsent_bytes", "gauge",
         "Bytes of answers that clients have not read yet.",
         http_server_held(front->door.server)},
        {"put_off_total", "counter",
         "How often a connection waited for the event loop's next round "
         "because its client had used its share of the current one.",
         s->put_off},
        {"bodies_refused_total", "counter",
         "Request bodies refused for lack of room (max_body_total_bytes).",
         s->bodies_refused},
        {"tls_total", "counter", "Connections with a successful TLS handshake.",
         s->tls},
        {"tls_failed_total", "counter",
         "Connections that ended before a successful TLS handshake.",
         s->tls_failed},
        {"paths_refused_total", "counter",
         "Requests for paths that are not forwarded to engines.",
         front->paths_refused},
    };
    int bad = 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        bad |= put(out, all[i].name, all[i].type, all[i].help, all[i].value);
    bad |= text_buf_printf(
               out, "# HELP conductor_http_responses_total Responses by class "
                    "of status.\n"
                    "# TYPE conductor_http_responses_total counter\n") < 0;
    for (int i = 2; i <= 5; i++)
        bad |= text_buf_printf(out,
                               "conductor_http_responses_total{class=\""
                               "%dxx\"} %" PRIu64 "\n",
                               i, s->by_class[i]) < 0;
    return bad ? -ENOMEM : 0;
}

static int write_certificates(const struct front *front, struct text_buf *out)
{
    const struct {
        const char *option;
        int64_t until_s;
    } all[] = {
        {"tls_certificate", front->clients_expire_s},
        {"worker_tls_certificate", front->workers_expire_s},
    };
    int bad =
        text_buf_printf(
            out, "# HELP conductor_certificate_expires_seconds Unix time at "
                 "which the first certificate in an option's file expires.\n# "
                 "TYPE conductor_certificate_expires_seconds gauge\n") < 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].until_s)
            bad |= text_buf_printf(
                       out,
                       "conductor_certificate_expires_seconds{option=\"%s\"} "
                       "%" PRId64 "\n",
                       all[i].option, all[i].until_s) < 0;
    return bad ? -ENOMEM : 0;
}

static void free_scrape(struct scrape *s)
{
    if (!s->waits)
        TAILQ_REMOVE(&s->front->scrapes.list, s, entry);
    models_report_free(s->report);
    s->front->scrapes.n--;
    free(s);
}

static void line_up(struct scrape *s)
{
    struct scrapes *all = &s->front->scrapes;

    s->waits = false;
    TAILQ_INSERT_TAIL(&all->list, s, entry);
    if (!loop_timer_pending(&all->turn))
        loop_timer_start(&all->turn, 0);
}

/* Sends the next piece, of at least one byte. Returns 1: there are more; 0; or
 * a negative errno. */
static int send_piece(struct scrape *s)
{
    struct text_buf out;

    text_buf_init(&out, SIZE_MAX);
    int more = models_report_next(s->report, &out);
    if (more == 0 &&
        (write_door(s->front, &out) || write_certificates(s->front, &out)))
        more = -ENOMEM;
    if (more >= 0 && out.len && http_write(s->conn, out.data, out.len))
        more = -ENOMEM;
    text_buf_fini(&out);
    return more;
}

static void on_turn(void *arg)
{
    struct front *front = arg;
    struct scrape *s = TAILQ_FIRST(&front->scrapes.list);
    struct http_conn *conn;

    if (!s)
        return;
    int more = send_piece(s);
    conn = s->conn;
    if (more > 0) {
        TAILQ_REMOVE(&front->scrapes.list, s, entry);
        if (http_unsent(conn) < UNSENT_BYTES)
            line_up(s);
        else
            s->waits = true;
    } else {
        free_scrape(s);
        if (more < 0)
            http_abort(conn);
        else
            http_end(conn);
    }
    if (!TAILQ_EMPTY(&front->scrapes.list))
        loop_timer_start(&front->scrapes.turn, 0);
}

static void on_taken(void *arg)
{
    struct scrape *s = arg;

    if (s->waits)
        line_up(s);
}

static void on_gone(void *arg)
{
    free_scrape(arg);
}

void metrics_init_scrapes(struct front *front)
{
    TAILQ_INIT(&front->scrapes.list);
    loop_timer_init(front->loop, &front->scrapes.turn, on_turn, front);
}

void view_metrics(const struct front_call *call)
{
    struct openai_error error;
    struct scrape *s;

    if (call->front->scrapes.n >= SCRAPES_MAX) {
        openai_error_set(&error, 503, "too_many_scrapes", NULL,
                         "%d clients are reading /metrics already",
                         SCRAPES_MAX);
        endpoint_reply_error(call->conn, &error, 0);
        return;
    }
    s = calloc(1, sizeof(*s));
    if (s)
        s->report = models_report_new(call->front->models);
    if (!s || !s->report) {
        free(s);
        view_no_memory(call->conn);
        return;
    }
    s->front = call->front;
    s->conn = call->conn;
    s->front->scrapes.n++;
    http_operators(call->conn);
    http_stream(call->conn, 200, "text/plain; version=0.0.4; charset=utf-8");
    if (http_is(call->head->method, "HEAD")) {
        s->waits = true;
        free_scrape(s);
        http_end(call->conn);
        return;
    }
    http_on_gone(call->conn, on_gone, s);
    http_on_taken(call->conn, on_taken, s);
    line_up(s);
}
