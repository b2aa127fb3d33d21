/*
 * The models that are served, each with a service of its own. Private to the
 * files of conductor/service.
 */
#ifndef CONDUCTOR_SERVICE_MODELS_H
#define CONDUCTOR_SERVICE_MODELS_H

#include "base/entropy.h"
#include "conductor/service/drains.h"
#include "conductor/service/fleet/fleet.h"
#include "conductor/service/tenant/tenants.h"

/* In a block, where no engine of the model is said to have another number. */
#define ENGINE_BLOCK_TOKENS 16

struct models {
    struct event_base *base;
    struct evdns_base *redis_dns; /* of `state` */
    struct dns *dns;              /* of engines, and of who takes spans */
    struct config config;
    struct service *first;
    uint32_t next_number; /* of a service */
    struct tenants *tenants;
    double start_s;     /* Unix time */
    struct event *lag;  /* report/lag.c */
    int64_t lag_due_us; /* when it should be called */
    struct {            /* of services that are gone */
        uint64_t n;     /* of them */
        struct metrics metrics;
        uint64_t pending_dropped, interrupted, index_evicted;
    } past;
    struct fleet fleet;
    struct drains drains;
    struct access_log *access;
    struct exporter *exporter; /* of spans */
    struct tls *state_tls;     /* of the connections to Redis, or NULL */
    struct cluster *cluster;   /* other conductors; NULL: there is one */
    struct history *history;   /* NULL: nothing is kept */
    uint64_t decided;          /* decisions, counted for explain/ */
    struct entropy_store ids;  /* for requests */
    size_t reply_bytes; /* of prefill legs; <= config.max_body_total_bytes */
};

/* The service of the engines of a model, made if there is none yet: its block
 * size is block_cut_join() of those that `like` and the wanted entries of the
 * model say, its cost model that of the first of them that says one. Returns
 * it, or NULL with a message. */
[[nodiscard]] struct service *models_get(struct models *models,
                                         const struct engine_config *like,
                                         char err[CONFIG_ERROR_MAX]);

/* Of models of which entries came or went, the costs are those of the first
 * wanted entry that names some. Returns whether it was done with all at
 * until_us; else it wants to be called again. */
bool models_follow(struct models *models, int64_t until_us);

/* The entry is of the model of a service: models_follow() looks at it. */
void models_note(const struct models *models, const struct fleet_entry *entry);

/* A service for one model, of engines or of native workers. Returns it, which
 * the models own, or NULL with a message. */
[[nodiscard]] struct service *models_append(struct models *models,
                                            const struct config *config,
                                            bool engines,
                                            char err[CONFIG_ERROR_MAX]);

/* peers.c: connects to the Redis of the configuration, if it names one. Returns
 * 0, or -ENOMEM with a message. */
[[nodiscard]] int peers_start(struct models *models,
                              char err[CONFIG_ERROR_MAX]);

/* peers.c: workers are taken from now on, where there are any. */
void peers_listen(struct models *models, uint16_t port);

/* model_names.c: an engine came or left, or has other names or another window:
 * its names are those of e->own from now on, or none if it is leaving. What is
 * left to do of it, of all models: the window of a model is the least that its
 * engines told, and the log has which engines have a name. The names of an
 * entry are known, whether or not it has an engine. */
void models_name(struct engine *e);
void models_name_due(struct models *models);
void models_know_names(struct service *s, const struct engine_config *like);

/* The service of the model of that name, or whose engines have that name now;
 * NULL: there is none. */
struct service *models_named(const struct models *models, const char *name);

/* Ends the services that nothing is left of: no entry wants their model, and
 * they have neither engine nor request. Returns whether it was done with all at
 * until_us; else it wants to be called again. */
bool models_reap(struct models *models, int64_t until_us);

#endif
