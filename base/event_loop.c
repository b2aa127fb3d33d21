/* The event loop that every program runs. */
#include "base/event_loop.h"

#include "base/log.h"

/* Logs libevent's messages, mostly about name servers. */
static void on_message(int severity, const char *text)
{
    log_line(severity >= EVENT_LOG_ERR     ? LOG_ERROR
             : severity >= EVENT_LOG_WARN  ? LOG_WARN
             : severity == EVENT_LOG_DEBUG ? LOG_DEBUG
                                           : LOG_INFO,
             "libevent: %s", text);
}

struct event_base *event_loop_new(int n_priorities)
{
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;

    event_set_log_callback(on_message);
    if (!config)
        return NULL;
    if (event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER) == 0)
        base = event_base_new_with_config(config);
    event_config_free(config);
    if (base && n_priorities > 1 &&
        event_base_priority_init(base, n_priorities)) {
        event_base_free(base);
        return NULL;
    }
    return base;
}

struct evdns_base *event_loop_dns(struct event_base *base, const char *server)
{
    struct evdns_base *dns = evdns_base_new(base, 0);

    if (!dns)
        return NULL;
    /* Without a readable file, only numeric addresses resolve. */
    evdns_base_resolv_conf_parse(
        dns,
        *server ? DNS_OPTIONS_ALL & ~DNS_OPTION_NAMESERVERS : DNS_OPTIONS_ALL,
        "/etc/resolv.conf");
    if (*server && evdns_base_nameserver_ip_add(dns, server)) {
        evdns_base_free(dns, 0);
        return NULL;
    }
    /* Some servers do not return the question's mixed case. */
    evdns_base_set_option(dns, "randomize-case", "0");
    return dns;
}

int event_loop_wait(struct event *e, int64_t us)
{
    struct timeval tv = {us / 1000000, us % 1000000};

    return event_add(e, &tv);
}

int64_t event_loop_away_us(int64_t *last_us, int64_t now_us, int64_t every_us)
{
    int64_t late_us = *last_us ? now_us - *last_us - every_us : 0;

    *last_us = now_us;
    return late_us > every_us ? late_us : 0;
}

void event_loop_drop(struct event *e)
{
    if (e)
        event_free(e);
}
