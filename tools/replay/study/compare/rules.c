/* A policy without each of its rules; see compare.h. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "sim/sim.h"
#include "tools/replay/study/compare/compare.h"

/* Returns an option's value in the settings, else its default. */
static double value_of(const struct policy_settings *settings,
                       const struct policy_option *option)
{
    for (size_t i = 0; i < settings->n; i++)
        if (strcmp(settings->at[i].name, option->name) == 0)
            return settings->at[i].value;
    return option->initial;
}

/* Returns whether the option is a switch: 0 or 1. */
static bool is_switch(const struct policy_option *o)
{
    return o->whole && o->min >= 0.0 && o->min <= 0.0 && o->max >= 1.0 &&
           o->max <= 1.0;
}

/* Returns whether `name` is in `list`, which is comma-separated. */
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

/* Adds the line of a policy without an option; NULL = the policy as it is. */
static int add(struct replay_rules *r, const char *policy,
               const struct policy_settings *base,
               const struct policy_option *without)
{
    struct policy_settings *s = &r->settings[r->n];
    size_t i = 0;

    *s = *base;
    snprintf(r->labels[r->n], sizeof(r->labels[0]), "%s%s%s%s", policy,
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
    snprintf(s->at[i].name, sizeof(s->at[i].name), "%s", without->name);
    s->at[i].value = 0.0;
    return 0;
}

static bool can_be_off(const struct policy_option *o)
{
    return o->min <= 0.0;
}

/* Returns the option named by a word of n bytes; NULL = none that can be 0. */
static const struct policy_option *option_of(const struct schedule_policy *p,
                                             const char *word, size_t n)
{
    for (size_t i = 0; i < p->n_options; i++)
        if (strncmp(p->options[i].name, word, n) == 0 &&
            p->options[i].name[n] == '\0' && can_be_off(&p->options[i]))
            return &p->options[i];
    return NULL;
}

static int refuse_word(const struct schedule_policy *p, const char *word,
                       size_t n, char error[REPLAY_LIST_ERROR_BYTES])
{
    size_t at = 0;

    error_say(error, REPLAY_LIST_ERROR_BYTES, 0,
              "--rules %.*s: must be switches, or options of %s that can "
              "be 0:%s",
              n < 100 ? (int)n : 100, word, p->name,
              p->n_options > 0 ? "" : " none");
    for (size_t i = 0; i < p->n_options; i++) {
        if (!can_be_off(&p->options[i]))
            continue;
        at = strlen(error);
        error_say(error + at, REPLAY_LIST_ERROR_BYTES - at, 0, " %s,",
                  p->options[i].name);
    }
    if (at > 0)
        error[strlen(error) - 1] = '\0';
    return -EINVAL;
}

/* Checks that each word names an option that is on, once. */
static int check_words(const char *text, const struct schedule_policy *p,
                       const struct policy_settings *base,
                       char error[REPLAY_LIST_ERROR_BYTES])
{
    for (const char *word = text; word;) {
        size_t n = strcspn(word, ",");
        const struct policy_option *o = option_of(p, word, n);

        if (!o)
            return refuse_word(p, word, n, error);
        word = word[n] == ',' ? word + n + 1 : NULL;
        if (word && names_it(word, o->name))
            return error_say(error, REPLAY_LIST_ERROR_BYTES, -EINVAL,
                             "--rules %s: comes twice", o->name);
        if (!(value_of(base, o) > 0.0))
            return error_say(error, REPLAY_LIST_ERROR_BYTES, -EINVAL,
                             "--rules %s: is 0 without that, so both lines "
                             "would be the same; give it another value with "
                             "--policy-option, or leave it out",
                             o->name);
    }
    return 0;
}

int replay_rules_read(const char *text, const char *policy,
                      const struct policy_settings *base,
                      struct replay_rules *rules, struct replay_names *names,
                      char error[REPLAY_LIST_ERROR_BYTES])
{
    const struct schedule_policy *p = sim_policy(policy);
    bool switches = strcmp(text, "switches") == 0;
    int rc = switches ? 0 : check_words(text, p, base, error);

    if (rc != 0)
        return rc;
    rc = add(rules, policy, base, NULL);
    for (size_t i = 0; rc == 0 && i < p->n_options; i++) {
        const struct policy_option *o = &p->options[i];
        bool wanted = switches ? is_switch(o) && value_of(base, o) > 0.0
                               : can_be_off(o) && names_it(text, o->name);

        if (wanted)
            rc = add(rules, policy, base, o);
    }
    if (rc != 0)
        return error_say(error, REPLAY_LIST_ERROR_BYTES, rc,
                         "--rules %.100s: more than %d options", text,
                         POLICY_SETTINGS_MAX);
    if (rules->n == 1)
        return error_say(error, REPLAY_LIST_ERROR_BYTES, -EINVAL,
                         "--rules switches: %s has none that is on", policy);
    names->count = rules->n;
    for (size_t i = 0; i < rules->n; i++)
        names->names[i] = rules->labels[i];
    return 0;
}
