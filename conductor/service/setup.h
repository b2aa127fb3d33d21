/*
 * Making and ending the service behind conductor/service/service.h. For main
 * only.
 */
#ifndef CONDUCTOR_SERVICE_SETUP_H
#define CONDUCTOR_SERVICE_SETUP_H

#include <event2/event.h>

#include "conductor/config.h"
#include "conductor/service/service.h"

/* service_check_config(config, err): whether service_new() would accept the
 * options that only it can judge, and the files that they name. Returns 0 or a
 * negative errno with a message in err. */
[[nodiscard]] int service_check_config(const struct config *config,
                                       char err[CONFIG_ERROR_MAX]);

/* service_new(base, config, err): reads the cost model, listens for workers,
 * and asks the engines for their health. There is a service for each model;
 * the first is returned and owns the others. Borrows base, and what the engines
 * of config point to; copies config. Returns owned, or NULL with a reason in
 * err. */
struct service *service_new(struct event_base *base,
                            const struct config *config,
                            char err[CONFIG_ERROR_MAX]);

/* service_free(s): closes every worker's connection; live requests are dropped
 * without a callback, so the front goes first. */
void service_free(struct service *s);

/* service_worker_port(s): where workers register. */
uint16_t service_worker_port(const struct service *s);

#endif
