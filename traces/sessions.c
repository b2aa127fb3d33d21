/*
 * See sessions.h. The next event is the start of a session of some stream, or
 * the next turn of a live session; live sessions are in a heap by time. A
 * session draws from its own random state, so other sessions do not change it.
 */
#include "traces/sessions.h"

#include <errno.h>
#include <stdlib.h>

/* Most live sessions; one more ends with its first turn. */
#define SESSIONS_MAX ((size_t)1 << 16)
/* Time between the tokens of an answer. */
#define TOKEN_US 25000
/* Assumed time of a sub-agent's turn, for its parent's wait. */
#define CHILD_TURN_US 10000000
#define TICK_US 1000

/* State from which the sessions of a kind are drawn. */
struct source {
    const struct session_kind *kind;
    struct trace_request *prefixes; /* (kind->prefixes), filled on first use */
    uint32_t weight;                /* sum of the prefixes' weights */
    uint32_t lengths, turns;        /* starts of sequences */
    uint64_t started;
};

struct session {
    struct source *from;
    struct random_state random;
    struct trace_request base; /* full blocks only; tokens may exceed them */
    uint32_t first_tokens;     /* own tokens of the first turn */
    uint32_t turns_left;
    uint32_t answer_tokens; /* answer of the last turn */
    bool begun;
    int64_t due_us;
    uint64_t number; /* order of creation; breaks ties of due times */
};

struct stream {
    const struct session_stream *is;
    struct source source, children;
    struct random_state random;
    int64_t gap_us;    /* mean, between starts */
    int64_t slot_us;   /* length of a curve's slot */
    int64_t due_us;    /* of the next start */
    uint64_t together; /* sessions left in the burst */
    struct trace_request shared;
};

struct sessions {
    const struct session_workload *workload;
    struct stream streams[SESSION_STREAMS_MAX]; /* (workload->n_streams) */
    uint64_t next_id, next_number;
    size_t n, room;
    struct session **heap; /* (n), by due time */
};

/* Returns x times a non-negative 32.32 fixed-point number. */
static int64_t times_q32(int64_t x, uint64_t q32)
{
    uint64_t u = (uint64_t)x;

    uint64_t share = q32 >> 16 & 0xffff;

    return (int64_t)(u * (q32 >> 32) + (u >> 16) * share +
                     ((u & 0xffff) * share >> 16));
}

static int source_init(struct source *s, const struct session_kind *kind,
                       struct random_state *random)
{
    *s = (struct source){.kind = kind};
    s->lengths = (uint32_t)random_u64(random);
    s->turns = (uint32_t)random_u64(random);
    if (!kind || kind->prefixes == 0)
        return 0;
    s->weight = quantile_rank_weights(kind->prefixes);
    s->prefixes = calloc(kind->prefixes, sizeof(s->prefixes[0]));
    return s->prefixes ? 0 : -ENOMEM;
}

static void source_fini(struct source *s)
{
    for (uint32_t i = 0; s->prefixes && i < s->kind->prefixes; i++)
        trace_request_fini(&s->prefixes[i]);
    free(s->prefixes);
}

/* Returns 1,000 times the mean number of requests of a session of the kind,
 * with its sub-agents, if no prompt grows too long. */
static uint64_t requests_milli(const struct session_kind *kind)
{
    uint64_t turns = quantile_mean_milli(&kind->turns);

    if (!kind->children)
        return turns;
    return turns + turns * kind->children_per_mille *
                       (kind->children_least + kind->children_most) / 2 *
                       quantile_mean_milli(&kind->children->turns) / 1000000;
}

/* Draws the time to the next start, at the mean rate. */
static int64_t draw_gap(struct stream *s)
{
    const struct session_stream *is = s->is;
    int64_t gap_us = s->gap_us;
    int64_t within_us = gap_us / 1000 * is->burst_gap_per_mille;

    if (is->burst_gap_per_mille > 0 && s->together > 0) {
        s->together--;
        gap_us = within_us;
    } else if (is->burst_gap_per_mille > 0) {
        s->together = quantile_draw(&s->random, &is->burst) - 1;
        gap_us += (int64_t)s->together * (gap_us - within_us);
        s->shared.block_count = 0;
    }
    return times_q32(gap_us, random_exponential_q32(&s->random));
}

/* Draws when the next session starts. The gap, drawn at the mean rate, is
 * stretched where the curve is below its mean and shortened where it is above.
 */
static void draw_start(struct stream *s)
{
    int64_t left_us = draw_gap(s);

    while (s->is->curve) {
        int64_t slot = s->due_us / s->slot_us;
        int64_t here_us = (slot + 1) * s->slot_us - s->due_us;
        int64_t rate = s->is->curve[slot % CURVE_SLOTS];

        if (rate > 0 && here_us * rate >= left_us * 1000) {
            left_us = left_us * 1000 / rate;
            break;
        }
        left_us -= here_us * rate / 1000;
        s->due_us += here_us;
    }
    s->due_us += left_us;
}

static int stream_init(struct stream *s, const struct session_stream *is,
                       int64_t request_ns, uint32_t day_requests, uint64_t seed)
{
    int rc;

    s->is = is;
    random_init(&s->random, seed);
    s->gap_us = request_ns / (int64_t)is->share_per_mille *
                (int64_t)requests_milli(is->kind) / 1000;
    s->slot_us = request_ns / 1000 * day_requests / CURVE_SLOTS;
    if (s->gap_us < 1)
        s->gap_us = 1;
    if (s->slot_us < 1)
        s->slot_us = 1;
    rc = source_init(&s->source, is->kind, &s->random);
    if (rc == 0)
        rc = source_init(&s->children, is->kind->children, &s->random);
    draw_start(s);
    return rc;
}

struct sessions *sessions_new(const struct session_workload *workload,
                              uint64_t seed, double rate)
{
    struct sessions *s = calloc(1, sizeof(*s));
    int64_t request_ns = (int64_t)(1e9 / rate);
    int rc = 0;

    if (!s)
        return NULL;
    s->workload = workload;
    for (size_t i = 0; rc == 0 && i < workload->n_streams; i++)
        rc = stream_init(&s->streams[i], &workload->streams[i], request_ns,
                         workload->day_requests, random_mix(seed) + i);
    if (rc == 0)
        return s;
    sessions_free(s);
    return NULL;
}

static void session_free(struct session *session)
{
    if (session) {
        trace_request_fini(&session->base);
        free(session);
    }
}

void sessions_free(struct sessions *sessions)
{
    if (!sessions)
        return;
    for (size_t i = 0; i < sessions->n; i++)
        session_free(sessions->heap[i]);
    for (size_t i = 0; i < sessions->workload->n_streams; i++) {
        source_fini(&sessions->streams[i].source);
        source_fini(&sessions->streams[i].children);
        trace_request_fini(&sessions->streams[i].shared);
    }
    free(sessions->heap);
    free(sessions);
}

static bool is_sooner(const struct session *a, const struct session *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us
                                  : a->number < b->number;
}

/* Adds a session to the heap; takes it even on failure. */
static int push(struct sessions *s, struct session *session)
{
    size_t i = s->n;

    if (s->n == SESSIONS_MAX) {
        session_free(session);
        return 0;
    }
    if (s->n == s->room) {
        size_t room = s->room > 0 ? 2 * s->room : 64;
        struct session **heap = realloc(s->heap, room * sizeof(heap[0]));

        if (!heap) {
            session_free(session);
            return -ENOMEM;
        }
        s->heap = heap;
        s->room = room;
    }
    session->number = s->next_number++;
    s->n++;
    while (i > 0 && is_sooner(session, s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = session;
    return 0;
}

static struct session *pop(struct sessions *s)
{
    struct session *first = s->heap[0];
    struct session *last = s->heap[--s->n];
    size_t i = 0;

    for (size_t k = 1; k < s->n; k = 2 * i + 1) {
        if (k + 1 < s->n && is_sooner(s->heap[k + 1], s->heap[k]))
            k++;
        if (is_sooner(last, s->heap[k]))
            break;
        s->heap[i] = s->heap[k];
        i = k;
    }
    s->heap[i] = last;
    return first;
}

static int fill_prefix(struct sessions *s, const struct session_kind *kind,
                       uint32_t at, struct trace_request *prefix)
{
    uint32_t blocks = quantile_at(&kind->prefix_blocks, at);

    return trace_request_extend(prefix, blocks * TRACE_BLOCK_TOKENS,
                                &s->next_id);
}

/* Copies the prefix that a new session shares with others into its base. */
static int share_prefix(struct sessions *s, struct stream *stream,
                        struct session *session)
{
    struct source *from = session->from;
    uint32_t rank;
    int rc = 0;

    if (stream->is->burst_shares && from == &stream->source) {
        if (stream->shared.block_count == 0)
            rc = fill_prefix(s, from->kind,
                             (uint32_t)random_u64(&session->random),
                             &stream->shared);
        return rc != 0 ? rc
                       : trace_request_copy(&session->base, &stream->shared);
    }
    if (from->kind->prefixes == 0)
        return 0;
    rank = quantile_draw_rank(&session->random, from->weight);
    if (from->prefixes[rank].block_count == 0)
        rc = fill_prefix(s, from->kind, quantile_spread(UINT32_MAX / 2, rank),
                         &from->prefixes[rank]);
    return rc != 0 ? rc
                   : trace_request_copy(&session->base, &from->prefixes[rank]);
}

static struct session *session_new(struct sessions *s, struct stream *stream,
                                   struct source *from, uint64_t seed,
                                   int64_t due_us)
{
    struct session *session = calloc(1, sizeof(*session));
    const struct session_kind *kind = from->kind;
    uint32_t first, turns;

    if (!session)
        return NULL;
    session->from = from;
    session->due_us = due_us;
    random_init(&session->random, seed);
    if (from == &stream->source) {
        first = quantile_spread(from->lengths, from->started);
        /* Steps by the square root of 2, so that turns and lengths are not
         * correlated. */
        turns = from->turns + (uint32_t)from->started++ * 0x6a09e667U;
    } else { /* independent draws: the order of children depends on the rate */
        first = (uint32_t)random_u64(&session->random);
        turns = (uint32_t)random_u64(&session->random);
    }
    session->first_tokens = quantile_at(&kind->first_tokens, first);
    session->turns_left = quantile_at(&kind->turns, turns);
    if (share_prefix(s, stream, session) != 0) {
        session_free(session);
        return NULL;
    }
    return session;
}

/* Draws the length of the next turn's prompt. */
static uint64_t draw_tokens(struct session *session)
{
    const struct session_kind *kind = session->from->kind;
    uint64_t before = session->base.input_tokens;
    uint64_t tokens = before + (kind->asks ? 0 : session->answer_tokens);
    uint64_t all;

    if (!session->begun && !kind->asks)
        return before + session->first_tokens;
    if (kind->repeat_least == 0)
        return tokens + quantile_draw(&session->random, &kind->turn_tokens);
    all = before * 1000 /
          (kind->repeat_least +
           random_below(&session->random,
                        kind->repeat_most - kind->repeat_least + 1));
    return all > tokens ? all : tokens + 1;
}

/* Writes the prompt of the session's next turn. Returns 1 if it would be too
 * long. */
static int write_prompt(struct sessions *s, struct session *session,
                        struct trace_request *request)
{
    const struct session_kind *kind = session->from->kind;
    uint64_t tokens;
    int rc = 0;

    if (!session->begun && kind->asks) {
        tokens = (uint64_t)session->base.input_tokens + session->first_tokens;
        rc = trace_request_extend(
            &session->base,
            (uint32_t)(tokens / TRACE_BLOCK_TOKENS * TRACE_BLOCK_TOKENS),
            &s->next_id);
    }
    tokens = draw_tokens(session);
    if (tokens > kind->input_max_tokens) {
        if (session->begun)
            return 1;
        tokens = kind->input_max_tokens;
    }
    if (rc == 0)
        rc = trace_request_copy(request, &session->base);
    if (rc == 0)
        rc = trace_request_extend(request, (uint32_t)tokens, &s->next_id);
    if (rc == 0 && !kind->asks) {
        rc = trace_request_copy(&session->base, request);
        session->base.block_count = tokens / TRACE_BLOCK_TOKENS;
    }
    return rc;
}

/* Starts the sub-agents of this turn, if any, and adds their time to
 * *wait_us. */
static int start_children(struct sessions *s, struct stream *stream,
                          struct session *parent, int64_t at_us,
                          int64_t *wait_us)
{
    const struct session_kind *kind = parent->from->kind;
    uint32_t n, longest = 0;
    int rc = 0;

    if (!kind->children ||
        !random_chance(&parent->random, kind->children_per_mille))
        return 0;
    n = kind->children_least +
        random_below(&parent->random,
                     kind->children_most - kind->children_least + 1);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        struct session *child =
            session_new(s, stream, &stream->children,
                        random_u64(&parent->random), at_us + i * TICK_US);

        if (!child)
            return -ENOMEM;
        if (child->turns_left > longest)
            longest = child->turns_left;
        rc = push(s, child);
    }
    *wait_us += (int64_t)longest * CHILD_TURN_US;
    return rc;
}

static struct stream *stream_of(struct sessions *s, const struct source *from)
{
    for (size_t i = 0; i < s->workload->n_streams; i++)
        if (&s->streams[i].source == from || &s->streams[i].children == from)
            return &s->streams[i];
    return NULL;
}

/* Takes the session that is due first, which may be new. NULL = out of
 * memory. */
static struct session *take_next(struct sessions *s)
{
    struct stream *first = &s->streams[0];
    struct session *session;

    for (size_t i = 1; i < s->workload->n_streams; i++)
        if (s->streams[i].due_us < first->due_us)
            first = &s->streams[i];
    if (s->n > 0 && s->heap[0]->due_us < first->due_us)
        return pop(s);
    session = session_new(s, first, &first->source, random_u64(&first->random),
                          first->due_us);
    draw_start(first);
    return session;
}

/* Makes the due turn of a session. Returns 1 if the session ended instead. */
static int take_turn(struct sessions *s, struct session *session,
                     struct trace_request *request)
{
    const struct session_kind *kind = session->from->kind;
    int64_t answered_us, wait_us;
    int rc = write_prompt(s, session, request);

    if (rc != 0)
        goto free_session;
    request->arrival_us = session->due_us - session->due_us % TICK_US;
    request->output_tokens =
        quantile_draw(&session->random, &kind->output_tokens);
    session->begun = true;
    session->answer_tokens = request->output_tokens;
    answered_us = session->due_us + (int64_t)request->output_tokens * TOKEN_US;
    wait_us = (int64_t)quantile_draw(&session->random, &kind->pause_ms) * 1000;
    rc = start_children(s, stream_of(s, session->from), session, answered_us,
                        &wait_us);
    if (rc != 0 || --session->turns_left == 0)
        goto free_session;
    session->due_us = answered_us + wait_us;
    return push(s, session);

free_session:
    session_free(session);
    return rc;
}

int sessions_next(struct sessions *sessions, struct trace_request *request)
{
    int rc = 1;

    while (rc == 1) {
        struct session *session = take_next(sessions);

        rc = session ? take_turn(sessions, session, request) : -ENOMEM;
    }
    return rc;
}
