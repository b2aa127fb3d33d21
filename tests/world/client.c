/*
 * A client of the world. It asks one streamed completion after the other, each
 * over a connection of its own as HTTP/1.0, whose answer ends with the
 * connection, and compares what comes with the reference.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dial.h"
#include "base/socket.h"
#include "base/stream/stream.h"
#include "tests/world/internal.h"

#define PROMPT_MAX 400u
#define ANSWER_MAX 40u
#define SHARED 3u /* beginnings that prompts share */
#define VALUES 256u
#define INPUT_MAX 65536
/* A broken link may be noticed so long after it was mended. */
#define NOTICE_US (60 * WORLD_SECOND_US)

struct world_client {
    struct world *world;
    uint32_t i;
    struct loop *loop;
    struct stream_loop *streams;
    struct dial dial;
    struct stream *stream; /* NULL = not connected */
    struct loop_timer next;
    /* The request: */
    unsigned number; /* 0 = none yet */
    bool asking;     /* it has not ended */
    bool last;       /* must be answered whole */
    int64_t begin_us;
    uint32_t prompt[PROMPT_MAX], n_prompt;
    char want[ANSWER_MAX];
    uint32_t n_want;
    /* Its answer: */
    int status; /* 0 = no head came */
    uint32_t n_got;
    bool finished; /* an event said "length" */
    bool done;     /* [DONE] came */
    bool failed;   /* an event said why */
};

/* --- ends of a request -----------------------------------------------------
 */

static void hang_up(struct world_client *c)
{
    dial_stop(&c->dial);
    stream_free(c->stream);
    c->stream = NULL;
}

static void violation(struct world_client *c, const char *what)
{
    world_violation(c->world, "client %u, request %u: %s", c->i, c->number,
                    what);
}

static void think(struct world_client *c)
{
    struct world *w = c->world;
    int64_t us = (int64_t)(random_exponential_q32(&w->random) / 65536) *
                 w->think_us / 65536;

    if (world_now_us(w) + us < w->until_us && loop_timer_start(&c->next, us))
        violation(c, "out of memory");
}

/* Counts the end, which `*count` is of. */
static void over(struct world_client *c, unsigned *count, const char *how)
{
    ++*count;
    c->asking = false;
    hang_up(c);
    world_say(c->world, "client %u: request %u %s: %d, %u of %u tokens", c->i,
              c->number, how, c->status, c->n_got, c->n_want);
    if (c->last && count != &c->world->result->whole)
        violation(c, "the last request was not answered, without a fault");
    think(c);
}

static void over_whole(struct world_client *c)
{
    if (!c->finished || c->n_got != c->n_want)
        violation(c, "the answer ended too early");
    over(c, &c->world->result->whole, "answered");
}

static void over_refused(struct world_client *c)
{
    over(c, &c->world->result->refused, "refused");
}

static void over_broken(struct world_client *c)
{
    if (!c->world->broke_us || c->world->broke_us + NOTICE_US < c->begin_us)
        violation(c, "the connection ended early, without a fault");
    over(c, &c->world->result->broken, "broken");
}

/* --- the answer ------------------------------------------------------------
 */

/* Returns whether it is an error that says why. */
static bool says_why(const json_t *o)
{
    const json_t *error = json_object_get(o, "error");
    const char *message = json_string_value(json_object_get(error, "message"));

    return message && *message;
}

static void take_text(struct world_client *c, const char *text)
{
    for (; *text; text++) {
        if (c->n_got == c->n_want) {
            violation(c, "more tokens than were asked for");
            return;
        }
        if (*text != c->want[c->n_got])
            violation(c, "a token is not the reference's");
        c->n_got++;
    }
}

static void take_object(struct world_client *c, const json_t *o)
{
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    const char *text = json_string_value(json_object_get(choice, "text"));
    const char *why =
        json_string_value(json_object_get(choice, "finish_reason"));

    if (json_object_get(o, "error")) {
        c->failed = true;
        if (!says_why(o))
            violation(c, "an error does not say why");
        return;
    }
    if (c->finished && (text && *text))
        violation(c, "text comes after the finish reason");
    if (text)
        take_text(c, text);
    if (why && strcmp(why, "length"))
        violation(c, "another finish reason than length");
    if (why)
        c->finished = true;
}

/* Takes an event, `n` bytes long without the empty line. */
static void take_event(struct world_client *c, const char *event, size_t n)
{
    json_t *o;

    if (n > 0 && *event == ':')
        return;
    if (c->done || c->failed) {
        /* The stream of an error may end as others do. */
        if (c->done || n != 12 || memcmp(event, "data: [DONE]", 12))
            violation(c, "an event comes after the last one");
        return;
    }
    if (n < 6 || memcmp(event, "data: ", 6)) {
        violation(c, "an event without data");
        return;
    }
    if (n == 12 && memcmp(event + 6, "[DONE]", 6) == 0) {
        c->done = true;
        return;
    }
    o = json_loadb(event + 6, n - 6, 0, NULL);
    if (!json_is_object(o))
        violation(c, "an event is no JSON");
    else
        take_object(c, o);
    json_decref(o);
}

static size_t take_events(struct world_client *c, const char *in, size_t n)
{
    size_t used = 0;
    const char *end;

    while ((end = memmem(in + used, n - used, "\n\n", 2))) {
        size_t length = (size_t)(end - in) - used;

        take_event(c, in + used, length);
        used += length + 2;
    }
    return used;
}

/* Returns the bytes of the head; 0 = it is not whole. */
static size_t take_head(struct world_client *c, const char *in, size_t n)
{
    const char *end = memmem(in, n, "\r\n\r\n", 4);

    if (!end)
        return 0;
    if (memcmp(in, "HTTP/1.1 ", 9) == 0)
        c->status = atoi(in + 9);
    if (c->status < 200 || c->status > 599)
        violation(c, "no status of HTTP");
    return (size_t)(end - in) + 4;
}

static void on_input(void *arg)
{
    struct world_client *c = arg;
    size_t n;
    const char *in = stream_input(c->stream, &n);

    if (!c->status) {
        size_t head = take_head(c, in, n);

        stream_use(c->stream, head);
        if (!head)
            return;
        in = stream_input(c->stream, &n);
    }
    if (c->status == 200)
        stream_use(c->stream, take_events(c, in, n));
}

/* An answer of another status is one object. Returns whether it is whole. */
static bool take_error(struct world_client *c)
{
    size_t n;
    const char *in = stream_input(c->stream, &n);
    json_t *o = json_loadb(in, n, 0, NULL);
    bool whole = json_is_object(o);

    if (whole && !says_why(o))
        violation(c, "an error does not say why");
    json_decref(o);
    return whole;
}

static void on_ended(void *arg, int error)
{
    struct world_client *c = arg;

    if (c->done)
        over_whole(c);
    else if (c->failed || (c->status && c->status != 200 && take_error(c)))
        over_refused(c);
    else
        over_broken(c);
    (void)error; /* -ECONNRESET, or the end: both are early */
}

static void on_sent(void *)
{
}

/* --- the request -----------------------------------------------------------
 */

/* Draws a prompt: some of a shared beginning, and a tail of its own. */
static void draw(struct world_client *c)
{
    struct world *w = c->world;
    uint32_t which = world_pick(w, SHARED);
    uint32_t shared = world_pick(w, PROMPT_MAX - 50);

    c->n_prompt = shared + 1 + world_pick(w, 50);
    for (uint32_t i = 0; i < c->n_prompt; i++)
        c->prompt[i] =
            i < shared ? (uint32_t)(random_mix(which * PROMPT_MAX + i) % VALUES)
                       : world_pick(w, VALUES);
    c->n_want = 1 + world_pick(w, ANSWER_MAX);
    if (reference_answer(w->reference, c->prompt, c->n_prompt, c->want,
                         c->n_want))
        violation(c, "no reference");
}

static int write_request(struct world_client *c)
{
    char body[PROMPT_MAX * 6 + 200], head[200];
    size_t n = 0;

    n += (size_t)snprintf(body, sizeof(body),
                          "{\"model\":\"tiny\",\"stream\":true,"
                          "\"max_tokens\":%u,\"prompt\":[",
                          c->n_want);
    for (uint32_t i = 0; i < c->n_prompt; i++)
        n += (size_t)snprintf(body + n, sizeof(body) - n, "%s%u", i ? "," : "",
                              c->prompt[i]);
    n += (size_t)snprintf(body + n, sizeof(body) - n, "]}");
    int head_n = snprintf(head, sizeof(head),
                          "POST /v1/completions HTTP/1.0\r\nHost: x\r\n"
                          "Content-Type: application/json\r\n"
                          "Content-Length: %zu\r\n\r\n",
                          n);
    return stream_write(c->stream, head, (size_t)head_n) ||
                   stream_write(c->stream, body, n)
               ? -ENOMEM
               : 0;
}

static void on_dialled(void *arg, int fd, const char *why_not)
{
    static const struct stream_options options = {.max_input = INPUT_MAX};
    static const struct stream_ops ops = {
        .readable = on_input, .sent = on_sent, .ended = on_ended};
    struct world_client *c = arg;

    if (why_not) {
        over_broken(c);
        return;
    }
    socket_tune(c->loop, fd);
    c->stream = stream_new(c->streams, fd, &options, &ops, c);
    if (!c->stream || write_request(c))
        violation(c, "out of memory");
}

static void on_next(void *arg)
{
    struct world_client *c = arg;

    c->number++;
    c->world->result->asked++;
    c->asking = true;
    c->begin_us = world_now_us(c->world);
    c->status = 0;
    c->n_got = 0;
    c->finished = c->done = c->failed = false;
    draw(c);
    world_say(c->world, "client %u: request %u, %u tokens, wants %u", c->i,
              c->number, c->n_prompt, c->n_want);
    if (dial_start(&c->dial, c->loop, NULL, "10.0.0.1", WORLD_HTTP_PORT,
                   on_dialled, c))
        violation(c, "out of memory");
}

void world_client_last(struct world_client *c)
{
    c->last = true;
    if (loop_timer_start(&c->next, 0))
        violation(c, "out of memory");
}

bool world_client_quiet(const struct world_client *c)
{
    return !c->asking && !loop_timer_pending(&c->next);
}

struct world_client *world_client_new(struct world *w, uint32_t i)
{
    struct world_client *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->world = w;
    c->i = i;
    c->loop = world_join(w, WORLD_CLIENT + i);
    c->streams = c->loop ? stream_loop_new(c->loop) : NULL;
    if (!c->streams) {
        world_client_free(c);
        return NULL;
    }
    loop_timer_init(c->loop, &c->next, on_next, c);
    think(c);
    return c;
}

void world_client_free(struct world_client *c)
{
    if (!c)
        return;
    hang_up(c);
    loop_timer_stop(&c->next);
    stream_loop_free(c->streams);
    loop_free(c->loop);
    free(c);
}
