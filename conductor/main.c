/* The program conductor: command line, signals, and the loop. */
#include <errno.h>
#include <event2/event.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/event_loop.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/options.h"
#include "base/secret.h"
#include "conductor/config/config.h"
#include "conductor/front/front.h"
#include "conductor/policy_text.h"
#include "conductor/service/setup.h"

#define MAX_DRAIN_S 30
/* Listeners, files, and strangers on the workers' port. */
#define RESERVED_DESCRIPTORS 128
#define TICKS_PER_S 20 /* looks at whether it has drained */

struct daemon {
    struct event_base *base;
    struct config config;
    struct secret *admin_key; /* NULL: none */
    struct models *models;
    struct front *front;
    struct event *on_term, *on_int, *on_hup, *drain;
    int drain_ticks;
};

static const struct option_usage usage = {
    .name = "conductor",
    .synopsis = "[OPTIONS]",
    .text = "Schedules requests over the prefill and decode workers of an LLM "
            "cluster\nand serves them through the OpenAI API.",
    .examples = "  conductor --config conductor.json\n"
                "  conductor -c conductor.json -s policy=local_cache "
                "-s log_level=debug\n"
                "  conductor -t -c conductor.json\n",
    .footnote =
        "\nSignals: SIGTERM and SIGINT stop taking requests, finish those in "
        "flight\nfor at most 30 s, and exit; a second one exits at once. "
        "SIGHUP reads tenants_file again.\n"
        "\nExit status: 0 done, 1 could not run, 2 bad options or "
        "configuration.\n",
};

struct command_line {
    const char *config_path, *ports_path;
    struct option_list sets, policy_options;
    bool test, dump, reference;
};

static int fail_usage(const char *text)
{
    return options_complain(usage.name, "%s\ntry conductor --help", text);
}

/* What is wrong with the configuration as a whole. */
static int fail_config(const struct command_line *cl, const char *text)
{
    /* What the file alone says; the command line may have added to it. */
    bool of_file =
        cl->config_path && cl->sets.count == 0 && cl->policy_options.count == 0;

    return options_complain(usage.name, "%s%s%s\ntry conductor --help",
                            of_file ? cl->config_path : "", of_file ? ": " : "",
                            text);
}

/* Returns 0 to go on, or -1 with the exit status in *status. */
static int parse_command_line(int argc, char **argv, struct command_line *cl,
                              int *status)
{
    char policy_help[POLICY_TEXT_BYTES];
    const struct option_spec specs[] = {
        {"config", OPTION_TEXT, &cl->config_path, "FILE", 0, 0,
         "read this configuration (JSON)", .letter = 'c'},
        {"set", OPTION_LIST, &cl->sets, "NAME=VALUE", 0, 0,
         "set one option over the file; may be repeated", .letter = 's'},
        {"policy-option", OPTION_LIST, &cl->policy_options, "NAME=NUMBER", 0, 0,
         policy_help},
        {"test", OPTION_FLAG, &cl->test, NULL, 0, 0,
         "check the configuration and exit", .letter = 't'},
        {"dump-config", OPTION_FLAG, &cl->dump, NULL, 0, 0,
         "print the configuration in force and exit"},
        {"config-reference", OPTION_FLAG, &cl->reference, NULL, 0, 0,
         "print all options as a Markdown table and exit"},
        {"ports-file", OPTION_TEXT, &cl->ports_path, "FILE", 0, 0,
         "write the bound ports as JSON, for port 0"},
    };
    const struct option_table table = {specs, sizeof(specs) / sizeof(*specs)};

    policy_options_help(policy_help);
    return options_start(&usage, &table, argc, argv, status);
}

static int read_config(const struct command_line *cl, struct config *c)
{
    char err[CONFIG_ERROR_MAX];

    config_defaults(c);
    if (cl->config_path) {
        if (config_load(c, cl->config_path, err))
            return fail_usage(err);
        if (config_anchor(c->cost_model, cl->config_path) ||
            config_anchor(c->secret_file, cl->config_path) ||
            config_anchor(c->engines_file, cl->config_path) ||
            config_anchor(c->admin_key_file, cl->config_path) ||
            config_anchor(c->tenants_file, cl->config_path) ||
            engine_list_anchor(&c->engines, cl->config_path) ||
            worker_cost_list_anchor(&c->worker_costs, cl->config_path))
            return fail_usage("the path of a file that the configuration names "
                              "is too long");
    }
    for (size_t i = 0; i < cl->sets.count; i++) {
        const char *set = cl->sets.items[i], *eq = strchr(set, '=');
        char name[64];

        if (!eq || (size_t)(eq - set) >= sizeof(name)) {
            snprintf(err, sizeof(err), "--set: \"%.200s\": must be NAME=VALUE",
                     set);
            return fail_usage(err);
        }
        snprintf(name, sizeof(name), "%.*s", (int)(eq - set), set);
        if (config_set(c, name, eq + 1, err))
            return fail_usage(err);
    }
    for (size_t i = 0; i < cl->policy_options.count; i++)
        if (config_policy_option(c, cl->policy_options.items[i], err))
            return fail_usage(err);
    if (config_check(c, err))
        return fail_config(cl, err);
    log_init("conductor", c->log_level);
    return 0;
}

static int write_ports(const struct daemon *d, const char *path)
{
    char next[4096];

    snprintf(next, sizeof(next), "%s.next", path);
    FILE *f = fopen(next, "w");
    if (!f) {
        log_error("--ports-file %s: %s", path, strerror(errno));
        return -1;
    }
    fprintf(f, "{\"http\": %u, \"worker\": %u}\n", front_port(d->front),
            models_worker_port(d->models));
    /* A program that waits for the file never reads half of it. */
    if (fclose(f) || rename(next, path)) {
        log_error("--ports-file %s: %s", path, strerror(errno));
        return -1;
    }
    return 0;
}

static void on_drain(evutil_socket_t, short, void *arg)
{
    struct daemon *d = arg;

    bool drained = front_drained(d->front);
    if (!drained && d->drain_ticks++ < MAX_DRAIN_S * TICKS_PER_S)
        return;
    if (!drained)
        log_warn("giving up after %d s; %zu requests are cut off", MAX_DRAIN_S,
                 front_in_flight(d->front));
    event_base_loopbreak(d->base);
}

static void on_stop(evutil_socket_t, short, void *arg)
{
    struct daemon *d = arg;

    if (event_pending(d->drain, EV_TIMEOUT, NULL)) {
        event_base_loopbreak(d->base);
        return;
    }
    log_info("stopping; %zu requests in flight", front_in_flight(d->front));
    front_stop(d->front);
    event_loop_wait(d->drain, 1000000 / TICKS_PER_S);
}

/* All else that it could read again needs a restart. */
static void on_hangup(evutil_socket_t, short, void *arg)
{
    const struct daemon *d = arg;

    models_reload(d->models);
}

/* Clients may not take the descriptors that workers and files need. */
static int bound_connections(struct config *c)
{
    int64_t limit = (int64_t)descriptors_raise();
    int64_t others = c->max_instances + RESERVED_DESCRIPTORS;

    /* Each client may need a connection to an engine. */
    if (c->engines.given || *c->engines_file)
        limit = others + (limit - others) / 2;
    if (limit <= others) {
        log_error("open files: the limit of %lld (ulimit -n) leaves none for "
                  "clients beside %lld for max_instances and the daemon itself",
                  (long long)limit, (long long)others);
        return -EMFILE;
    }
    if (c->max_connections > limit - others) {
        log_warn("max_connections: %lld instead of %lld: no more than %lld "
                 "files may be open (ulimit -n)",
                 (long long)(limit - others), (long long)c->max_connections,
                 (long long)limit);
        c->max_connections = limit - others;
    }
    return 0;
}

/* Returns 0, or the exit status after a complaint. */
static int load_admin_key(const struct command_line *cl, const struct config *c,
                          struct secret **key)
{
    char err[CONFIG_ERROR_MAX], why[CONFIG_ERROR_MAX - 32];

    if (secret_load(c->admin_key_file, key, why, sizeof(why)) == 0)
        return 0;
    snprintf(err, sizeof(err), "admin_key_file: %s", why);
    return fail_config(cl, err);
}

static int open_front(struct daemon *d)
{
    struct front_options o;
    struct address listen;

    front_options_default(&o);
    o.admin_key = d->admin_key;
    if (address_parse(d->config.listen, &listen))
        return -EINVAL;
    o.http.host = listen.host;
    o.http.port = listen.port;
    o.http.max_connections = (size_t)d->config.max_connections;
    o.http.max_body_total_bytes = (size_t)d->config.max_body_total_bytes;
    o.http.max_body_bytes = (size_t)d->config.max_body_bytes;
    o.keepalive_us = d->config.keepalive_ms * 1000;
    o.cache_salt_header = d->config.cache_salt_header;
    o.priority_header = d->config.priority_header;
    o.tenant_header = d->config.tenant_header;
    /* A batch that could never be in flight as a whole is refused as such. */
    if (o.limits.max_prompts > (size_t)d->config.max_in_flight)
        o.limits.max_prompts = (size_t)d->config.max_in_flight;
    int rc = front_new(d->base, d->models, &o, &d->front);
    if (rc)
        log_error("listen: %s: %s", d->config.listen,
                  rc == -EADDRNOTAVAIL
                      ? "no host of that name is found, or it is not this one"
                      : strerror(-rc));
    return rc;
}

/* Returns 0, a negative errno, or the exit status for a bad configuration. */
static int set_up(const struct command_line *cl, struct daemon *d)
{
    char err[CONFIG_ERROR_MAX], why[CONFIG_ERROR_MAX];

    int rc = load_admin_key(cl, &d->config, &d->admin_key);
    if (rc == 0)
        rc = bound_connections(&d->config);
    if (rc)
        return rc;
    d->base = event_loop_new(1);
    if (!d->base)
        return -ENOMEM;
    d->models = models_new(d->base, &d->config, err);
    if (!d->models) {
        /* Because of the configuration, or of the machine. */
        if (models_check(&d->config, why))
            return fail_config(cl, why);
        log_error("%s", err);
        return -EINVAL;
    }
    rc = open_front(d);
    if (rc)
        return rc;
    d->on_term = evsignal_new(d->base, SIGTERM, on_stop, d);
    d->on_int = evsignal_new(d->base, SIGINT, on_stop, d);
    d->drain = event_new(d->base, -1, EV_PERSIST, on_drain, d);
    d->on_hup = evsignal_new(d->base, SIGHUP, on_hangup, d);
    if (!d->on_term || !d->on_int || !d->on_hup || !d->drain ||
        event_add(d->on_term, NULL) || event_add(d->on_int, NULL) ||
        event_add(d->on_hup, NULL))
        return -ENOMEM;
    return 0;
}

static void tear_down(struct daemon *d)
{
    /* First: none may be called in the loop's last turn below. */
    event_loop_drop(d->on_term);
    event_loop_drop(d->on_int);
    event_loop_drop(d->on_hup);
    event_loop_drop(d->drain);
    front_free(d->front);
    models_free(d->models);
    secret_free(d->admin_key);
    /* Callbacks that were put off still hold the connections to engines. */
    if (d->base) {
        event_base_loop(d->base, EVLOOP_NONBLOCK);
        event_base_free(d->base);
    }
}

static int run(const struct command_line *cl, struct daemon *d)
{
    int status = EXIT_FAILURE;
    struct address listen;

    signal(SIGHUP, SIG_IGN); /* until set_up() has it logged */
    signal(SIGPIPE, SIG_IGN);
    int rc = set_up(cl, d);
    if (rc > 0)
        status = rc;
    if (rc || (cl->ports_path && write_ports(d, cl->ports_path)))
        goto out;
    if (models_native(d->models))
        log_info("serving model %s, workers on port %u, policy %s",
                 service_model(models_native(d->models))->name,
                 models_worker_port(d->models), d->config.policy);
    (void)address_parse(d->config.listen, &listen);
    log_info("listening on %s, port %u", listen.host, front_port(d->front));
    event_base_dispatch(d->base);
    log_info("stopped");
    status = EXIT_SUCCESS;
out:
    tear_down(d);
    return status;
}

static int check_only(const struct command_line *cl, const struct config *c)
{
    char err[CONFIG_ERROR_MAX];
    struct secret *key;
    int rc = load_admin_key(cl, c, &key);

    if (rc)
        return rc;
    secret_free(key);
    if (models_check(c, err))
        return fail_config(cl, err);
    puts("configuration ok");
    return EXIT_SUCCESS;
}

/* The tables of a model are above this size, and mostly untouched. glibc would
 * take them from the heap once some were freed: touched, and held for ever. */
#define MAPPED_BYTES (1 << 20)
#define TRIMMED_BYTES (16 << 20)

static void set_up_memory(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, TRIMMED_BYTES);
#endif
}

int main(int argc, char **argv)
{
    struct daemon d = {0};
    struct command_line cl = {0};
    int status = EXIT_FAILURE;

    set_up_memory();
    log_init("conductor", LOG_INFO);
    cl.sets.items = calloc((size_t)argc, sizeof(*cl.sets.items));
    cl.policy_options.items = calloc((size_t)argc, sizeof(*cl.sets.items));
    bool go_on = cl.sets.items && cl.policy_options.items &&
                 !parse_command_line(argc, argv, &cl, &status);
    if (go_on && cl.reference)
        config_reference(stdout);
    else if (go_on)
        status = read_config(&cl, &d.config);
    free(cl.sets.items);
    free(cl.policy_options.items);
    if (go_on && !cl.reference && !status)
        status = cl.dump   ? config_dump(&d.config, stdout) ? EXIT_FAILURE
                                                            : EXIT_SUCCESS
                 : cl.test ? check_only(&cl, &d.config)
                           : run(&cl, &d);
    config_fini(&d.config);
    return status;
}
