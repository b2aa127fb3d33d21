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

/* Tokens in a block, if no entry of the model says another number. */
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
    size_t reply_bytes;        /* of replies to prefill legs that are held; <=
                                  config.max_body_total_bytes */
};

/* Returns the service of the engines of a model; makes it if there is none. A
 * new one has the block size that block_cut_join() makes of those in `like` and
 * in the wanted entries of the model, and the cost model of the first of these
 * that names one. NULL with a message on failure. */
[[nodiscard]] struct service *models_get(struct models *models,
                                         const struct engine_config *like,
                                         char err[CONFIG_ERROR_MAX]);

/* Gives each model whose entries have come or gone the cost model of the first
 * wanted entry that names one. Stops at until_us; returns whether all are done,
 * else call it again. */
bool models_follow(struct models *models, int64_t until_us);

/* An entry came or went: models_follow() looks at its model, if that has a
 * service. */
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

/* peers.c: tells other conductors the port at which native workers register
 * here. */
void peers_listen(struct models *models, uint16_t port);

/* model_names.c. models_name(): an engine came or left, or has other names or
 * another window; takes its names from e->own, or none if it is leaving. The
 * second one finishes that for all models: sets the window of each to the least
 * that its engines told, and logs which engines have a name. The third one
 * makes the names of an entry known, even without an engine. */
void models_name(struct engine *e);
void models_name_due(struct models *models);
void models_know_names(struct service *s, const struct engine_config *like);

/* The service of the model of that name, or whose engines have that name now;
 * NULL: there is none. */
struct service *models_named(const struct models *models, const char *name);

/* Frees the services without use: no entry wants their model, and they have no
 * engine and no request. Stops at until_us; returns whether all are done, else
 * call it again. */
bool models_reap(struct models *models, int64_t until_us);

#endif
