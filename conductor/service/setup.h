/* Creates and frees what is behind conductor/service/service.h. For main only.
 */
#ifndef CONDUCTOR_SERVICE_SETUP_H
#define CONDUCTOR_SERVICE_SETUP_H

#include <event2/event.h>

#include "conductor/config/config.h"
#include "conductor/service/service.h"

/* service_check_config(config, err): whether models_new() would accept the
 * options that only it can judge, and the files that they name. Returns 0 or a
 * negative errno with a message in err. */
[[nodiscard]] int service_check_config(const struct config *config,
                                       char err[CONFIG_ERROR_MAX]);

/* models_check(config, err): does service_check_config(), and checks that the
 * engines of engines_file can be used beside those of config. So it finds the
 * reason why models_new() would fail, as far as files show it. */
[[nodiscard]] int models_check(const struct config *config,
                               char err[CONFIG_ERROR_MAX]);

/* models_new(base, config, err): reads the cost models, listens for workers,
 * and asks the engines for their health. Borrows base, and what the engines of
 * config point to; copies config. Returns owned, or NULL with a reason in err.
 */
[[nodiscard]] struct models *models_new(struct event_base *base,
                                        const struct config *config,
                                        char err[CONFIG_ERROR_MAX]);

/* models_free(m): closes every worker's connection; live requests are dropped
 * without a callback, so the front goes first. NULL is a no-op. */
void models_free(struct models *models);

/* models_cut(m): ends every request with 503 "shutting_down", streams by an
 * error and their end. Returns how many there were. */
size_t models_cut(struct models *models);

/* models_flush(m): sends what is to be told of requests to others without
 * waiting for more. Returns whether all of it was. */
bool models_flush(struct models *models);

/* models_reload(m, next, err): takes over what a running daemon can change of a
 * configuration that models_check() has accepted: options, engines, and the
 * present contents of tenants_file and cost_model. From then on the list of
 * engines of next is borrowed, and the earlier one no more. Returns 0, or a
 * negative errno with a message: then nothing has changed or, out of memory, no
 * engine has. */
[[nodiscard]] int models_reload(struct models *models,
                                const struct config *next,
                                char err[CONFIG_ERROR_MAX]);

/* models_tls(m, certificate): workers that connect from now on are shown this
 * certificate; m keeps a reference of its own. NULL: without TLS. */
struct ssl_ctx_st;
void models_tls(struct models *models, struct ssl_ctx_st *certificate);

/* models_worker_port(m): the port where workers register; 0: none. */
uint16_t models_worker_port(const struct models *models);

#endif
