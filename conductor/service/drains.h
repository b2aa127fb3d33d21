/*
 * The names of drained instances. A drain holds for the name, so that a worker
 * that reconnects, or an engine that a reload starts again, stays drained.
 * Private to the files of conductor/service.
 */
#ifndef CONDUCTOR_SERVICE_DRAINS_H
#define CONDUCTOR_SERVICE_DRAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/service/service.h"

/* Most names at a time. The name of a lost instance stays until an operator
 * ends its drain. */
#define DRAINS_MAX 4096u

struct drain {
    char name[SERVICE_NAME_BYTES];
    int64_t until_us; /* limit of the instances' requests; 0 = unlimited */
};

/* Zeros = no drains. */
struct drains {
    struct drain *all; /* (n) owned */
    size_t n;
};

/* Adds a name, or changes the limit of its requests (0 = unlimited). Returns 0,
 * -ENOSPC or -ENOMEM. O(n). */
[[nodiscard]] int drains_set(struct drains *drains, const char *name,
                             int64_t until_us);

/* Removes a name, if it is there. O(n). */
void drains_drop(struct drains *drains, const char *name);

/* Whether a name is drained. O(n). */
bool drains_has(const struct drains *drains, const char *name);

/* Frees what it owns. */
void drains_fini(struct drains *drains);

/* Drains an instance, or ends its drain, as its name or its entry's (NULL = no
 * entry) is drained or not. A newly drained instance loses the requests that it
 * has not begun. */
void drains_mark(struct service *s, uint32_t id, const char *entry);

/* Ends the requests of drained instances whose limit is over at now_us. Called
 * a few times a second. O(instances * n). */
void drains_tick(struct service *s, int64_t now_us);

#endif
