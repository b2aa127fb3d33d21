/*
 * The models that are served, each with a service of its own. Private to the
 * files of conductor/service.
 */
#ifndef CONDUCTOR_SERVICE_MODELS_H
#define CONDUCTOR_SERVICE_MODELS_H

#include "conductor/service/engine.h"

struct models {
    struct event_base *base;
    struct evdns_base *dns;
    struct config config;
    struct service *first;
    uint32_t next_number; /* of a service */
};

/* The service of the engines of a model, made if there is none yet.
 *   like  an engine of it: what the service takes from it and from the others
 *         of the configuration are block size and cost model.
 * Returns it, or NULL with a message. */
[[nodiscard]] struct service *models_get(struct models *models,
                                         const struct engine_config *like,
                                         char err[CONFIG_ERROR_MAX]);

#endif
