/* The rights and limits of an API key, where keys are required. */
#ifndef CONDUCTOR_SERVICE_TENANT_TERMS_H
#define CONDUCTOR_SERVICE_TENANT_TERMS_H

#include <stdint.h>

/* What a listed key may count on. */
struct tenant_terms {
    uint64_t number;  /* as the core knows the tenant */
    uint32_t room;    /* requests that may begin now, beside those in work */
    const char *name; /* of the tenant, until the next reload; "": no key */
    int64_t slo_ttft_us,
        slo_tbt_us; /* where a request asks for none; 0: none */
    double limit;   /* the one that a refused request is over */
};

/* How far a request is. */
enum tenant_step {
    TENANT_LOOKS,  /* it asks for no answer to a prompt: no limit counts */
    TENANT_BEGINS, /* its head has come: all limits count */
    TENANT_GOES_ON /* all of it has come: only max_in_flight counts again */
};

enum tenant_refusal {
    TENANT_ENTERS,
    TENANT_UNKNOWN,  /* the key is not listed */
    TENANT_ASKS,     /* over requests_per_minute */
    TENANT_TOKENS,   /* over tokens_per_minute */
    TENANT_IN_FLIGHT /* over max_in_flight */
};

#endif
