/*
 * Open addressing with linear probing. Removal leaves no tombstone: entries
 * behind the free slot move up.
 *
 * Invariants:
 * 1. Between an entry's home and its slot no slot is free.
 * 2. A group and a row have the mark of each entry in them.
 */
#include "conductor/link/events/copies_half.h"

#include <errno.h>
#include <stdlib.h>

#include "conductor/core/index/zeroed.h"

#define GROUP COPIES_GROUP
#define ROW COPIES_ROW
#define MARK_BITS 32u

uint32_t half_mark(uint32_t rank, uint32_t tier)
{
    return UINT32_C(1) << (rank * BLOCK_TIERS + tier) % MARK_BITS;
}

int half_init(struct copies_half *half, uint32_t bits)
{
    uint64_t n = UINT64_C(1) << bits;
    struct copies *slots = table_zeroed(n, sizeof(*slots));
    uint32_t *groups = calloc(n / GROUP + n / ROW + 1, sizeof(*groups));

    if (!slots || !groups) {
        table_free(slots, n, sizeof(*slots));
        free(groups);
        return -ENOMEM;
    }
    *half = (struct copies_half){.slots = slots,
                                 .groups = groups,
                                 .rows = groups + n / GROUP,
                                 .bits = bits};
    return 0;
}

void half_fini(struct copies_half *half)
{
    table_free(half->slots, (size_t)1 << half->bits, sizeof(*half->slots));
    free(half->groups);
    *half = (struct copies_half){0};
}

void half_put(struct copies_half *half, struct copies *slot,
              const struct copies *entry)
{
    uint64_t at = (uint64_t)(slot - half->slots);
    uint32_t mark = half_mark(entry->place.rank, entry->place.tier);

    *slot = *entry;
    half->groups[at / GROUP] |= mark;
    half->rows[at / ROW] |= mark;
}

void half_take(struct copies_half *half, uint64_t seed,
               const struct copies *entry)
{
    uint64_t mask = half_mask(half), hole = (uint64_t)(entry - half->slots);

    for (uint64_t at = hole + 1;; at++) {
        struct copies *slot = &half->slots[at & mask];

        if (slot->count == 0)
            break;
        /* An entry may fill the hole unless its home is behind the hole. */
        if (((at - half_home(half, seed, slot->hash)) & mask) >=
            ((at - hole) & mask)) {
            half_put(half, &half->slots[hole & mask], slot);
            hole = at;
        }
    }
    half->slots[hole & mask].count = 0;
}

static void mark_group_anew(struct copies_half *half, uint64_t group)
{
    const struct copies *slots = &half->slots[group * GROUP];
    uint32_t mark = 0;

    for (uint32_t i = 0; i < GROUP; i++)
        if (slots[i].count != 0)
            mark |= half_mark(slots[i].place.rank, slots[i].place.tier);
    half->groups[group] = mark;
}

static void mark_row_anew(struct copies_half *half, uint64_t row)
{
    uint64_t n = half_slots(half) < ROW ? half_slots(half) : ROW;
    const uint32_t *groups = &half->groups[row * ROW / GROUP];
    uint32_t mark = 0;

    for (uint64_t i = 0; i < n / GROUP; i++)
        mark |= groups[i];
    half->rows[row] = mark;
}

uint64_t half_unmarked(const struct copies_half *half, uint64_t at,

                       uint32_t marks)
{
    if (at % ROW == 0 && !(half->rows[at / ROW] & marks))
        return half_slots(half) < ROW ? half_slots(half) : ROW;
    return at % GROUP == 0 && !(half->groups[at / GROUP] & marks) ? GROUP : 0;
}

uint64_t half_passed(struct copies_half *half, uint64_t at, uint64_t step)
{
    uint64_t looks = 0;

    if (step == 1 && at % GROUP == 0) {
        mark_group_anew(half, at / GROUP - 1);
        looks += GROUP;
    }
    if (step <= GROUP && (at % ROW == 0 || at == half_slots(half))) {
        mark_row_anew(half, (at - 1) / ROW);
        looks += ROW / GROUP;
    }
    return looks;
}

bool half_check(const struct copies_half *half, uint64_t seed, uint64_t at)
{
    const struct copies *entry = &half->slots[at];
    uint32_t mark = half_mark(entry->place.rank, entry->place.tier);

    if (!(half->groups[at / GROUP] & mark) || !(half->rows[at / ROW] & mark))
        return false;
    for (uint64_t i = half_home(half, seed, entry->hash);
         (i & half_mask(half)) != at; i++)
        if (half->slots[i & half_mask(half)].count == 0)
            return false;
    return true;
}
