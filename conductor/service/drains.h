/*
 * The names of the instances that an operator drains. It is the name that is
 * drained: a worker that loses its connection, or an engine that a reload
 * begins anew, gets no work behind the operator's back. Private to the files
 * of conductor/service.
 */
#ifndef CONDUCTOR_SERVICE_DRAINS_H
#define CONDUCTOR_SERVICE_DRAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/service/service.h"

/* Most names at a time. The name of an instance that is gone stays until an
 * operator lets it go. */
#define DRAINS_MAX 4096u

struct drain {
    char name[SERVICE_NAME_BYTES];
    int64_t until_us; /* when the requests of its instances end; 0: never */
};

/* All 0: none. */
struct drains {
    struct drain *all; /* (n) owned */
    size_t n;
};

/* Adds a name, or changes until when its requests may go on (0: for ever).
 * Returns 0; -ENOSPC; -ENOMEM. O(n). */
[[nodiscard]] int drains_set(struct drains *drains, const char *name,
                             int64_t until_us);

/* Takes a name out, if it is there. O(n). */
void drains_drop(struct drains *drains, const char *name);

/* O(n). */
bool drains_has(const struct drains *drains, const char *name);

/* Frees what it owns. */
void drains_fini(struct drains *drains);

/* Drains an instance of a service, or lets it go, by whether its name, or that
 * of its entry (NULL: none), is drained. An instance that is newly drained
 * loses the requests that have not begun. */
void drains_mark(struct service *s, uint32_t id, const char *entry);

/* Ends the requests of drained instances whose time is over at now_us. Called
 * some times a second. O(instances * n). */
void drains_tick(struct service *s, int64_t now_us);

#endif
