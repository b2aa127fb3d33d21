/* A group at its leader: from PREFILL_GROUP until the KV is complete. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/pipeline/internal.h"

void group_free(struct group *g)
{
    for (uint32_t i = 0; i < g->n_members; i++) {
        struct member *m = &g->members[i];

        frame_conn_free(m->conn);
        rows_ring_fini(&m->ring);
        free(m->next_token);
    }
    TAILQ_REMOVE(&g->pipeline->groups, g, link);
    g->pipeline->n_groups--;
    free(g);
}

/* Detaches the group from its request, closes its connections, and frees it
 * when no turn uses it. */
static void group_close(struct group *g)
{
    g->r->group = NULL;
    g->r = NULL;
    g->over = true;
    for (uint32_t i = 0; i < g->n_members; i++) {
        frame_conn_free(g->members[i].conn);
        g->members[i].conn = NULL;
    }
    if (!g->in_turn)
        group_free(g);
}

void pipeline_forget(struct request *r)
{
    if (r->group)
        group_close(r->group);
}

void group_fail(struct group *g, const char *why)
{
    struct pipeline *p = g->pipeline;
    struct request *r = g->r;

    log_warn("request %llu: its group is given up at token %u of %u, this "
             "worker goes on alone: %s",
             (unsigned long long)r->id, r->position, r->prompt.n_tokens, why);
    group_close(g);
    p->ops->alone(p->arg, r);
}

static int member_begin(struct member *m)
{
    const struct group *g = m->group;
    const struct engine_kv_layout *l = g->pipeline->config.layout;
    uint32_t layers = m->to_layer - member_from_layer(m);

    m->computed = g->cut.from_token;
    m->kv = (struct rows_kv){.layout = l,
                             .blocks = g->r->blocks.data,
                             .from_layer = member_from_layer(m),
                             .to_layer = m->to_layer};
    m->next_token = calloc(layers, sizeof(*m->next_token));
    if (!m->next_token ||
        rows_ring_init(&m->ring, &g->cut, l->activation_bytes) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < layers; i++)
        m->next_token[i] = g->cut.from_token;
    return member_connect(m);
}

void pipeline_begin(struct request *r, int64_t now_us)
{
    struct group *g = r->group;

    g->cut.from_token = g->computed = r->position;
    g->cut.n_tokens = r->prompt.n_tokens;
    g->progress_us = now_us;
    g->begun = true;
    for (uint32_t i = 0; i < g->n_members; i++) {
        if (member_begin(&g->members[i]) < 0) {
            group_fail(g, "no connection to a member could be made");
            return;
        }
    }
    log_info("request %llu: tokens %u to %u are computed by %u workers in "
             "chunks of %u",
             (unsigned long long)r->id, g->cut.from_token, g->cut.n_tokens,
             g->n_members + 1, g->cut.chunk_tokens);
}

/* Returns the leading tokens whose KV is complete in all layers. */
static uint32_t whole(const struct group *g)
{
    uint32_t least = g->computed;

    for (uint32_t i = 0; i < g->n_members; i++) {
        const struct member *m = &g->members[i];

        for (uint32_t l = 0; l < m->kv.to_layer - m->kv.from_layer; l++)
            if (m->next_token[l] < least)
                least = m->next_token[l];
    }
    return least;
}

static void group_advanced(struct group *g)
{
    struct pipeline *p = g->pipeline;
    struct request *r = g->r;
    uint32_t position = whole(g);

    g->progress_us = loop_now_us(p->config.loop);
    if (position > r->position)
        p->ops->progress(p->arg, r, position);
    if (position == r->prompt.n_tokens && g->has_token) {
        uint32_t token = g->first_token;

        group_close(g);
        p->ops->prefilled(p->arg, r, token);
        return;
    }
    for (uint32_t i = 0; i < g->n_members; i++)
        member_pump(&g->members[i]);
    p->ops->poke(p->arg);
}

static const struct member_ops member_ops = {
    .advanced = group_advanced,
    .failed = group_fail,
};

static bool fits(const struct engine_kv_layout *l,
                 const struct msg_prefill_group *m)
{
    return l->activation_bytes > 0 && m->chunk_tokens <= l->step_tokens &&
           m->members[m->n_members - 1].to_layer == l->layers;
}

int pipeline_lead(struct pipeline *p, struct request *r,
                  const struct msg_prefill_group *m)
{
    struct group *g;

    if (!fits(p->config.layout, m))
        return -EINVAL;
    if (p->n_groups >= PIPELINE_GROUPS_MAX)
        return -EBUSY;
    g = calloc(1, sizeof(*g) + m->n_members * sizeof(struct member));
    if (!g)
        return -ENOMEM;
    g->pipeline = p;
    g->member_ops = &member_ops;
    g->r = r;
    g->cut.chunk_tokens = m->chunk_tokens;
    g->to_layer = m->to_layer;
    g->n_members = m->n_members;
    for (uint32_t i = 0; i < g->n_members; i++) {
        struct member *to = &g->members[i];

        to->group = g;
        to->port = m->members[i].port;
        to->to_layer = m->members[i].to_layer;
        snprintf(to->host, sizeof(to->host), "%s", m->members[i].host);
    }
    TAILQ_INSERT_TAIL(&p->groups, g, link);
    p->n_groups++;
    r->group = g;
    return 0;
}

bool group_form(struct group *g, struct pipeline_turn *turn)
{
    struct request *r = g->r;
    uint32_t from = g->computed;

    if (g->over || !g->begun || from == g->cut.n_tokens ||
        !rows_ring_has_room(&g->members[0].ring, from))
        return false;
    turn->segment = (struct engine_segment){
        .request_id = r->id,
        .tokens = r->prompt.tokens + from,
        .n_tokens = chunk_end(&g->cut, from) - from,
        .position = from,
        .cached_tokens = g->cut.from_token,
        .blocks = r->blocks.data,
    };
    turn->stage = (struct engine_stage){
        .to_layer = g->to_layer,
        .out = rows_ring_at(&g->members[0].ring, from),
    };
    g->in_turn = true;
    r->step.under_way = true;
    r->step.staged = true;
    return true;
}

void group_turned(struct group *g, int rc, uint32_t)
{
    g->in_turn = false;
    if (g->over) {
        group_free(g);
    } else if (rc < 0) {
        group_fail(g, "the engine failed on a chunk");
    } else {
        g->computed = chunk_end(&g->cut, g->computed);
        g->members[0].ring.filled = g->computed;
        group_advanced(g);
    }
}
