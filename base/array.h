/* Arrays that grow. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

/*
 * Room for `count` items of `size` bytes in an array that doubles when it is
 * full; `items` and *capacity start as NULL and 0. Returns the array, which
 * may have moved; or NULL without memory, with the old one as it was. O(1)
 * amortised.
 */
[[nodiscard]] static inline void *array_room(void *items, size_t *capacity,
                                             size_t count, size_t size)
{
    size_t n = *capacity > 0 ? *capacity : 64;

    if (count <= *capacity)
        return items;
    while (n < count)
        n *= 2;
    items = realloc(items, n * size);
    if (items)
        *capacity = n;
    return items;
}

/*
 * Room for `count` items of `size` bytes in `array`, which it sets, with
 * `capacity` as above, a size_t. 0; or -ENOMEM, with the array as it was.
 */
#define array_reserve_of(array, capacity, count, size)                   \
    ({                                                                   \
        void *room_ = array_room((array), &(capacity), (count), (size)); \
                                                                         \
        if (room_)                                                       \
            (array) = room_;                                             \
        room_ || (count) == 0 ? 0 : -ENOMEM;                             \
    })

/* The same for as many of its own items. */
#define array_reserve(array, capacity, count) \
    array_reserve_of(array, capacity, count, sizeof *(array))

#endif
