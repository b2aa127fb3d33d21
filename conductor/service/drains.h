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
    int64_t until_us; /* when its requests are cut off; 0 = never */
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

/* Returns whether a name is drained. O(n). */
bool drains_has(const struct drains *drains, const char *name);

/* Returns whether an instance, or its entry (NULL = no entry), is drained by an
 * operator: a worker that leaves is held, too. O(n). */
bool drains_hold(const struct service *s, uint32_t id, const char *entry);

/* Frees the list of drains. */
void drains_fini(struct drains *drains);

/* Drains an instance if its name or its entry's name (NULL = no entry) is
 * drained, else ends its drain. A newly drained instance loses the requests
 * that it has not begun. */
void drains_mark(struct service *s, uint32_t id, const char *entry);

/* Ends the requests of drained instances whose limit is over at now_us. Called
 * a few times a second. O(instances * n). */
void drains_tick(struct service *s, int64_t now_us);

#endif
