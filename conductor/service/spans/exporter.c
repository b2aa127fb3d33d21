/*
 * See exporter.h. By the protocol (OTLP 1.x, "OTLP/HTTP Response" and "Retry")
 * 429, 502, 503, 504 and failed connections are tried again, after Retry-After
 * or a pause that doubles; all other answers are final.
 *
 *   a batch is under way   <=>   x->body.len > 0
 *   it is being sent       <=>   x->exchange
 *   it waits               <=>   x->timer is pending, if there are any spans
 */
#include "conductor/service/spans/exporter.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/json/text_buf.h"
#include "conductor/link/upstream/exchange/upstream.h"
#include "conductor/service/spans/context.h"

#define EACH_US 1000000                  /* between batches */
#define BATCH_BYTES (EXPORTER_BYTES / 8) /* of spans start a batch at once */
#define ANSWER_US 10000000               /* limit of an answer */
#define BODY_BYTES (EXPORTER_BYTES + 4096)
#define REPLY_BYTES 65536
#define FIRST_PAUSE_US 1000000
#define LONGEST_PAUSE_US 30000000
#define GIVES_UP_US 300000000 /* limit of a batch, retries included */

struct exporter {
    struct loop *loop;
    struct dns *dns;
    struct upstream *upstream; /* NULL = no receiver */
    char endpoint[ENGINE_URL_MAX];
    const char *path; /* behind the URL's own prefix */
    char head[512];   /* the JSON in front of a batch's spans */
    struct loop_timer timer;
    struct text_buf spans;     /* not yet in a batch */
    struct text_buf body;      /* the batch being sent */
    struct text_buf reply;     /* from the receiver, so far */
    uint64_t n_spans, n_body;  /* spans in `spans`, in `body` */
    struct exchange *exchange; /* NULL = the batch waits */
    int status;                /* of the answer; 0 = none yet */
    bool cut;                  /* the rest of the reply is not read */
    int64_t begun_us, pause_us, retry_us; /* of the batch */
    bool complained;
    struct exporter_counts counts;
};

static void on_timer(void *arg);

/* Writes the resource's attributes; service.instance.id tells processes apart.
 */
static void write_head(struct exporter *x)
{
    char host[65] = "?";

    gethostname(host, sizeof(host) - 1);
    snprintf(x->head, sizeof(x->head),
             "{\"resourceSpans\":[{\"resource\":{\"attributes\":["
             "{\"key\":\"service.name\",\"value\":{\"stringValue\":"
             "\"conductor\"}},"
             "{\"key\":\"service.version\",\"value\":{\"stringValue\":\"%s\"}},"
             "{\"key\":\"service.instance.id\",\"value\":{\"stringValue\":"
             "\"%s-%d-%08x\"}}]},"
             "\"scopeSpans\":[{\"scope\":{\"name\":\"conductor\",\"version\":"
             "\"%s\"},\"spans\":[",
             CONDUCTOR_VERSION, host, (int)getpid(),
             (unsigned)(loop_random(x->loop) >> 32), CONDUCTOR_VERSION);
}

struct exporter *exporter_new(struct loop *loop, struct dns *dns)
{
    struct exporter *x = calloc(1, sizeof(*x));

    if (!x)
        return NULL;
    x->loop = loop;
    x->dns = dns;
    loop_timer_init(loop, &x->timer, on_timer, x);
    text_buf_init(&x->spans, EXPORTER_BYTES);
    text_buf_init(&x->body, BODY_BYTES);
    text_buf_init(&x->reply, REPLY_BYTES);
    write_head(x);
    return x;
}

static void drop_batch(struct exporter *x)
{
    loop_timer_stop(&x->timer); /* the limit of the answer */
    upstream_cancel(x->exchange);
    x->exchange = NULL;
    text_buf_fini(&x->body);
    text_buf_fini(&x->reply);
    x->n_body = 0;
}

static void close_receiver(struct exporter *x)
{
    loop_timer_stop(&x->timer);
    x->counts.dropped += x->n_body + x->n_spans;
    drop_batch(x);
    text_buf_fini(&x->spans);
    x->n_spans = 0;
    upstream_free(x->upstream);
    x->upstream = NULL;
    *x->endpoint = '\0';
}

int exporter_take(struct exporter *x, const char *endpoint)
{
    const struct upstream_options options = {.max_idle = 1,
                                             .max_head_bytes = 16384,
                                             .connect_us = 5000000,
                                             .idle_us = 30000000};
    struct engine_url url;

    if (strcmp(endpoint, x->endpoint) == 0)
        return 0;
    close_receiver(x);
    if (!*endpoint || engine_url_parse(endpoint, &url))
        return 0;
    x->upstream = upstream_new(x->loop, x->dns, &url, NULL, &options);
    if (!x->upstream)
        return -ENOMEM;
    snprintf(x->endpoint, sizeof(x->endpoint), "%s", endpoint);
    x->path = *url.prefix ? "" : "/v1/traces";
    x->complained = false;
    return 0;
}

bool exporter_is_open(const struct exporter *x)
{
    return x->upstream;
}

/* Logs the first failure of a series. */
static void complain(struct exporter *x, const char *what, const char *why)
{
    if (!x->complained)
        log_warn("otlp_endpoint %s: %s%s%s", x->endpoint, what,
                 *why ? ": " : "", why);
    x->complained = true;
}

static void wait_for(struct exporter *x, int64_t us)
{
    if (loop_timer_start(&x->timer, us))
        complain(x, "out of memory", "");
}

/* Ends the batch, and schedules the next one. */
static void end_batch(struct exporter *x)
{
    drop_batch(x);
    if (x->n_spans)
        wait_for(x, x->spans.len >= BATCH_BYTES ? 0 : EACH_US);
}

/* Adds or subtracts up to a half, so that clients do not retry in step. */
static int64_t jitter_us(struct loop *loop, int64_t us)
{
    return us / 2 + (int64_t)(loop_random(loop) % (uint64_t)us);
}

/* Repeats a batch after a fault that may be temporary. */
static void try_again(struct exporter *x, const char *what, const char *why)
{
    int64_t now_us = loop_now_us(x->loop);

    complain(x, what, why);
    upstream_cancel(x->exchange);
    x->exchange = NULL;
    if (now_us - x->begun_us > GIVES_UP_US) {
        x->counts.dropped += x->n_body;
        end_batch(x);
        return;
    }
    wait_for(x, x->retry_us ? x->retry_us : jitter_us(x->loop, x->pause_us));
    x->pause_us *= 2;
    if (x->pause_us > LONGEST_PAUSE_US)
        x->pause_us = LONGEST_PAUSE_US;
}

static void on_answer(void *arg, const struct http_head *head)
{
    struct exporter *x = arg;
    const struct http_slice *after = http_find(head, "retry-after");

    x->status = head->status;
    x->retry_us =
        after ? otlp_retry_after_us(after->at, after->n, GIVES_UP_US) : 0;
}

/* Handles a 2xx answer, in which some spans may be rejected. */
static void taken(struct exporter *x)
{
    char why[256];
    uint64_t rejected =
        otlp_rejected(x->reply.data ? x->reply.data : "", x->reply.len, why);

    if (rejected > x->n_body)
        rejected = x->n_body;
    x->counts.rejected += rejected;
    x->counts.sent += x->n_body - rejected;
    if (rejected)
        complain(x, "it did not take all spans", why);
    else if (x->cut)
        complain(x, "it takes spans, but its answer does not end", "");
    else if (x->complained)
        log_info("otlp_endpoint %s: it takes spans again", x->endpoint);
    x->complained = rejected > 0 || x->cut;
    end_batch(x);
}

static void on_ended(void *arg)
{
    struct exporter *x = arg;
    char what[64];

    x->exchange = NULL;
    snprintf(what, sizeof(what), "it answers %d", x->status);
    if (x->status / 100 == 2) {
        taken(x);
    } else if (x->status == 429 || x->status == 502 || x->status == 503 ||
               x->status == 504) {
        try_again(x, what, "");
    } else {
        complain(x, what, "");
        x->counts.rejected += x->n_body;
        end_batch(x);
    }
}

/* Ends an answer that is too long or endless: its status is enough. */
static void cut(struct exporter *x)
{
    upstream_cancel(x->exchange);
    x->cut = true;
    on_ended(x);
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct exporter *x = arg;

    if (n > REPLY_BYTES - x->reply.len)
        cut(x);
    else
        text_buf_add(&x->reply, bytes, n);
}

static void on_failed(void *arg, enum upstream_fault fault, const char *why)
{
    struct exporter *x = arg;

    x->exchange = NULL;
    x->retry_us = 0;
    try_again(x,
              upstream_gone(fault) || fault == UPSTREAM_TIMEOUT
                  ? "it cannot be reached"
                  : "its answer cannot be used",
              why);
}

static const struct upstream_ops exchange_ops = {
    .answer = on_answer,
    .bytes = on_bytes,
    .ended = on_ended,
    .failed = on_failed,
};

static void send_batch(struct exporter *x)
{
    x->status = 0;
    x->cut = false;
    x->retry_us = 0;
    text_buf_clear(&x->reply);
    x->exchange =
        upstream_send(x->upstream,
                      &(struct upstream_request){
                          .method = "POST",
                          .path = x->path,
                          .headers = "Content-Type: application/json\r\n"
                                     "User-Agent: conductor/" //
                          CONDUCTOR_VERSION "\r\n",
                          .body = x->body.data,
                          .n = x->body.len},
                      &exchange_ops, x);
    if (x->exchange)
        wait_for(x, ANSWER_US);
    else
        try_again(x, "out of memory", "");
}

/* Makes a batch of the queued spans. */
static void begin_batch(struct exporter *x)
{
    text_buf_puts(&x->body, x->head);
    text_buf_add(&x->body, x->spans.data, x->spans.len);
    text_buf_puts(&x->body, "]}]}]}");
    x->n_body = x->n_spans;
    x->n_spans = 0;
    text_buf_fini(&x->spans);
    x->begun_us = loop_now_us(x->loop);
    x->pause_us = FIRST_PAUSE_US;
    if (x->body.error) {
        x->counts.dropped += x->n_body;
        drop_batch(x);
        return;
    }
    send_batch(x);
}

static void on_timer(void *arg)
{
    struct exporter *x = arg;

    if (x->exchange && x->status)
        cut(x);
    else if (x->exchange)
        try_again(x, upstream_late(x->exchange), "");
    else if (x->n_body)
        send_batch(x);
    else if (x->n_spans)
        begin_batch(x);
}

void exporter_add(struct exporter *x, const char *spans, size_t n,
                  uint64_t count)
{
    if (!x->upstream || n > EXPORTER_BYTES - 1 ||
        x->spans.len > EXPORTER_BYTES - 1 - n) {
        x->counts.dropped += count;
        return;
    }
    if (x->n_spans)
        text_buf_puts(&x->spans, ",");
    text_buf_add(&x->spans, spans, n);
    if (x->spans.error) { /* out of memory */
        x->counts.dropped += x->n_spans + count;
        text_buf_fini(&x->spans);
        x->n_spans = 0;
        return;
    }
    x->n_spans += count;
    if (x->n_body)
        return;
    if (x->spans.len >= BATCH_BYTES)
        wait_for(x, 0);
    else if (!loop_timer_pending(&x->timer))
        wait_for(x, EACH_US);
}

bool exporter_flush(struct exporter *x)
{
    if (x->n_body == 0 && x->n_spans)
        begin_batch(x);
    return x->n_body == 0 && x->n_spans == 0;
}

struct exporter_counts exporter_counts(const struct exporter *x)
{
    return x->counts;
}

size_t exporter_waiting(const struct exporter *x)
{
    return x->spans.len + x->body.len;
}

void exporter_free(struct exporter *x)
{
    if (!x)
        return;
    close_receiver(x);
    loop_timer_stop(&x->timer);
    free(x);
}
