/* TLS settings for https engines: the CAs to trust. */
#include <stdio.h>

#include "conductor/service/fleet/fleet.h"

struct tls *fleet_tls(const struct fleet *fleet,
                      const struct engine_config *config,
                      char err[CONFIG_ERROR_MAX])
{
    const struct fleet_entry *entry;
    const struct engine *e;
    char why[CONFIG_ERROR_MAX / 2];

    TAILQ_FOREACH(entry, &fleet->entries, entry)
    {
        TAILQ_FOREACH(e, &entry->engines, of_entry)
        {
            if (tls_is(e->tls, config->tls_ca_file, config->tls_insecure))
                return tls_ref(e->tls);
        }
    }
    struct tls *tls =
        tls_new(config->tls_ca_file, config->tls_insecure, why, sizeof(why));
    if (!tls)
        snprintf(err, CONFIG_ERROR_MAX, "tls_ca_file: \"%.200s\": %s",
                 config->tls_ca_file, why);
    return tls;
}
