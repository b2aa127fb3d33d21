/* See policy_text.h. */
#include "conductor/config/policy_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"

/* Appends to `text` as printf. Returns whether it fits; if not, adds nothing.
 */
__attribute__((format(printf, 3, 4))) static bool
append(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    int more;

    va_start(args, format);
    more = vsnprintf(text + n, size - n, format, args);
    va_end(args);
    if (more >= 0 && (size_t)more < size - n)
        return true;
    text[n] = '\0';
    return false;
}

int policy_settings_add(struct policy_settings *settings, const char *text,
                        char *error, size_t size)
{
    struct policy_setting *s = &settings->at[settings->n];
    const char *eq = strchr(text, '=');
    char *end;

    if (settings->n == POLICY_SETTINGS_MAX)
        return error_say(error, size, -EINVAL, "%.100s: more than %d options",
                         text, POLICY_SETTINGS_MAX);
    if (!eq || eq == text || (size_t)(eq - text) >= sizeof(s->name) ||
        eq[1] == '\0')
        return error_say(error, size, -EINVAL, "%.100s: must be NAME=NUMBER",
                         text);
    snprintf(s->name, sizeof(s->name), "%.*s", (int)(eq - text), text);
    s->value = strtod(eq + 1, &end);
    if (*end != '\0' || strpbrk(eq + 1, "xX"))
        return error_say(error, size, -EINVAL, "%s: %.100s: must be a number",
                         s->name, eq + 1);
    settings->n++;
    return 0;
}

static void range_of(const struct policy_option *o, char *text, size_t size)
{
    snprintf(text, size, "a%s number from %.10g to %.10g",
             o->whole ? " whole" : "", o->min, o->max);
}

/* Whether `set_by` may set an option. */
static bool may_set(const struct policy_option *o, enum policy_set_by set_by)
{
    return set_by == POLICY_SET_BY_SIMULATION || !o->rule_of;
}

/* Appends the names of a policy's options, as many as fit. Returns whether all
 * did. */
static bool name_options(const struct schedule_policy *p,
                         enum policy_set_by set_by, const char *before,
                         char *error, size_t size)
{
    bool fits = append(error, size, "%s policy %s has", before, p->name);
    const char *comma = " ";

    for (size_t o = 0; fits && o < p->n_options; o++) {
        if (!may_set(&p->options[o], set_by))
            continue;
        fits = append(error, size, "%s%s", comma, p->options[o].name);
        comma = ", ";
    }
    return fits && (*comma == ',' || append(error, size, " none"));
}

/* Returns the option of these policies whose name is most like `name`, or NULL:
 * none is. */
static const char *nearest_option(const char *name,
                                  const struct schedule_policy *const *policies,
                                  size_t n, enum policy_set_by set_by)
{
    size_t bytes = strlen(name), least = bytes / 3 + 1;
    const char *nearest = NULL;

    for (size_t p = 0; p < n; p++)
        for (size_t o = 0; o < policies[p]->n_options; o++) {
            const struct policy_option *one = &policies[p]->options[o];

            if (may_set(one, set_by) &&
                text_nearer(name, bytes, one->name, strlen(one->name), &least))
                nearest = one->name;
        }
    return nearest;
}

/* Writes that an option is unknown, the nearest one, and the known ones; dots
 * if there is no room for all. */
static void say_unknown(const struct policy_setting *s,
                        const struct schedule_policy *const *policies, size_t n,
                        enum policy_set_by set_by, char *error, size_t size)
{
    const char *nearest = nearest_option(s->name, policies, n, set_by);
    const char dots[] = ", ...";
    bool fits;

    *error = '\0';
    size -= sizeof(dots) - 1;
    fits = append(error, size, "%s=%.10g: no such option", s->name, s->value) &&
           (!nearest || append(error, size, " (did you mean %s?)", nearest)) &&
           append(error, size, ";");
    for (size_t p = 0; fits && p < n; p++)
        fits = name_options(policies[p], set_by, p > 0 ? ";" : "", error, size);
    if (!fits)
        append(error, size + sizeof(dots) - 1, "%s", dots);
}

int policy_settings_check(const struct policy_settings *settings,
                          const struct schedule_policy *const *policies,
                          size_t n, enum policy_set_by set_by, char *error,
                          size_t size)
{
    for (size_t i = 0; i < settings->n; i++) {
        const struct policy_setting *s = &settings->at[i];
        double values[POLICY_OPTIONS_MAX];
        bool known = false;

        for (size_t p = 0; p < n; p++) {
            char range[128];
            int rc = policy_options_set(policies[p], values, s->name, s->value);

            known = known || rc != -ENOENT;
            if (rc != -ERANGE)
                continue;
            range_of(policy_option_by_name(policies[p], s->name), range,
                     sizeof(range));
            return error_say(error, size, -EINVAL,
                             "%s=%.10g of policy %s: must be %s", s->name,
                             s->value, policies[p]->name, range);
        }
        if (!known) {
            say_unknown(s, policies, n, set_by, error, size);
            return -EINVAL;
        }
    }
    return 0;
}

void policy_options_list(enum policy_set_by set_by, FILE *out)
{
    const struct schedule_policy *p;

    for (size_t i = 0; (p = schedule_policy_at(i)); i++) {
        fprintf(out, "%s%s: %s\n", i > 0 ? "\n" : "", p->name, p->help);
        for (size_t n = 0; n < p->n_options; n++) {
            const struct policy_option *o = &p->options[n];

            if (!may_set(o, set_by))
                continue;
            fprintf(out, "  %s=%.10g  (%.10g to %.10g)\n      ", o->name,
                    o->initial, o->min, o->max);
            options_print_wrapped(out, o->help, 6, "");
        }
    }
}

bool policy_rule_say(const struct schedule_policy *policy, const char *name,
                     char *text, size_t size)
{
    const struct policy_option *o = policy_option_by_name(policy, name);
    const char *of = o ? o->rule_of : NULL;

    if (!of)
        return false;
    snprintf(
        text, size,
        "%s is no longer an option of the policy %s: it is fixed at %.10g, "
        "and the value given is ignored. Remove it%s%s; the next version "
        "refuses the name",
        name, policy->name, o->initial, *of ? " and use the option " : "", of);
    return true;
}

void policy_reference(FILE *out)
{
    const struct schedule_policy *p;

    fputs("\n## Policies\n\n"
          "| policy | what it chooses | needs a cost model |\n"
          "|---|---|---|\n",
          out);
    for (size_t i = 0; (p = schedule_policy_at(i)); i++)
        fprintf(out, "| `%s` | %s | %s |\n", p->name, p->help,
                p->without_cost_model ? "no" : "yes");
    fputs("\nTheir options, for `policy_options` and `--policy-option`:\n\n"
          "| policy | option | range | default | meaning |\n"
          "|---|---|---|---|---|\n",
          out);
    for (size_t i = 0; (p = schedule_policy_at(i)); i++) {
        for (size_t n = 0; n < p->n_options; n++) {
            const struct policy_option *o = &p->options[n];
            char range[128];

            if (!may_set(o, POLICY_SET_BY_OPERATOR))
                continue;
            range_of(o, range, sizeof(range));
            fprintf(out, "| `%s` | `%s` | %s | `%.10g` | %s |\n", p->name,
                    o->name, range + 2, o->initial, o->help);
        }
    }
}
