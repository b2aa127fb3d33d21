/* The buddy allocator. A free block's first unit has its neighbours in the free
 * list, the previous one in the low half and the next one in the high half; its
 * second unit has its class. */
#include "conductor/core/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t link_prev(const struct arena *a, uint32_t at)
{
    return (uint32_t)a->units[at];
}

static uint32_t link_next(const struct arena *a, uint32_t at)
{
    return (uint32_t)(a->units[at] >> 32);
}

static void link_set(struct arena *a, uint32_t at, uint32_t prev, uint32_t next)
{
    a->units[at] = (uint64_t)next << 32 | prev;
}

static void mark(struct arena *a, uint32_t at, bool is_free)
{
    uint8_t bit = (uint8_t)(1u << at / 2 % 8);

    a->is_free[at / 16] = (uint8_t)(is_free ? a->is_free[at / 16] | bit
                                            : a->is_free[at / 16] & ~bit);
}

static bool is_free_as(const struct arena *a, uint32_t at, uint32_t class)
{
    return (a->is_free[at / 16] >> at / 2 % 8 & 1) && a->units[at + 1] == class;
}

static void list_push(struct arena *a, uint32_t at, uint32_t class)
{
    uint32_t head = a->free_head[class];

    link_set(a, at, ARENA_NONE, head);
    if (head != ARENA_NONE)
        link_set(a, head, at, link_next(a, head));
    a->free_head[class] = at;
    a->units[at + 1] = class;
    mark(a, at, true);
}

static void list_remove(struct arena *a, uint32_t at, uint32_t class)
{
    uint32_t prev = link_prev(a, at);
    uint32_t next = link_next(a, at);

    if (prev == ARENA_NONE)
        a->free_head[class] = next;
    else
        link_set(a, prev, link_prev(a, prev), next);
    if (next != ARENA_NONE)
        link_set(a, next, prev, link_next(a, next));
    mark(a, at, false);
}

uint32_t arena_class_of(uint64_t n_units)
{
    uint32_t class = ARENA_CLASS_MIN;

    while (class < 63 && (UINT64_C(1) << class) < n_units)
        class ++;
    return class;
}

int arena_init(struct arena *arena, uint64_t n_units)
{
    memset(arena, 0, sizeof(*arena));
    if (n_units < 2 || n_units > UINT64_C(1) << 31)
        return -EINVAL;
    arena->top_class = ARENA_CLASS_MIN;
    while (arena->top_class < ARENA_CLASS_MAX &&
           UINT64_C(2) << arena->top_class <= n_units)
        arena->top_class++;
    arena->n_units = (uint32_t)(n_units >> arena->top_class)
                     << arena->top_class;
    for (uint32_t c = 0; c <= ARENA_CLASS_MAX; c++)
        arena->free_head[c] = ARENA_NONE;
    arena->units = calloc(arena->n_units, sizeof(*arena->units));
    arena->is_free = calloc(arena->n_units / 16 + 1, sizeof(*arena->is_free));
    if (!arena->units || !arena->is_free) {
        arena_fini(arena);
        return -ENOMEM;
    }
    return 0;
}

void arena_fini(struct arena *arena)
{
    free(arena->units);
    free(arena->is_free);
    memset(arena, 0, sizeof(*arena));
}

bool arena_has_room(const struct arena *arena, uint32_t size_class)
{
    for (uint32_t class = size_class; class <= arena->top_class; class ++)
        if (arena->free_head[class] != ARENA_NONE)
            return true;
    return size_class <= arena->top_class && arena->fresh < arena->n_units;
}

uint32_t arena_alloc(struct arena *arena, uint32_t size_class)
{
    uint32_t class = size_class;
    uint32_t at;

    if (size_class > arena->top_class)
        return ARENA_NONE;
    while (class < arena->top_class && arena->free_head[class] == ARENA_NONE)
        class ++;
    at = arena->free_head[class];
    if (at != ARENA_NONE) {
        list_remove(arena, at, class);
    } else if (arena->fresh < arena->n_units) {
        at = arena->fresh;
        arena->fresh += UINT32_C(1) << class;
    } else {
        return ARENA_NONE;
    }
    while (class > size_class) {
        class --;
        list_push(arena, at + (UINT32_C(1) << class), class);
    }
    arena->used_units += UINT64_C(1) << size_class;
    return at;
}

void arena_shrink(struct arena *arena, uint32_t at, uint32_t size_class,
                  uint32_t new_class)
{
    while (size_class > new_class) {
        size_class--;
        arena->used_units -= UINT64_C(1) << size_class;
        list_push(arena, at + (UINT32_C(1) << size_class), size_class);
    }
}

void arena_free(struct arena *arena, uint32_t at, uint32_t size_class)
{
    uint32_t class = size_class;

    arena->used_units -= UINT64_C(1) << size_class;
    while (class < arena->top_class) {
        uint32_t buddy = at ^ (UINT32_C(1) << class);

        if (!is_free_as(arena, buddy, class))
            break;
        list_remove(arena, buddy, class);
        at &= ~(UINT32_C(1) << class);
        class ++;
    }
    list_push(arena, at, class);
}

bool arena_check(const struct arena *arena)
{
    uint64_t free_units = 0;

    for (uint32_t c = ARENA_CLASS_MIN; c <= arena->top_class; c++) {
        uint32_t size = UINT32_C(1) << c;
        uint32_t prev = ARENA_NONE;

        for (uint32_t at = arena->free_head[c]; at != ARENA_NONE;
             at = link_next(arena, at)) {
            if (at % size != 0 || at >= arena->fresh ||
                !is_free_as(arena, at, c) || link_prev(arena, at) != prev)
                return false;
            if (c < arena->top_class && is_free_as(arena, at ^ size, c))
                return false;
            free_units += size;
            prev = at;
        }
    }
    return free_units + arena->used_units == arena->fresh;
}
