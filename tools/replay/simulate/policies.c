/* See policies.h. */
#include "tools/replay/simulate/policies.h"

#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

/* Adds a setting; refuses a name given twice. */
static int add(struct policy_settings *s, const char *text, char *error,
               size_t size)
{
    int rc = policy_settings_add(s, text, error, size);

    for (size_t i = 0; rc == 0 && i + 1 < s->n; i++) {
        if (strcmp(s->at[i].name, s->at[s->n - 1].name) == 0) {
            snprintf(error, size, "%.100s: %s comes twice", text,
                     s->at[i].name);
            rc = -1;
        }
    }
    return rc;
}

int replay_policies_parse(struct replay_policies *p,
                          const struct option_usage *usage,
                          const struct option_table *table, int argc,
                          char **argv, int *status)
{
    char error[512];

    policy_options_help(POLICY_SET_BY_SIMULATION, p->help);
    p->texts.items = calloc((size_t)argc, sizeof(*p->texts.items));
    if (!p->texts.items)
        return replay_complain(usage->name, "out of memory");
    int rc = replay_parse(usage, table, argc, argv, status);
    if (rc == 0)
        *status = REPLAY_EXIT_USAGE;
    for (size_t i = 0; rc == 0 && i < p->texts.count; i++) {
        rc = add(&p->settings, p->texts.items[i], error, sizeof(error));
        if (rc != 0)
            replay_complain(usage->name, "--policy-option %s", error);
    }
    free(p->texts.items);
    p->texts = (struct option_list){NULL, 0};
    return rc;
}

int replay_policies_check(const struct replay_policies *p, const char *name,
                          const char *const *policies, size_t n)
{
    const struct schedule_policy *of[REPLAY_LIST_MAX];
    char error[POLICY_TEXT_BYTES];

    for (size_t i = 0; i < n; i++)
        of[i] = sim_policy(policies[i]);
    return policy_settings_check(&p->settings, of, n, POLICY_SET_BY_SIMULATION,
                                 error, sizeof(error)) == 0
               ? 0
               : replay_complain(name, "--policy-option %s", error);
}
