/* The rights and limits of an API key, where keys are required. */
#ifndef CONDUCTOR_SERVICE_TENANT_TERMS_H
#define CONDUCTOR_SERVICE_TENANT_TERMS_H

#include <stdint.h>

/* The terms of a listed key. */
struct tenant_terms {
    uint64_t number;  /* the tenant's, in core */
    uint32_t room;    /* further requests that may begin now */
    const char *name; /* of the tenant, until the next reload; "" = no key */
    int64_t slo_ttft_us, slo_tbt_us; /* default SLOs; 0 = none */
    double limit; /* if refused: the exceeded limit, in its unit */
};

/* The stage of a request at the check. */
enum tenant_step {
    TENANT_LOOKS,  /* not an inference request: no limits */
    TENANT_BEGINS, /* head received: all limits */
    TENANT_GOES_ON /* body received: only max_in_flight */
};

enum tenant_refusal {
    TENANT_ENTERS,
    TENANT_UNKNOWN,  /* the key is not listed */
    TENANT_ASKS,     /* over requests_per_minute */
    TENANT_TOKENS,   /* over tokens_per_minute */
    TENANT_IN_FLIGHT /* over max_in_flight */
};

#endif
