/* A stream that answers: what a grant covers is sent from its memory, or
 * received into it. */
#include <errno.h>

#include "workers/transfer/engine/tcp/internal.h"

/* So much is read before other streams have their turn. */
#define TURN_BYTES (2u << 20)

static void queue_answer(struct tcp_stream *s, const struct tcp_answer *a)
{
    uint32_t at = (s->first_answer + s->n_answers++) % TCP_ANSWERS_MAX;

    s->answers[at] = *a;
}

/* With the lock: neither waits for a grant that has ended. The answer that is
 * on its way out has promised its bytes. */
static void drop_ended(struct tcp_stream *s)
{
    if (s->into && s->into->ended) {
        tcp_grant_unuse(s->into);
        s->into = NULL;
        s->body = NULL;
        s->body_status = TCP_REVOKED;
    }
    for (uint32_t i = s->answering; i < s->n_answers; i++) {
        uint32_t at = (s->first_answer + i) % TCP_ANSWERS_MAX;
        struct tcp_answer *a = &s->answers[at];

        if (!a->grant || !a->grant->ended)
            continue;
        tcp_grant_unuse(a->grant);
        *a = (struct tcp_answer){.status = TCP_REVOKED};
    }
}

static int answer_look(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;

    if (!s->offer)
        return 0;
    pthread_mutex_lock(&t->lock);
    drop_ended(s);
    bool over = s->offer->withdrawn || s->offer->broken;
    pthread_mutex_unlock(&t->lock);
    return over ? -ECANCELED : 0;
}

/* The first bytes say whose connection it is. */
static int on_token(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;

    pthread_mutex_lock(&t->lock);
    s->offer = tcp_offer_bind(t, s->head);
    if (s->offer)
        t->n_unbound--;
    pthread_mutex_unlock(&t->lock);
    return s->offer ? 1 : -EACCES;
}

static int break_offer(struct tcp_stream *s, const char *why)
{
    struct tcp *t = s->io->tcp;

    pthread_mutex_lock(&t->lock);
    if (!s->offer->broken)
        s->offer->broken = why;
    tcp_io_wake(t); /* nothing is answered to its other streams either */
    bell_ring(t->bell);
    pthread_mutex_unlock(&t->lock);
    return -EPROTO;
}

static void begin(struct tcp_stream *s, const struct tcp_request *r,
                  uint8_t *memory, struct tcp_grant *grant)
{
    if (r->kind == TCP_READ) {
        queue_answer(s, &(struct tcp_answer){
                            .status = memory ? TCP_DONE : TCP_REVOKED,
                            .grant = grant,
                            .data = memory,
                            .bytes = memory ? r->bytes : 0,
                        });
        return;
    }
    s->in_body = true;
    s->into = grant;
    s->body = memory;
    s->body_left = r->bytes;
    s->body_status = memory ? TCP_DONE : TCP_REVOKED;
}

static int on_request(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;
    struct tcp_grant *grant = NULL;
    struct tcp_request r;
    int rc;

    if (tcp_request_decode(s->head, &r))
        return break_offer(s, "a malformed request on a data connection");
    pthread_mutex_lock(&t->lock);
    uint8_t *memory = tcp_offer_use(s->offer, &r, &grant, &rc);
    pthread_mutex_unlock(&t->lock);
    if (rc == -EPERM)
        return break_offer(s, "it asked for memory that it was not granted");
    begin(s, &r, memory, grant);
    return 1;
}

static int64_t on_head(struct tcp_stream *s)
{
    int rc = tcp_stream_head(s, s->offer ? TCP_REQUEST_BYTES : TCP_TOKEN_BYTES);

    if (rc <= 0)
        return rc;
    return s->offer ? on_request(s) : on_token(s);
}

static int64_t on_body(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;
    int64_t got = tcp_stream_body(s);

    if (got <= 0 || s->body_left > 0)
        return got;
    s->in_body = false;
    pthread_mutex_lock(&t->lock);
    if (s->into)
        tcp_grant_unuse(s->into);
    s->into = NULL;
    pthread_mutex_unlock(&t->lock);
    queue_answer(s, &(struct tcp_answer){.status = s->body_status});
    return got;
}

static int answer_read(struct tcp_stream *s)
{
    for (int64_t left = TURN_BYTES; left > 0;) {
        if (s->n_answers == TCP_ANSWERS_MAX)
            return 1;
        int64_t n = s->in_body ? on_body(s) : on_head(s);
        if (n <= 0)
            return (int)n;
        left -= n;
    }
    return 0;
}

/* The first answer was sent. */
static void answer_over(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;
    struct tcp_grant *grant = s->answers[s->first_answer].grant;

    s->first_answer = (s->first_answer + 1) % TCP_ANSWERS_MAX;
    s->n_answers--;
    s->answering = false;
    if (!grant)
        return;
    pthread_mutex_lock(&t->lock);
    tcp_grant_unuse(grant);
    pthread_mutex_unlock(&t->lock);
}

static int answer_send(struct tcp_stream *s)
{
    int rc;

    while ((rc = tcp_stream_send(s)) > 0) {
        if (s->answering)
            answer_over(s);
        if (s->n_answers == 0)
            return 1;
        const struct tcp_answer *a = &s->answers[s->first_answer];
        s->answering = true;
        tcp_answer_encode((uint32_t)a->status, s->out_head);
        s->out_head_at = 0;
        s->out_head_n = TCP_ANSWER_BYTES;
        s->out = a->data;
        s->out_left = a->bytes;
    }
    return rc;
}

static void answer_end(struct tcp_stream *s, int)
{
    struct tcp *t = s->io->tcp;

    pthread_mutex_lock(&t->lock);
    if (!s->offer) {
        t->n_unbound--;
        pthread_mutex_unlock(&t->lock);
        return;
    }
    for (; s->n_answers > 0; s->n_answers--) {
        struct tcp_grant *grant = s->answers[s->first_answer].grant;

        if (grant)
            tcp_grant_unuse(grant);
        s->first_answer = (s->first_answer + 1) % TCP_ANSWERS_MAX;
    }
    if (s->into)
        tcp_grant_unuse(s->into);
    s->offer->n_streams--;
    bell_ring(t->bell);
    pthread_mutex_unlock(&t->lock);
}

const struct tcp_role tcp_answers = {answer_read, answer_send, answer_look,
                                     answer_end};
