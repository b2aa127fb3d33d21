/* Warnings about a configuration: it gives access to others, or serves nothing.
 */
#include "base/listener.h"
#include "base/log.h"
#include "conductor/internal.h"

void daemon_tell_who_may(const struct config *c, const char *host)
{
    bool required = c->api_keys == CONFIG_KEYS_REQUIRED;

    if (!required)
        log_info("api_keys: open: every client that reaches listen may send "
                 "requests and reuse all cached prompts");
    if (!required && !*c->admin_listen && !host_is_loopback(host))
        log_warn("admin_listen: none: every client that reaches listen can "
                 "read /metrics, the instances and, given a request's id, its "
                 "explanation");
    if (required && !*c->admin_key_file)
        log_warn("api_keys: required, but there is no admin_key_file: every "
                 "client that reaches this machine's own address, for example "
                 "through a proxy on it, can read and change /admin");
}

void daemon_tell_idle(const struct config *c)
{
    if (c->engines.n == 0 && !*c->engines_file && !*c->worker_listen)
        log_warn("nothing to route to: no engines, and no worker_listen: name "
                 "engines in the configuration and reload, or add them by POST "
                 "/admin/instances; for native workers set worker_listen and "
                 "restart");
}
