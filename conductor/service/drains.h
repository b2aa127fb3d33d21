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

/* Names at a time: those of instances that are gone stay until let go. */
#define DRAINS_MAX 4096u

typedef char drains_name[SERVICE_NAME_BYTES];

/* All 0: none. */
struct drains {
    drains_name *names; /* (n) owned */
    size_t n;
};

/* Adds a name, or takes it out; nothing changes where that was so. Returns 0;
 * -ENOSPC; -ENOMEM. O(n). */
[[nodiscard]] int drains_set(struct drains *drains, const char *name, bool on);

/* O(n). */
bool drains_has(const struct drains *drains, const char *name);

/* Frees what it owns. */
void drains_fini(struct drains *drains);

/* Holds an instance of a service, or lets it go, as its name says, or that of
 * its entry; NULL: it has none. */
void drains_mark(struct service *s, uint32_t id, const char *entry);

#endif
