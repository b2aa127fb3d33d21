/*
 * The service of one model: shared by the files of conductor/service, and
 * private to them (DESIGN.md has their map); the front sees service.h.
 */
#ifndef CONDUCTOR_SERVICE_INTERNAL_H
#define CONDUCTOR_SERVICE_INTERNAL_H

#include "base/loop/loop.h"
#include "conductor/cluster/cluster.h"
#include "conductor/config/config.h"
#include "conductor/core/index/prefix_index.h"
#include "conductor/core/pool/pool.h"
#include "conductor/core/roles/roles.h"
#include "conductor/core/schedule/schedule.h"
#include "conductor/service/engine/set.h"
#include "conductor/service/explain/explain.h"
#include "conductor/service/metrics.h"
#include "conductor/service/name_sets.h"
#include "conductor/service/worker/worker.h"
#include "predictor/cost_model.h"
#include "predictor/steps.h"

#define TICKET_TENANTS 1024u /* a power of 2 */

/* Requests that other gateways send (ticket/ticket.h). */
struct tickets {
    struct request_list open;      /* sorted by the last report */
    uint64_t n;                    /* open tickets, and those not yet decided */
    uint32_t n_of[TICKET_TENANTS]; /* by a hash of the tenant */
    uint64_t seed;
    struct prefix_match held; /* of service_ask_index() */
};

/* How long prefills and decode steps take. Written by scheduler.c and
 * engine/. */
struct service_costs {
    struct cost_model model;
    bool predicts; /* false: no cost model; `model` counts tokens and requests
                      instead of time */
    const char *source;      /* of `model`: static */
    struct cost_file *files; /* owned: costs of single instances (costs.h) */
    const struct cost_model **of_workers; /* (n + 1) of worker_costs, then
                                             NULL */
};

/* Names that engines have for the model. Written by model_names.c alone. */
struct model_names {
    struct name_sets sets; /* zeros: of native workers */
    bool due;              /* engines came, left or changed names: count the
                              engines, and compute the windows, anew */
    bool untold;           /* the log must report the change */
    bool full_told;        /* logged: some names have no room */
    int64_t told_us;       /* when the log last listed the engines of names */
};

/* The service of one model. A comment names the files that write a member; the
 * other members are set by service_new_one(). All files may read all of it. */
struct service {
    struct models *models;
    struct service *next; /* owned: of another model */
    uint32_t number;      /* among the models */
    struct loop *loop;
    struct config config;
    struct service_model_info model;
    struct service_costs costs;
    struct pool *pool;
    struct prefix_index *index;
    /* dispatch.scheduler is owned, and replaced by scheduler.c;
     * dispatch.overhead_us is the part of a TTFT outside queue and prefill:
     * hand-over, frames, wake-ups. */
    struct dispatch dispatch;
    struct cluster_pool *peers; /* other conductors; NULL = none. peers.c */
    struct metrics metrics;     /* all files of this folder count here */
    struct explain *explain;    /* explain/ */
    /* One of the two serves the model (models_native()), the other nothing. */
    struct native native;
    struct engine_set engines;
    struct model_names names; /* of `engines` */
    struct requests requests;
    struct tickets tickets; /* ticket/ */
    struct {
        struct loop_timer timer;
        int64_t us;        /* time of the last tick */
        int64_t drains_us; /* last search for drains over their time limit */
    } tick;                /* service.c */
};

/* Returns the shared store's slot in the index, behind the slots of the pool.
 */
static inline uint32_t service_store_slot(const struct service *s)
{
    return (uint32_t)s->config.max_instances;
}

/* service_lost(service, name): counts an instance that went away, or that gets
 * no work because it fails. */
void service_lost(struct service *service, const char *name);

/* service_freed(service): room may have become free: the loop's next turn
 * decides on waiting requests again. */
void service_freed(struct service *service);

/* Does the same for a link to a decode instance, if a request waits for one. */
void service_link_freed(struct service *service);

/* service_new_one(models, config, engines, err): creates the service of
 * config->model: for engines, which the caller starts, or for native workers.
 * Returns as models_new(). */
[[nodiscard]] struct service *service_new_one(struct models *models,
                                              const struct config *config,
                                              bool engines,
                                              char err[CONFIG_ERROR_MAX]);

/* service_drop_requests(s): frees all requests without a callback. */
void service_drop_requests(struct service *s);

/* service_free_one(s): frees this service, whose engines must be gone, but not
 * s->next. NULL is a no-op. */
void service_free_one(struct service *s);

/* service_make_scheduler(s, kv_bytes_per_token, layers, coupled): creates the
 * scheduler of this model's instances from the configuration, and frees the one
 * before. Returns 0 or -ENOMEM. */
[[nodiscard]] int service_make_scheduler(struct service *s,
                                         int64_t kv_bytes_per_token,
                                         uint32_t layers, bool coupled);

/* peers.c: joins the other conductors of these instances, if there are any.
 * Returns 0 or -ENOMEM. */
[[nodiscard]] int peers_join(struct service *s);

/* peers_tick(s): sends new workers the list of conductors. */
void peers_tick(struct service *s);

#endif
