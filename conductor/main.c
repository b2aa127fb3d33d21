/* The program conductor: its command line. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/options.h"
#include "conductor/config/config.h"
#include "conductor/config/policy_text.h"
#include "conductor/daemon.h"

static void explain_policies(FILE *out)
{
    policy_options_list(POLICY_SET_BY_OPERATOR, out);
}

static const struct option_usage usage = {
    .name = "conductor",
    .synopsis = "[OPTIONS]",
    .text = "Stands in front of the engines of an LLM cluster, and sends each "
            "request to the\none that holds its prompt's KV cache or answers "
            "first.",
    .examples = "  conductor --engine http://127.0.0.1:8001 --engine "
                "http://127.0.0.1:8002\n"
                "  conductor --config-example > conductor.json\n"
                "  conductor -c conductor.json -s log_level=debug\n",
    .topic = POLICY_OPTION_TOPIC,
    .explain = explain_policies,
    .footnote =
        "\nSignals: SIGTERM and SIGINT stop taking requests, let running ones "
        "finish\nfor at most drain_limit_ms, and exit; a second signal exits "
        "at once. SIGHUP reads\nthe configuration again and logs the options "
        "that need a restart.\n\nExit status: 0 done, 1 could not run, 2 bad "
        "options or configuration.\n",
};

struct command_line {
    const char *config_path, *ports_path, *listen;
    struct option_list configs, engines, sets, policy_options, words;
    bool test, dump, reference, example;
    char *piped; /* configuration that came by a pipe, owned; NULL = none */
    size_t n_piped;
};

static int fail_usage(const char *text)
{
    return options_complain(usage.name, "%s\ntry conductor --help", text);
}

/* Reports a word that is no option. */
static int refuse_word(const char *word)
{
    bool is_url = strncmp(word, "http", 4) == 0 || strchr(word, ':');

    if (!is_url)
        return options_complain(
            usage.name, "unexpected argument '%s'\ntry conductor --help", word);
    return options_complain(
        usage.name, "unexpected argument '%s': name an engine by --engine %s",
        word, word);
}

/* Reports a fault of the configuration as a whole. */
static int fail_config(const struct command_line *cl, const char *text)
{
    /* The file is at fault only if the command line added nothing. */
    bool of_file = cl->config_path && cl->engines.count == 0 &&
                   cl->sets.count == 0 && cl->policy_options.count == 0;

    return options_complain(usage.name, "%s%s%s",
                            of_file ? cl->config_path : "", of_file ? ": " : "",
                            text);
}

/* Returns 0 to go on, or -1 with the exit status in *status. */
static int parse_command_line(int argc, char **argv, struct command_line *cl,
                              int *status)
{
    const struct option_spec specs[] = {
        {"engine", OPTION_LIST, &cl->engines, "[NAME=]URL", 0, 0,
         "add an engine: vLLM, SGLang or another server of OpenAI's API, which "
         "is asked for its model, its blocks and its KV events; may be "
         "repeated",
         .letter = 'e'},
        {"listen", OPTION_TEXT, &cl->listen, "HOST:PORT", 0, 0,
         "serve clients there", .letter = 'l'},
        {"config", OPTION_LIST, &cl->configs, "FILE", 0, 0,
         "read this configuration: JSON, comments allowed; - = from standard "
         "input",
         .letter = 'c'},
        {"set", OPTION_LIST, &cl->sets, "NAME=VALUE", 0, 0,
         "set one option, over the file's value; may be repeated",
         .letter = 's'},
        {"policy-option", OPTION_LIST, &cl->policy_options, "NAME=NUMBER", 0, 0,
         POLICY_OPTION_HELP},
        {"test", OPTION_FLAG, &cl->test, NULL, 0, 0,
         "check the configuration and exit", .letter = 't'},
        {"config-example", OPTION_FLAG, &cl->example, NULL, 0, 0,
         "print a configuration with all options explained, and exit"},
        {"dump-config", OPTION_FLAG, &cl->dump, NULL, 0, 0,
         "print the configuration in force and exit"},
        {"config-reference", OPTION_FLAG, &cl->reference, NULL, 0, 0,
         "print all options as a Markdown table and exit"},
        {"ports-file", OPTION_TEXT, &cl->ports_path, "FILE", 0, 0,
         "write the bound ports to FILE as JSON, for port 0"},
        {"", OPTION_LIST, &cl->words, "", 0, 0, ""}, /* refused below */
    };
    const struct option_table table = {specs, sizeof(specs) / sizeof(*specs)};

    if (options_start(&usage, &table, argc, argv, status))
        return -1;

    if (cl->words.count > 0)
        *status = refuse_word(cl->words.items[0]);
    else if (cl->configs.count > 1)
        *status = options_complain(
            usage.name, "--config: comes twice, with %s and %s: name one file",
            cl->configs.items[0], cl->configs.items[1]);
    else
        *status = 0;
    if (cl->configs.count > 0)
        cl->config_path = cl->configs.items[0];
    return *status ? -1 : 0;
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

/* Whether the configuration comes by a pipe, which can be read once. */
static bool is_pipe(const char *path)
{
    struct stat about;

    return strcmp(path, "-") == 0 ||
           (stat(path, &about) == 0 &&
            (S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode)));
}

static int read_pipe(struct command_line *cl, char err[CONFIG_ERROR_MAX])
{
    bool standard = strcmp(cl->config_path, "-") == 0;
    int fd =
        standard ? STDIN_FILENO : open(cl->config_path, O_RDONLY | O_CLOEXEC);
    int rc =
        fd < 0 ? -errno
               : file_read_pipe(fd, CONFIG_FILE_MAX, &cl->piped, &cl->n_piped);

    if (fd >= 0 && !standard)
        close(fd);
    if (rc == -EFBIG)
        return error_say(err, CONFIG_ERROR_MAX, rc, "%s: larger than %u bytes",
                         cl->config_path, CONFIG_FILE_MAX);
    if (rc)
        return error_say(err, CONFIG_ERROR_MAX, rc, "%s: %s", cl->config_path,
                         file_why(rc));
    fields_blank_extras(cl->piped, cl->n_piped);
    return 0;
}

static int load(struct command_line *cl, struct config *c,
                char err[CONFIG_ERROR_MAX])
{
    int rc = 0;

    if (!is_pipe(cl->config_path))
        return config_load(c, cl->config_path, err);
    if (cl->piped)
        log_warn("%s: came by a pipe and is not read again", cl->config_path);
    else
        rc = read_pipe(cl, err);
    return rc ? rc : config_parse(c, cl->piped, cl->n_piped, err);
}

/* Adds the engines of the command line. With engines native workers are not
 * waited for, unless the configuration says where. */
static int add_engines(const struct command_line *cl, struct config *c,
                       char err[CONFIG_ERROR_MAX])
{
    int rc = 0;

    if (cl->engines.count > 0 && !c->worker_listen_given)
        c->worker_listen[0] = '\0';
    for (size_t i = 0; rc == 0 && i < cl->engines.count; i++)
        rc = engine_list_add(&c->engines, cl->engines.items[i], err,
                             CONFIG_ERROR_MAX);
    return rc;
}

/* Reads the file and the command line's settings. As a daemon_read, but without
 * checking the result as a whole. */
static int read_parts(struct command_line *cl, struct config *c,
                      char err[CONFIG_ERROR_MAX])
{
    int rc = 0;

    config_defaults(c);
    if (cl->config_path) {
        rc = load(cl, c, err);
        if (rc == 0 && !cl->piped)
            rc = anchor(c, cl->config_path, err);
    }
    if (rc == 0)
        rc = add_engines(cl, c, err);
    if (rc == 0 && cl->listen)
        rc = config_set(c, "listen", cl->listen, err);
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
static int read_config(struct command_line *cl, struct config *c)
{
    char err[CONFIG_ERROR_MAX];

    if (!cl->config_path && cl->engines.count == 0 && cl->sets.count == 0 &&
        !cl->dump)
        return fail_usage(
            "no engine is named: name each by --engine URL, or all in a file "
            "by --config FILE\n"
            "  conductor --engine http://127.0.0.1:8000\n"
            "  conductor --config-example > conductor.json");
    if (read_parts(cl, c, err))
        return options_complain(usage.name, "%s", err);
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
    cl.configs.items = calloc((size_t)argc, sizeof(*cl.sets.items));
    cl.words.items = calloc((size_t)argc, sizeof(*cl.sets.items));
    cl.engines.items = calloc((size_t)argc, sizeof(*cl.sets.items));
    cl.sets.items = calloc((size_t)argc, sizeof(*cl.sets.items));
    cl.policy_options.items = calloc((size_t)argc, sizeof(*cl.sets.items));
    bool go_on = cl.configs.items && cl.words.items && cl.engines.items &&
                 cl.sets.items && cl.policy_options.items &&
                 !parse_command_line(argc, argv, &cl, &status);
    if (go_on && cl.reference)
        config_reference(stdout);
    else if (go_on && cl.example)
        config_example(stdout);
    else if (go_on)
        status = read_config(&cl, &config);
    if (go_on && !cl.reference && !cl.example && !status)
        status =
            cl.dump ? config_dump(&config, stdout) ? EXIT_FAILURE : EXIT_SUCCESS
            : cl.test ? check_only(&cl, &config)
                      : run(&cl, &config);
    config_fini(&config);
    free(cl.piped);
    free(cl.configs.items);
    free(cl.words.items);
    free(cl.engines.items);
    free(cl.sets.items);
    free(cl.policy_options.items);
    return status;
}
