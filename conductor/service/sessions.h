/*
 * The last instance of each session: a soft preference of the policy. A table
 * of SESSIONS_MAX places, indexed by the session's number; of two sessions at
 * one place only the later is known.
 */
#ifndef CONDUCTOR_SERVICE_SESSIONS_H
#define CONDUCTOR_SERVICE_SESSIONS_H

#include <stdint.h>

#define SESSIONS_MAX 16384u

struct sessions {
    struct session {
        uint64_t number; /* 0 = empty */
        uint32_t instance;
    } at[SESSIONS_MAX];
};

/* Returns the pool id of a session's last instance; POOL_NO_INSTANCE = unknown,
 * or number 0. `all` may be NULL. */
uint32_t sessions_find(const struct sessions *all, uint64_t number);

/* Notes the last instance of a session; no-op for number 0. Creates the table
 * at the first call; no-op if memory runs out. */
void sessions_note(struct sessions **all, uint64_t number, uint32_t instance);

#endif
