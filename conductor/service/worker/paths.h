/* Rates at which workers send blocks to each other. */
#ifndef CONDUCTOR_SERVICE_WORKER_PATHS_H
#define CONDUCTOR_SERVICE_WORKER_PATHS_H

#include "conductor/service/internal.h"

/* Faster than any link. */
#define LINK_RATE_MAX_BYTES_PER_S (UINT64_C(1) << 44)

/* Takes the frame PATHS of worker `w`: `len` bytes at `payload`, borrowed.
 * Returns 0, -EBADMSG or -EPROTO. */
int paths_frame(struct service *s, struct worker *w, const uint8_t *payload,
                size_t len);

#endif
