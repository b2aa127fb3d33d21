/* The page, and streams of events. See watch.h. */
#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/loop/loop.h"
#include "conductor/front/watch/watch.h"
#include "conductor/json/text_buf.h"

#define INSTANCES_SHOWN 256
#define DECISIONS_SHOWN 8

enum event_kind {
    OVERVIEW,
    INSTANCES,
    DECISIONS,
    HISTORY_OF_5M,
    HISTORY_OF_1H,
    HISTORY_OF_24H,
    EVENT_KINDS
};

#define ALL_EVENTS ((1u << EVENT_KINDS) - 1)

struct viewer {
    TAILQ_ENTRY(viewer) entry;
    struct watch *watch;
    struct http_conn *conn;
    unsigned due;     /* events to send to it: bits 1 << kind */
    unsigned stalled; /* intervals with unread events */
};

TAILQ_HEAD(viewer_list, viewer);

struct watch {
    struct front *front;
    struct loop_timer timer; /* pending while there are viewers */
    struct viewer_list viewers;
    unsigned n, interval;
    uint64_t decided; /* models_decided() when decisions were last due */
    struct text_buf events[EVENT_KINDS]; /* of this interval; empty = not made
                                            yet */
};

static int write_instances(const struct models *models, struct text_buf *out)
{
    return models_instances(models, INSTANCES_SHOWN, out);
}

static int write_decisions(const struct models *models, struct text_buf *out)
{
    return models_decisions(models, DECISIONS_SHOWN, out);
}

static const struct {
    const char *name;
    int (*write)(const struct models *models, struct text_buf *out);
    unsigned every; /* intervals; 0 = after decisions */
} kinds[EVENT_KINDS] = {
    [OVERVIEW] = {"overview", models_overview, 1},
    [INSTANCES] = {"instances", write_instances, 1},
    [DECISIONS] = {"decisions", write_decisions, 0},
    [HISTORY_OF_5M] = {"history/5m", view_history_5m, 5},
    [HISTORY_OF_1H] = {"history", view_history, 10},
    [HISTORY_OF_24H] = {"history/24h", view_history_24h, 60},
};

/* Returns the event, made once for all viewers; NULL: out of memory. */
static const struct text_buf *event_now(struct watch *w, enum event_kind kind)
{
    struct text_buf *out = &w->events[kind];

    if (out->len)
        return out;
    text_buf_init(out, SIZE_MAX);
    if (text_buf_printf(out, "event: %s\ndata: ", kinds[kind].name) == 0 &&
        kinds[kind].write(w->front->models, out) == 0 &&
        text_buf_printf(out, "\n") == 0)
        return out;
    text_buf_fini(out);
    return NULL;
}

static void forget_events(struct watch *w)
{
    for (int kind = 0; kind < EVENT_KINDS; kind++)
        text_buf_fini(&w->events[kind]);
}

static void viewer_free(void *arg)
{
    struct viewer *v = arg;

    TAILQ_REMOVE(&v->watch->viewers, v, entry);
    v->watch->n--;
    free(v);
}

static void viewer_close(struct viewer *v)
{
    http_abort(v->conn);
    viewer_free(v);
}

/* Sends due events, if the viewer has read all before. It may be freed. */
static void serve(struct viewer *v)
{
    if (http_unsent(v->conn) > 0) {
        if (++v->stalled > WATCH_STALLED)
            viewer_close(v);
        return;
    }
    v->stalled = 0;
    for (unsigned kind = 0; kind < EVENT_KINDS; kind++) {
        const struct text_buf *event =
            v->due & 1u << kind ? event_now(v->watch, kind) : NULL;

        if (!event)
            continue;
        if (http_write(v->conn, event->data, event->len)) {
            viewer_close(v);
            return;
        }
        v->due &= ~(1u << kind);
    }
}

static unsigned due_now(struct watch *w)
{
    uint64_t decided = models_decided(w->front->models);
    unsigned due = decided != w->decided ? 1u << DECISIONS : 0;

    w->interval++;
    for (unsigned kind = 0; kind < EVENT_KINDS; kind++)
        if (kinds[kind].every && w->interval % kinds[kind].every == 0)
            due |= 1u << kind;
    w->decided = decided;
    return due;
}

static void on_time(void *arg)
{
    struct watch *w = arg;
    unsigned due = due_now(w);
    struct viewer *v, *next;

    for (v = TAILQ_FIRST(&w->viewers); v; v = next) {
        next = TAILQ_NEXT(v, entry);
        v->due |= due;
        serve(v);
    }
    forget_events(w);
    if (w->n == 0)
        loop_timer_stop(&w->timer);
}

static struct watch *watch_new(struct front *front)
{
    struct watch *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->front = front;
    TAILQ_INIT(&w->viewers);
    loop_timer_init(front->loop, &w->timer, on_time, w);
    return w;
}

static void begin(struct watch *w, struct viewer *v, struct http_conn *conn)
{
    *v = (struct viewer){.watch = w, .conn = conn, .due = ALL_EVENTS};
    TAILQ_INSERT_TAIL(&w->viewers, v, entry);
    if (w->n++ == 0)
        loop_timer_repeat(&w->timer, w->front->options.events_us);
    http_add_header(conn, "Cache-Control", "no-store");
    http_operators(conn);
    http_stream(conn, 200, "text/event-stream");
    http_on_gone(conn, viewer_free, v);
    serve(v);
    forget_events(w);
}

void watch_events(const struct front_call *call)
{
    struct front *front = call->front;
    struct viewer *v;

    /* Events show what clients asked for, so they need the right to change. */
    if (!admin_may_change(call))
        return;
    if (http_is(call->head->method, "HEAD")) {
        http_stream(call->conn, 200, "text/event-stream");
        http_end(call->conn);
        return;
    }
    if (!front->watch)
        front->watch = watch_new(front);
    if (front->watch && front->watch->n >= WATCH_VIEWERS_MAX) {
        http_refuse(call->conn, 503, "too_many_viewers", NULL,
                    "%d viewers watch already; close a page, or ask "
                    "/admin/overview",
                    WATCH_VIEWERS_MAX);
        return;
    }
    v = front->watch ? malloc(sizeof(*v)) : NULL;
    if (v)
        begin(front->watch, v, call->conn);
    else
        view_no_memory(call->conn);
}

void watch_close_all(struct watch *watch)
{
    struct viewer *v;

    while (watch && (v = TAILQ_FIRST(&watch->viewers))) {
        http_end(v->conn);
        viewer_free(v);
    }
}

void watch_free(struct watch *watch)
{
    if (!watch)
        return;
    loop_timer_stop(&watch->timer);
    free(watch);
}

/* Browsers run and show only what is in the page; it asks for the key, and gets
 * events with it. */
void watch_page(const struct front_call *call)
{
    http_add_header(call->conn, "Content-Security-Policy", page_policy);
    http_add_header(call->conn, "X-Content-Type-Options", "nosniff");
    http_add_header(call->conn, "Referrer-Policy", "no-referrer");
    http_add_header(call->conn, "Cache-Control", "no-store");
    http_reply(call->conn, 200, "text/html; charset=utf-8", page_html,
               page_bytes);
}
