/* Creates and frees the services behind service.h. For the daemon only. */
#ifndef CONDUCTOR_SERVICE_SETUP_H
#define CONDUCTOR_SERVICE_SETUP_H

#include "conductor/config/config.h"
#include "conductor/service/service.h"

struct loop;

/* service_check_config(config, err): checks the options of services, and the
 * files that they name. Returns 0 or a negative errno with a message in err. */
[[nodiscard]] int service_check_config(const struct config *config,
                                       char err[CONFIG_ERROR_MAX]);

/* models_check(config, err): as service_check_config(); also checks the
 * tenants, the access log, and the engines of engines_file beside those of
 * config. Finds the reason why models_new() would fail, as far as files show
 * it. */
[[nodiscard]] int models_check(const struct config *config,
                               char err[CONFIG_ERROR_MAX]);

/* models_new(loop, config, err): reads the cost models, listens for workers,
 * and begins to probe the engines. Borrows loop and the engine list of config;
 * copies the rest of config. Returns it owned, or NULL with a reason in err. */
[[nodiscard]] struct models *models_new(struct loop *loop,
                                        const struct config *config,
                                        char err[CONFIG_ERROR_MAX]);

/* models_free(m): closes every worker's connection and drops live requests
 * without a callback: free the front first. NULL is a no-op. */
void models_free(struct models *models);

/* models_cut(m): ends every request with 503 "shutting_down", a stream with an
 * error event. Returns the number of requests. */
size_t models_cut(struct models *models);

/* models_flush(m): begins to send queued spans at once. Returns whether all are
 * sent. */
bool models_flush(struct models *models);

/* models_reload(m, next, err): takes over the options, engines, tenants_file
 * and cost_model that a running daemon can change, of a configuration that
 * models_check() has accepted. From then on it borrows the engine list of next,
 * in place of the earlier one. Returns 0; or a negative errno with a message,
 * and nothing has changed. */
[[nodiscard]] int models_reload(struct models *models,
                                const struct config *next,
                                char err[CONFIG_ERROR_MAX]);

/* models_tls(m, certificate): sets the certificate for later connections of
 * workers; m keeps a reference of its own. NULL = without TLS. */
struct loop;
struct ssl_ctx_st;
void models_tls(struct models *models, struct ssl_ctx_st *certificate);

/* models_worker_port(m): returns the port where workers register; 0 = none. */
uint16_t models_worker_port(const struct models *models);

#endif
