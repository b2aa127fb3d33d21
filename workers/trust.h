/* A worker's shared secret, and whether its addresses require one. */
#ifndef WORKERS_TRUST_H
#define WORKERS_TRUST_H

#include "base/secret.h"
#include "workers/options.h"

/* worker_trust(o, out, err, err_bytes): loads the secret of `o` into *out,
 * owned; NULL = none. Refuses to listen beyond loopback without a secret, and
 * to listen on loopback with a conductor on another machine, whose workers
 * could not connect. Looks names up and blocks. Returns 0, or -EINVAL with what
 * to do in err. */
[[nodiscard]] int worker_trust(const struct worker_options *o,
                               struct secret **out, char *err,
                               size_t err_bytes);

#endif
