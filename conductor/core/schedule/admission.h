/*
 * Admission: a rule, apart from the policy, that accepts or rejects the
 * scheduler's choice.
 */
#ifndef CONDUCTOR_CORE_SCHEDULE_ADMISSION_H
#define CONDUCTOR_CORE_SCHEDULE_ADMISSION_H

#include <stdint.h>

enum admission_verdict {
    ADMISSION_ACCEPT,
    ADMISSION_REJECT_TTFT,
    ADMISSION_REJECT_TBT,
};

/* Input of an admission policy. An SLO of 0 = none. */
struct admission_request {
    int64_t ttft_us; /* predicted for the chosen prefill instance */
    int64_t tbt_us;  /* predicted for the chosen decode instance, 0 = none */
    int64_t slo_ttft_us;
    int64_t slo_tbt_us;
};

struct admission_policy {
    const char *name;
    enum admission_verdict (*decide)(const struct admission_request *request);
};

/* Returns the policy of this name, static: "plain" (rejects a request that
 * misses an SLO, the TTFT first) or "none" (admits every request). NULL: no
 * such policy. */
const struct admission_policy *admission_policy_by_name(const char *name);

#endif
