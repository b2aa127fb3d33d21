/*
 * Remembers the instances lost lately: workers that went away, and engines that
 * were taken out. A worker that flaps is in no list at the moment that it is
 * away, so its losses are kept by its name. Private to the files of
 * conductor/service.
 */
#ifndef CONDUCTOR_SERVICE_LOSSES_H
#define CONDUCTOR_SERVICE_LOSSES_H

#include <stddef.h>
#include <stdint.h>

#include "conductor/service/service.h"

struct drains;
struct text_buf;

/* A loss counts for so long. */
#define LOSSES_US (600 * INT64_C(1000000))
/* Losses remembered; a further one replaces the oldest. */
#define LOSSES_MAX 256u

struct loss {
    int64_t at_us;
    char name[SERVICE_NAME_BYTES];
};

/* Zeros = none. The i-th loss since the start is at last[i % LOSSES_MAX]. */
struct losses {
    struct loss last[LOSSES_MAX];
    uint64_t n;
};

/* Remembers that an instance was lost at now_us. */
void losses_note(struct losses *losses, const char *name, int64_t now_us);

/* Writes conductor_instance_losses: a line for each instance that was lost in
 * the LOSSES_US before now_us and is not drained. Returns 0, or not 0: out of
 * memory. O(LOSSES_MAX^2). */
[[nodiscard]] int losses_write(const struct losses *losses,
                               const struct drains *drains, int64_t now_us,
                               struct text_buf *out);

#endif
