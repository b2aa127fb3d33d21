/* A stream that answers: sends memory granted to its peer. */
#include <errno.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/tcp/internal.h"

static void queue_answer(struct tcp_stream *s, const struct tcp_answer *a)
{
    uint32_t at = (s->first_answer + s->n_answers++) % TCP_ANSWERS_MAX;

    s->answers[at] = *a;
}

/* Turns queued answers under ended grants into refusals. The answer being sent
 * has announced its bytes and stays. With the lock. */
static void drop_ended(struct tcp_stream *s)
{
    for (uint32_t i = s->answering; i < s->n_answers; i++) {
        uint32_t at = (s->first_answer + i) % TCP_ANSWERS_MAX;
        struct tcp_answer *a = &s->answers[at];

        if (!a->grant || !a->grant->ended)
            continue;
        tcp_grant_unuse(a->grant);
        *a = (struct tcp_answer){.status = TCP_REVOKED};
    }
}

/* Uncounts a stream that was without an offer. With the lock. */
static void unbound_gone(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;

    if (s->leaving)
        t->n_leaving--;
    else
        strangers_remove(&t->unbound, &s->stranger);
    s->leaving = false;
}

/* Takes the token, the first bytes of a stream. */
static int on_token(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;

    pthread_mutex_lock(&t->set.lock);
    s->offer = tcp_offer_bind(t, s->head);
    if (s->offer)
        unbound_gone(s);
    pthread_mutex_unlock(&t->set.lock);
    return s->offer ? 1 : -EACCES;
}

/* Ends a stream that was told to close, unless its token has come. */
static int unbound_look(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;

    pthread_mutex_lock(&t->set.lock);
    bool leaving = s->leaving;
    pthread_mutex_unlock(&t->set.lock);
    if (!leaving)
        return 0;
    int rc = tcp_stream_head(s, TCP_TOKEN_BYTES);
    if (rc > 0)
        rc = on_token(s);
    return rc > 0 ? 0 : -ECONNABORTED;
}

static int answer_look(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;

    if (!s->offer)
        return unbound_look(s);
    pthread_mutex_lock(&t->set.lock);
    drop_ended(s);
    bool over = s->offer->withdrawn || s->offer->broken;
    pthread_mutex_unlock(&t->set.lock);
    return over ? -ECANCELED : 0;
}

static int break_offer(struct tcp_stream *s, const char *why)
{
    struct tcp *t = s->io->tcp;

    pthread_mutex_lock(&t->set.lock);
    if (!s->offer->broken)
        s->offer->broken = why;
    tcp_io_wake(t); /* its other streams must end, too */
    loop_ring(&t->set.bell);
    pthread_mutex_unlock(&t->set.lock);
    return -EPROTO;
}

static int on_request(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;
    struct tcp_grant *grant = NULL;
    struct tcp_request r;
    int rc;

    if (tcp_request_decode(s->head, &r))
        return break_offer(s, "a malformed request on a data connection");
    pthread_mutex_lock(&t->set.lock);
    const uint8_t *memory = tcp_offer_use(s->offer, &r, &grant, &rc);
    pthread_mutex_unlock(&t->set.lock);
    if (rc == -EPERM)
        return break_offer(s, "it requested memory that it was not granted");
    queue_answer(s, &(struct tcp_answer){
                        .status = memory ? TCP_DONE : TCP_REVOKED,
                        .grant = grant,
                        .data = memory,
                        .bytes = memory ? r.bytes : 0,
                    });
    return 1;
}

static int on_head(struct tcp_stream *s)
{
    int rc = tcp_stream_head(s, s->offer ? TCP_REQUEST_BYTES : TCP_TOKEN_BYTES);

    if (rc <= 0)
        return rc;
    return s->offer ? on_request(s) : on_token(s);
}

static int answer_read(struct tcp_stream *s)
{
    int rc = 1;

    while (rc > 0 && s->n_answers < TCP_ANSWERS_MAX)
        rc = on_head(s);
    return rc;
}

/* Removes the first answer, now sent. */
static void answer_over(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;
    struct tcp_grant *grant = s->answers[s->first_answer].grant;

    s->first_answer = (s->first_answer + 1) % TCP_ANSWERS_MAX;
    s->n_answers--;
    s->answering = false;
    if (!grant)
        return;
    pthread_mutex_lock(&t->set.lock);
    tcp_grant_unuse(grant);
    pthread_mutex_unlock(&t->set.lock);
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

    pthread_mutex_lock(&t->set.lock);
    if (!s->offer) {
        unbound_gone(s);
        pthread_mutex_unlock(&t->set.lock);
        return;
    }
    for (; s->n_answers > 0; s->n_answers--) {
        struct tcp_grant *grant = s->answers[s->first_answer].grant;

        if (grant)
            tcp_grant_unuse(grant);
        s->first_answer = (s->first_answer + 1) % TCP_ANSWERS_MAX;
    }
    s->offer->n_streams--;
    loop_ring(&t->set.bell);
    pthread_mutex_unlock(&t->set.lock);
}

const struct tcp_role tcp_answers = {answer_read, answer_send, answer_look,
                                     answer_end};
