/* Whom a worker believes: its secret, and whether its addresses need one. */
#ifndef WORKERS_TRUST_H
#define WORKERS_TRUST_H

#include "base/secret.h"
#include "workers/options.h"

/* worker_trust(o, out, err, err_bytes): loads the secret of `o` into *out,
 * owned, or NULL without one. Refuses to go without one beyond loopback, and to
 * listen where the other workers of a conductor elsewhere cannot come. Looks
 * names up and blocks. Returns 0, or -EINVAL with what to do in err. */
[[nodiscard]] int worker_trust(const struct worker_options *o,
                               struct secret **out, char *err,
                               size_t err_bytes);

#endif
