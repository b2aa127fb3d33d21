/* Native workers that switch their roles: carries out what core's roles order,
 * as sim/switch.c does in the simulator. */
#ifndef CONDUCTOR_SERVICE_WORKER_SWITCH_H
#define CONDUCTOR_SERVICE_WORKER_SWITCH_H

#include <stdint.h>

struct service;

/* Begins to switch a worker, or calls it off. Returns as roles_command(). */
[[nodiscard]] int switch_command(struct service *service, uint32_t id,
                                 unsigned role);

/* Lets core/roles decide on switches; workers that have ended their work take
 * their new role. */
void switch_tick(struct service *service);

#endif
