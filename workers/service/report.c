/* Reports to the conductors: to each the tokens of its requests, STATUS and
 * PATHS; to all the block events. */
#include <string.h>

#include "base/loop/loop.h"
#include "workers/disk/tier/tier.h"
#include "workers/service/internal.h"

/* Keys of one frame; an inventory takes several. */
#define REPORT_KEYS_MAX 4096u
/* A requested inventory is sent in slices, with pauses for other work. */
#define SLICE_BLOCKS 4096u
#define SLICE_PAUSE_US 1000
/* A rate that changes by more than 1/PATH_NEWS is reported. */
#define PATH_NEWS 8u
/* Unchanged paths are sent again after this long: the conductor may not have
 * known a worker named in them, or the worker may have rejoined. */
#define PATHS_AGAIN_US 5000000

void worker_send(struct worker *w, struct conductor *to)
{
    if (to)
        conductor_link_send(to->link, &w->out);
    wire_buf_reset(&w->out);
}

void worker_send_failed(struct worker *w, struct conductor *to, uint64_t id,
                        uint16_t code, const char *why)
{
    msg_error_like_pack(&w->out, FRAME_FAILED, id, code, why);
    worker_send(w, to);
}

/* Sends the tokens of one conductor, in order. */
static void send_tokens_of(struct worker *w, struct conductor *c)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n_tokens; i++)
        if (w->token_of[i] == c)
            w->one_s[n++] = w->tokens[i];
    if (n == 0)
        return;
    msg_tokens_pack(&w->out, w->one_s, n);
    worker_send(w, c);
}

void worker_send_tokens(struct worker *w)
{
    struct conductor *c;

    if (w->n_tokens == 0)
        return;
    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        send_tokens_of(w, c);
    }
    w->n_tokens = 0;
}

/* Keys that will go out in one frame: a chain of stored blocks, or removed
 * ones. */
struct run {
    struct conductor *to; /* NULL = all that are up, or */
    bool to_askers;       /* all conductors that asked for the inventory */
    uint8_t tier;         /* enum proto_tier */
    enum kv_store_event_kind kind;
    uint64_t parent;
    uint32_t n;
    uint64_t keys[REPORT_KEYS_MAX];
};

static void send_to(struct worker *w, const struct run *run)
{
    struct conductor *c;

    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        if (run->to ? c == run->to : run->to_askers ? c->asked : c->up)
            conductor_link_send(c->link, &w->out);
    }
    wire_buf_reset(&w->out);
}

void worker_send_all(struct worker *w)
{
    send_to(w, &(struct run){0});
}

static void run_send(struct worker *w, struct run *run)
{
    if (run->n == 0)
        return;
    const uint8_t *keys = (const uint8_t *)run->keys;
    if (run->kind == KV_EVENT_STORED) {
        struct msg_blocks_stored m = {.tier = run->tier,
                                      .parent = run->parent,
                                      .n = run->n,
                                      .keys = keys};

        msg_blocks_stored_pack(&w->out, 0, &m);
    } else {
        struct msg_blocks_removed m = {
            .tier = run->tier, .n = run->n, .keys = keys};

        msg_blocks_removed_pack(&w->out, 0, &m);
    }
    send_to(w, run);
    run->n = 0;
}

static bool run_continues(const struct run *run, const struct kv_store_event *e)
{
    if (run->n == 0 || run->n == REPORT_KEYS_MAX || run->kind != e->kind)
        return false;
    return e->kind == KV_EVENT_REMOVED ||
           (e->has_parent && e->parent_key == run->keys[run->n - 1]);
}

static void run_add(struct worker *w, struct run *run,
                    const struct kv_store_event *e)
{
    if (e->kind == KV_EVENT_STORED && run->tier == PROTO_TIER_HOST) {
        worker_disk_stored(w, e->key);
        transfer_held(w->transfer, e->key);
    }
    if (!run_continues(run, e)) {
        run_send(w, run);
        run->kind = e->kind;
        run->parent = e->has_parent ? e->parent_key : 0;
    }
    run->keys[run->n++] = e->key;
}

static void send_inventory_of(struct worker *w, struct kv_store *store,
                              uint8_t tier, struct conductor *to)
{
    struct run run = {.to = to, .tier = tier};
    struct kv_store_event e;
    uint32_t cursor = KV_BLOCK_NONE;

    kv_store_forget_events(store);
    kv_store_take_resync(store);
    while (kv_store_inventory(store, &cursor, &e))
        run_add(w, &run, &e);
    run_send(w, &run);
}

/* Returns the index of the disk tier, or NULL. */
static struct kv_store *disk_index(const struct worker *w)
{
    struct disk_tier *tier = worker_disk_tier(w);

    return tier ? disk_tier_index(tier) : NULL;
}

void worker_send_inventory(struct worker *w, struct conductor *to)
{
    send_inventory_of(w, w->store, PROTO_TIER_HOST, to);
    if (disk_index(w))
        send_inventory_of(w, disk_index(w), PROTO_TIER_DISK, to);
}

static void send_mark(struct worker *w, struct conductor *to, bool ends)
{
    msg_inventory_mark_pack(&w->out, 0, &(struct msg_inventory_mark){ends});
    worker_send(w, to);
}

/* Sends up to `most` events that `next` returns. Returns whether more may
 * follow. */
static bool send_next(struct worker *w, struct kv_store *store, uint8_t tier,
                      bool (*next)(struct kv_store *, struct kv_store_event *),
                      uint32_t most)
{
    struct run run = {.to_askers = next == kv_store_walk_next, .tier = tier};
    struct kv_store_event e;
    uint32_t n = 0;

    for (; n < most && next(store, &e); n++)
        run_add(w, &run, &e);
    run_send(w, &run);
    return n == most;
}

static bool send_slice(struct worker *w, struct kv_store *store, uint8_t tier)
{
    return send_next(w, store, tier, kv_store_walk_next, SLICE_BLOCKS);
}

/* If a conductor asks while an inventory is being sent, both get it from the
 * start: blocks reported twice do no harm. */
void worker_begin_inventory(struct conductor *to)
{
    struct worker *w = to->worker;

    kv_store_walk(w->store);
    if (disk_index(w))
        kv_store_walk(disk_index(w));
    worker_send_events(w);
    to->asked = true;
    send_mark(w, to, false);
    worker_go_on_inventory(w);
}

void worker_go_on_inventory(struct worker *w)
{
    struct conductor *c;

    worker_send_events(w);
    while (send_slice(w, w->store, PROTO_TIER_HOST) ||
           (disk_index(w) && send_slice(w, disk_index(w), PROTO_TIER_DISK)))
        if (loop_timer_start(&w->inventory, SLICE_PAUSE_US) == 0)
            return;
    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        if (c->asked)
            send_mark(w, c, true);
        c->asked = false;
    }
}

void worker_send_events(struct worker *w)
{
    struct kv_store *disk = disk_index(w);
    bool anew = kv_store_take_resync(w->store);

    anew = (disk && kv_store_take_resync(disk)) || anew;
    if (!anew) {
        send_next(w, w->store, PROTO_TIER_HOST, kv_store_next_event,
                  UINT32_MAX);
        if (disk)
            send_next(w, disk, PROTO_TIER_DISK, kv_store_next_event,
                      UINT32_MAX);
        return;
    }
    msg_empty_pack(&w->out, FRAME_BLOCKS_CLEARED, 0);
    worker_send_all(w);
    worker_send_inventory(w, NULL);
}

/* Returns whether `m` differs enough from the paths sent last. */
static bool is_news(const struct msg_paths *told, const struct msg_paths *m)
{
    if (m->n != told->n)
        return true;
    for (uint8_t i = 0; i < m->n; i++) {
        const struct msg_path *a = &told->list[i], *b = &m->list[i];

        if (a->port != b->port || strcmp(a->host, b->host) != 0 ||
            strcmp(a->transport, b->transport) != 0 ||
            a->bytes_per_s > b->bytes_per_s + b->bytes_per_s / PATH_NEWS ||
            b->bytes_per_s > a->bytes_per_s + a->bytes_per_s / PATH_NEWS)
            return true;
    }
    return false;
}

static void send_paths(struct worker *w, struct conductor *to)
{
    int64_t now_us = loop_now_us(w->loop);
    struct msg_paths m;

    transfer_paths(w->transfer, &m);
    bool again = m.n > 0 && now_us - to->paths_us >= PATHS_AGAIN_US;
    if (!again && !is_news(&to->paths, &m))
        return;
    to->paths = m;
    to->paths_us = now_us;
    msg_paths_pack(&w->out, 0, &m);
    worker_send(w, to);
}

void worker_send_status(struct worker *w, struct conductor *to)
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
            stats.private_blocks + stats.held_blocks - stats.evictable_blocks,
    };
    if (worker_disk_tier(w)) {
        struct disk_tier_stats disk;

        disk_tier_stats(worker_disk_tier(w), &disk);
        m.disk_used_blocks = disk.held_blocks;
        m.disk_bytes_per_s = worker_disk_bytes_per_s(w);
    }
    msg_status_pack(&w->out, 0, &m);
    worker_send(w, to);
    send_paths(w, to);
}
