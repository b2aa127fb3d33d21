/* Rates at which blocks reach a worker from its peers, as the worker reports
 * them. A report changes only the estimates of that worker's own loads. */
#include "conductor/service/worker/paths.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Returns the worker registered at this host and port, or POOL_NO_INSTANCE. */
static uint32_t worker_at(const struct service *s, const struct msg_path *path)
{
    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct worker *w = &s->native.workers[slot];

        if (w->link && w->hello.peer_port == path->port &&
            strcmp(w->host, path->host) == 0)
            return w->id;
    }
    return POOL_NO_INSTANCE;
}

/* Transports are labels of metrics: lowercase letters and digits. */
static bool is_word(const char *s)
{
    return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789")];
}

static bool is_named(const struct pool_path *paths, uint32_t n, uint32_t from)
{
    for (uint32_t i = 0; i < n; i++)
        if (paths[i].from == from)
            return true;
    return false;
}

int paths_frame(struct service *s, struct worker *w, const uint8_t *payload,
                size_t len)
{
    struct pool_path paths[POOL_PATHS_MAX];
    struct msg_paths m;
    uint32_t n = 0;

    _Static_assert(MSG_PATHS_MAX <= POOL_PATHS_MAX, "a place for each");
    if (msg_paths_unpack(payload, len, &m))
        return -EBADMSG;
    for (uint8_t i = 0; i < m.n; i++) {
        const struct msg_path *path = &m.list[i];
        uint32_t from = worker_at(s, path);

        if (path->bytes_per_s > LINK_RATE_MAX_BYTES_PER_S)
            return -EPROTO;
        if (from == POOL_NO_INSTANCE || from == w->id ||
            is_named(paths, n, from))
            continue; /* it has left, is unknown here, or a duplicate */
        paths[n] = (struct pool_path){from, (double)path->bytes_per_s};
        snprintf(w->path_names[n++], MSG_NAME_MAX, "%s",
                 is_word(path->transport) ? path->transport : "other");
    }
    return pool_set_paths(s->pool, w->id, paths, n) ? -EPROTO : 0;
}
