/* See rules.h. */
#include "tools/replay/study/compare/rules.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "sim/sim.h"

/* The value that the settings give an option, else its default. */
static double value_of(const struct policy_settings *settings,
                       const struct policy_option *option)
{
    for (size_t i = 0; i < settings->n; i++)
        if (strcmp(settings->at[i].name, option->name) == 0)
            return settings->at[i].value;
    return option->initial;
}

/* Whether 0 turns it off and 1 on. */
static bool is_switch(const struct policy_option *o)
{
    return o->whole && o->min >= 0.0 && o->min <= 0.0 && o->max >= 1.0 &&
           o->max <= 1.0;
}

/* Whether `name` is one of the words of `list`, which commas separate. */
static bool names_it(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

/* Adds the line of a policy without that option (NULL: as it is). */
static int add(struct replay_rules *r, const char *policy,
               const struct policy_settings *base,
               const struct policy_option *without)
{
    struct policy_settings *s = &r->settings[r->n];
    size_t i = 0;

    *s = *base;
    (void)snprintf(r->labels[r->n], sizeof(r->labels[0]), "%s%s%s%s", policy,
                   without ? " " : "", without ? without->name : "",
                   without ? "=0" : "");
    r->n++;
    if (!without)
        return 0;
    while (i < s->n && strcmp(s->at[i].name, without->name) != 0)
        i++;
    if (i == POLICY_SETTINGS_MAX)
        return -EINVAL;
    s->n = i < s->n ? s->n : s->n + 1;
    (void)snprintf(s->at[i].name, sizeof(s->at[i].name), "%s", without->name);
    s->at[i].value = 0.0;
    return 0;
}

/* How many words a list has. */
static size_t count_words(const char *list)
{
    size_t n = 1;

    for (const char *at = list; (at = strchr(at, ',')); at++)
        n++;
    return n;
}

int replay_rules_read(const char *text, const char *policy,
                      const struct policy_settings *base,
                      struct replay_rules *rules, struct replay_names *names,
                      char error[REPLAY_LIST_ERROR_BYTES])
{
    const struct schedule_policy *p = sim_policy(policy);
    bool switches = strcmp(text, "switches") == 0;
    int rc = add(rules, policy, base, NULL);

    for (size_t i = 0; rc == 0 && i < p->n_options; i++) {
        const struct policy_option *o = &p->options[i];
        bool wanted = switches ? is_switch(o) && value_of(base, o) > 0.0
                               : o->min <= 0.0 && names_it(text, o->name);

        if (wanted)
            rc = add(rules, policy, base, o);
    }
    if (rc != 0)
        return error_say(error, REPLAY_LIST_ERROR_BYTES, rc,
                         "--rules %.100s: more than %d options", text,
                         POLICY_SETTINGS_MAX);
    if (rules->n == 1 || (!switches && rules->n != count_words(text) + 1))
        return error_say(error, REPLAY_LIST_ERROR_BYTES, -EINVAL,
                         "--rules %.100s: must be switches, or options of %s "
                         "that can be 0, each once",
                         text, policy);
    names->count = rules->n;
    for (size_t i = 0; i < rules->n; i++)
        names->names[i] = rules->labels[i];
    return 0;
}
