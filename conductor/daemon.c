/* The daemon's life: set up, signals, and the drain. */
#include "conductor/daemon.h"

#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/error.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "base/secret.h"
#include "base/supervisor.h"
#include "conductor/internal.h"

#define HOLD_US 10000000 /* wait for instances */
#define CUT_US 1000000   /* for clients to take the error */
/* For listeners, files, unregistered workers, and admin connections. */
#define RESERVED_DESCRIPTORS (128 + FRONT_RESERVE + FRONT_ADMIN_CONNECTIONS)
#define TICKS_PER_S 20 /* checks of the drain */

static int write_ports(const struct daemon *d, const char *path)
{
    char next[4096];

    snprintf(next, sizeof(next), "%s.next", path);
    FILE *f = fopen(next, "w");
    if (!f) {
        log_error("--ports-file %s: %s", path, strerror(errno));
        return -1;
    }
    fprintf(f, "{\"http\": %u, \"worker\": %u, \"admin\": %u}\n",
            front_port(d->front), models_worker_port(d->models),
            front_admin_port(d->front));
    /* A program that waits for the file never reads half of it. */
    if (fclose(f) || rename(next, path)) {
        log_error("--ports-file %s: %s", path, strerror(errno));
        return -1;
    }
    return 0;
}

static void close_door(struct daemon *d)
{
    log_info("stopping; %zu requests in flight", front_in_flight(d->front));
    front_stop(d->front, d->handed_over);
    d->closes_us = 0;
    d->cuts_us = loop_now_us(d->loop) + d->config->drain_limit_ms * 1000;
}

/* Ends the remaining requests with an error, and gives clients CUT_US to read
 * it. */
static void cut_off(struct daemon *d)
{
    log_warn(
        "giving up after %lld ms (drain_limit_ms); %zu requests are cut off",
        (long long)d->config->drain_limit_ms, models_cut(d->models));
    front_stop(d->front, false); /* also clients that still send a body */
    d->cuts_us = 0;
    d->ends_us = loop_now_us(d->loop) + CUT_US;
}

/* Gives the receiver of spans CUT_US to take the last ones. */
static bool has_told(struct daemon *d, int64_t now_us)
{
    if (!d->told_us)
        d->told_us = now_us + CUT_US;
    return models_flush(d->models) || now_us >= d->told_us;
}

/* Takes the next step of the drain: not ready, closed, cut off. */
static void on_drain(void *arg)
{
    struct daemon *d = arg;
    int64_t now_us = loop_now_us(d->loop);

    if (d->closes_us) {
        if (now_us >= d->closes_us)
            close_door(d);
        return;
    }
    if ((front_drained(d->front) && has_told(d, now_us)) ||
        (d->ends_us && now_us >= d->ends_us))
        loop_stop(d->loop);
    else if (d->cuts_us && now_us >= d->cuts_us)
        cut_off(d);
}

static void on_stop(void *arg, unsigned)
{
    struct daemon *d = arg;

    if (loop_timer_pending(&d->drain)) {
        loop_stop(d->loop);
        return;
    }
    supervisor_say("STOPPING=1");
    loop_timer_repeat(&d->drain, 1000000 / TICKS_PER_S);
    front_unready(d->front);
    if (d->config->drain_wait_ms == 0) {
        close_door(d);
        return;
    }
    log_info("stopping: /ready answers not ready for %lld ms, requests are "
             "still served",
             (long long)d->config->drain_wait_ms);
    d->closes_us = loop_now_us(d->loop) + d->config->drain_wait_ms * 1000;
}

/* Limits client connections, to leave descriptors for workers and files. */
static int bound_connections(struct daemon *d)
{
    const struct config *c = d->config;
    int64_t limit = (int64_t)descriptors_raise();
    int64_t others = c->max_instances + RESERVED_DESCRIPTORS;

    /* Each client may need a connection to an engine. */
    if (c->engines.given || *c->engines_file)
        limit = others + (limit - others) / 2;
    if (limit <= others) {
        log_error("open files: the limit of %lld (ulimit -n) leaves none for "
                  "clients: %lld are for max_instances and the daemon itself",
                  (long long)limit, (long long)others);
        return -EMFILE;
    }
    d->max_connections = c->max_connections;
    if (c->max_connections > limit - others) {
        log_warn("max_connections: %lld instead of %lld: no more than %lld "
                 "files may be open (ulimit -n)",
                 (long long)(limit - others), (long long)c->max_connections,
                 (long long)limit);
        d->max_connections = limit - others;
    }
    return 0;
}

int daemon_admin_key(const struct config *c, struct secret **key,
                     char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX - 32];
    struct address listen;

    if (secret_load(c->admin_key_file, key, why, sizeof(why)))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "admin_key_file: %s",
                         why);
    if (*key || !*c->admin_listen || address_parse(c->admin_listen, &listen) ||
        host_is_loopback(listen.host))
        return 0;
    return error_say(
        err, CONFIG_ERROR_MAX, -EINVAL,
        "admin_listen: \"%.200s\": other machines can reach it, and would see "
        "the explanation of every request: openssl rand -hex 32 > FILE, chmod "
        "600 FILE, and set admin_key_file",
        c->admin_listen);
}

/* Logs why an option's address cannot be listened at. Returns rc. */
static int cannot_listen(const char *option, const char *address, int rc)
{
    log_error("%s: %s: %s", option, address, listener_why(rc));
    return rc;
}

/* Returns the listening socket of this name that the supervisor handed over; 0
 * = none. */
static int handed_over(const char *name)
{
    int fd = supervisor_socket(name);

    if (fd < 0)
        return 0;
    log_info("%s: clients connect to a socket that the supervisor opened",
             name);
    return fd;
}

static int open_admin(struct daemon *d)
{
    struct address listen;
    int rc;

    if (!*d->config->admin_listen)
        return 0;
    if (address_parse(d->config->admin_listen, &listen))
        return -EINVAL;
    rc = front_admin(d->front, listen.host, listen.port, handed_over("admin"));
    if (rc)
        return cannot_listen("admin_listen", d->config->admin_listen, rc);
    log_info("admin on %s, port %u", listen.host, front_admin_port(d->front));
    return 0;
}

static int open_front(struct daemon *d)
{
    struct front_options o;
    struct address listen;

    front_options_default(&o);
    o.admin_key = d->admin_key;
    o.reload = daemon_on_reload;
    o.reload_arg = d;
    if (address_parse(d->config->listen, &listen))
        return -EINVAL;
    o.http.host = listen.host;
    o.http.port = listen.port;
    o.http.socket = d->handed_over = handed_over("http");
    o.http.max_connections = (size_t)d->max_connections;
    o.http.max_body_total_bytes = (size_t)d->config->max_body_total_bytes;
    o.http.max_body_bytes = (size_t)d->config->max_body_bytes;
    o.http.max_output_total_bytes = (size_t)d->config->max_output_total_bytes;
    o.keepalive_us = d->config->keepalive_ms * 1000;
    o.cache_salt_header = d->config->cache_salt_header;
    o.priority_header = d->config->priority_header;
    o.tenant_header = d->config->tenant_header;
    o.cors_origins = d->config->cors_origins;
    /* Refuse a batch that could never be in flight as a whole. */
    if (o.limits.max_prompts > (size_t)d->config->max_in_flight)
        o.limits.max_prompts = (size_t)d->config->max_in_flight;
    int rc = front_new(d->loop, d->models, &o, &d->front);
    if (rc)
        return cannot_listen("listen", d->config->listen, rc);
    return open_admin(d);
}

/* Lets clients of a handed-over socket wait until an instance is ready, or
 * HOLD_US is over: they have waited already. */
static void on_hold(void *arg)
{
    struct daemon *d = arg;
    const struct service *s = models_first(d->models);

    while (s && !service_ready(s))
        s = service_next(s);
    if (!s && loop_now_us(d->loop) < d->hold_until_us)
        return;
    loop_timer_stop(&d->hold);
    front_hold(d->front, false);
}

static void hold(struct daemon *d)
{
    loop_timer_init(d->loop, &d->hold, on_hold, d);
    d->hold_until_us = loop_now_us(d->loop) + HOLD_US;
    front_hold(d->front, true);
    log_info("no instance is ready yet: clients wait for one, for at most %d s",
             HOLD_US / 1000000);
    loop_timer_repeat(&d->hold, 1000000 / TICKS_PER_S);
}

/* Shows that the loop still turns. */
static void on_watchdog(void *)
{
    supervisor_say("WATCHDOG=1");
}

/* Logs that a part of the event loop could not be made. Returns -ENOMEM. */
static int fail_loop(void)
{
    log_error("the event loop cannot be set up: no memory, or no file "
              "descriptor (ulimit -n) is left");
    return -ENOMEM;
}

static int set_up(struct daemon *d, char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX];

    config_contents_read(d->config, &d->contents);
    int rc = daemon_admin_key(d->config, &d->admin_key, err);
    if (rc == 0)
        rc = daemon_certificates_load(d->config, &d->certificates, err);
    if (rc == 0)
        rc = bound_connections(d);
    if (rc)
        return rc;
    d->loop = loop_new();
    if (!d->loop)
        return fail_loop();
    d->models = models_new(d->loop, d->config, why);
    if (!d->models) {
        /* The configuration is at fault, or the machine. */
        if (models_check(d->config, err) == 0) {
            *err = '\0';
            log_error("%s", why);
        }
        return -EINVAL;
    }
    rc = open_front(d);
    if (rc == 0)
        daemon_certificates_show(d);
    if (rc)
        return rc;
    if (d->handed_over)
        hold(d);
    loop_signal_init(d->loop, &d->on_term, SIGTERM, on_stop, d);
    loop_signal_init(d->loop, &d->on_int, SIGINT, on_stop, d);
    loop_timer_init(d->loop, &d->drain, on_drain, d);
    if (supervisor_watchdog_us() > 0) {
        loop_timer_init(d->loop, &d->watchdog, on_watchdog, NULL);
        loop_timer_repeat(&d->watchdog, supervisor_watchdog_us() / 3);
    }
    loop_signal_init(d->loop, &d->on_hup, SIGHUP, daemon_on_hangup, d);
    /* The signals stay ignored when a watch has stopped: one more must not kill
     * a program that is ending. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    if (loop_watch_start(&d->on_term, 0) || loop_watch_start(&d->on_int, 0) ||
        loop_watch_start(&d->on_hup, 0))
        return fail_loop();
    return 0;
}

static void tear_down(struct daemon *d)
{
    /* First: no handler may run in the loop's last turn below. */
    loop_watch_stop(&d->on_term);
    loop_watch_stop(&d->on_int);
    loop_watch_stop(&d->on_hup);
    loop_timer_stop(&d->drain);
    loop_timer_stop(&d->watchdog);
    loop_timer_stop(&d->hold);
    front_free(d->front);
    models_free(d->models);
    secret_free(d->admin_key);
    daemon_certificates_free(&d->certificates);
    /* Deferred callbacks still hold look-ups that were given up. */
    if (d->loop)
        loop_turn(d->loop, 0);
    loop_free(d->loop);
}

/* A model's tables are larger than this, and mostly untouched. After some were
 * freed, glibc would take them from the heap: touched, and held for ever. */
#define MAPPED_BYTES (1 << 20)
#define TRIMMED_BYTES (16 << 20)

static void set_up_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIMMED_BYTES);
#endif
}

int daemon_run(struct config *config, daemon_read *read, void *read_arg,
               const char *ports_path, char err[CONFIG_ERROR_MAX])
{
    struct daemon d = {.config = config, .read = read, .read_arg = read_arg};
    struct address listen;

    *err = '\0';
    set_up_memory();
    signal(SIGHUP, SIG_IGN); /* until set_up() has it logged */
    signal(SIGPIPE, SIG_IGN);
    int rc = set_up(&d, err);
    if (rc == 0 && ports_path)
        rc = write_ports(&d, ports_path);
    if (rc)
        goto out;
    if (models_native(d.models))
        log_info("serving model %s, workers on port %u, policy %s",
                 service_model(models_native(d.models))->name,
                 models_worker_port(d.models), config->policy);
    (void)!address_parse(config->listen, &listen); /* as its option was */
    daemon_tell_who_may(config, listen.host);
    daemon_tell_idle(config);
    log_info("listening on %s, port %u%s", listen.host, front_port(d.front),
             d.certificates.clients ? ", with TLS" : "");
    supervisor_say("READY=1");
    loop_run(d.loop);
    log_info("stopped");
out:
    tear_down(&d);
    return rc;
}

int daemon_check(const struct config *config, char err[CONFIG_ERROR_MAX])
{
    struct secret *key;
    struct daemon_certificates certificates;
    int rc = daemon_admin_key(config, &key, err);

    if (rc)
        return rc;
    secret_free(key);
    rc = daemon_certificates_load(config, &certificates, err);
    if (rc)
        return rc;
    daemon_certificates_free(&certificates);
    rc = models_check(config, err);
    if (rc == 0)
        daemon_tell_idle(config);
    return rc;
}
