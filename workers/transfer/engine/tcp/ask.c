/* A stream that asks: sends requests; the answers come in the same order. */
#include <errno.h>
#include <stdlib.h>

#include "workers/transfer/engine/tcp/internal.h"

/* Most bytes read before other streams get their turn. */
#define TURN_BYTES (2u << 20)

/* Takes `part` out of its op: its bytes will be dropped. With the lock. */
static void let_go(struct tcp_part *part, int rc)
{
    if (part->what.op)
        op_part_over(part->what.op, rc);
    part->what.op = NULL;
}

/* Lets go of the memory of ops that ended. With the lock. */
static void drop_ended(struct tcp_stream *s)
{
    struct tcp_part *part;

    TAILQ_FOREACH(part, &s->flying, link)
    {
        if (!part->what.op || part->what.op->rc == 0)
            continue;
        let_go(part, part->what.op->rc);
        if (part == TAILQ_FIRST(&s->flying))
            s->body = NULL;
    }
}

static int ask_look(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;

    pthread_mutex_lock(&t->set.lock);
    drop_ended(s);
    int rc = s->path->base.closed ? -ECANCELED : s->path->base.rc;
    pthread_mutex_unlock(&t->set.lock);
    return rc;
}

/* Removes the first part, which was answered. */
static void part_over(struct tcp_stream *s, int rc)
{
    struct tcp *t = s->io->tcp;
    struct tcp_part *part = TAILQ_FIRST(&s->flying);

    TAILQ_REMOVE(&s->flying, part, link);
    s->n_flying--;
    s->flying_bytes -= part->what.bytes;
    s->in_body = false;
    pthread_mutex_lock(&t->set.lock);
    let_go(part, rc);
    pthread_mutex_unlock(&t->set.lock);
    free(part);
}

static int on_answer(struct tcp_stream *s)
{
    struct tcp_part *part = TAILQ_FIRST(&s->flying);
    int status = tcp_answer_decode(s->head);

    /* An answer must not come before its whole request was sent. */
    if (status < 0 || !part || part == s->out_part)
        return -EBADMSG;
    if (status == TCP_REVOKED) {
        part_over(s, -EACCES);
    } else {
        s->in_body = true;
        s->body = part->what.op ? part->what.local : NULL;
        s->body_left = part->what.bytes;
        sum_run_begin(s->sum, part->what.sums, part->what.sum_bytes);
    }
    return 1;
}

/* Takes in more of the body. Returns the number of bytes, 0 if none came yet,
 * or a negative errno. */
static int64_t on_body(struct tcp_stream *s)
{
    int64_t got = tcp_stream_body(s);

    if (got <= 0)
        return got;
    atomic_fetch_add_explicit(&s->path->base.moved_bytes, (uint64_t)got,
                              memory_order_relaxed);
    if (s->body)
        sum_run_add(s->sum, s->body - got, (size_t)got);
    if (s->body_left == 0)
        part_over(s, sum_run_ok(s->sum) ? 0 : -EILSEQ);
    return got;
}

/* Takes in more of the head of an answer. Returns a positive number when it is
 * complete, 0: not yet, or a negative errno. */
static int64_t on_head(struct tcp_stream *s)
{
    int rc = tcp_stream_head(s, TCP_ANSWER_BYTES);

    return rc > 0 ? on_answer(s) : rc;
}

static int ask_read(struct tcp_stream *s)
{
    for (int64_t left = TURN_BYTES; left > 0;) {
        int64_t n = s->in_body ? on_body(s) : on_head(s);

        if (n <= 0)
            return (int)n;
        left -= n;
    }
    return 0;
}

/* Prepares the next request for sending. Returns false if there is none now. */
static bool next_request(struct tcp_stream *s)
{
    struct tcp *t = s->io->tcp;
    struct tcp_part *part;

    if (s->n_flying >= TCP_FLYING_MAX || s->flying_bytes >= TCP_FLYING_BYTES ||
        !(part = malloc(sizeof(*part))))
        return false;
    pthread_mutex_lock(&t->set.lock);
    bool any = op_next(&s->path->waiting, &part->what);
    pthread_mutex_unlock(&t->set.lock);
    if (!any) {
        free(part);
        return false;
    }
    const struct tcp_request request = {
        .kind = TCP_READ,
        .region = part->what.region,
        .grant_id = part->what.op->grant_id,
        .offset = part->what.offset,
        .bytes = part->what.bytes,
    };
    TAILQ_INSERT_TAIL(&s->flying, part, link);
    s->n_flying++;
    s->flying_bytes += part->what.bytes;
    s->out_part = part;
    tcp_request_encode(&request, s->out_head);
    s->out_head_at = 0;
    s->out_head_n = TCP_REQUEST_BYTES;
    return true;
}

static int ask_send(struct tcp_stream *s)
{
    int rc;

    while ((rc = tcp_stream_send(s)) > 0) {
        s->out_part = NULL;
        if (!next_request(s))
            return 1;
    }
    return rc;
}

static void ask_end(struct tcp_stream *s, int rc)
{
    struct tcp *t = s->io->tcp;
    struct tcp_part *part;

    pthread_mutex_lock(&t->set.lock);
    while ((part = TAILQ_FIRST(&s->flying))) {
        TAILQ_REMOVE(&s->flying, part, link);
        let_go(part, rc);
        free(part);
    }
    s->path->base.n_users--;
    op_path_fail(&s->path->base, rc);
    pthread_mutex_unlock(&t->set.lock);
}

const struct tcp_role tcp_asks = {ask_read, ask_send, ask_look, ask_end};
