/* Chooses which group or stage gets the next turn. */
#include "workers/pipeline/pipeline.h"

#include <stdlib.h>

#include "workers/pipeline/internal.h"

struct pipeline *pipeline_new(const struct pipeline_config *config,
                              const struct pipeline_ops *ops, void *arg)
{
    struct pipeline *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->config = *config;
    p->hello = *config->hello;
    p->hello.kind = PROTO_PEER_WORKER_PEER;
    p->hello.capabilities &= PROTO_CAP_STAGES; /* moves no KV by transports */
    p->ops = ops;
    p->arg = arg;
    TAILQ_INIT(&p->groups);
    TAILQ_INIT(&p->stages);
    if (rows_sender_init(&p->sender, config->layout) < 0) {
        pipeline_free(p);
        return NULL;
    }
    return p;
}

void pipeline_free(struct pipeline *p)
{
    if (!p)
        return;
    rows_sender_fini(&p->sender);
    free(p);
}

/* Chooses round robin: the chosen stage moves to the end of the list. */
static bool form_stage(struct pipeline *p)
{
    struct stage *s;

    TAILQ_FOREACH(s, &p->stages, link)
    {
        if (!stage_form(s, &p->turn))
            continue;
        TAILQ_REMOVE(&p->stages, s, link);
        TAILQ_INSERT_TAIL(&p->stages, s, link);
        p->turn_stage = s;
        p->stage_was_last = true;
        return true;
    }
    return false;
}

static bool form_group(struct pipeline *p)
{
    struct group *g;

    TAILQ_FOREACH(g, &p->groups, link)
    {
        if (!group_form(g, &p->turn))
            continue;
        TAILQ_REMOVE(&p->groups, g, link);
        TAILQ_INSERT_TAIL(&p->groups, g, link);
        p->turn_group = g;
        p->turn_request = g->r;
        p->stage_was_last = false;
        return true;
    }
    return false;
}

bool pipeline_form(struct pipeline *p, struct pipeline_turn **turn)
{
    p->turn_stage = NULL;
    p->turn_group = NULL;
    p->turn_request = NULL;
    if (p->stage_was_last)
        p->in_turn = form_group(p) || form_stage(p);
    else
        p->in_turn = form_stage(p) || form_group(p);
    *turn = &p->turn;
    return p->in_turn;
}

bool pipeline_in_turn(const struct pipeline *p)
{
    return p->in_turn;
}

/* Frees a dropped request before others look for free blocks. */
static void end_request(struct pipeline *p, struct request *r)
{
    r->step.under_way = false;
    r->step.staged = false;
    if (r->dead)
        p->ops->removed(p->arg, r);
}

void pipeline_turned(struct pipeline *p, int rc)
{
    uint32_t token = p->turn.segment.token_out;
    struct request *r = p->turn_request;

    p->in_turn = false;
    if (r)
        end_request(p, r);
    if (p->turn_group)
        group_turned(p->turn_group, rc, token);
    else
        stage_turned(p->turn_stage, rc, token);
}

void pipeline_tick(struct pipeline *p, int64_t now_us)
{
    struct group *g = TAILQ_FIRST(&p->groups);
    struct stage *s = TAILQ_FIRST(&p->stages);

    while (s) {
        struct stage *next = TAILQ_NEXT(s, link);

        stage_tick(s, now_us);
        s = next;
    }
    while (g) {
        struct group *next = TAILQ_NEXT(g, link);

        if (g->begun && !g->in_turn && !g->over &&
            now_us - g->progress_us >= p->config.timeout_us)
            group_fail(g, "no progress in time");
        g = next;
    }
}
