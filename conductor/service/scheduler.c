/* Creates a model's scheduler, and wakes waiting requests when room is free. */
#include <errno.h>

#include "base/loop/loop.h"
#include "conductor/service/models.h"

int service_make_scheduler(struct service *s, int64_t kv_bytes_per_token,
                           uint32_t layers, bool coupled)
{
    bool engines = s->model.n_engines >= 0;
    double options[POLICY_OPTIONS_MAX];
    struct schedule_config config = {
        .policy = config_policy(&s->config, options),
        .options = options,
        .admission = s->costs.predicts ? "plain" : "none",
    };
    struct estimate_model model = {
        .cost = &s->costs.model,
        .block_tokens = (uint32_t)s->config.block_tokens,
        .kv_bytes_per_token = kv_bytes_per_token,
        .layers = layers,
        .assumes_stored = engines,
        .shared_store =
            s->engines.store || !engines ? service_store_slot(s) : 0,
        .shared_tier = s->engines.store ? TIER_DISK : TIER_SHARED,
        .coupled = coupled,
        .push = engines ? s->engines.push : NULL,
        .step_tokens = (uint32_t)s->config.step_tokens,
    };
    struct scheduler *next = scheduler_new(&config, &model, s->pool, s->index);
    if (!next)
        return -ENOMEM;
    scheduler_free(s->dispatch.scheduler);
    s->dispatch.scheduler = next;
    cluster_prices(s->peers, next);
    return 0;
}

void service_freed(struct service *service)
{
    dispatch_freed(&service->dispatch);
    loop_defer(&service->requests.look);
}

void service_link_freed(struct service *service)
{
    dispatch_link_freed(&service->dispatch);
    if (service->dispatch.room)
        loop_defer(&service->requests.look);
}
