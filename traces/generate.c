/*
 * A stream of sessions. Each request either starts a session (with the block
 * that every prompt shares, or with one of a few popular prefixes, then text of
 * its own) or continues a recent one: a conversation adds the last answer and a
 * new turn to its prompt, a document session asks another question about the
 * same document. So reuse is prefix-chained by construction: a prompt reuses
 * the full blocks that it extends and gets new ids after them.
 */
#include "traces/generate.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "traces/random.h"
#include "traces/sessions.h"
#include "traces/workloads.h"

/* Sessions that can continue; the least recent one is dropped first. */
#define SESSIONS_MAX 4096

struct session {
    struct trace_request base; /* full blocks only; tokens may exceed them */
    uint32_t answer_tokens;    /* the last answer, part of the next prompt */
    bool branches;
    int64_t last_us;
};

struct trace_generator {
    struct sessions *of_sessions; /* if the workload is of sessions; NULL = use
                                     the members below */
    const struct trace_workload *workload;
    struct random_state random;
    int64_t gap_us;
    int64_t clock_us;
    bool started;
    uint64_t next_id;
    struct trace_request *popular; /* (popular_count), filled on first use */
    uint32_t popular_weight;
    uint32_t first_start; /* start of the quantile sequence of first prompts'
                             lengths */
    uint64_t first_count;
    size_t session_count;
    struct session *sessions[SESSIONS_MAX]; /* most recent one last */
};

/* The paper's workloads, then those of sessions. */
const struct trace_workload_facts *trace_workload_facts(size_t i)
{
    size_t n = 0;

    for (; trace_workload_at(n); n++)
        if (n == i)
            return &trace_workload_at(i)->facts;
    return session_workload_at(i - n) ? &session_workload_at(i - n)->facts
                                      : NULL;
}

static const struct trace_workload *paper_workload(const char *name)
{
    const struct trace_workload *w = NULL;

    for (size_t i = 0; (w = trace_workload_at(i)); i++)
        if (strcmp(w->facts.name, name) == 0)
            break;
    return w;
}

static const struct session_workload *session_workload(const char *name)
{
    const struct session_workload *w = NULL;

    for (size_t i = 0; (w = session_workload_at(i)); i++)
        if (strcmp(w->facts.name, name) == 0)
            break;
    return w;
}

static int start_paper(struct trace_generator *g,
                       const struct trace_workload *w, uint64_t seed,
                       double rate)
{
    g->popular = calloc(w->popular_count, sizeof g->popular[0]);
    if (!g->popular)
        return -ENOMEM;
    g->workload = w;
    g->gap_us = rate != 0.0 ? (int64_t)(1e6 / rate) : w->gap_us;
    g->next_id = 1; /* 0 is the block that every prompt shares */
    g->popular_weight = quantile_rank_weights(w->popular_count);
    random_init(&g->random, seed);
    g->first_start = (uint32_t)random_u64(&g->random);
    return 0;
}

int trace_generator_new(const char *workload, uint64_t seed, double rate,
                        struct trace_generator **generator)
{
    const struct trace_workload *paper = paper_workload(workload);
    const struct session_workload *kinds = session_workload(workload);
    int rc = 0;

    if (!paper && !kinds)
        return -ENOENT;
    if (rate != 0.0 && !(rate >= 1e-6 && rate <= 1e6))
        return -ERANGE;
    struct trace_generator *g = calloc(1, sizeof *g);
    if (!g)
        return -ENOMEM;
    if (paper)
        rc = start_paper(g, paper, seed, rate);
    else if (!(g->of_sessions = sessions_new(
                   kinds, seed, rate != 0.0 ? rate : kinds->facts.rate)))
        rc = -ENOMEM;
    if (rc != 0) {
        free(g);
        return rc;
    }
    *generator = g;
    return 0;
}

static void session_free(struct session *session)
{
    if (session) {
        trace_request_fini(&session->base);
        free(session);
    }
}

void trace_generator_free(struct trace_generator *generator)
{
    if (!generator)
        return;
    for (size_t i = 0; i < generator->session_count; i++)
        session_free(generator->sessions[i]);
    for (size_t i = 0;
         generator->workload && i < generator->workload->popular_count; i++)
        trace_request_fini(&generator->popular[i]);
    free(generator->popular);
    sessions_free(generator->of_sessions);
    free(generator);
}

/* Starts a session's prompt: block 0, or block 0 and a popular prefix. */
static int start_base(struct trace_generator *g, struct trace_request *base)
{
    int rc = trace_request_reserve(base, 1);

    if (rc != 0)
        return rc;
    base->hash_ids[0] = 0;
    base->block_count = 1;
    base->input_tokens = TRACE_BLOCK_TOKENS;
    if (!random_chance(&g->random, g->workload->popular_per_mille))
        return 0;
    uint32_t rank = quantile_draw_rank(&g->random, g->popular_weight);
    struct trace_request *popular = &g->popular[rank];
    if (popular->block_count == 0) {
        uint32_t blocks = quantile_at(&g->workload->popular_blocks,
                                      quantile_spread(UINT32_MAX / 2, rank));

        rc = trace_request_copy(popular, base);
        if (rc == 0)
            rc = trace_request_extend(popular, blocks * TRACE_BLOCK_TOKENS,
                                      &g->next_id);
        if (rc != 0)
            return rc;
    }
    return trace_request_copy(base, popular);
}

/* Keeps the full blocks of `prompt` for the next turn. */
static int set_base(struct session *session, const struct trace_request *prompt)
{
    int rc = trace_request_copy(&session->base, prompt);

    if (rc == 0)
        session->base.block_count = prompt->input_tokens / TRACE_BLOCK_TOKENS;
    return rc;
}

static struct session *session_new(struct trace_generator *g)
{
    struct session *session = calloc(1, sizeof *session);

    if (!session)
        return NULL;
    session->branches =
        random_chance(&g->random, g->workload->branch_per_mille);
    if (start_base(g, &session->base) != 0) {
        session_free(session);
        return NULL;
    }
    return session;
}

/* Removes and returns a session that continues; NULL = start a new one. */
static struct session *take_session(struct trace_generator *g)
{
    size_t rested = g->session_count;

    while (rested > 0 && g->sessions[rested - 1]->last_us >
                             g->clock_us - g->workload->pause_us)
        rested--;
    if (rested == 0 ||
        !random_chance(&g->random, g->workload->continue_per_mille))
        return NULL;
    size_t rank = quantile_draw(&g->random, &g->workload->recency) % rested;
    size_t i = rested - 1 - rank;
    struct session *session = g->sessions[i];
    g->session_count--;
    memmove(&g->sessions[i], &g->sessions[i + 1],
            (g->session_count - i) * sizeof(struct session *));
    return session;
}

static void put_session(struct trace_generator *g, struct session *session)
{
    if (g->session_count == SESSIONS_MAX) {
        session_free(g->sessions[0]);
        g->session_count--;
        memmove(&g->sessions[0], &g->sessions[1],
                g->session_count * sizeof(struct session *));
    }
    g->sessions[g->session_count++] = session;
}

static uint32_t limit(const struct trace_generator *g, uint64_t tokens)
{
    return tokens < g->workload->input_max_tokens
               ? (uint32_t)tokens
               : g->workload->input_max_tokens;
}

/* Makes a first turn: the prompt's own text, and for a document a
 * question. */
static int first_turn(struct trace_generator *g, struct session *session,
                      struct trace_request *request)
{
    uint64_t tokens =
        (uint64_t)session->base.input_tokens +
        quantile_at(&g->workload->first_tokens,
                    quantile_spread(g->first_start, g->first_count++));
    int rc =
        trace_request_extend(&session->base, limit(g, tokens), &g->next_id);

    if (rc != 0 || !session->branches)
        return rc != 0 ? rc : trace_request_copy(request, &session->base);
    session->base.block_count = session->base.input_tokens / TRACE_BLOCK_TOKENS;
    rc = trace_request_copy(request, &session->base);
    tokens = (uint64_t)session->base.input_tokens +
             quantile_draw(&g->random, &g->workload->turn_tokens);
    return rc != 0
               ? rc
               : trace_request_extend(request, limit(g, tokens), &g->next_id);
}

/* Makes a later turn. Returns 1 if the prompt would be too long: the session
 * is over. */
static int later_turn(struct trace_generator *g, struct session *session,
                      struct trace_request *request)
{
    uint64_t tokens = (uint64_t)session->base.input_tokens +
                      quantile_draw(&g->random, &g->workload->turn_tokens);

    if (!session->branches)
        tokens += session->answer_tokens;
    if (tokens > g->workload->input_max_tokens)
        return 1;
    int rc = trace_request_copy(request, &session->base);
    return rc != 0
               ? rc
               : trace_request_extend(request, (uint32_t)tokens, &g->next_id);
}

static void advance_clock(struct trace_generator *g)
{
    if (g->started) {
        uint64_t gap = random_exponential_q32(&g->random) >> 12; /* 44.20 */

        g->clock_us += (int64_t)((gap * (uint64_t)g->gap_us) >> 20);
    }
    g->started = true;
}

int trace_generator_next(struct trace_generator *generator,
                         struct trace_request *request)
{
    struct trace_generator *g = generator;

    if (g->of_sessions)
        return sessions_next(g->of_sessions, request);
    advance_clock(g);
    struct session *session = take_session(g);
    int rc = session ? later_turn(g, session, request) : 1;
    if (rc == 1) {
        session_free(session);
        session = session_new(g);
        rc = session ? first_turn(g, session, request) : -ENOMEM;
    }
    if (rc != 0)
        goto free_session;
    request->output_tokens =
        quantile_draw(&g->random, &g->workload->output_tokens);
    request->arrival_us = g->clock_us - g->clock_us % g->workload->tick_us;
    session->answer_tokens = request->output_tokens;
    session->last_us = g->clock_us;
    if (!session->branches) {
        rc = set_base(session, request);
        if (rc != 0)
            goto free_session;
    }
    put_session(g, session);
    return 0;

free_session:
    session_free(session);
    return rc;
}
