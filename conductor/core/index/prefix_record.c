/* The holder records of one entry: one inside of it, more in the arena in an
 * array of the next power of two, sorted by instance. */
#include <string.h>

#include "conductor/core/index/prefix_table.h"

/* The first record whose instance is not below the given one. */
static size_t lower_bound(const struct record *records, size_t n,
                          uint32_t instance)
{
    size_t low = 0;

    while (low < n) {
        size_t mid = low + (n - low) / 2;

        if (records[mid].instance < instance)
            low = mid + 1;
        else
            n = mid;
    }
    return low;
}

struct record *record_find(const struct prefix_index *ix, struct entry *e,
                           uint32_t instance)
{
    if (!e->many) {
        bool empty = e->one.tiers == 0 && e->one.children == 0;

        return !empty && e->one.instance == instance ? &e->one : NULL;
    }
    struct record *records = arena_at(&ix->arena, e->many_at.at);
    size_t at = lower_bound(records, e->many_at.count, instance);

    if (at == e->many_at.count || records[at].instance != instance)
        return NULL;
    return &records[at];
}

/* Makes room for one more record: moves the only one into the arena, or the
 * array into a larger block when it is full. */
static bool grow(struct prefix_index *ix, struct entry *e)
{
    uint32_t count = e->many ? e->many_at.count : 1;
    uint32_t class = arena_class_of(count + 1);
    uint32_t at;

    if (e->many && class == arena_class_of(count))
        return true;
    at = arena_alloc(&ix->arena, class);
    if (at == ARENA_NONE)
        return false;
    if (e->many) {
        memcpy(arena_at(&ix->arena, at), arena_at(&ix->arena, e->many_at.at),
               count * sizeof(struct record));
        arena_free(&ix->arena, e->many_at.at, arena_class_of(count));
        e->many_at.at = at;
    } else {
        bool held = e->one.tiers != 0;

        memcpy(arena_at(&ix->arena, at), &e->one, sizeof(e->one));
        e->many = 1;
        e->many_at.at = at;
        e->many_at.count = 1;
        e->many_at.held = held;
    }
    return true;
}

struct record *record_get(struct prefix_index *ix, struct entry *e,
                          uint32_t instance)
{
    struct record fresh = {.instance = (uint16_t)instance};
    struct record *found = record_find(ix, e, instance);

    if (found)
        return found;
    if (!e->many && e->one.tiers == 0 && e->one.children == 0) {
        e->one = fresh;
        return &e->one;
    }
    if (!grow(ix, e))
        return NULL;
    struct record *records = arena_at(&ix->arena, e->many_at.at);
    size_t n = e->many_at.count;
    size_t at = lower_bound(records, n, instance);

    memmove(records + at + 1, records + at, (n - at) * sizeof(*records));
    records[at] = fresh;
    e->many_at.count++;
    return &records[at];
}

/* Gives back what one record less does not need. */
static void shrink(struct prefix_index *ix, struct entry *e)
{
    uint32_t at = e->many_at.at;
    uint32_t count = e->many_at.count;
    uint32_t old_class = arena_class_of(count + 1);

    if (count == 1) {
        const struct record *records = arena_at(&ix->arena, at);

        e->many = 0;
        e->one = records[0];
        arena_free(&ix->arena, at, old_class);
    } else {
        arena_shrink(&ix->arena, at, old_class, arena_class_of(count));
    }
}

void record_drop_empty(struct prefix_index *ix, struct entry *e,
                       uint32_t instance)
{
    struct record *record = record_find(ix, e, instance);

    /* An empty record inside of the entry counts as none already. */
    if (!record || !e->many || record->tiers != 0 || record->children != 0)
        return;
    struct record *records = arena_at(&ix->arena, e->many_at.at);
    size_t at = (size_t)(record - records);
    size_t n = e->many_at.count;

    memmove(records + at, records + at + 1, (n - at - 1) * sizeof(*records));
    e->many_at.count--;
    shrink(ix, e);
}
