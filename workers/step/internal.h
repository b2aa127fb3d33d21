/* Shared by the files of the step loop; private to them. */
#ifndef WORKERS_STEP_INTERNAL_H
#define WORKERS_STEP_INTERNAL_H

#include "conductor/core/step/step.h"
#include "workers/step/batch.h"

struct batch {
    struct batch_config config;
    const struct batch_ops *ops;
    void *arg;
    const struct queue_order *order;

    struct request_list waiting;
    struct request_list prefills;
    struct request_list ready;
    struct request_list decodes;
    struct batch_counts n;
    uint64_t next_seq;

    /* Scratch of batch_form(): core/step's view of prefills. */
    struct queue_item *items; /* (items_capacity): waiting prefills, with room
                                 behind them for prefills under way */
    size_t items_capacity;
    struct request **items_of;   /* (max_queue) */
    struct step_prefill *active; /* (active_capacity): under way */
    struct request **active_of;  /* (active_capacity) */
    uint32_t n_active;
    size_t active_capacity;
    struct engine_segment *segments; /* (max_segments) */
    struct request **segment_owners; /* (max_segments) */
    uint32_t n_segments;             /* of the step under way */
    uint32_t max_segments;
};

/* Returns whether a load may still fill blocks of `r`, so that the engine's
 * time is better spent on other prefills. False while `r` has no blocks: it
 * waits for its turn like the others. */
static inline bool batch_is_loading(const struct request *r)
{
    return r->load.job && !r->step.gated && r->blocks.n > 0;
}

/* Returns the queue order's view of `r`. */
struct queue_item batch_item(const struct request *r);

/* Returns whether a waiting `r` must wait for an older waiting prefill that
 * will compute blocks `r` counts on. O(1), or O(waiting + its blocks) after
 * this prefill or one of the blocks has left. */
bool batch_follows(struct batch *b, struct request *r);

/* Lets prefills that wait for `gone`, which no longer waits, look for another.
 * O(waiting). */
void batch_follow_left(struct batch *b, const struct request *gone);

/* Protects blocks before n_needed are allocated, if this evicts any: blocks
 * that waiting prefills count on become the most recently used, the oldest
 * prefill's last, as far as all of them fit into the store. Does nothing under
 * orders by age, where no prefill passes another. O(waiting). */
void batch_keep(struct batch *b, uint32_t n_needed);

/* Removes `r` from the list of its state. */
void batch_unlink(struct batch *b, struct request *r);

/* Fills items and items_of with the waiting prefills; only_taken = only
 * prefills that have their blocks. Returns their number. O(waiting). */
uint32_t batch_list_waiting(struct batch *b, bool only_taken);

/* Returns core/step's view of `r`, which is under way, before its turn. */
struct step_prefill batch_active(const struct request *r, int64_t now_us);

/* Returns the work (us) left in all prefills that wait or are under way. */
int64_t batch_left_us(const struct batch *b, int64_t now_us);

/* Fills active and active_of with the prefills under way, after
 * batch_reserve(). */
void batch_list_active(struct batch *b, int64_t now_us);

/* Makes room in items, active and active_of for all prefills that wait or are
 * under way. Returns 0, or -ENOMEM. */
[[nodiscard]] int batch_reserve(struct batch *b);

/* Gives the waiting prefill `r` its blocks, unless it has them. Returns false
 * if there is no room for all of them. O(waiting + blocks). */
bool batch_take_blocks(struct batch *b, struct request *r);

/* Called after a step is formed: for each prefill under way that is not in the
 * step, notes since when it has made no progress. */
void batch_note_standing(struct batch *b, int64_t now_us);

/* Called before the next step: adds their time without progress to
 * turn.stood_us. */
void batch_note_stood(struct batch *b, int64_t now_us);

/* Notes in turn.came_us when a step first had room that only prefills with a
 * late load could use. */
void batch_note_turns(struct batch *b, int64_t now_us);

#endif
