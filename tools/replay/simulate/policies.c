/* See policies.h. */
#include "tools/replay/simulate/policies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"
#include "tools/replay/list.h"

int replay_policies_begin(struct replay_policies *p, int argc)
{
    memset(p, 0, sizeof(*p));
    policy_options_help(p->help);
    p->texts.items = calloc((size_t)argc, sizeof(*p->texts.items));
    return p->texts.items ? 0 : -ENOMEM;
}

int replay_policies_end(struct replay_policies *p, const char *name,
                        const char *const *policies, size_t n)
{
    const struct schedule_policy *of[REPLAY_LIST_MAX];
    char error[512];
    int rc = 0;

    for (size_t i = 0; i < n; i++)
        of[i] = sim_policy(policies[i]);
    for (size_t i = 0; n > 0 && rc == 0 && i < p->texts.count; i++)
        rc = policy_settings_add(&p->settings, p->texts.items[i], error,
                                 sizeof(error));
    if (rc == 0)
        rc = policy_settings_check(&p->settings, of, n, error, sizeof(error));
    if (rc != 0)
        fprintf(stderr, "conductor-replay %s: --policy-option %s\n", name,
                error);
    free(p->texts.items);
    p->texts = (struct option_list){NULL, 0};
    return rc != 0 ? -1 : 0;
}
