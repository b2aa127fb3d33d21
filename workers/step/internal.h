/* What the files of the step loop share. Nobody else includes this. */
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

    /* What core/step sees: scratch of batch_form(). */
    struct queue_item *items; /* (items_capacity), waiting, and room for
                                 those under way */
    size_t items_capacity;
    struct request **items_of;   /* (max_queue) */
    struct step_prefill *active; /* (active_capacity), under way */
    struct request **active_of;  /* (active_capacity) */
    uint32_t n_active;
    size_t active_capacity;
    struct engine_segment *segments; /* (max_segments) */
    struct request **segment_owners; /* (max_segments) */
    uint32_t n_segments;             /* of the step under way */
    uint32_t max_segments;
};

/* Whether blocks of `r` may still come, so that the engine's time is better
 * spent on others. One that has no blocks yet waits for its turn as others. */
static inline bool batch_is_loading(const struct request *r)
{
    return r->load.job && !r->step.gated && r->blocks.n > 0;
}

/* What the queue's order sees of `r`. */
struct queue_item batch_item(const struct request *r);

/* Whether the waiting `r` waits for one in front of it that makes blocks which
 * it counts on. O(1), or O(waiting + its blocks) after one of these has left.
 */
bool batch_follows(struct batch *b, struct request *r);

/* `gone` does not wait any more. O(waiting). */
void batch_follow_left(struct batch *b, const struct request *gone);

/* n_needed blocks are about to be taken, for which others leave the store:
 * those that waiting prefills count on become the most recently used, those of
 * the oldest last, up to a quarter of the store. Not under orders by age, by
 * which nobody is passed. O(waiting). */
void batch_keep(struct batch *b, uint32_t n_needed);

/* Take `r` out of the list of its state. */
void batch_unlink(struct batch *b, struct request *r);

/* Fill items and items_of with those that wait; only_taken: that have their
 * blocks. Returns how many there are. O(waiting). */
uint32_t batch_list_waiting(struct batch *b, bool only_taken);

/* What core/step sees of a prefill under way, before its turn. */
struct step_prefill batch_active(const struct request *r, int64_t now_us);

/* The time that all prefills which wait or are under way have yet to take. */
int64_t batch_left_us(const struct batch *b, int64_t now_us);

/* Fill active and active_of, reserved, with the prefills under way. */
void batch_list_active(struct batch *b, int64_t now_us);

/* Room in items, active and active_of for all who wait or are under way. 0,
 * -ENOMEM. */
[[nodiscard]] int batch_reserve(struct batch *b);

/* Give the waiting prefill `r` its blocks, unless it has them. False: there is
 * no room for all of them. O(waiting + blocks). */
bool batch_take_blocks(struct batch *b, struct request *r);

/* A step is formed: note who stands meanwhile; and, before the next one, how
 * long that was. */
void batch_note_standing(struct batch *b, int64_t now_us);
void batch_note_stood(struct batch *b, int64_t now_us);

/* There is room in the step, and only prefills whose load is not ready could
 * use it: note that they had their turn. */
void batch_note_turns(struct batch *b, int64_t now_us);

#endif
