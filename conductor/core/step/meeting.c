/* Where computing and loading meet. */
#include "conductor/core/step/meeting.h"

bool meeting_met(int64_t computed, int64_t loaded_from)
{
    return computed >= loaded_from;
}

uint32_t meeting_planned_block(uint32_t position, uint32_t block_tokens,
                               uint32_t split_block, uint32_t loaded_block,
                               bool over)
{
    uint32_t next = position / block_tokens + 1;

    if (next < split_block)
        next = split_block;
    return over || next > loaded_block ? loaded_block : next;
}

static double blocks_us(double first_us, double block_us, uint32_t blocks)
{
    return blocks ? first_us + (blocks - 1.0) * block_us : 0;
}

double meeting_load_us(const struct meeting *m, uint32_t blocks)
{
    double us = blocks_us(m->first_us, m->block_us, blocks);

    for (uint32_t i = 0; i < m->n_tails; i++) {
        const struct meeting_tail *t = &m->tails[i];
        double tail_us = blocks_us(t->first_us, t->block_us,
                                   t->blocks < blocks ? t->blocks : blocks);

        us = tail_us > us ? tail_us : us;
    }
    return us;
}

/* Returns when computing and load are both done, with a chunk of n_tokens that
 * takes computed_us. */
static double done_us(const struct meeting *m, uint32_t n_tokens,
                      double computed_us)
{
    uint32_t bt = m->block_tokens;
    uint32_t taken =
        (m->position + n_tokens + bt - 1) / bt - (m->position + bt - 1) / bt;
    double load_us =
        meeting_load_us(m, taken < m->missing ? m->missing - taken : 0);

    return load_us > computed_us ? load_us : computed_us;
}

uint32_t meeting_chunk(const struct meeting *m, meeting_chunk_us *chunk_us,
                       const void *arg)
{
    uint32_t bt = m->block_tokens;
    uint32_t first = bt - m->position % bt; /* tokens to the end of a block */
    double us = chunk_us(arg, m->most, m->position, m->cached);

    if (us < 0 || m->block_us <= 0 || m->missing == 0 ||
        done_us(m, m->most, us) > us)
        return m->most;
    /* A partly computed block must be completed. */
    uint32_t best = first < bt ? (first < m->most ? first : m->most) : 0;
    double best_us = done_us(
        m, best, best ? chunk_us(arg, best, m->position, m->cached) : 0);
    for (uint32_t n = first; n <= m->most; n += bt) {
        double n_us = done_us(m, n, chunk_us(arg, n, m->position, m->cached));

        if (n_us < best_us) {
            best = n;
            best_us = n_us;
        }
    }
    return best;
}
