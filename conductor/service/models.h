/*
 * The served models, each with a service of its own. Private to the files of
 * conductor/service.
 */
#ifndef CONDUCTOR_SERVICE_MODELS_H
#define CONDUCTOR_SERVICE_MODELS_H

#include "base/loop/loop.h"
#include "conductor/service/drains.h"
#include "conductor/service/fleet/fleet.h"
#include "conductor/service/losses.h"
#include "conductor/service/tenant/tenants.h"

struct dns;

/* Tokens in a block, if no entry of the model sets block_tokens. */
#define ENGINE_BLOCK_TOKENS 16

struct models {
    struct loop *loop;
    struct dns *dns; /* for engines, the receiver of spans and `state` */
    struct config config;
    struct service *first;
    struct service *native; /* the native workers' service; NULL = none */
    uint32_t next_number;   /* of a service */
    struct tenants *tenants;
    double start_s;        /* Unix time */
    struct loop_timer lag; /* report/lag.c */
    int64_t lag_due_us;    /* when the lag timer is due */
    struct {               /* counts of removed services */
        uint64_t n;        /* removed services */
        struct metrics metrics;
        uint64_t pending_dropped, interrupted, index_evicted;
    } past;
    struct fleet fleet;
    struct drains drains;
    struct losses losses;
    struct access_log *access;
    struct exporter *exporter; /* of spans */
    struct tls *state_tls;     /* for connections to Redis; NULL = no TLS */
    struct cluster *cluster;   /* NULL = no other conductors */
    struct history *history;   /* never NULL once started */
    uint64_t decided;          /* decisions, counted for explain/ */
    size_t reply_bytes;        /* all kept replies to prefill legs; <=
                                  config.max_body_total_bytes */
};

/* Returns the service of a model's engines, created if needed. A new service
 * joins the block sizes (block_cut_join()) of `like` and the model's wanted
 * entries, and gets the cost model of the first entry that names one. NULL with
 * a message on failure. */
[[nodiscard]] struct service *models_get(struct models *models,
                                         const struct engine_config *like,
                                         char err[CONFIG_ERROR_MAX]);

/* Gives each model with new or removed entries the cost model of the first
 * wanted entry that names one. Stops at until_us; returns whether all are done,
 * else call it again. */
bool models_follow(struct models *models, int64_t until_us);

/* Makes models_follow() check the model of an entry that came or left. */
void models_note(const struct models *models, const struct fleet_entry *entry);

/* Creates a service for a model, of engines or of native workers. Returns it,
 * owned by `models`, or NULL with a message. */
[[nodiscard]] struct service *models_append(struct models *models,
                                            const struct config *config,
                                            bool engines,
                                            char err[CONFIG_ERROR_MAX]);

/* peers.c: connects to the Redis of the configuration, if it names one. Returns
 * 0, or -ENOMEM with a message. */
[[nodiscard]] int peers_start(struct models *models,
                              char err[CONFIG_ERROR_MAX]);

/* peers.c: publishes to other conductors the port at which native workers
 * register. */
void peers_listen(struct models *models, uint16_t port);

/* model_names.c. models_name(): call it when an engine came or left, or its
 * names or window changed; takes its names from e->own, or none if it is
 * leaving. models_name_due() completes that for all models: sets each window to
 * the smallest of its engines, and logs which engines have a name.
 * models_know_names() makes an entry's names known, even without an engine. */
void models_name(struct engine *e);
void models_name_due(struct models *models);
void models_know_names(struct service *s, const struct engine_config *like);

/* Returns the service of a model by its name, or by an alias or adapter that
 * one of its engines has now; NULL = none. */
struct service *models_named(const struct models *models, const char *name);

/* Frees services without entry, engine and request. Stops at until_us; returns
 * whether it got through all, else call it again. */
bool models_reap(struct models *models, int64_t until_us);

#endif
