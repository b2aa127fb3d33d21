/* conductorctl: queries a running conductor, and changes it. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/options.h"
#include "base/text.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/readings.h"
#include "tools/ctl/where.h"

static const struct option_usage usage = {
    .name = CTL_NAME,
    .synopsis = "[OPTIONS] COMMAND",
    .text =
        "Shows the state of a running conductor, and changes it.\n\n  status   "
        "          readiness, models, instances and requests\n  instances      "
        "    a line each: state, work, KV, prediction error\n  drain NAME      "
        "   stops requests to an instance; running ones\n                     "
        "finish, or are given up after --limit seconds\n  undrain NAME       "
        "sends the instance requests again\n  role NAME ROLE     makes a "
        "worker prefill or decode, once idle\n  replicas N PROMPT  makes N "
        "native workers hold a prompt's blocks\n  explain ID         why a "
        "request went to its instance\n  reload             reads the "
        "configuration again, lists changes\n  top                live: pools, "
        "instances, hits, TTFT; q quits\n  metrics [TEXT]     metrics, or "
        "those with TEXT in their line\n  diagnose           what is wrong, "
        "causes first, and where the remedy is",
    .examples =
        "  conductorctl status\n"
        "  conductorctl --address 10.0.0.1:8082 --key-file admin.key drain p3\n"
        "  conductorctl explain 7f1c8a54d2e90b63-12\n"
        "  conductorctl metrics rejections\n",
    .footnote =
        "\nThe address is --address; else the environment variable "
        "CONDUCTOR_ADDRESS; else\nadmin_listen, or listen if that is empty, "
        "of " CTL_CONFIG
        "\n(which root and the group conductor may read); else " CTL_ADDRESS
        ".\n\nExit status: 0 done; 1 the conductor refused, did not answer or "
        "(status) is not\nready, or (metrics) no line has TEXT, or "
        "(diagnose) something is wrong; 2 wrong\nusage, or (diagnose) the "
        "conductor cannot be asked.\n",
};

static int show_status(struct ctl *ctl, const struct option_list *)
{
    json_t *health, *ready;
    const json_t *of, *yes;
    const char *model;
    char a[32], b[32], c[32], d[32], name[257];

    if (ctl_ask(ctl, CTL_GET, "/health", &health))
        return 1;
    if (ctl_ask(ctl, CTL_GET, "/ready", &ready)) {
        json_decref(health);
        return 1;
    }
    bool is_ready = json_is_true(json_object_get(ready, "ready"));
    printf("status     %s\n", is_ready ? "ready" : "not ready");
    json_object_foreach(json_object_get(ready, "models"), model, yes)
    {
        snprintf(name, sizeof name, "%s", model);
        printf("model      %s: %sready\n", ctl_tame(name),
               json_is_true(yes) ? "" : "not ");
    }
    of = json_object_get(health, "instances");
    printf("instances  %s for prefill, %s for decode\n",
           ctl_show(of, "prefill", a, sizeof a),
           ctl_show(of, "decode", b, sizeof b));
    printf("           %s ready, %s starting, %s draining, %s suspect\n",
           ctl_show(of, "ready", a, sizeof a),
           ctl_show(of, "starting", b, sizeof b),
           ctl_show(of, "draining", c, sizeof c),
           ctl_show(of, "suspect", d, sizeof d));
    printf("requests   %s in work\n",
           ctl_show(health, "requests_in_flight", a, sizeof a));
    json_decref(health);
    json_decref(ready);
    return is_ready ? 0 : 1;
}

/* Returns the request body, or NULL after printing which word is wrong. */
static char *replicas_body(const char *copies, const char *prompt,
                           json_int_t *n)
{
    json_t *json = NULL;
    char *end, *body;

    *n = strtol(copies, &end, 10);
    if (*copies < '0' || *copies > '9' || *end)
        options_complain(
            CTL_NAME, "replicas: N: \"%.80s\": must be a whole number", copies);
    else if (!(json = json_pack("{s:I,s:s}", "copies", *n, "prompt", prompt)))
        options_complain(CTL_NAME, "replicas: PROMPT: must be text in UTF-8");
    body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return body;
}

/* Prints the orders. Returns how many of them are copies. */
static json_int_t show_orders(const json_t *orders)
{
    char a[32], b[128], c[128];
    json_int_t copies = 0;
    const json_t *one, *from;
    size_t i;

    json_array_foreach(orders, i, one)
    {
        from = json_object_get(one, "from");
        ctl_show(one, "blocks", a, sizeof a);
        ctl_show(one, "to", b, sizeof b);
        if (from)
            printf("copy: %s blocks, from %s to %s\n", a,
                   ctl_show(one, "from", c, sizeof c), b);
        else
            printf("drop: %s blocks, at %s\n", a, b);
        copies += from ? 1 : 0;
    }
    return copies;
}

static int replicas(struct ctl *ctl, const struct option_list *words)
{
    json_int_t wanted, there;
    char a[32], b[32];
    json_t *json;
    char *body = replicas_body(words->items[1], words->items[2], &wanted);
    int rc = body ? ctl_ask(ctl, body, "/admin/replicas", &json)
                  : OPTIONS_EXIT_USAGE;

    free(body);
    if (rc)
        return rc;
    there = json_integer_value(json_object_get(json, "holders"));
    printf("%s blocks: %s %s\n", ctl_show(json, "blocks", a, sizeof a),
           ctl_show(json, "holders", b, sizeof b),
           there == 1 ? "worker holds them" : "workers hold them");
    there += show_orders(json_object_get(json, "orders"));
    if (there < wanted)
        printf("not %" JSON_INTEGER_FORMAT
               ": no other prefill worker can take a copy now\n",
               wanted);
    json_decref(json);
    return 0;
}

static void print_list(const char *title, const json_t *list)
{
    char text[64];
    const json_t *one;
    size_t i;

    printf("%s:", title);
    json_array_foreach(list, i, one)
    {
        snprintf(text, sizeof text, "%s",
                 json_is_string(one) ? json_string_value(one) : "?");
        printf(" %s", ctl_tame(text));
    }
    printf("%s\n", json_array_size(list) == 0 ? " nothing" : "");
}

static int reload(struct ctl *ctl, const struct option_list *)
{
    json_t *json;

    if (ctl_ask(ctl, CTL_POST, "/admin/reload", &json))
        return 1;
    print_list("taken", json_object_get(json, "taken"));
    print_list("needs a restart", json_object_get(json, "needs_restart"));
    json_decref(json);
    return 0;
}

/* Appends the sample of a line, if it is one. */
static void append_sample(json_t *list, const char *line)
{
    struct samples one;
    char *copy = strdup(line);

    if (!copy || samples_cut(copy, &one))
        return;
    if (one.n == 1)
        json_array_append_new(list, sample_json(&one.all[0]));
    samples_free(&one);
}

static int show_metrics(struct ctl *ctl, const struct option_list *words)
{
    const char *part = words->count > 1 ? words->items[1] : NULL;
    json_t *list = json_array();
    char *text, *at, *line;
    bool found = false;

    if (ctl_text(ctl, "/metrics", &text, NULL)) {
        json_decref(list);
        return 1;
    }
    at = text;
    while ((line = strsep(&at, "\n")))
        if (*line && (part ? *line != '#' && strstr(line, part) : true)) {
            if (ctl->json)
                append_sample(list, line);
            else
                printf("%s\n", ctl_tame(line));
            found = true;
        }
    free(text);
    if (ctl->json && found) {
        /* /metrics has 15 digits, too. */
        json_dumpf(list, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
        printf("\n");
    }
    json_decref(list);
    if (!found)
        options_complain(
            CTL_NAME, "metrics: \"%s\": in no line; without TEXT all are shown",
            part ? part : "");
    return found ? 0 : 1;
}

static const struct command {
    const char *name;
    int (*run)(struct ctl *ctl, const struct option_list *words);
    size_t least, most; /* words after the command */
    const char *needs;  /* these words, for the error message */
} commands[] = {
    {"status", show_status, 0, 0, ""},
    {"instances", ctl_instances, 0, 0, ""},
    {"drain", ctl_drain, 1, 1, "NAME"},
    {"undrain", ctl_undrain, 1, 1, "NAME"},
    {"role", ctl_role, 2, 2, "NAME and prefill or decode"},
    {"replicas", replicas, 2, 2, "N and PROMPT"},
    {"explain", ctl_explain, 1, 1, "ID"},
    {"reload", reload, 0, 0, ""},
    {"top", ctl_top, 0, 0, ""},
    {"metrics", show_metrics, 0, 1, "TEXT"},
    {"diagnose", ctl_diagnose, 0, 0, ""},
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

/* Refuses the name of a command that there is not. The nearest one differs in
 * at most half of the letters: two that changed places differ in two. */
static void refuse_unknown(const char *name)
{
    size_t n = strlen(name), least = n / 2 + 1;
    const char *nearest = NULL;

    for (size_t i = 0; i < N_COMMANDS; i++)
        if (text_nearer(name, n, commands[i].name, strlen(commands[i].name),
                        &least))
            nearest = commands[i].name;
    if (nearest)
        options_complain(CTL_NAME, "\"%s\": no such command: did you mean %s?",
                         name, nearest);
    else
        options_complain(CTL_NAME, "\"%s\": no such command; try %s --help",
                         name, CTL_NAME);
}

/* Returns whether each option that is set is one of the command's; else prints
 * which is not. */
static bool may_have(const struct ctl *ctl, const char *command)
{
    const struct {
        const char *option;
        bool set;
        const char *commands[5]; /* NULL after the last */
    } all[] = {
        {"bundle", ctl->bundle, {"diagnose"}},
        {"json", ctl->json, {"diagnose", "explain", "instances", "metrics"}},
        {"limit", ctl->limit_s > 0, {"drain"}},
        {"log", ctl->log, {"diagnose"}},
        {"once", ctl->once, {"top"}},
        {"wait", ctl->wait, {"drain"}},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const char *const *of = all[i].commands;

        while (*of && strcmp(*of, command) != 0)
            of++;
        if (all[i].set && !*of) {
            options_complain(CTL_NAME,
                             "--%s: %s has no such option; try %s "
                             "--help",
                             all[i].option, command, CTL_NAME);
            return false;
        }
    }
    return true;
}

/* Returns the command of the words, or NULL after printing the error. */
static const struct command *find(const struct ctl *ctl,
                                  const struct option_list *words)
{
    const char *name = words->count ? words->items[0] : "";
    const struct command *c = NULL;

    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            c = &commands[i];
    if (words->count == 0)
        options_complain(CTL_NAME, "a command is missing; %s --help lists them",
                         CTL_NAME);
    else if (!c)
        refuse_unknown(name);
    else if (words->count < 1 + c->least)
        options_complain(CTL_NAME, "%s: needs %s", name, c->needs);
    else if (words->count > 1 + c->most)
        options_complain(CTL_NAME, "%s: \"%s\": too many words", name,
                         words->items[words->count - 1]);
    else if (may_have(ctl, name))
        return c;
    return NULL;
}

static int run(struct ctl *ctl, const struct command *command,
               const struct option_list *words, const char *key_file,
               const char *ca_file)
{
    char error[300];
    int rc;

    if (key_file &&
        replay_server_key(&ctl->server, key_file, error, sizeof error))
        return options_complain(CTL_NAME, "--key-file: %s", error);
    if (ca_file && !ctl->server.https) {
        options_complain(CTL_NAME, "--ca-file: only with https://");
        return OPTIONS_EXIT_USAGE;
    }
    if (replay_server_trust(&ctl->server, ca_file ? ca_file : "", false, error,
                            sizeof error))
        return options_complain(CTL_NAME, "--ca-file: %s", error);
    ctl->loop = loop_new();
    if (!ctl->loop)
        return 1;
    rc = command->run(ctl, words);
    loop_free(ctl->loop);
    replay_server_fini(&ctl->server);
    return fflush(stdout) ? 1 : rc;
}

int main(int argc, char **argv)
{
    const char *address = NULL, *ca_file = NULL;
    struct option_list words = {0};
    const char *key_file = NULL;
    double timeout_s = 30;
    struct ctl ctl = {.over_s = 5, .config = CTL_CONFIG};
    char why[600];
    const struct option_spec specs[] = {
        {"address", OPTION_TEXT, &address, "HOST:PORT", 0, 0,
         "the conductor's address for operators (admin_listen, or listen); "
         "https://HOST:PORT with admin_tls (default: see below)",
         .letter = 'a'},
        {"bundle", OPTION_OUTPUT, &ctl.bundle, "FILE", 0, 0,
         "diagnose: write a report without prompts and keys"},
        {"ca-file", OPTION_TEXT, &ca_file, "FILE", 0, 0,
         "https: PEM with the certificate authorities to trust (default: the "
         "machine's)"},
        {"config", OPTION_TEXT, &ctl.config, "FILE", 0, 0,
         "diagnose: configuration for the bundle"},
        {"json", OPTION_FLAG, &ctl.json, NULL, 0, 0,
         "diagnose, explain, instances, metrics: print JSON"},
        {"key-file", OPTION_TEXT, &key_file, "FILE", 0, 0,
         "file with the key of the conductor's admin_key_file", .letter = 'k'},
        {"limit", OPTION_NUMBER, &ctl.limit_s, "S", 0.001, 86400,
         "drain: seconds that running requests get to finish (default no "
         "limit)"},
        {"log", OPTION_TEXT, &ctl.log, "FILE", 0, 0,
         "diagnose: log whose end the bundle has"},
        {"once", OPTION_FLAG, &ctl.once, NULL, 0, 0,
         "top: print one frame and exit"},
        {"over", OPTION_NUMBER, &ctl.over_s, "S", 0.1, 600,
         "diagnose: seconds between two readings"},
        {"timeout", OPTION_NUMBER, &timeout_s, "S", 0.1, 3600,
         "time limit for an answer, in seconds"},
        {"wait", OPTION_FLAG, &ctl.wait, NULL, 0, 0,
         "drain: return when the instance has no work left"},
        {"", OPTION_LIST, &words, NULL, 0, 0, NULL},
    };
    int status;

    words.items = calloc((size_t)argc, sizeof(*words.items));
    if (!words.items)
        return 1;
    if (options_start(&usage, OPTION_TABLE(specs), argc, argv, &status) == 0) {
        const struct command *command = find(&ctl, &words);

        signal(SIGPIPE, SIG_IGN);
        ctl.timeout_us = (int64_t)(timeout_s * 1e6);
        status = OPTIONS_EXIT_USAGE;
        if (command &&
            ctl_where(address, getenv("CONDUCTOR_ADDRESS"), CTL_CONFIG,
                      &ctl.server, ctl.from, why, sizeof why)) {
            options_complain(CTL_NAME, "%s", why);
        } else if (command) {
            if (*why)
                options_complain(CTL_NAME, "%s", why);
            ctl.server.has_options = true;
            status = run(&ctl, command, &words, key_file, ca_file);
        }
    }
    free(words.items);
    return status;
}
