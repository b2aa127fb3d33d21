/* What a worker tells its conductor: tokens, block events, load. */
#include "workers/worker_internal.h"

/* Keys of one frame; an inventory takes several. */
#define REPORT_KEYS_MAX 4096u

void worker_send(struct worker *w)
{
    conductor_link_send(w->link, &w->out);
}

void worker_send_failed(struct worker *w, uint64_t id, uint16_t code,
                        const char *why)
{
    msg_error_like_encode(&w->out, FRAME_FAILED, id, code, why);
    worker_send(w);
}

void worker_send_tokens(struct worker *w)
{
    if (w->n_tokens == 0)
        return;
    msg_tokens_encode(&w->out, w->tokens, w->n_tokens);
    worker_send(w);
    w->n_tokens = 0;
}

/* Keys that will go out in one frame: a chain of stored blocks, or removed
 * ones. */
struct run {
    enum kv_event_kind kind;
    uint64_t parent;
    uint32_t n;
    uint64_t keys[REPORT_KEYS_MAX];
};

static void run_send(struct worker *w, struct run *run)
{
    if (run->n == 0)
        return;
    const uint8_t *keys = (const uint8_t *)run->keys;
    if (run->kind == KV_EVENT_STORED) {
        struct msg_blocks_stored m = {.tier = PROTO_TIER_HOST,
                                      .parent = run->parent,
                                      .n = run->n,
                                      .keys = keys};
        msg_blocks_stored_encode(&w->out, 0, &m);
    } else {
        struct msg_blocks_removed m = {
            .tier = PROTO_TIER_HOST, .n = run->n, .keys = keys};
        msg_blocks_removed_encode(&w->out, 0, &m);
    }
    worker_send(w);
    run->n = 0;
}

static bool run_continues(const struct run *run, const struct kv_event *e)
{
    if (run->n == 0 || run->n == REPORT_KEYS_MAX || run->kind != e->kind)
        return false;
    return e->kind == KV_EVENT_REMOVED ||
           (e->has_parent && e->parent_key == run->keys[run->n - 1]);
}

static void run_add(struct worker *w, struct run *run, const struct kv_event *e)
{
    if (e->kind == KV_EVENT_CLEARED) {
        run_send(w, run);
        msg_empty_encode(&w->out, FRAME_BLOCKS_CLEARED, 0);
        worker_send(w);
        return;
    }
    if (!run_continues(run, e)) {
        run_send(w, run);
        run->kind = e->kind;
        run->parent = e->has_parent ? e->parent_key : 0;
    }
    run->keys[run->n++] = e->key;
}

void worker_send_inventory(struct worker *w)
{
    struct run run = {.n = 0};
    struct kv_event e;
    uint32_t cursor = KV_BLOCK_NONE;

    kv_store_forget_events(w->store);
    (void)kv_store_take_resync(w->store);
    while (kv_store_inventory(w->store, &cursor, &e))
        run_add(w, &run, &e);
    run_send(w, &run);
}

void worker_send_events(struct worker *w)
{
    struct run run = {.n = 0};
    struct kv_event e;

    if (kv_store_take_resync(w->store)) {
        run_add(w, &run, &(struct kv_event){.kind = KV_EVENT_CLEARED});
        worker_send_inventory(w);
        return;
    }
    while (kv_store_next_event(w->store, &e))
        run_add(w, &run, &e);
    run_send(w, &run);
}

void worker_send_status(struct worker *w)
{
    struct kv_store_stats stats;
    struct batch_counts counts;

    kv_store_stats(w->store, &stats);
    batch_counts(w->batch, &counts);
    struct msg_status m = {
        .prefill_queued = counts.waiting,
        .prefill_running = counts.prefills,
        .decode_active = counts.decodes,
        .kv_used_blocks = stats.private_blocks + stats.held_blocks,
        .kv_pinned_blocks =
            stats.private_blocks + stats.held_blocks - stats.unpinned_blocks,
    };
    msg_status_encode(&w->out, 0, &m);
    worker_send(w);
}
