/* Refused prompts computed in the background: carries out the orders of core's
 * warm, as conductor/service/worker/warm.c does in the daemon. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/copies.h"
#include "sim/internal.h"

/* Index of the first piece, above those of all requests. */
#define PIECE_INDEX (UINT64_C(1) << 62)

struct sim_warm {
    struct warm_job job;
    uint64_t index; /* of the refused request */
    uint64_t keys[];
};

void sim_warm(struct sim *sim, const struct sim_request *r,
              const struct dispatch_order *order)
{
    struct sim_warm *warm;

    if (!warm_wants(&r->view->warm, &r->dispatch, order))
        return;
    warm = malloc(sizeof(*warm) + r->n_keys * sizeof(warm->keys[0]));
    if (!warm) {
        sim_fail(sim, -ENOMEM, "out of memory");
        return;
    }
    memcpy(warm->keys, r->keys, r->n_keys * sizeof(warm->keys[0]));
    warm->index = r->record.index;
    warm->job = (struct warm_job){
        .owner = warm,
        .keys = warm->keys,
        .n_keys = r->n_keys,
        .n_tokens = r->n_tokens,
        .tenant = r->dispatch.tenant,
        .place = r->dispatch.place,
    };
    if (!warm_add(&r->view->warm, &warm->job, sim->now_us))
        free(warm);
}

/* Creates a piece as a request of its own, without a record. */
static struct sim_request *piece_new(struct sim *sim, struct sim_view *view,
                                     const struct sim_warm *warm,
                                     const struct warm_piece *piece)
{
    struct sim_request *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->view = view;
    r->keys = malloc(piece->end_block * sizeof(*r->keys));
    if (!r->keys) {
        free(r);
        return NULL;
    }
    memcpy(r->keys, warm->keys, piece->end_block * sizeof(*r->keys));
    r->n_keys = piece->end_block;
    r->n_tokens = (uint32_t)piece->tokens;
    r->n_output = 1;
    r->record.index = warm->index;
    r->record.input_tokens = r->n_tokens;
    sim_request_describe(sim, r);
    r->record.index = PIECE_INDEX + sim->n_pieces++;
    r->dispatch.ask.request_id = r->record.index + 1;
    r->record.decode_node = SIM_NO_NODE;
    r->record.prefill_node = piece->slot;
    r->record.queue_us = -1;
    r->accepted_at_us = sim->now_us + sim->cluster.handover_us;
    r->plan = (struct prefill_estimate){
        .instance = piece->instance,
        .slot = piece->slot,
        .local_blocks = piece->from_block,
        .used_blocks = piece->from_block,
        .fetch_from = POOL_NO_INSTANCE,
        .cached_tokens = piece->cached_tokens,
        .ready_us = sim->now_us,
        .transfer_end_us = sim->now_us,
        .predicted_us = piece->predicted_us,
        .prefill_us = piece->predicted_us,
    };
    return r;
}

static int begin(struct sim *sim, struct sim_view *view, struct warm_job *job,
                 const struct warm_piece *piece)
{
    struct sim_node *node = &sim->nodes[piece->slot];
    struct sim_request *r = piece_new(sim, view, job->owner, piece);
    int rc;

    if (!r)
        return -ENOMEM;
    TAILQ_INSERT_TAIL(&sim->every, r, every);
    r->warms = job;
    rc = warm_begin(&view->warm, job, piece, r->dispatch.ask.request_id,
                    sim->now_us);
    if (rc < 0)
        return rc;
    if (sim->cluster.cache_at == CLUSTER_CACHE_AT_DISPATCH)
        sim_copies_dispatch(sim, node, r);
    else
        sim_copies_keep(node, r);
    rc = sim_hand_over(sim, node, r);
    sim_mark_node(sim, node);
    return rc;
}

/* Begins a piece of one conductor's jobs; see sim_warm_next(). */
static bool next_of(struct sim *sim, struct sim_view *view)
{
    struct warm_piece piece;
    struct warm_job *job;
    int rc;

    if (sim->rc != 0 || (sim->source_over && sim->n_unfinished == 0))
        return false;
    job = warm_next(&view->warm, sim->now_us, &piece);
    if (!job)
        return false;
    if (piece.tokens == 0) {
        free(job->owner);
        return true;
    }
    rc = begin(sim, view, job, &piece);
    if (rc < 0)
        sim_fail(sim, rc, "a piece of a refused prompt could not begin");
    return true;
}

bool sim_warm_next(struct sim *sim)
{
    bool any = false;

    for (uint32_t v = 0; v < sim->n_views && !any; v++)
        any = next_of(sim, &sim->views[v]);
    return any;
}

static void add_counts(struct warm_counts *to, const struct warm_counts *of)
{
    to->jobs += of->jobs;
    to->joined += of->joined;
    to->crowded += of->crowded;
    to->begun += of->begun;
    to->pieces += of->pieces;
    to->tokens += of->tokens;
    to->done += of->done;
    to->late += of->late;
    to->dropped += of->dropped;
}

struct warm_counts sim_warm_counts(const struct sim *sim)
{
    struct warm_counts all = {0};

    for (uint32_t v = 0; v < sim->n_views; v++)
        add_counts(&all, &sim->views[v].warm.counts);
    return all;
}

void sim_warm_fini(struct sim_view *view)
{
    struct warm_job *job;

    while ((job = TAILQ_FIRST(&view->warm.jobs))) {
        warm_forget(&view->warm, job);
        free(job->owner);
    }
}
