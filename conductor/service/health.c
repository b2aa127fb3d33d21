/* /health; finds the model that explains why a request cannot be served. */
#include <errno.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"

int models_explain(const struct models *models, const char *id,
                   struct text_buf *out)
{
    int rc = -ENOENT;

    for (const struct service *s = models->first; s && rc == -ENOENT;
         s = s->next)
        rc = explain_write(s->explain, id, out);
    return rc;
}

int models_health(const struct models *models, struct text_buf *out)
{
    uint32_t by_health[HEALTH_STATES] = {0}, prefill = 0, decode = 0;
    const struct fleet_entry *entry;
    const struct scout *scout; /* of an engine whose model is not known yet */
    uint32_t in_flight = 0;
    bool ready = false;

    for (const struct service *s = models->first; s; s = s->next) {
        for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
            const struct pool_instance *in = pool_at(s->pool, i);

            if (in)
                by_health[pool_shown_health(in)]++;
        }
        prefill += instances_count(s, ROLE_PREFILL, NULL);
        decode += instances_count(s, ROLE_DECODE, NULL);
        in_flight += s->requests.size - s->requests.n_free;
        ready = ready || service_ready(s);
    }
    TAILQ_FOREACH(entry, &models->fleet.entries, entry)
    {
        TAILQ_FOREACH(scout, &entry->scouts, of_entry)
        {
            by_health[HEALTH_STARTING]++;
        }
    }
    int n = text_buf_printf(
        out,
        "{\"status\":\"%s\",\"instances\":{\"prefill\":%u,\"decode\":%u,"
        "\"starting\":%u,\"ready\":%u,\"draining\":%u,\"suspect\":%u},"
        "\"requests_in_flight\":%u}\n",
        ready ? "ready" : "not ready", prefill, decode,
        by_health[HEALTH_STARTING], by_health[HEALTH_READY],
        by_health[HEALTH_DRAINING], by_health[HEALTH_SUSPECT], in_flight);
    return n < 0 ? -ENOMEM : 0;
}
