/*
 * Assigning blocks to senders. See load_share.h.
 *
 * Whether blocks can be loaded by a time is a matching of blocks to senders,
 * each with a run of blocks and a number that it can send by then. Going up
 * block by block and taking the sender whose run ends first is optimal for runs
 * (Glover 1967).
 */
#include "conductor/core/plan/load_share.h"

static int64_t rounded_us(double us)
{
    return us < (double)LOAD_PLAN_NEVER_US ? (int64_t)(us + 0.5)
                                           : LOAD_PLAN_NEVER_US;
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t load_sending_us(const struct load_sender *sender, uint32_t blocks)
{
    return rounded_us((double)blocks * sender->block_us);
}

/* Returns how many blocks a sender can send within a time, at most `most`. */
static uint32_t sendable(const struct load_sender *sender, int64_t within_us,
                         uint32_t most)
{
    uint32_t blocks;

    if (within_us < 0)
        return 0;
    if (load_sending_us(sender, most) <= within_us)
        return most;
    blocks = (uint32_t)((double)within_us / sender->block_us);
    blocks = lesser(blocks, most);
    while (blocks < most && load_sending_us(sender, blocks + 1) <= within_us)
        blocks++;
    while (blocks > 0 && load_sending_us(sender, blocks) > within_us)
        blocks--;
    return blocks;
}

/* Returns how long (us) a sender may send if the load is to be in time at
 * until_us; by layer: if the prompt is to be done then. */
static int64_t allowed_us(const struct load *load,
                          const struct load_sender *sender, int64_t until_us)
{
    int64_t first_us, last_us;

    if (!load->by_layer)
        return until_us - sender->start_us;
    first_us = until_us - load->rest_us - sender->start_us;
    last_us = until_us - load->rest_layer_us - sender->start_us;
    if (first_us < 0 || first_us > LOAD_PLAN_NEVER_US / load->layers)
        return first_us < 0 ? first_us : last_us;
    first_us *= load->layers;
    return first_us < last_us ? first_us : last_us;
}

/* Returns how many blocks of a load a sender holds. */
static uint32_t overlap(const struct load_sender *sender,
                        const struct load *load)
{
    uint32_t from = sender->from_block > load->from_block ? sender->from_block
                                                          : load->from_block;
    uint32_t to = lesser(sender->to_block, load->to_block);

    if (from >= to || (load->by_layer && !sender->by_layer))
        return 0;
    return to - from;
}

/* Returns the sender of a block: of those that can still send, the one whose
 * run ends first; s->n if none. Lowers `end` to where another run begins. */
static size_t sender_of(const struct load_senders *s, const uint32_t *left,
                        uint32_t block, uint32_t *end)
{
    size_t best = s->n;

    for (size_t i = 0; i < s->n; i++) {
        const struct load_sender *sender = &s->at[i];

        if (left[i] == 0 || sender->to_block <= block)
            continue;
        if (sender->from_block > block)
            *end = lesser(*end, sender->from_block);
        else if (best == s->n || sender->to_block < s->at[best].to_block)
            best = i;
    }
    return best;
}

/* Adds a piece, or lengthens the last one. */
static void add_piece(struct load_sharing *sharing, struct load_piece piece)
{
    struct load_piece *last = &sharing->pieces[sharing->n_pieces];

    if (sharing->n_pieces > 0 && last[-1].source == piece.source)
        last[-1].to_block = piece.to_block;
    else
        sharing->pieces[sharing->n_pieces++] = piece;
}

bool load_can_end(const struct load_senders *s, const struct load *load,
                  int64_t until_us, struct load_sharing *sharing)
{
    uint32_t left[LOAD_PLAN_SOURCES_MAX];
    uint32_t block = load->from_block;

    if (sharing)
        sharing->n_pieces = 0;
    for (size_t i = 0; i < s->n; i++)
        left[i] = sendable(&s->at[i], allowed_us(load, &s->at[i], until_us),
                           overlap(&s->at[i], load));
    while (block < load->to_block) {
        uint32_t end = load->to_block;
        size_t i = sender_of(s, left, block, &end);

        if (i == s->n)
            return false;
        end = lesser(lesser(end, s->at[i].to_block),
                     left[i] < end - block ? block + left[i] : end);
        left[i] -= end - block;
        if (sharing)
            add_piece(sharing, (struct load_piece){(uint32_t)i, block, end});
        block = end;
    }
    return true;
}

/* Returns a time by which a load is surely there, even if every sender sends
 * all its blocks of it: an upper bound. */
static int64_t surely_us(const struct load_senders *s, const struct load *load,
                         size_t *n_senders)
{
    int64_t last_us = -LOAD_PLAN_NEVER_US;

    *n_senders = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct load_sender *sender = &s->at[i];
        uint32_t blocks = overlap(sender, load);
        int64_t us = load_sending_us(sender, blocks);
        int64_t end_us = sender->start_us + us;

        if (blocks == 0)
            continue;
        if (load->by_layer)
            end_us = later(end_us + load->rest_layer_us,
                           sender->start_us + us / load->layers +
                               (us % load->layers != 0) + load->rest_us);
        if (end_us >= LOAD_PLAN_NEVER_US)
            end_us = LOAD_PLAN_NEVER_US - 1; /* sends a part in time */
        last_us = later(last_us, end_us);
        ++*n_senders;
    }
    return last_us;
}

int64_t load_first_end_us(const struct load_senders *s, const struct load *load,
                          int64_t low_us, int64_t high_us)
{
    size_t n_senders;
    int64_t sure_us = surely_us(s, load, &n_senders);

    if (sure_us < low_us)
        sure_us = low_us;
    if (sure_us > high_us)
        sure_us = high_us;
    if (sure_us < low_us || !load_can_end(s, load, sure_us, NULL))
        return LOAD_PLAN_NEVER_US;
    /* A single sender has to send all its blocks. */
    if (n_senders == 1)
        return sure_us;
    while (low_us < sure_us) {
        int64_t mid_us = low_us + (sure_us - low_us) / 2;

        if (load_can_end(s, load, mid_us, NULL))
            sure_us = mid_us;
        else
            low_us = mid_us + 1;
    }
    return sure_us;
}
