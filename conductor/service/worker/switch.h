/* Switches the roles of native workers: carries out the orders of core/roles,
 * as sim/switch.c does in the simulator. */
#ifndef CONDUCTOR_SERVICE_WORKER_SWITCH_H
#define CONDUCTOR_SERVICE_WORKER_SWITCH_H

#include <stdint.h>

struct service;

/* Begins to switch a worker to `role`; naming its present role calls a switch
 * off. Returns as roles_command(). */
[[nodiscard]] int switch_command(struct service *service, uint32_t id,
                                 unsigned role);

/* Runs a pass of core/roles, and gives idle workers about to switch their new
 * role. */
void switch_tick(struct service *service);

#endif
