/* What an operator should know of a configuration that lets others in. */
#include "base/listener.h"
#include "base/log.h"
#include "conductor/internal.h"

void daemon_tell_who_may(const struct config *c, const char *host)
{
    bool required = c->api_keys == CONFIG_KEYS_REQUIRED;

    if (!required)
        log_info("api_keys: open: whoever reaches listen may ask, and all "
                 "share a cache");
    if (!required && !*c->admin_listen && !host_is_loopback(host))
        log_warn("admin_listen: none: whoever reaches listen sees /metrics, "
                 "the instances and, by its id, why a request went where it "
                 "went");
    if (required && !*c->admin_key_file)
        log_warn("api_keys: required, and there is no admin_key_file: whoever "
                 "reaches this machine's own address, as through a proxy on "
                 "it, may look and change");
}
