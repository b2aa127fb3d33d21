/* Maintains the index: touches its memory at the start, sweeps the entries of
 * lost workers, and asks workers for their inventory once the index has room
 * for blocks it had no room for. */
#include <errno.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/internal.h"

/* Pages per slice: 50 to 100 us. */
#define SWEEP_PAGES 4096u
/* The pause after a slice, as a multiple of its duration: sweeping takes a
 * tenth of the loop. Also the least pause. */
#define SWEEP_PAUSES 9
#define SWEEP_PAUSE_MIN_US 1000

/* Pause before the same worker is asked again; it doubles while blocks stay
 * without room. */
#define ASK_PAUSE_MIN_US 5000000
#define ASK_PAUSE_MAX_US 640000000
/* Time limit of an inventory, once it has begun. */
#define INVENTORY_US 10000000
/* The next worker is asked after this time, so that a silent worker or a long
 * inventory does not delay the others. */
#define TURN_US 1000000

/* Touches or sweeps a slice, and schedules the next one while there is more. */
static void sweep(struct service *service)
{
    int64_t from_us = loop_now_us(service->loop), pause_us;

    if (!prefix_index_touch(service->index) &&
        !prefix_index_work(service->index, SWEEP_PAGES))
        return;
    pause_us = (loop_now_us(service->loop) - from_us) * SWEEP_PAUSES;
    if (pause_us < SWEEP_PAUSE_MIN_US)
        pause_us = SWEEP_PAUSE_MIN_US;
    loop_timer_start(&service->native.sweep, pause_us);
}

void index_on_sweep(void *arg)
{
    sweep(arg);
}

/* Ends a worker's inventory. healed: now all its blocks are indexed. */
static void asked_ended(struct service *s, struct worker *w, bool healed)
{
    s->native.healing.next_us = 0;
    w->ask.until_us = 0;
    if (healed)
        w->ask.pause_us = 0;
    else
        w->ask.pause_us *= 2;
    if (w->ask.pause_us < ASK_PAUSE_MIN_US)
        w->ask.pause_us = ASK_PAUSE_MIN_US;
    if (w->ask.pause_us > ASK_PAUSE_MAX_US)
        w->ask.pause_us = ASK_PAUSE_MAX_US;
    w->ask.next_us = loop_now_us(s->loop) + w->ask.pause_us;
}

static void ask(struct service *s, struct worker *w, uint32_t slot,
                int64_t now_us)
{
    s->native.healing.next_us = now_us + TURN_US;
    w->ask.began = false;
    w->ask.until_us = now_us + s->config.worker_timeout_ms * 1000;
    s->metrics.inventories_asked++;
    log_info("worker %s: its inventory is requested again: %llu of its blocks "
             "are not in the index, which has room",
             w->hello.name,
             (unsigned long long)prefix_index_unindexed(s->index, slot));
    wire_buf_reset(&s->native.out);
    msg_empty_pack(&s->native.out, FRAME_INVENTORY, 0);
    worker_link_send(w->link, &s->native.out);
}

static bool should_ask(const struct service *s, uint32_t slot, int64_t now_us)
{
    const struct worker *w = &s->native.workers[slot];

    return w->link && w->ask.until_us == 0 && now_us >= w->ask.next_us &&
           prefix_index_incomplete(s->index, slot);
}

/* Gives up an inventory that is late. */
static void give_up_late(struct service *s, uint32_t slot, int64_t now_us)
{
    struct worker *w = &s->native.workers[slot];

    if (!w->link || w->ask.until_us == 0 || now_us < w->ask.until_us)
        return;
    prefix_index_told(s->index, slot, false);
    log_warn("worker %s: its inventory did not %s in time", w->hello.name,
             w->ask.began ? "end" : "begin");
    asked_ended(s, w, false);
}

void index_tick(struct service *service)
{
    struct prefix_index_stats x = prefix_index_stats(service->index);
    uint32_t n = pool_slots(service->pool);
    int64_t now_us = loop_now_us(service->loop);

    if (x.sweeping && !loop_timer_pending(&service->native.sweep))
        sweep(service);
    for (uint32_t slot = 0; slot < n; slot++)
        give_up_late(service, slot, now_us);
    if (now_us < service->native.healing.next_us || x.unindexed == 0)
        return;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = service->native.healing.next_slot++ % n;

        if (should_ask(service, slot, now_us)) {
            ask(service, &service->native.workers[slot], slot, now_us);
            return;
        }
    }
}

int index_inventory_mark(struct service *service, struct worker *worker,
                         uint32_t slot, const uint8_t *payload, size_t len)
{
    struct msg_inventory_mark m;
    uint64_t left;

    if (msg_inventory_mark_unpack(payload, len, &m))
        return -EBADMSG;
    if (worker->ask.until_us == 0)
        return 0;
    if (!m.ends) {
        if (worker->ask.began)
            return 0; /* else a worker could extend its time for ever */
        prefix_index_told_again(service->index, slot);
        worker->ask.began = true;
        worker->ask.until_us = loop_now_us(service->loop) + INVENTORY_US;
        return 0;
    }
    if (!worker->ask.began)
        return 0;
    prefix_index_told(service->index, slot, true);
    left = prefix_index_unindexed(service->index, slot);
    service->metrics.inventories_healed += left == 0;
    log_info("worker %s sent its inventory: %llu of its blocks are indexed, "
             "%llu are not",
             worker->hello.name,
             (unsigned long long)prefix_index_held(service->index, slot),
             (unsigned long long)left);
    asked_ended(service, worker, left == 0);
    return 0;
}
