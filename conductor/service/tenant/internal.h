/* Tenants, shared by the files of this folder. */
#ifndef CONDUCTOR_SERVICE_TENANT_INTERNAL_H
#define CONDUCTOR_SERVICE_TENANT_INTERNAL_H

#include "conductor/core/share/joint.h"
#include "conductor/core/share/limit.h"
#include "conductor/service/tenant/tenants.h"
#include "proto/message.h"

#define NAME_BYTES 64
#define DIGEST_BYTES PROTO_PROOF_BYTES
/* Most tenants of a file: each has a place of its own in core/share. */
#define NAMES_MAX (SHARE_TENANTS - 1)
#define KEYS_MAX 1024u

struct tenant {
    char name[NAME_BYTES];
    uint64_t number;
    double weight;
    int64_t slo_ttft_us, slo_tbt_us; /* default SLOs; 0 = none */
    struct limit asks, tokens;       /* limits per minute */
    uint32_t max_open;      /* most requests in flight; 0 = unlimited */
    struct joint_key joint; /* the same limits, if shared by conductors */
    uint64_t n_limited;     /* requests refused by a limit */
    uint64_t requests[METRICS_OUTCOMES], tokens_sent;
    /* Set by tenants_weigh(): */
    uint64_t waiting;
    double standing; /* lowest over all models; below 0 = not active */
};

struct tenant_key {
    uint8_t digest[DIGEST_BYTES];
    uint32_t tenant; /* index in `all` */
};

/* Number of requests in flight of a tenant, in the file or not. */
struct tenant_open {
    uint64_t number;
    uint32_t n;
};

struct tenants {
    char path[CONFIG_STRING_MAX];     /* "" = every key is a tenant */
    struct tenant all[NAMES_MAX + 1]; /* (n + 1), all[0] = unlisted keys */
    size_t n;
    bool joint; /* limits count the requests of all conductors */
    void *open; /* struct tenant_open by number (tsearch()); kept by reloads */
    struct tenant_key *keys; /* (n_keys) */
    size_t n_keys;
};

struct fields;
struct fields_object;

/* tenant_number(digest): returns the tenant's number in core; never 0. */
uint64_t tenant_number(const uint8_t digest[DIGEST_BYTES]);

/* Reads the file's object into a struct tenants. See fields_read(). */
void tenants_read(struct fields *f, const struct fields_object *root,
                  void *into);

#endif
