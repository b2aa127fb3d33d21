/* A real redis-server for differs.c, with a clock that is set. */
#ifndef TESTS_WORLD_REDIS_REAL_H
#define TESTS_WORLD_REDIS_REAL_H

#include <stddef.h>
#include <stdint.h>

struct real;

/* Starts it with a password. Returns it owned; or NULL with why. */
struct real *real_start(const char *password, int64_t clock_us, char *why,
                        size_t why_bytes);

/* Ends it and removes its folder. NULL is a no-op. */
void real_stop(struct real *r);

void real_set_clock(struct real *r, int64_t clock_us);

/* Connects. Returns the socket, owned; or -1. */
int real_connect(const struct real *r);

#endif
