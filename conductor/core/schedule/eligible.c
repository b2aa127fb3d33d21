/* Which instances may be chosen for a role, and which may send blocks. */
#include "conductor/core/schedule/internal.h"

bool schedule_takes_work(const struct schedule_request *request,
                         const struct pool_instance *instance, unsigned role)
{
    return instance && (instance->role & role) != 0 &&
           instance->health == HEALTH_READY &&
           !schedule_excluded(request, instance->id);
}

bool schedule_can_send(const struct schedule_request *request,
                       const struct pool_instance *instance)
{
    return instance && instance->link_bytes_per_s > 0.0 &&
           !schedule_excluded(request, instance->id) &&
           (instance->health == HEALTH_READY ||
            instance->health == HEALTH_DRAINING);
}
