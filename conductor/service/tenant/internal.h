/* What the files of this folder share. */
#ifndef CONDUCTOR_SERVICE_TENANT_INTERNAL_H
#define CONDUCTOR_SERVICE_TENANT_INTERNAL_H

#include "conductor/core/share/joint.h"
#include "conductor/core/share/limit.h"
#include "conductor/service/tenant/tenants.h"
#include "proto/message.h"

#define NAME_BYTES 64
#define DIGEST_BYTES PROTO_PROOF_BYTES
/* Tenants of a file, at most: so many have a place of their own in the shares.
 */
#define NAMES_MAX (SHARE_TENANTS - 1)
#define KEYS_MAX 1024u

struct tenant {
    char name[NAME_BYTES];
    uint64_t number;
    double weight;
    int64_t slo_ttft_us,
        slo_tbt_us;            /* where a request asks for none; 0: none */
    struct limit asks, tokens; /* a minute */
    uint32_t max_open;         /* most requests in work, 0: any */
    struct joint_key joint; /* the same limits, where conductors share them */
    uint64_t n_limited;     /* refused by a limit */
    uint64_t requests[METRICS_OUTCOMES], tokens_sent;
    /* As of tenants_weigh(). */
    uint64_t waiting;
    double standing; /* the lowest; below 0: it has not asked */
};

struct tenant_key {
    uint8_t digest[DIGEST_BYTES];
    uint32_t tenant; /* its place in `all` */
};

/* Requests in work of a tenant that has some, whether the file lists it or not.
 */
struct tenant_open {
    uint64_t number;
    uint32_t n;
};

struct tenants {
    char path[CONFIG_STRING_MAX];     /* "": every key is a tenant */
    struct tenant all[NAMES_MAX + 1]; /* (n + 1), the first one is the others */
    size_t n;
    bool joint; /* limits are those of several conductors together */
    void *open; /* struct tenant_open by number, of tsearch(): reloads leave it
                   as it is */
    struct tenant_key *keys; /* (n_keys) */
    size_t n_keys;
};

struct fields;
struct fields_object;

/* tenant_number(digest): the number by which core knows a tenant; never 0. */
uint64_t tenant_number(const uint8_t digest[DIGEST_BYTES]);

/* Reads the file's object into a struct tenants. See fields_read(). */
void tenants_read(struct fields *f, const struct fields_object *root,
                  void *into);

#endif
