/* Arrays that grow. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 * Makes room for `count` items of `size` bytes in an array that doubles when
 * it is full; `items` and *capacity start as NULL and 0. Returns the array,
 * which may have moved; or NULL: out of memory, the old array is unchanged.
 * O(1) amortised.
 */
[[nodiscard]] static inline void *array_room(void *items, size_t *capacity,
                                             size_t count, size_t size)
{
    size_t n = *capacity > 0 ? *capacity : 64;

    if (count <= *capacity)
        return items;
    while (n < count)
        n = n <= SIZE_MAX / 2 ? 2 * n : count;
    items = n <= SIZE_MAX / size ? realloc(items, n * size) : NULL;
    if (items)
        *capacity = n;
    return items;
}

/*
 * As array_room(), but sets `array`; `capacity` is a size_t. Returns 0; or
 * -ENOMEM with the array unchanged.
 */
#define array_reserve_of(array, capacity, count, size)                   \
    ({                                                                   \
        void *room_ = array_room((array), &(capacity), (count), (size)); \
                                                                         \
        if (room_)                                                       \
            (array) = room_;                                             \
        room_ || (count) == 0 ? 0 : -ENOMEM;                             \
    })

/* As array_reserve_of(), for items of the array's own type. */
#define array_reserve(array, capacity, count) \
    array_reserve_of(array, capacity, count, sizeof *(array))

#endif
