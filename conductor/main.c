/* The program conductor: its command line. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "conductor/config/config.h"
#include "conductor/daemon.h"
#include "conductor/policy_text.h"

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
        "flight\nfor at most drain_limit_ms, and exit; a second one exits at "
        "once. SIGHUP reads\nthe configuration again; what cannot change "
        "while it runs is logged.\n"
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

/* Reports a fault of the configuration as a whole. */
static int fail_config(const struct command_line *cl, const char *text)
{
    /* The file is at fault only if the command line added nothing. */
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

    policy_options_help(POLICY_SET_BY_OPERATOR, policy_help);
    return options_start(&usage, &table, argc, argv, status);
}

/* Resolves the paths of files from the configuration's folder, except
 * access_log, which is written. */
static int anchor(struct config *c, const char *path,
                  char err[CONFIG_ERROR_MAX])
{
    char *const files[] = {c->cost_model,    c->secret_file,
                           c->engines_file,  c->admin_key_file,
                           c->tenants_file,  c->tls_certificate,
                           c->tls_key,       c->worker_tls_certificate,
                           c->worker_tls_key};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof(files) / sizeof(*files); i++)
        rc = config_anchor(files[i], path);
    if (rc == 0)
        rc = engine_list_anchor(&c->engines, path);
    if (rc == 0)
        rc = worker_cost_list_anchor(&c->worker_costs, path);
    return rc ? error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                          "the path of a file that the configuration names is "
                          "too long")
              : 0;
}

/* --set NAME=VALUE */
static int set(struct config *c, const char *text, char err[CONFIG_ERROR_MAX])
{
    const char *eq = strchr(text, '=');
    char name[64];

    if (!eq || (size_t)(eq - text) >= sizeof(name))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "--set: \"%.200s\": must be NAME=VALUE", text);
    snprintf(name, sizeof(name), "%.*s", (int)(eq - text), text);
    return config_set(c, name, eq + 1, err);
}

/* Reads the file and the command line's settings. As a daemon_read, but without
 * checking the result as a whole. */
static int read_parts(const struct command_line *cl, struct config *c,
                      char err[CONFIG_ERROR_MAX])
{
    int rc = 0;

    config_defaults(c);
    if (cl->config_path) {
        rc = config_load(c, cl->config_path, err);
        if (rc == 0)
            rc = anchor(c, cl->config_path, err);
    }
    for (size_t i = 0; rc == 0 && i < cl->sets.count; i++)
        rc = set(c, cl->sets.items[i], err);
    for (size_t i = 0; rc == 0 && i < cl->policy_options.count; i++)
        rc = config_policy_option(c, cl->policy_options.items[i], err);
    return rc;
}

/* A daemon_read. */
static int read_again(void *arg, struct config *c, char err[CONFIG_ERROR_MAX])
{
    int rc = read_parts(arg, c, err);

    if (rc == 0)
        rc = config_check(c, err);
    if (rc == 0)
        config_drop_rules(c);
    return rc;
}

/* Returns 0 or the exit status. */
static int read_config(const struct command_line *cl, struct config *c)
{
    char err[CONFIG_ERROR_MAX];

    if (read_parts(cl, c, err))
        return fail_usage(err);
    if (config_check(c, err))
        return fail_config(cl, err);
    log_init("conductor", c->log_level);
    log_set_format(c->log_format);
    config_drop_rules(c);
    return 0;
}

/* Returns the exit status. */
static int check_only(const struct command_line *cl, const struct config *c)
{
    char err[CONFIG_ERROR_MAX];

    if (daemon_check(c, err))
        return fail_config(cl, err);
    puts("configuration ok");
    return EXIT_SUCCESS;
}

static int run(struct command_line *cl, struct config *c)
{
    char err[CONFIG_ERROR_MAX];

    if (daemon_run(c, read_again, cl, cl->ports_path, err) == 0)
        return EXIT_SUCCESS;
    return *err ? fail_config(cl, err) : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct config config = {0};
    struct command_line cl = {0};
    int status = EXIT_FAILURE;

    log_init("conductor", LOG_INFO);
    cl.sets.items = calloc((size_t)argc, sizeof(*cl.sets.items));
    cl.policy_options.items = calloc((size_t)argc, sizeof(*cl.sets.items));
    bool go_on = cl.sets.items && cl.policy_options.items &&
                 !parse_command_line(argc, argv, &cl, &status);
    if (go_on && cl.reference)
        config_reference(stdout);
    else if (go_on)
        status = read_config(&cl, &config);
    if (go_on && !cl.reference && !status)
        status =
            cl.dump ? config_dump(&config, stdout) ? EXIT_FAILURE : EXIT_SUCCESS
            : cl.test ? check_only(&cl, &config)
                      : run(&cl, &config);
    config_fini(&config);
    free(cl.sets.items);
    free(cl.policy_options.items);
    return status;
}
