/* How fast workers send to each other. */
#ifndef CONDUCTOR_SERVICE_WORKER_PATHS_H
#define CONDUCTOR_SERVICE_WORKER_PATHS_H

#include "conductor/service/state.h"

/* More than any link does. */
#define LINK_RATE_MAX_BYTES_PER_S (UINT64_C(1) << 44)

/* PATHS of worker `w`: its `payload` of `len` bytes, borrowed. Returns 0,
 * -EBADMSG or -EPROTO. */
int paths_frame(struct service *s, struct worker *w, const uint8_t *payload,
                size_t len);

#endif
