/* The invariants of spread.h, as assertions. */
#include <assert.h>

#include "workers/transfer/engine/rdma/spread_internal.h"

/* Returns how many slots hold slices of the op. */
static uint32_t slots_of(const struct spread *s, const struct spread_op *op)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_slots; i++)
        n += s->slots[i].op == op;
    return n;
}

void spread_check(const struct spread *s);
void spread_check(const struct spread *s)
{
    uint32_t n_free = 0, n_again = 0, n_busy = 0, n_ops = 0;
    const struct spread_slice *slice;
    const struct spread_op *op;

    for (slice = s->free; slice; slice = slice->next)
        n_free++;
    for (slice = s->again; slice; slice = slice->next) {
        assert(slice->op && slice->rail == SPREAD_NONE);
        n_again++;
    }
    for (uint32_t i = 0; i < s->n_rails; i++) {
        assert(s->rails[i].n_slices <= s->config.credits);
        n_busy += s->rails[i].n_slices;
    }
    assert(n_again == s->n_again);
    assert(n_free + n_again + n_busy == s->n_slots);
    TAILQ_FOREACH(op, &s->ready, link)
    {
        assert(!op->held && !spread_is_cut(op) && slots_of(s, op) == op->slots);
        n_ops++;
    }
    TAILQ_FOREACH(op, &s->others, link)
    {
        assert(op->held || spread_is_cut(op));
        assert(op->held || op->slots > 0);
        assert(slots_of(s, op) == op->slots);
        n_ops++;
    }
    assert(n_ops == s->n_ops && n_ops <= s->config.ops_max);
    TAILQ_FOREACH(op, &s->ended, link)
    assert(slots_of(s, op) == 0);
}
