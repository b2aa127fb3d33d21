/* conductorctl drain, undrain and role: changes of one instance. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/options.h"
#include "tools/ctl/ctl.h"

static int change(struct ctl *ctl, const char *name, const char *what)
{
    char *path = ctl_instance_path(name, what), text[64];
    json_t *json;
    int rc = path ? ctl_ask(ctl, CTL_POST, path, &json) : 1;

    if (rc == 0) {
        printf("%s: %s\n", name, ctl_state(json, text, sizeof text));
        json_decref(json);
    }
    free(path);
    return rc;
}

/* Whether an operator's `name` names the instance or its entry. */
static bool is_meant(const json_t *instance, const char *name)
{
    return strcmp(ctl_member(instance, "name"), name) == 0 ||
           strcmp(ctl_member(instance, "entry"), name) == 0;
}

static bool has_role(const json_t *instance, const char *role)
{
    const char *its = ctl_member(instance, "role");

    return strcmp(its, role) == 0 || strcmp(its, "both") == 0;
}

/* Whether an instance of this model and role gets work. */
static bool any_ready(const json_t *list, const char *model, const char *role)
{
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        if (strcmp(ctl_member(one, "model"), model) == 0 &&
            strcmp(ctl_member(one, "state"), "ready") == 0 &&
            !json_is_true(json_object_get(one, "drained")) &&
            has_role(one, role))
            return true;
    }
    return false;
}

/* Warns if no instance does the work of the drained one. */
static void warn_of_last(const json_t *list, const char *name)
{
    static const char *const roles[] = {"prefill", "decode"};
    char model[128];
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        if (!is_meant(one, name))
            continue;
        for (size_t r = 0; r < 2; r++) {
            if (!has_role(one, roles[r]) ||
                any_ready(list, ctl_member(one, "model"), roles[r]))
                continue;
            options_complain(
                CTL_NAME,
                "warning: no %s instance of model %s is ready now: its "
                "requests get 503 until %s undrain %s",
                roles[r], ctl_show(one, "model", model, sizeof model), CTL_NAME,
                name);
            return;
        }
    }
}

/* Returns the work of the drained instances of a name; -1 = one was undrained.
 */
static json_int_t work_left(const json_t *list, const char *name)
{
    json_int_t left = 0;
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        json_int_t work = ctl_work(one);

        if (!is_meant(one, name))
            continue;
        if (!json_is_true(json_object_get(one, "drained")))
            return -1;
        left += work > 0 ? work : 0;
    }
    return left;
}

/* Warns once; with --wait, returns when no work is left. */
static int follow(struct ctl *ctl, const char *name)
{
    const struct timespec pause = {0, 200000000};
    json_int_t left = 0;
    json_t *json;

    for (bool first = true; first || (ctl->wait && left > 0); first = false) {
        if (!first)
            nanosleep(&pause, NULL);
        if (ctl_ask(ctl, CTL_GET, "/admin/instances", &json))
            return 1;
        const json_t *list = json_object_get(json, "instances");
        bool all = !json_integer_value(json_object_get(json, "left_out"));
        if (first && all)
            warn_of_last(list, name);
        left = work_left(list, name);
        json_decref(json);
        if (ctl->wait && !all)
            return options_complain(CTL_NAME,
                                    "--wait: not all instances are shown");
    }
    if (!ctl->wait)
        return 0;
    if (left < 0)
        return options_complain(CTL_NAME, "%s: was undrained", name);
    printf("%s: drained\n", name);
    return 0;
}

int ctl_drain(struct ctl *ctl, const struct option_list *words)
{
    char what[64] = "drain";

    if (ctl->limit_s > 0)
        snprintf(what, sizeof what, "drain?limit_ms=%.0f", ctl->limit_s * 1000);
    return change(ctl, words->items[1], what) || follow(ctl, words->items[1]);
}

int ctl_undrain(struct ctl *ctl, const struct option_list *words)
{
    return change(ctl, words->items[1], "undrain");
}

int ctl_role(struct ctl *ctl, const struct option_list *words)
{
    const char *role = words->items[2];

    if (strcmp(role, "prefill") != 0 && strcmp(role, "decode") != 0) {
        options_complain(CTL_NAME, "role: \"%.80s\": must be prefill or decode",
                         role);
        return OPTIONS_EXIT_USAGE;
    }
    return change(ctl, words->items[1],
                  strcmp(role, "prefill") == 0 ? "role/prefill"
                                               : "role/decode");
}
