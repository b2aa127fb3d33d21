/* Admission policies. */
#include "conductor/core/schedule/admission.h"

#include <stddef.h>
#include <string.h>

static enum admission_verdict plain(const struct admission_request *r)
{
    if (r->slo_ttft_us > 0 && r->ttft_us > r->slo_ttft_us)
        return ADMISSION_REJECT_TTFT;
    if (r->slo_tbt_us > 0 && r->tbt_us > r->slo_tbt_us)
        return ADMISSION_REJECT_TBT;
    return ADMISSION_ACCEPT;
}

static enum admission_verdict none(const struct admission_request *)
{
    return ADMISSION_ACCEPT;
}

static const struct admission_policy policies[] = {
    {"plain", plain},
    {"none", none},
};

const struct admission_policy *admission_policy_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
        if (strcmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}
