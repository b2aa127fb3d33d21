/* Loads the secret and checks addresses. */
#include "workers/trust.h"

#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "base/listener.h"

/* Returns the host of a conductor on another machine; NULL = none. */
static const char *far_conductor(const struct worker_options *o)
{
    for (uint32_t i = 0; i < o->n_conductors; i++)
        if (!host_is_loopback(o->conductors[i].host))
            return o->conductors[i].host;
    return NULL;
}

int worker_trust(const struct worker_options *o, struct secret **out, char *err,
                 size_t err_bytes)
{
    char why[400];
    bool local_peers = host_is_loopback(o->listen.host);
    const char *far = far_conductor(o);

    if (local_peers && far) {
        *out = NULL;
        return error_say(
            err, err_bytes, -EINVAL,
            "--listen %.200s: only this machine reaches it, and the "
            "conductor at %.200s sends workers of other machines there: "
            "give --listen 0.0.0.0:PORT or this machine's address",
            o->listen.host, far);
    }
    if (secret_load(o->secret_file, out, why, sizeof(why)))
        return error_say(err, err_bytes, -EINVAL, "--secret-file %s", why);
    if (*out || local_peers)
        return 0;
    return error_say(
        err, err_bytes, -EINVAL,
        "--listen %.200s: other machines can reach it, so both sides must "
        "prove a secret: give --secret-file FILE, the conductor's secret_file "
        "(openssl rand -hex 32 > FILE; chmod 600 FILE)",
        o->listen.host);
}
